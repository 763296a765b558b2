"""Compiled programs do not pile up, however many systems a process makes."""

import gc
import weakref
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxmech.compiler import off
from jaxmech.utils.jit_cache import _BRIEF, _FRAMES, KEPT, UNOPTIMIZED, jit_of


class Factor:
    """A static argument: hashed by identity, as the functions of a system are."""

    def __init__(self, value: float) -> None:
        self.value = value


def test_programs_of_the_last_static_arguments_are_kept() -> None:
    traced = []

    @jit_of("factor")
    def scaled(factor: Factor, x: jnp.ndarray) -> jnp.ndarray:
        traced.append(factor.value)
        return factor.value * x

    first, last = Factor(-1.0), Factor(-2.0)
    gone = weakref.ref(first)
    for factor in (first, *map(Factor, range(KEPT - 1)), last):
        assert scaled(factor, jnp.asarray(2.0)) == 2 * factor.value
    assert len(traced) == KEPT + 1
    assert scaled(last, jnp.asarray(3.0)) == -6.0
    assert len(traced) == KEPT + 1
    del first, factor
    gc.collect()
    assert gone() is None


@jit_of("count", is_frame=True)
def raised(count: int, x: jax.Array) -> jax.Array:
    """x^count, in a loop if the count is large."""
    if count < 9:
        return x**count
    return jax.lax.fori_loop(0, count, lambda _, y: x * y, jnp.ones_like(x))


def decisions() -> Counter[str]:
    """How often each program of a frame was chosen."""
    names = ("optimized", "unoptimized")
    return Counter(
        name
        for frame in _FRAMES
        for program in frame.chosen.values()
        for name in names
        if program is getattr(frame, name)
    )


def test_xla_optimizes_a_loop_and_parts_of_other_programs() -> None:
    before = decisions()
    x = jnp.asarray(2.0)
    assert raised(3, x) == jax.jit(lambda x: raised(3, x))(x) == 8.0
    assert raised(10, x) == 1024.0
    assert jax.vmap(lambda x: raised(3, x))(x[None]) == 8.0
    assert jax.grad(lambda x: raised(3, x))(x) == 12.0
    with jax.disable_jit():
        assert raised(3, x) == 8.0
    assert decisions() - before == Counter(["optimized", "unoptimized"])
    with off():
        assert not decisions()


@jit_of("heights", is_frame=True)
def steepest(heights: tuple[float, ...], x: jax.Array) -> jax.Array:
    """Slope of the largest of the sums h x[0] + x[1], which are used twice: for the maximum too."""
    return jax.grad(lambda x: (jnp.array(heights) * x[0] + x[1]).max())(x)


def test_numbers_that_are_used_twice_are_rounded_alike() -> None:
    before = decisions()
    heights = (0.1, -0.7, 1.3)
    for x in np.random.default_rng(1).normal(size=(30, 2)):
        expected = max(heights) if x[0] > 0 else min(heights)
        np.testing.assert_array_equal(steepest(heights, jnp.asarray(x)), [expected, 1.0])
    assert decisions() - before == Counter(["unoptimized"])


def test_functions_that_close_over_traced_values_are_optimized() -> None:
    def slope(k: jax.Array) -> jax.Array:
        @jit_of(is_frame=True)
        def scaled(x: jax.Array) -> jax.Array:
            return k * x**2

        return scaled(jnp.asarray(3.0))

    assert jax.grad(slope)(2.0) == 9.0
    assert jax.vmap(slope)(jnp.arange(2.0)).tolist() == [0.0, 9.0]
    assert jax.jit(jax.grad(slope))(2.0) == 9.0


@pytest.mark.parametrize("options", [UNOPTIMIZED, _BRIEF], ids=["unoptimized", "brief"])
def test_products_of_transposed_matrices(options: dict[str, Any]) -> None:
    """jaxlib 0.9 took the transposed factor for the factor, where it did not fuse operations."""
    rng = np.random.default_rng(0)

    def products(a: Array, b: Array) -> tuple[Array, ...]:
        of_rows = jnp.matmul(a, jnp.swapaxes(b[..., 1:, 1:], -1, -2))
        return of_rows, jnp.einsum("...ij,...kj->...ki", a, a), jnp.swapaxes(of_rows, 0, -1)

    for batch in ((), (1,), (3,), (1, 2)):
        a, b = rng.normal(size=(*batch, 2, 3)), rng.normal(size=(*batch, 5, 4))
        compiled = jax.jit(products, compiler_options=options)(a, b)
        for value, expected in zip(compiled, products(a, b), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)

    @jit_of(is_frame=True)
    def frame(a: Array, b: Array) -> tuple[Array, ...]:
        return products(2.0 * a, b)

    for value, expected in zip(frame(a, b), products(2.0 * a, b), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
