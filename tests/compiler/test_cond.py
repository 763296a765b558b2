"""Long sides of a `cond` run only where they are needed; others stay branches of the code."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmech.compiler import batched
from jaxmech.compiler.frontend.build import Kernel, function_kernel
from jaxmech.compiler.frontend.jaxprs import LONG_SIDE

COUNT = LONG_SIDE // 2  # terms of two operations each, so that a side is just long
BATCHES = {
    "both sides": np.linspace(-0.9, 0.9, 11),
    "one side": np.linspace(0.1, 0.9, 11),
    "the other side": np.linspace(-0.9, -0.1, 11),
}


def series(x: Any, last: float, count: int = COUNT) -> Any:
    """The polynomial last x^count + x^(count - 1) + ... + x + 1."""
    y = last
    for _ in range(count):
        y = y * x + 1.0
    return y


def long_sides(x: Any) -> Any:
    """Two long sides, which become loops that run at most once."""
    return lax.cond(x > 0, lambda: series(x, 2.0), lambda: 3.0 * series(x, -1.0))


def nested(x: Any) -> Any:
    """A rare long side with such a `cond` inside."""
    return lax.cond(x > -0.5, lambda: long_sides(x - 0.05) + series(x, 1.0), lambda: x)


def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values and slopes of `long_sides`."""
    last, factor = np.where(x > 0, 2.0, -1.0), np.where(x > 0, 1.0, 3.0)
    tail, rest = x**COUNT, 1 - x
    slope = (1 - tail) / rest**2 + COUNT * x ** (COUNT - 1) * (last - 1 / rest)
    return factor * (last * tail + (1 - tail) / rest), factor * slope


def kernel_of(fn: Callable[..., Any], *args: Any) -> Kernel:
    return function_kernel(jax.make_jaxpr(fn)(*args))


@pytest.fixture(scope="module")
def compiled() -> Callable[[Any], Any]:
    """Values and slopes of a batch, compiled once for all tests."""
    return jax.jit(jax.vmap(jax.value_and_grad(batched(long_sides))))


@pytest.mark.parametrize("name", BATCHES)
def test_a_long_cond_has_the_values_and_derivatives_of_its_sides(
    name: str, compiled: Callable[[Any], Any]
) -> None:
    values, slopes = compiled(BATCHES[name])
    exact, slope = expected(BATCHES[name])
    np.testing.assert_allclose(values, exact, rtol=1e-13)
    np.testing.assert_allclose(slopes, slope, rtol=1e-12)


def test_a_long_cond_within_a_rare_side_and_a_grid_of_trajectories() -> None:
    x = np.linspace(-0.9, 0.9, 12)
    values = jax.jit(jax.vmap(jax.vmap(batched(nested))))(x.reshape(3, 4))
    inner = expected(x - 0.05)[0] + (1 - x ** (COUNT + 1)) / (1 - x)
    np.testing.assert_allclose(values.ravel(), np.where(x > -0.5, inner, x), rtol=1e-13)


def test_long_sides_are_loops_that_run_at_most_once() -> None:
    kernel = kernel_of(long_sides, 1.0)
    assert [loop.is_branch for loop in kernel.reader.loops] == [True, True]
    assert [len(part.body.nodes) > LONG_SIDE for part in kernel.live.loops.values()] == [True] * 2
    # A trajectory usually executes the side for which the predicate is false, so that counts alone.
    assert [loop.is_rare for loop in kernel.reader.loops] == [False, True]
    assert LONG_SIDE <= kernel.operations < LONG_SIDE + 10
    assert not kernel.has_while


def rarely(x: Any) -> Any:
    """Steps with a `while` that runs at most once, which alone reads and changes a part of them."""

    def step(k: Any, carry: Any) -> Any:
        y, kept = carry

        def once(inside: Any) -> Any:
            _, z, kept = inside
            z = series(z, 0.1 * k, 20)
            return False, z / (1 + z * z), kept[::-1] + z * y

        z = 0.9 * y + 0.1
        return lax.while_loop(lambda inside: inside[0], once, (z > 0.7, z, kept))[1:]

    return lax.fori_loop(0, 50, step, (x, x + jnp.arange(3.0)))


def test_a_rare_while_keeps_in_memory_what_it_alone_changes() -> None:
    kernel = kernel_of(rarely, 1.0)
    ((loop,), (part,)) = kernel.reader.loops, kernel.live.loops.values()
    assert [inner.is_rare for inner in loop.inner] == [True]
    assert len(part.in_memory) == 3
    assert kernel.operations < 10
    x = np.linspace(-0.9, 0.9, 11)
    for found, wanted in zip(
        jax.jit(jax.vmap(batched(rarely)))(x), jax.vmap(rarely)(x), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


SIDES = {
    "short": lambda x: series(x, 2.0, 20),
    "long": lambda x: series(x, 2.0),
    "long, with a rare side": lambda x: lax.cond(x > 2, lambda: series(x, 2.0), lambda: x),
    "long, with a loop": lambda x: series(lax.fori_loop(0, 3, lambda k, y: y * x, x), 2.0),
}


@pytest.mark.parametrize("name", SIDES)
def test_a_rare_side_is_a_branch_that_adds_nothing_to_the_other(name: str) -> None:
    """A step with such a side must cost what it costs without: one comparison more."""

    def step(y: Any, has_side: bool) -> Any:
        z = jnp.sin(y) + 1.0
        return lax.cond(z > 1.9, lambda: SIDES[name](z), lambda: z) if has_side else z

    def run(x: Any, has_side: bool) -> Any:
        return lax.fori_loop(0, 20, lambda k, y: step(y, has_side), x)

    with_side, without = (kernel_of(lambda x, f=f: run(x, f), 1.0) for f in (True, False))
    (loop,) = with_side.reader.loops
    (part,) = with_side.live.loops.values()
    assert loop.inner == []
    assert len(part.body.branches) == 1
    assert with_side.executed - without.executed == 20 * 2  # the comparison and the select
