"""Events in adaptive steps are those in fixed steps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.status import Status
from tests.integrate.events.falling import (
    BALL,
    BALL_PARAMS,
    BEAD,
    BEAD_PARAMS,
    BOUNCE,
    DROPPED,
    LANDS,
    LEAVES,
    TOP,
    G,
    released,
)

TS = jnp.linspace(0.0, 3.0, 31)


def bouncing(height: jax.Array) -> jm.Solution:
    q0 = jnp.stack([jnp.zeros_like(height), height])
    return jm.simulate(
        BALL, q0, DROPPED[1], TS, BALL_PARAMS, steps=jm.Adaptive(), events=(BOUNCE, TOP)
    )


@pytest.mark.slow
def test_bounces_in_long_steps_and_the_same_bits_in_a_batch() -> None:
    heights = jnp.array([0.5, 1.0, 1.7])
    batch = jax.jit(jax.vmap(bouncing))(heights)
    np.testing.assert_allclose(batch.events["bounce"].t[:, 0], np.sqrt(2 * heights / G), atol=1e-12)
    one = bouncing(heights[1])
    np.testing.assert_array_equal(one.q, batch.q[1])
    np.testing.assert_array_equal(one.events["top"].t, batch.events["top"].t[1])
    fixed = jm.simulate(
        BALL, *DROPPED, TS, BALL_PARAMS, steps=jm.FixedSteps(4), events=(BOUNCE, TOP)
    )
    np.testing.assert_allclose(one.q, fixed.q, atol=1e-12)
    for name in ("bounce", "top"):
        np.testing.assert_array_equal(one.events[name].count, fixed.events[name].count)
        np.testing.assert_allclose(one.events[name].t, fixed.events[name].t, atol=1e-12)
    assert one.accepted < 20  # of 31 saves


@pytest.mark.slow
def test_a_terminal_event_holds_the_state() -> None:
    sol = jm.simulate(BALL, *DROPPED, TS, BALL_PARAMS, steps=jm.Adaptive(), events=LANDS)
    t = np.sqrt(2 / G)
    assert sol.status == Status.STOPPED
    np.testing.assert_allclose(sol.events.t_end, t, atol=1e-12)
    after = np.asarray(TS) > t
    np.testing.assert_allclose(sol.q[after], [[t, 0.0]] * after.sum(), atol=1e-12)
    np.testing.assert_allclose(sol.q[~after, 1], 1 - G / 2 * TS[~after] ** 2, atol=1e-12)


def test_the_last_possible_step_may_end_at_an_event() -> None:
    steps = jm.Adaptive(max_steps=3)
    sol = jm.simulate(BALL, *DROPPED, TS, BALL_PARAMS, steps=steps, events=LANDS)
    assert sol.status == Status.STOPPED
    assert sol.accepted == 3


@pytest.mark.slow
def test_saves_at_the_time_of_a_transition_have_the_state_after_it() -> None:
    """As in fixed steps; so the last state of a run is one from which it can be continued."""
    half = jm.Transition(lambda q, v, t, p: (q, v / 2))
    kicks = [
        jm.Event(lambda q, v, t, p, k=k: t - k, 1, transition=half, name=str(k)) for k in (1, 2)
    ]
    system = jm.System(lambda q, v, t, p: 0.5 * v @ v, coordinates=("x",))

    def speeds(steps: Any, v: jax.Array) -> jax.Array:
        return jm.simulate(system, [0.0], v, [0.0, 0.5, 1.0, 2.0], steps=steps, events=kicks).v

    expected = np.array([[1.0], [1.0], [0.5], [0.25]])
    for steps in (jm.FixedSteps(1), jm.Adaptive(max_steps=64)):
        np.testing.assert_allclose(speeds(steps, jnp.ones(1)), expected, atol=1e-14)
    slope = jax.jacfwd(partial(speeds, steps))(jnp.ones(1))
    np.testing.assert_allclose(slope[..., 0], expected, atol=1e-14)


@pytest.mark.slow
def test_ever_shorter_bounces_end_with_a_status() -> None:
    p = {**BALL_PARAMS, "e": jnp.asarray(0.5)}
    with pytest.raises(jm.errors.SimulationError, match="CONTACT_AT_REST") as error:
        jm.simulate(BALL, *DROPPED, TS, p, steps=jm.Adaptive(max_steps=256), events=BOUNCE)
    limit = np.sqrt(2 / G) * (1 + 2 * (0.5 / (1 - 0.5)))
    np.testing.assert_allclose(error.value.solution.t_failed, limit, atol=1e-9)


@pytest.mark.slow
def test_a_bead_leaves_its_hoop() -> None:
    q0, v0 = released(0.3, BEAD_PARAMS)
    ts, steps = jnp.linspace(0.0, 1.0, 11), jm.Adaptive(rtol=1e-10, atol=1e-12)
    sol = jm.simulate(BEAD, q0, v0, ts, BEAD_PARAMS, steps=steps, events=LEAVES)
    at = sol.events["leaves"]
    np.testing.assert_allclose(at.q[0, 1], 2 / 3 * np.cos(0.3), atol=1e-10)
    flight = np.asarray(ts[-1] - at.t[0])
    expected = at.q[0] + at.v[0] * flight - np.array([0.0, G / 2 * flight**2])
    np.testing.assert_allclose(sol.q[-1], expected, atol=1e-9)
    np.testing.assert_array_equal(sol.events.active["hoop"], ts <= at.t[0])


def landed(x: jax.Array) -> jax.Array:
    """The time of the second bounce and the final height, as a function of e, g and height."""
    e, g, height = x
    steps = jm.Adaptive(rtol=1e-9, atol=1e-10, max_steps=64)
    sol = jm.simulate(
        BALL, jnp.stack([0 * height, height]), DROPPED[1], jnp.array([0.0, 1.0, 2.0]),
        {"e": e, "g": g}, steps=steps, events=BOUNCE,
    )  # fmt: skip
    return jnp.stack([sol.events["bounce"].t[1], sol.q[-1, 1]])


def landed_exactly(x: jax.Array) -> jax.Array:
    e, g, height = x
    first = jnp.sqrt(2 * height / g)
    second = first * (1 + 2 * e)
    left = 2.0 - second
    return jnp.stack([second, e**2 * g * first * left - g / 2 * left**2])


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacrev, jax.jacfwd])
def test_derivatives_are_those_of_the_closed_form(mode: Callable[..., Any]) -> None:
    x = jnp.array([0.9, 9.0, 1.2])
    np.testing.assert_allclose(landed(x), landed_exactly(x), atol=1e-11)
    expected = jax.jacrev(landed_exactly)(x)
    np.testing.assert_allclose(mode(landed)(x), expected, rtol=1e-9, atol=1e-10)
