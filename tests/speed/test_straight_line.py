"""C from a scalar graph agrees with JAX, and unsupported operations are reported."""

import shutil
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from experiments.speed import straight_line as route
from experiments.speed.c_source import source
from experiments.speed.cases import make
from experiments.speed.jax_routes import end_of_simulation
from experiments.speed.routes import Unavailable
from jaxmech.compiler.frontend.build import Kernel, function_kernel

Function = Callable[[Array, Array], tuple[Array, Array]]

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
draw = np.random.default_rng(3)
X, Y = draw.uniform(-2, 2, (37, 3)), draw.uniform(-2, 2, (37, 2))  # no whole number of vectors


def kernel(fn: Function) -> Kernel:
    return function_kernel(jax.make_jaxpr(fn)(X[0], Y[0]))


def assert_same(fn: Function, x: np.ndarray = X, y: np.ndarray = Y, copies: int = 1) -> None:
    outs = [out.size for out in jax.eval_shape(fn, x[0], y[0])]
    results = route.compiled(source(kernel(fn), copies), outs)([x, y], 2)
    expected = jax.jit(jax.vmap(fn))(x, y)
    for result, exact in zip(results, expected, strict=True):
        assert result.shape == exact.shape
        np.testing.assert_allclose(result, exact, rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(exact))


def loops(x: Array, y: Array) -> tuple[Array, Array]:
    """Loops in a loop, carries that change places, and a count of the iterations."""

    def inner(_: Array, carry: Any) -> Any:
        a, b, count = carry
        return b + 0.1, 0.9 * a + x[2] * y[0] / count, count + 2

    def outer(k: Array, carry: Any) -> Any:
        a, b, c = carry
        a, b, count = lax.fori_loop(0, 10, inner, (a, b, k + 1))
        return jnp.sin(b), c, a / count

    out = jnp.stack(lax.fori_loop(0, 12, outer, (x[0], y[1], x[2])))
    return out, jnp.stack([out[0], y[0]])


def branches(x: Array, y: Array) -> tuple[Array, Array]:
    """Rare cases of a value that all groups of trajectories meet and of one that none meets."""

    def much(z: Array) -> Array:
        return jnp.sin(z) * jnp.cos(2 * z) + z[0] / jnp.sqrt(1 + z * z)

    def turn(k: Array, z: Array) -> Array:
        return lax.cond(z[0] > y[0], lambda: 0.5 * much(z) + 0.1 * much(x), lambda: 0.9 * z)

    some = lax.fori_loop(0, 12, turn, x)
    return some, lax.cond(y[0] > 3, lambda: much(y), lambda: y)


def operations(x: Array, y: Array) -> tuple[Array, Array]:
    """All operations that graphs of mechanisms contain."""
    a, b, c = x
    numbers = [
        jnp.sin(30 * a), jnp.cos(30 * b), jnp.sin(1e7 * a), jnp.cos(a), jnp.sin(a),
        jnp.sqrt(jnp.abs(c)), a**3, 1 / b**2, jnp.maximum(a, b), jnp.minimum(a, 0.5),
        jnp.clip(a, b, 1.0), -a, jnp.where(a > 0.0, jnp.inf, -jnp.inf),
    ]  # fmt: skip
    less, more = a < b, c > 0.5
    truths = [
        less, ~less, less & more, less | more, jnp.isfinite(a / b), jnp.isnan(a), a != b,
        *(op(a, b) for op in (lax.lt, lax.le, lax.gt, lax.ge, lax.eq)), c.astype(bool),
    ]  # fmt: skip
    count = less.astype(int) + 1
    integers = [count, jnp.where(more, count, 5), count < 2, count == 2, more.astype(int) + count]
    both = [jnp.asarray(value, float) for value in truths + integers]
    return jnp.stack(numbers), jnp.stack(both)


@needs_compiler
@pytest.mark.parametrize(
    ("fn", "copies"), [(loops, 1), (loops, 3), (branches, 1), (branches, 2), (operations, 1)]
)
def test_c_computes_what_jax_computes(fn: Function, copies: int) -> None:
    assert_same(fn, copies=copies)


@needs_compiler
def test_nan_and_signs_of_zero() -> None:
    def fn(x: Array, y: Array) -> tuple[Array, Array]:
        a, b, c = x
        both = jnp.stack([jnp.maximum(a, b), jnp.minimum(a, b), jnp.abs(a), -a])
        none = jnp.where(jnp.isfinite(x), x, jnp.nan)
        zero = jnp.where(c > 0.0, -0.0, a)
        return jnp.concatenate([both, none, zero[None]]), y

    odd = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan])
    grid = np.stack(np.meshgrid(odd, odd, [1.0, -1.0]), axis=-1).reshape(-1, 3)
    # The larger of two zeros and the sign of a NaN are unspecified.
    grid = grid[~((grid[:, 0] == 0) & (grid[:, 1] == 0))]
    assert_same(lambda x, y: tuple(map(_without_sign_of_nan, fn(x, y))), grid, grid[:, :2])


def _without_sign_of_nan(x: Array) -> Array:
    return jnp.where(jnp.isnan(x), jnp.nan, x)


@needs_compiler
def test_the_freedoms_of_the_compiler_spare_angles_and_tests_of_finiteness() -> None:
    def fn(x: Array, y: Array) -> tuple[Array, Array]:
        finite = jnp.isfinite(x) & ~jnp.isnan(x - x)
        return jnp.concatenate([jnp.sin(x), jnp.cos(x), finite.astype(float)]), jnp.max(y)[None]

    x = np.concatenate([1e6 * X, [[np.inf, -np.inf, np.nan]]])
    y = np.concatenate([Y, [[np.nan, 1.0]]])
    results = route.compiled(source(kernel(fn)), [9, 1])([x, y], 1)
    for result, exact in zip(results, jax.jit(jax.vmap(fn))(x, y), strict=True):
        np.testing.assert_allclose(result, exact, rtol=0, atol=3e-16)


@needs_compiler
@pytest.mark.parametrize("size", [1, 8, 100])
def test_a_batch_of_any_size_on_any_number_of_threads(size: int) -> None:
    program = route.compiled(source(kernel(lambda x, y: (x * y[0], y)), 2), [3, 2])
    x, y = draw.normal(size=(size, 3)), draw.normal(size=(size, 2))
    for threads in (1, 3):
        results = program([x, y], threads)
        np.testing.assert_array_equal(results[0], x * y[:, :1])
        np.testing.assert_array_equal(results[1], y)


@pytest.mark.slow
@needs_compiler
def test_the_route_reaches_the_states_of_simulate() -> None:
    case = make("pendulum", batch=50, steps=20, step_size=5e-3)
    start = {"theta": np.linspace(-3.0, 3.0, 50), "omega": np.linspace(5.0, -2.0, 50)}
    q0, v0 = map(np.asarray, jax.vmap(case.model.initial)(start))
    prepared = route.straight_line(case, q0, v0)
    run = jax.vmap(end_of_simulation(case, None), in_axes=(0, 0, None))
    expected = jax.jit(run)(q0, v0, case.model.params)
    assert prepared.compile_seconds > 0
    for result, exact in zip(prepared.run(), expected, strict=True):
        np.testing.assert_allclose(result, exact, rtol=0, atol=1e-11 * np.abs(exact).max())


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x, y: (lax.lgamma(x), y), "the operation `lgamma` of float64"),
        (lambda x, y: (x.astype(jnp.float32).astype(float), y), "numbers of type float32"),
        (lambda x, y: (jnp.isfinite(x), y), "results that are not float64"),
        (
            lambda x, y: (lax.scan(lambda c, _: (c + x[0], c), x[1], length=20)[1], y),
            "a whole sequence as an argument or a result",
        ),
        (
            lambda x, y: (lax.scan(lambda c, k: (c * k, None), x, jnp.arange(20.0))[0], y),
            "a loop over",
        ),
        (
            lambda x, y: (lax.while_loop(lambda c: c[0] < 3, lambda c: c + 1, x), y),
            "by a condition",
        ),
        (
            lambda x, y: (lax.select_n(jnp.int32(x[0] > 0) + jnp.int32(y[0] > 0), x, -x, 2 * x), y),
            "a choice",
        ),
    ],
)
def test_operations_without_c_are_named(fn: Function, reason: str) -> None:
    with pytest.raises(Unavailable, match=reason):
        source(kernel(fn))


def test_without_a_compiler_it_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match="no C compiler"):
        route.compiled("", [])


@needs_compiler
def test_compiler_messages_are_passed_on() -> None:
    with pytest.raises(Unavailable, match=r"the C compiler failed: .*error: .*nonsense"):
        route.compiled("int run() { return nonsense; }", [])
