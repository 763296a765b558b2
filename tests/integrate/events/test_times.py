"""Events at the times and in the states of closed forms."""

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
FIXED = jm.FixedSteps(4)
by_steps = pytest.mark.parametrize(
    "steps", [FIXED, pytest.param(jm.Adaptive(), marks=pytest.mark.slow)], ids=["fixed", "adaptive"]
)


def bounces(e: float, count: int) -> np.ndarray:
    """Times at which a ball dropped from 1 m hits the floor."""
    first = np.sqrt(2 / G)
    return first * (1 + 2 * np.cumsum([0, *e ** np.arange(1, count)]))


@by_steps
def test_bounces_obey_the_law_of_restitution(steps: Any) -> None:
    sol = jm.simulate(BALL, *DROPPED, TS, BALL_PARAMS, steps=steps, events=(BOUNCE, TOP))
    found = sol.events["bounce"]
    assert int(found.count) == 4
    assert int(sol.events["top"].count) == 4
    np.testing.assert_allclose(found.t[:4], bounces(0.9, 4), atol=1e-12)
    np.testing.assert_allclose(found.v_after[:4, 1], -0.9 * found.v[:4, 1], rtol=1e-14)
    energy = 0.5 * found.v_after[:4, 1] ** 2
    np.testing.assert_allclose(energy, G * 0.9 ** (2 * np.arange(1, 5)), rtol=1e-12)
    assert np.isnan(found.t[4:]).all()
    assert sol.status == Status.OK
    assert np.isnan(sol.energy_drift)  # impacts do not conserve it
    assert sol.accepted < 20 or steps == FIXED  # of 31 saves


@by_steps
def test_a_terminal_event_holds_the_state(steps: Any) -> None:
    sol = jm.simulate(BALL, *DROPPED, TS, BALL_PARAMS, steps=steps, events=(TOP, LANDS))
    t = np.sqrt(2 / G)
    assert sol.ok
    assert sol.status == Status.STOPPED
    assert sol.events.reason == "lands"
    np.testing.assert_allclose(sol.events.t_end, t, atol=1e-12)
    after = np.asarray(TS) > t
    np.testing.assert_allclose(sol.q[after], [[t, 0.0]] * after.sum(), atol=1e-12)
    np.testing.assert_allclose(sol.q[~after, 1], 1 - G / 2 * TS[~after] ** 2, atol=1e-12)
    assert "STOPPED" in repr(sol)
    assert "'lands'" in repr(sol)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "error"), [(jm.FixedSteps(100), 1e-12), (jm.Adaptive(rtol=1e-10, atol=1e-12), 1e-9)]
)
def test_a_bead_leaves_its_hoop_at_the_exact_angle(steps: Any, error: float) -> None:
    """From rest at an angle a from the top, cos = 2/3 cos(a): there gravity alone bends enough."""
    q0, v0 = released(0.3, BEAD_PARAMS)
    ts = jnp.linspace(0.0, 1.0, 11)
    sol = jm.simulate(BEAD, q0, v0, ts, BEAD_PARAMS, steps=steps, events=LEAVES)
    at = sol.events["leaves"]
    np.testing.assert_allclose(at.q[0, 1], 2 / 3 * np.cos(0.3), atol=1e-10)
    np.testing.assert_allclose(at.v_after[0], at.v[0], atol=1e-14)
    flight = np.asarray(ts[-1] - at.t[0])
    expected = at.q[0] + at.v[0] * flight - np.array([0.0, G / 2 * flight**2])
    np.testing.assert_allclose(sol.q[-1], expected, atol=error)
    np.testing.assert_array_equal(sol.events.active["hoop"], ts <= at.t[0])
    assert int(at.count) == 1


@pytest.mark.slow
@by_steps
def test_same_bits_alone_and_in_a_batch(steps: Any) -> None:
    heights = jnp.linspace(0.5, 2.0, 11)

    def run(height: jax.Array) -> jm.Solution:
        q0 = jnp.stack([0.0 * height, height])
        return jm.simulate(BALL, q0, DROPPED[1], TS, BALL_PARAMS, steps=steps, events=(BOUNCE, TOP))

    batch = jax.jit(jax.vmap(run))(heights)
    np.testing.assert_allclose(batch.events["bounce"].t[:, 0], np.sqrt(2 * heights / G), atol=1e-12)
    for k in (0, 7):
        one = run(heights[k])
        for name in ("bounce", "top"):
            np.testing.assert_array_equal(one.events[name].t, batch.events[name].t[k])
            np.testing.assert_array_equal(one.events[name].v, batch.events[name].v[k])
        np.testing.assert_array_equal(one.q, batch.q[k])


@pytest.mark.slow
@pytest.mark.parametrize("steps", [jm.FixedSteps(), jm.Adaptive()])
def test_a_ball_thrown_from_the_ground_lands(steps: Any) -> None:
    """Also if it does so within the first step, which is exact; in both directions of time."""
    speed = jnp.array([1.0, 5.0])
    ts = jnp.array([0.0, 3.0])
    for sign in (1, -1):
        start = jnp.zeros(2), sign * speed
        sol = jm.simulate(BALL, *start, sign * ts, BALL_PARAMS, steps=steps, events=LANDS)
        np.testing.assert_allclose(sol.events.t_end, sign * 10.0 / G, atol=1e-12)


def test_directions_and_a_zero_at_the_start() -> None:
    """sin 4t is zero at the start, which is no event, then it falls, rises and falls."""

    def wave(q: jax.Array, v: jax.Array, t: jax.Array, p: dict) -> jax.Array:
        return jnp.sin(4 * t)

    events = [jm.Event(wave, direction, name=str(direction)) for direction in (-1, 0, 1)]
    sol = jm.simulate(BALL, *DROPPED, TS, BALL_PARAMS, steps=jm.FixedSteps(1), events=events)
    zeros = np.pi / 4 * np.arange(1, 4)
    for direction, expected in ((-1, zeros[::2]), (0, zeros), (1, zeros[1::2])):
        found = sol.events[str(direction)]
        assert int(found.count) == len(expected)
        np.testing.assert_allclose(found.t[: len(expected)], expected, atol=1e-12)
    back = jm.simulate(BALL, *DROPPED, -TS, BALL_PARAMS, steps=jm.FixedSteps(1), events=events)
    np.testing.assert_allclose(back.events["1"].t[:2], -zeros[::2], atol=1e-12)  # as it is met


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
