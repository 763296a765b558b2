"""Transitions: impacts within constraints, constraints switched on and off, and their limits."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm
from jaxmech.status import Status
from tests.integrate.events.falling import BALL, BALL_PARAMS, BOUNCE, DROPPED, G

TS = jnp.linspace(0.0, 3.0, 31)


def height(q: Array, v: Array, t: Array, p: Any) -> Array:
    return q[1]


def test_what_no_event_switches_on_is_inactive_for_the_whole_run() -> None:
    """A fall beside a line moves as without the line, which exerts no force."""

    def lagrangian(q, v, t, p):
        return 0.5 * v @ v - 9.81 * q[1]

    line = jm.Holonomic(lambda q, t, p: q[1] - 0.2 * q[0], "line")
    states, ts = ([1.0, 0.3], [0.1, 2.0]), jnp.linspace(0.0, 1.0, 4)
    with_line, without = (
        jm.System(lagrangian, rows, coordinates=("x", "y")) for rows in ([line], [])
    )
    steps = jm.FixedSteps(3)
    sol = jm.simulate(with_line, *states, ts, steps=steps, inactive="line")
    free = jm.simulate(without, *states, ts, steps=steps)
    np.testing.assert_allclose(sol.q, free.q, rtol=1e-14)
    np.testing.assert_allclose(sol.v, free.v, rtol=1e-14)
    assert not sol.events.active["line"].any()
    assert not jm.observe(with_line, sol).multipliers["line"].any()


@pytest.mark.slow
def test_a_pendulum_that_bounces_off_a_wall_obeys_the_energy_law() -> None:
    """Within the rod the impulse reverses the speed: energy falls by e^2 in each impact."""
    model, e = jm.models.pendulum(), 0.8
    wall = jm.Event(
        lambda q, v, t, p: q[0] - 0.2 * q[1] - 0.2,
        direction=-1, transition=jm.Transition(restitution=e), name="wall",
    )  # fmt: skip
    q0 = jnp.array([np.sin(1.5), -np.cos(1.5)])
    sol = jm.simulate(
        model.system, q0, jnp.zeros(2), jnp.linspace(0.0, 5.0, 51), model.params,
        steps=jm.FixedSteps(40), events=wall,
    )  # fmt: skip
    at = sol.events["wall"]
    count = int(at.count)
    assert count >= 5
    before, after = (0.5 * (x[:5] ** 2).sum(1) for x in (at.v, at.v_after))
    np.testing.assert_allclose(after, e**2 * before, rtol=1e-12)
    np.testing.assert_allclose(before, before[0] * e ** (2 * np.arange(5)), rtol=1e-7)
    np.testing.assert_allclose((at.q * at.v_after)[:5].sum(1), 0.0, atol=1e-14)
    assert sol.position_residual.max() < 1e-15


def test_the_impulse_of_a_constraint_is_smallest_in_the_mass_metric() -> None:
    """M dv = A^T Lambda and A v = 0, against the least squares of numpy."""
    masses, slope = np.array([1.0, 4.0]), 0.3

    def lagrangian(q: Array, v: Array, t: Array, p: Any) -> Array:
        return 0.5 * v @ (masses * v) - G * q[1]

    plane = jm.Holonomic(lambda q, t, p: q[1] - slope * q[0], "plane")
    system = jm.System(lagrangian, [plane], coordinates=("x", "y"))
    lands = jm.Event(
        lambda q, v, t, p: q[1] - slope * q[0],
        direction=-1, transition=jm.Transition(on=("plane",)), name="lands",
    )  # fmt: skip
    sol = jm.simulate(
        system, *DROPPED, TS, steps=jm.FixedSteps(4), events=lands, inactive=("plane",)
    )
    at = sol.events["lands"]
    A = np.array([[-slope, 1.0]])
    root = np.sqrt(masses)
    change = -np.linalg.pinv(A / root) @ (A @ np.asarray(at.v[0])) / root
    np.testing.assert_allclose(at.v_after[0] - at.v[0], change, atol=1e-12)
    assert int(at.count) == 1  # not again while the constraint is on
    np.testing.assert_allclose(sol.q[-1, 1], slope * sol.q[-1, 0], atol=1e-14)


@pytest.mark.slow
def test_ever_shorter_bounces_end_with_a_status() -> None:
    p = {**BALL_PARAMS, "e": jnp.asarray(0.5)}
    with pytest.raises(jm.errors.SimulationError, match="TOO_MANY_EVENTS") as error:
        jm.simulate(BALL, *DROPPED, TS, p, steps=jm.FixedSteps(4), events=BOUNCE)
    limit = np.sqrt(2 / G) * (1 + 2 * (0.5 / (1 - 0.5)))
    found = error.value.solution
    assert limit - 0.05 < found.t_failed < limit
    assert np.isnan(found.q[-1]).all()


@pytest.mark.slow
def test_many_events_in_one_long_step_that_change_nothing() -> None:
    """All are found, and the motion is bit-identical to the one without them."""
    levels = np.linspace(0.05, 0.95, 12)
    events = [
        jm.Event(lambda q, v, t, p, level=level: q[1] - level, name=f"at {k}", keep=1)
        for k, level in enumerate(levels)
    ]
    ts = jnp.array([0.0, 0.45])
    args = BALL, *DROPPED, ts, BALL_PARAMS
    sol = jm.simulate(*args, steps=jm.FixedSteps(1), events=events)
    found = np.array([sol.events[event.name].t[0] for event in events])
    np.testing.assert_allclose(found, np.sqrt(2 * (1 - levels) / G), atol=1e-12)
    np.testing.assert_array_equal(sol.q, jm.simulate(*args, steps=jm.FixedSteps(1)).q)
    adaptive = jm.simulate(*args, steps=jm.Adaptive(max_steps=64), events=events)
    again = np.array([adaptive.events[event.name].t[0] for event in events])
    np.testing.assert_allclose(again, found, atol=1e-12)


def test_a_function_that_is_nan_ends_with_a_status() -> None:
    event = jm.Event(lambda q, v, t, p: jnp.sqrt(q[1]) - 0.1, name="root")
    sol = jm.simulate(
        BALL, *DROPPED, TS, BALL_PARAMS, steps=jm.FixedSteps(4), events=event, throw=False
    )
    assert sol.status == Status.EVENT_IS_NAN
    assert sol.t_failed < np.sqrt(2 / G)


@pytest.mark.slow
def test_a_constraint_that_is_not_met_cannot_be_switched_on() -> None:
    plane = jm.Holonomic(lambda q, t, p: q[1] + 0.5, "plane")
    system = jm.System(BALL.lagrangian, [plane], coordinates=("x", "y"))
    event = jm.Event(height, -1, transition=jm.Transition(on="plane"), name="floor")
    with pytest.raises(jm.errors.SimulationError, match="NOT_ON_CONSTRAINT"):
        jm.simulate(
            system,
            *DROPPED,
            TS,
            BALL_PARAMS,
            steps=jm.FixedSteps(4),
            events=event,
            inactive="plane",
        )


@pytest.mark.slow
def test_a_wheel_slips_where_friction_would_exceed_its_limit() -> None:
    """On an incline that steepens with time, at tan(angle) = 3 mu for a solid disc."""
    mu, rate = 0.2, 0.5

    def lagrangian(q: Array, v: Array, t: Array, p: Any) -> Array:
        x, y, angle = v
        along, across = jnp.sin(rate * t), jnp.cos(rate * t)
        return 0.5 * (x**2 + y**2 + angle**2 / 2) + G * (q[0] * along - q[1] * across)

    ground = jm.Holonomic(lambda q, t, p: q[1] - 1.0, "ground")
    rolling = jm.Nonholonomic(lambda q, v, t, p: v[0] - v[2], "rolling")
    system = jm.System(lagrangian, [ground, rolling], coordinates=("x", "y", "angle"))

    def grip(q: Array, v: Array, t: Array, p: Any, reactions: Any) -> Array:
        friction = reactions.multipliers["rolling"][0]
        return mu * reactions.multipliers["ground"][0] - jnp.abs(friction)

    slips = jm.Event(grip, direction=-1, transition=jm.Transition(off="rolling"), name="slips")
    sol = jm.simulate(
        system, jnp.array([0.0, 1.0, 0.0]), jnp.zeros(3), jnp.linspace(0.0, 1.5, 16),
        steps=jm.FixedSteps(5), events=slips,
    )  # fmt: skip
    at = sol.events["slips"]
    np.testing.assert_allclose(at.t[0], np.arctan(3 * mu) / rate, atol=1e-10)
    np.testing.assert_allclose(at.v[0, 0], at.v[0, 2], atol=1e-13)
    np.testing.assert_allclose(sol.v[-1, 2], at.v[0, 2], atol=1e-13)  # nothing turns it any more
    fall = G / rate * (np.cos(rate * at.t[0]) - np.cos(1.5 * rate))
    np.testing.assert_allclose(sol.v[-1, 0], at.v[0, 0] + fall, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("start", [-np.pi, -np.pi + 0.01])
def test_a_constraint_without_a_gradient_where_it_is_inactive(start: float) -> None:
    """A Geneva drive whose crank points away from the wheel: the slot has no gradient there."""
    r = 0.1

    def pin(angle: Array) -> Array:  # from the center of the wheel
        return r * jnp.stack([jnp.cos(angle) - np.sqrt(2), jnp.sin(angle)])

    def slot(q: Array, t: Any, p: Any) -> Array:  # in axes of the wheel, by 45 degrees off the slot
        (x, y), c, s = pin(q[0]), jnp.cos(q[1]), jnp.sin(q[1])
        return ((c * x + s * y) ** 2 - (c * y - s * x) ** 2) / (2 * r)

    def lagrangian(q: Array, v: Array, t: Any, p: Any) -> Array:
        return 0.005 * v[0] ** 2 + 0.01 * v[1] ** 2

    system = jm.System(lagrangian, [jm.Holonomic(slot)], coordinates=("crank", "wheel"))
    enters = jm.Event(
        lambda q, v, t, p: pin(q[0]) @ pin(q[0]) - r * r,
        direction=-1, transition=jm.Transition(on="slot"), name="enters",
    )  # fmt: skip
    ts, speed = jnp.linspace(0.0, 1.0, 6), 3.0
    sol = jm.simulate(
        system, [start, 0.0], [speed, 0.0], ts, events=enters, inactive="slot",
        steps=jm.Adaptive(rtol=1e-10),
    )  # fmt: skip
    at = (-np.pi / 4 - start) / speed
    np.testing.assert_allclose(sol.events["enters"].t[0], at, rtol=1e-9)
    # The pin has the direction of the slot, whose angle is 3 pi / 4 where it enters.
    x, y = pin(sol.q[-1, 0])
    np.testing.assert_allclose(sol.q[-1, 1], np.arctan2(-y, -x) - np.pi / 4, atol=1e-8)
    energy = 0.005 * sol.v[:, 0] ** 2 + 0.01 * sol.v[:, 1] ** 2
    np.testing.assert_allclose(energy, 0.005 * speed**2, rtol=1e-7)


@pytest.mark.slow
def test_a_coordinate_without_mass_that_one_of_two_constraints_holds() -> None:
    """A mass on a cord that unwinds from a post: the point of contact has no mass, and is freed."""

    def cord(q: Array, t: Any, p: Any) -> Array:  # post of radius 1, contact at the angle u
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        return q[:2] - jnp.stack([c + q[2] * s, s - q[2] * c])

    system = jm.System(
        lambda q, v, t, p: v[:2] @ v[:2] / 2,
        [jm.Holonomic(cord), jm.Nonholonomic(lambda q, v, t, p: v[2], "hold")],
        coordinates=("x", "y", "u"),
    )
    release = jm.Event(
        lambda q, v, t, p: q[2] - 2.0, transition=jm.Transition(off="cord", on="hold")
    )
    c, s = np.cos(1.0), np.sin(1.0)
    sol = jm.simulate(
        system, [c + s, s - c, 1.0], [c, s, 1.0], jnp.array([0.0, 0.5, 2.0]),
        events=release, inactive="hold", steps=jm.Adaptive(rtol=1e-10),
    )  # fmt: skip
    np.testing.assert_allclose(jnp.hypot(*sol.v[:, :2].T), 1.0, rtol=1e-8)
    # u u' = 1 along the cord: u^2 = 1 + 2 t until 1.5 s, then the mass flies on straight ahead.
    np.testing.assert_allclose(sol.q[:, 2], [1.0, np.sqrt(2.0), 2.0], rtol=1e-8)
    tip = np.array([np.cos(2.0) + 2 * np.sin(2.0), np.sin(2.0) - 2 * np.cos(2.0)])
    along = 0.5 * np.array([np.cos(2.0), np.sin(2.0)])
    np.testing.assert_allclose(sol.q[-1, :2], tip + along, atol=1e-8)
