"""Long code is cut into pieces, equal pieces are compiled once, and the results stay the same."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from jaxmech.compiler.backends import cpu as program
from jaxmech.compiler.backends.cpu import Kind, Source
from jaxmech.compiler.backends.llvm import lower
from jaxmech.compiler.frontend.build import Kernel, function_kernel
from jaxmech.compiler.ir import pieces
from jaxmech.compiler.vectorize import vectorize

STATES = jnp.linspace(0.2, 1.4, 33 * 3).reshape(33, 3)


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut all code, into pieces of a few operations."""
    monkeypatch.setattr(program, "LARGEST_FUNCTION", -1)
    monkeypatch.setattr(lower, "SHORTEST", 6)
    monkeypatch.setattr(pieces, "NEIGHBORS", 4)
    monkeypatch.setattr(pieces, "RECENT", 16)


def rate(x: Array) -> Array:
    """Operations that are repeated in every stage."""
    y = jnp.sin(x) * jnp.roll(x, 1) + jnp.cos(x) / (2.0 + x * x)
    return y - jnp.dot(y, x) * jnp.roll(y, 1) / (1.0 + jnp.dot(x, x))


def motion(x: Array) -> tuple[Array, Array]:
    """Steps of four stages, a rare case with long code, and a loop over saved numbers."""

    def step(x: Array, k: Array) -> tuple[Array, Array]:
        for _ in range(4):
            x = x + 0.01 * rate(x)
        x = jax.lax.cond(x[0] > 1.3, lambda x: rate(rate(x)) * rate(x + k), lambda x: x, x)
        return x, x * k

    end, saved = jax.lax.scan(step, x, jnp.linspace(0.5, 1.5, 40))
    return end, saved[-1]


def slope(x: Array) -> Array:
    return jax.grad(lambda x: motion(x)[0].sum())(x)


def until(x: Array) -> Array:
    return jax.lax.while_loop(lambda x: x.sum() < 9.0, lambda x: x + 0.1 + rate(x) ** 2, x)


def kernel(fn: Callable[[Array], Any]) -> Kernel:
    return function_kernel(jax.make_jaxpr(fn)(STATES[0]))


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("fn", [motion, slope, until])
def test_results_are_those_of_jax_and_the_same_alone(fn: Callable[[Array], Any]) -> None:
    native = vectorize(fn)
    batch, alone = native(STATES), native(STATES[20:21])
    for ours, single, expected in zip(
        jax.tree.leaves(batch),
        jax.tree.leaves(alone),
        jax.tree.leaves(jax.vmap(fn)(STATES)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)
        np.testing.assert_array_equal(ours[20:21], single)


def test_pieces_do_not_change_a_bit(request: pytest.FixtureRequest) -> None:
    whole = jax.tree.leaves(vectorize(motion)(STATES))
    request.getfixturevalue("short_pieces")
    cut = jax.tree.leaves(vectorize(motion)(STATES))
    for ours, expected in zip(cut, whole, strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_equal_pieces_are_written_once(short_pieces: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def stages(x: Array) -> Array:
        for _ in range(10):
            x = x + 0.01 * rate(x)
        return x

    def lines() -> str:
        return Source(kernel(stages), frozenset({0}), Kind.ONE).module(should_optimize=True)[1]

    cut = lines()
    monkeypatch.setattr(program, "LARGEST_FUNCTION", 10**6)
    whole = lines()
    products = " = fmul double"
    assert "call void @piece" not in whole
    assert cut.count("call void @piece") >= 2 * cut.count("define internal void @piece") > 0
    assert cut.count(products) < whole.count(products) / 3


def test_numbers_that_a_loop_scans_and_that_do_not_change_are_folded() -> None:
    def fn(x: Array) -> Array:
        rows = jnp.stack([jnp.stack([x[k % 3], 0.0 * x[0], x[0]]) for k in range(40)])

        def turn(y: Array, row: Array) -> tuple[Array, None]:
            return y + row[0] * y + row[2] * row[2], None

        return jax.lax.scan(turn, x, rows)[0]

    (loop,) = kernel(fn).reader.loops
    elements = {node.params[1] for node in loop.body.nodes if node.op == "element"}
    assert elements == {0}
    np.testing.assert_allclose(vectorize(fn)(STATES), jax.vmap(fn)(STATES), rtol=1e-12)
