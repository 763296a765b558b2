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
    sol = jm.simulate(BALL, q0, DROPPED[1], TS, p, method=jm.RK4(4), events=(BOUNCE, TOP))
    at = sol.events["bounce"]
    parts = at.t[:3], at.q[1], at.v_after[2], sol.events["top"].t[:2], sol.q[4], sol.v[-1]
    return jnp.concatenate(parts)


AT = (jnp.asarray(0.9), jnp.asarray(9.81), jnp.asarray(1.0))
ALL = (0, 1, 2)


@pytest.fixture(scope="module")
def reverse() -> Any:
    return jax.jacrev(seen, ALL)(*AT)


def test_reverse_mode_agrees_with_differences(reverse: Any) -> None:
    for k, slope in enumerate(reverse):
        step = 1e-5 * AT[k]
        ends = [seen(*(x + sign * step * (j == k) for j, x in enumerate(AT))) for sign in (1, -1)]
        differences = (ends[0] - ends[1]) / (2 * step)
        scale = np.abs(differences).max()
        np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-8 * scale)


def test_forward_mode_agrees_with_reverse_mode(reverse: Any) -> None:
    for a, b in zip(jax.jacfwd(seen, ALL)(*AT), reverse, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_a_batch_has_the_derivatives_of_its_trajectories(reverse: Any) -> None:
    heights = jnp.array([0.7, 1.0, 1.9])
    batch = jax.vmap(jax.jacrev(seen, ALL), (None, None, 0))(*AT[:2], heights)
    for a, b in zip(batch, reverse, strict=True):
        np.testing.assert_array_equal(a[1], b)
