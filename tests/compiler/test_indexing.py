"""Gathers, scatters and dynamic slices at computed indices, in and out of bounds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmech.compiler import NativeCodeWarning, explain, vectorize

N = 5
PLACES = np.array([-100, -7, -6, -5, -4, -1, 0, 1, 3, 4, 5, 6, 7, 100])
X = np.random.default_rng(0).normal(size=(len(PLACES), N, N))
TABLE = np.linspace(-1.0, 1.0, 12) ** 3
WINDOW = lax.GatherDimensionNumbers((0, 1), (), (0, 1))

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "element": lambda x, k: x[k, 2],
    "elements": lambda x, k: x[2, jnp.stack([k, 2 * k, 1])],
    "row": lambda x, k: x[k],
    "two": lambda x, k: x[k, k - 1],
    "one fixed": lambda x, k: x[3, k],
    "unsigned": lambda x, k: x[0][k.astype(jnp.uint32)],
    "clip": lambda x, k: x.at[k].get(mode="clip"),
    "fill": lambda x, k: x.at[k].get(mode="fill", fill_value=7.0),
    "integers": lambda x, k: jnp.arange(N)[k],
    "booleans": lambda x, k: (x > 0).at[0, k].get(mode="fill"),
    "bounded": lambda x, k: x.at[jnp.clip(k, 0, 3)].get(mode="promise_in_bounds"),
    "take_along_axis": lambda x, k: jnp.take_along_axis(x, jnp.argmin(x, 1, keepdims=True), 1),
    "slice": lambda x, k: lax.dynamic_slice(x, (k, 1), (2, 3)),
    "slice of two": lambda x, k: lax.dynamic_slice(x, (k, k + 1), (2, 3)),
    "window": lambda x, k: lax.gather(x, jnp.stack([k, k + 2]), WINDOW, (1, 2)),
    "update": lambda x, k: lax.dynamic_update_slice(x, x[:2, :2] ** 2, (k, 1)),
    "set": lambda x, k: x.at[k].set(x[0] ** 2),
    "set clipped": lambda x, k: x.at[k, 1].set(3.0, mode="clip"),
    "set twice": lambda x, k: x.at[jnp.stack([k, 1]), 0].set(jnp.stack([x[0, 0], x[1, 1]])),
    "add twice": lambda x, k: x.at[jnp.stack([k, 1]), 0].add(jnp.stack([x[0, 0], x[1, 1]])),
    "set at fixed places": lambda x, k: x.at[np.array([1, 1, 9])].set(x[:3] + k),
    "add at fixed places": lambda x, k: x.at[np.array([1, 1, 9])].add(x[:3] * k),
    "add within fixed bounds": lambda x, k: x.at[[4, 9], [2, 2]].add(x[0, :2] * k, mode="clip"),
    "out of fixed bounds": lambda x, k: x.at[np.array([1, 9])].get(mode="fill") + k,
    "table": lambda x, k: jnp.interp(x[0, 0], np.linspace(-1.0, 1.0, 12), TABLE),
    "table of rows": lambda x, k: jnp.asarray(X[:, 0])[k],
    "table of integers": lambda x, k: (jnp.arange(12) ** 2)[k] + jnp.arange(12)[::-1][k],
    "table of truths": lambda x, k: jnp.asarray(TABLE > 0.5)[k],
    "two tables": lambda x, k: jnp.asarray(X[0])[k, k + 1] + jnp.asarray(X[1])[1, k],
    "long table": lambda x, k: jnp.asarray(np.sin(np.arange(5000.0)))[47 * k],
    "side of a table": lambda x, k: jnp.searchsorted(TABLE, x[0], side="right"),
    "search for NaN": lambda x, k: jnp.searchsorted(TABLE, jnp.log(x[0])),
    "in a loop": lambda x, k: lax.fori_loop(0, 20, lambda i, y: y.at[i % N].add(y[(i + k) % N]), x),
}


def agree(fn: Callable[[Any, Any], Any], *, native: bool = True) -> None:
    told = repr(explain(fn, X, PLACES))
    assert ("plain vmap" not in told) == native, told
    mine, plain = jax.jit(vectorize(fn))(X, PLACES), jax.vmap(fn)(X, PLACES)
    np.testing.assert_allclose(mine, plain, rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize("name", CASES)
def test_agrees(name: str) -> None:
    agree(CASES[name])


@pytest.mark.parametrize("name", ["two", "fill", "slice", "update", "set", "add twice", "table"])
def test_gradient(name: str) -> None:
    agree(jax.grad(lambda x, k: jnp.sum(jnp.sin(x) * CASES[name](jnp.cos(x), k).sum())))


def test_nan_elsewhere_in_the_array_has_no_effect() -> None:
    x = X.copy()
    x[:, 1] = np.nan
    found = jax.jit(vectorize(lambda x, k: x[k]))(x, PLACES)
    np.testing.assert_array_equal(found, jax.vmap(lambda x, k: x[k])(x, PLACES))


def test_a_large_table_is_left_to_xla() -> None:
    table = np.sin(np.arange(300_000.0))
    with pytest.warns(NativeCodeWarning, match="because of a constant of 300000 numbers"):
        agree(lambda x, k: jnp.asarray(table)[900 * k] + x[0], native=False)


UNSIGNED: dict[str, Callable[[Any, Any], Any]] = {
    "order": lambda a, b: jnp.stack([a < b, a <= b, a > b, a >= b]),
    "extremes": lambda a, b: jnp.stack([jnp.maximum(a, b), jnp.minimum(a, b)]),
    "to float": lambda a, b: a.astype(float) + b.astype(jnp.float32),
    "to integer": lambda a, b: a.astype(int) - b.astype(jnp.int32),
    "from float": lambda a, b: (a.astype(float) - 1e9).astype(jnp.uint32) + b,
}


@pytest.mark.parametrize("name", UNSIGNED)
def test_unsigned_integers(name: str) -> None:
    a = np.array([0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1, 5, 0], np.uint32)
    for b in (a[::-1], np.roll(a, 1)):
        found = jax.jit(vectorize(UNSIGNED[name]))(a, b)
        assert "plain vmap" not in repr(explain(UNSIGNED[name], a, b))
        np.testing.assert_array_equal(found, jax.vmap(UNSIGNED[name])(a, b))


def test_order_of_booleans() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    found = jax.jit(vectorize(UNSIGNED["order"]))(a, b)
    np.testing.assert_array_equal(found, jax.vmap(UNSIGNED["order"])(a, b))
