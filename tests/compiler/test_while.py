"""Loops that end by a condition: every trajectory has its own number of iterations."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmech.compiler import explain, vectorize

SIZES = (1, 2, 15, 16, 17, 70)
CAP = 90


def collatz(n: Any) -> Any:
    """Steps of the 3n + 1 problem down to 1, up to 90: known numbers, 0 for n = 1."""

    def step(carry: Any) -> Any:
        m, count = carry
        return jnp.where(m % 2 == 0, m // 2, 3 * m + 1), count + 1

    return lax.while_loop(lambda c: (c[0] != 1) & (c[1] < CAP), step, (n, 0))


def square_root(x: Any) -> Any:
    """Newton's iteration from above until it no longer falls, which NaN ends at once."""

    def step(carry: Any) -> Any:
        y, _, count = carry
        return (y + x / y) / 2, y, count + 1

    start = jnp.maximum(x, 1.0)
    return lax.while_loop(lambda c: (c[0] < c[1]) & (c[2] < 60), step, (start, start + 1.0, 0))


def in_a_scan(x: Any) -> Any:
    """Some iterations, often none, before each of 20 marks, with one carry for all."""

    def until(carry: Any, mark: Any) -> Any:
        carry = lax.while_loop(
            lambda c: c[0] < mark, lambda c: (c[0] + 0.1 + 0.3 * jnp.sin(x) ** 2, c[1] + 1), carry
        )
        return carry, carry

    return lax.scan(until, (jnp.abs(x), 0), jnp.linspace(0.1, 5.0, 20))


def with_a_cond(x: Any) -> Any:
    """A rare case inside, which has a loop of its own."""

    def step(carry: Any) -> Any:
        y, count = carry
        far = lax.cond(
            y > 2.0,
            lambda: lax.while_loop(lambda z: z < 5.0, lambda z: z + jnp.sin(z) ** 2 + 0.1, y),
            lambda: y + 0.25,
        )
        return far, count + 1

    return lax.while_loop(lambda c: c[0] < 4.0, step, (x, 0))


def twice(x: Any) -> Any:
    """A loop in a loop, both of different length in every trajectory."""

    def outer(carry: Any) -> Any:
        y, k = carry
        z, _ = lax.while_loop(
            lambda c: (c[0] < k) & (c[1] < 9),
            lambda c: (c[0] + 0.3 * jnp.abs(x) + 0.05, c[1] + 1),
            (0.0 * y, 0),
        )
        return y + z, k + 1

    return lax.while_loop(lambda c: c[1] < 4.0 * jnp.abs(x), outer, (x, 0))


LOOPS: dict[str, Callable[[Any], Any]] = {
    "square root": square_root,
    "in a scan": in_a_scan,
    "with a cond": with_a_cond,
    "twice": twice,
}


def starts(size: int) -> np.ndarray:
    """Numbers that need from 0 to many iterations in neighbouring lanes; the third is NaN."""
    x = np.random.default_rng(0).uniform(0.0, 6.0, 70)
    x[2] = np.nan
    return x[:size]


@pytest.fixture(scope="module", params=LOOPS)
def both(request: pytest.FixtureRequest) -> tuple[Callable[[Any], Any], Any]:
    """A loop as lanes, and its results for all starts by `jax.vmap`."""
    fn = LOOPS[request.param]
    assert "plain vmap" not in repr(explain(fn, starts(5)))
    return jax.jit(vectorize(fn)), jax.jit(jax.vmap(fn))(starts(70))


def test_any_size_of_a_batch(both: Any) -> None:
    run, expected = both
    for size in SIZES:
        for x, y in zip(jax.tree.leaves(run(starts(size))), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(x, y[:size], rtol=1e-14)


def test_a_trajectory_has_the_same_bits_alone_and_in_any_batch(both: Any) -> None:
    run, _ = both
    x = starts(70)
    whole = run(x)
    for turned, places in ((run(x[::-1]), np.arange(70)[::-1]), (run(x[5:6]), np.array([5]))):
        for a, b in zip(jax.tree.leaves(turned), jax.tree.leaves(whole), strict=True):
            np.testing.assert_array_equal(a, np.asarray(b)[places])


def test_numbers_of_iterations_up_to_a_cap() -> None:
    n = jnp.array([1, 2, 3, 6, 7, 9, 25, 27, 97])  # 27 would need 111, 97 118
    end, count = jax.jit(vectorize(collatz))(n)
    np.testing.assert_array_equal(count, [0, 1, 7, 8, 16, 19, 23, CAP, CAP])
    np.testing.assert_array_equal(end[:-2], 1)
    assert (end[-2:] > 1).all()


def test_a_loop_on_the_other_side_of_a_cond_may_be_endless() -> None:
    """A loop in a branch that is not taken does not run; plain `jax.vmap` would not return."""

    def fn(x: Any) -> Any:
        return lax.cond(x > 0, lambda: grown(x), lambda: x)

    def grown(x: Any) -> Any:
        return lax.while_loop(lambda y: y < 3, partial(jnp.add, x), x)

    def inside(x: Any) -> Any:
        return lax.cond(x > 0, lambda: lax.cond(x < 2, lambda: grown(x), lambda: x), lambda: x)

    x = jnp.array([1.0, -1.0, 0.0, 2.5, -3.0])
    np.testing.assert_array_equal(jax.jit(vectorize(fn))(x), [3.0, -1.0, 0.0, 5.0, -3.0])
    np.testing.assert_array_equal(jax.jit(vectorize(inside))(x), [3.0, -1.0, 0.0, 2.5, -3.0])


def test_finished_trajectories_keep_their_carry() -> None:
    """The carry of a finished trajectory stays, though another iteration would make it NaN."""

    def fn(x: Any) -> Any:
        return lax.while_loop(lambda y: y > 0.01, lambda y: 0.09 * jnp.sqrt(y - 0.01), x)

    x = jnp.array([0.0, 0.005, 1.0, 100.0])
    found = np.asarray(jax.jit(vectorize(fn))(x))
    np.testing.assert_allclose(found, jax.vmap(fn)(x), rtol=1e-13)
    np.testing.assert_array_equal(found[:2], x[:2])


def test_products_with_zero_that_may_be_nan() -> None:
    """A NaN of an iteration is not a result in trajectories without iterations."""

    def fn(x: Any, k: Any) -> Any:
        bad = jnp.log(x)
        y, _ = lax.while_loop(lambda c: c[1] < k, lambda c: (c[0] + bad, c[1] + 1), (1.0, 0))
        return y, 0.0 * bad + 2.0

    x, k = jnp.array([1.0, -1.0, -1.0, 2.0]), jnp.array([0, 0, 2, 3])
    found = jax.jit(vectorize(fn))(x, k)
    for a, b in zip(found, jax.vmap(fn)(x, k), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
    assert np.isnan(found[1][1])


def test_forward_derivatives() -> None:
    def slope(x: Any) -> Any:
        return jax.jvp(lambda x: square_root(x)[0], (x,), (1.0,))[1]

    x = jnp.array([0.5, 2.0, 9.0, 1e4])
    np.testing.assert_allclose(jax.jit(vectorize(slope))(x), 0.5 / jnp.sqrt(x), rtol=1e-12)
