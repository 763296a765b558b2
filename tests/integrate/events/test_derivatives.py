"""Derivatives of the times and states of events, and of states after them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm
from tests.integrate.events.falling import BALL, BALL_PARAMS, BOUNCE, DROPPED, TOP

TS = jnp.linspace(0.0, 2.0, 9)


def seen(e: Any, g: Any, height: Any) -> Array:
    """Times and states of events, and states at saved times, of a bouncing ball."""
    p = {**BALL_PARAMS, "e": e, "g": g}
    q0 = jnp.stack([jnp.zeros_like(height), height])
    sol = jm.simulate(BALL, q0, DROPPED[1], TS, p, steps=jm.FixedSteps(4), events=(BOUNCE, TOP))
    at = sol.events["bounce"]
    parts = at.t[:3], at.q[1], at.v_after[2], sol.events["top"].t[:2], sol.q[4], sol.v[-1]
    return jnp.concatenate(parts)


AT = (jnp.asarray(0.9), jnp.asarray(9.81), jnp.asarray(1.0))
ALL = (0, 1, 2)


@pytest.fixture(scope="module")
def reverse() -> Any:
    return jax.jacrev(seen, ALL)(*AT)


@pytest.mark.slow
def test_reverse_mode_agrees_with_differences(reverse: Any) -> None:
    for k, slope in enumerate(reverse):
        step = 1e-5 * AT[k]
        ends = [seen(*(x + sign * step * (j == k) for j, x in enumerate(AT))) for sign in (1, -1)]
        differences = (ends[0] - ends[1]) / (2 * step)
        scale = np.abs(differences).max()
        np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-8 * scale)


@pytest.mark.slow
def test_forward_mode_agrees_with_reverse_mode(reverse: Any) -> None:
    along = tuple(map(jnp.asarray, (0.3, -2.0, 0.7)))
    _, found = jax.jvp(seen, AT, along)
    expected = sum(slope * x for slope, x in zip(reverse, along, strict=True))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_second_derivatives_are_those_of_the_closed_form() -> None:
    def height(x: Array, exactly: bool = False) -> Array:
        """At the end, after two bounces."""
        e, start = x
        p = {"g": jnp.asarray(9.0), "e": e}
        if exactly:
            first = jnp.sqrt(2 * start / 9.0)
            left = 2.0 - first * (1 + 2 * e)
            return e**2 * 9.0 * first * left - 9.0 / 2 * left**2
        q0 = jnp.stack([0 * start, start])
        sol = jm.simulate(BALL, q0, DROPPED[1], TS, p, steps=jm.FixedSteps(2), events=BOUNCE)
        return sol.q[-1, 1]

    x = jnp.array([0.9, 1.2])
    found = jax.jacfwd(jax.grad(height))(x)
    expected = jax.hessian(lambda x: height(x, exactly=True))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_derivatives_through_more_events_than_are_kept_are_nan() -> None:
    def end(height: Array, rate: float) -> Array:
        ticks = jm.Event(lambda q, v, t, p: jnp.sin(rate * t), name="ticks")
        q0 = jnp.stack([0 * height, height])
        sol = jm.simulate(
            BALL, q0, DROPPED[1], TS, BALL_PARAMS, steps=jm.FixedSteps(20), events=ticks
        )
        return sol.q[-1, 1]

    np.testing.assert_allclose(jax.grad(end)(jnp.asarray(1.0), 20.0), 1.0, rtol=1e-12)
    assert np.isnan(jax.grad(end)(jnp.asarray(1.0), 240.0))


@pytest.mark.slow
def test_a_batch_has_the_derivatives_of_its_trajectories(reverse: Any) -> None:
    heights = jnp.array([0.7, 1.0, 1.9])
    batch = jax.vmap(jax.jacrev(seen, ALL), (None, None, 0))(*AT[:2], heights)
    for a, b in zip(batch, reverse, strict=True):
        np.testing.assert_array_equal(a[1], b)
