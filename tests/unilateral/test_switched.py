"""Gaps that events withdraw and put in place, and gaps that jump in time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm
from jaxmech.errors import SimulationError
from jaxmech.status import Status

G = 9.81
TS = np.linspace(0.0, 1.0, 6)
FIXED, BY_TOLERANCE = jm.FixedSteps(1), jm.Adaptive(rtol=1e-10, atol=1e-12)
each_steps = pytest.mark.parametrize(
    "steps", [FIXED, pytest.param(BY_TOLERANCE, marks=pytest.mark.slow)], ids=repr
)


def falling(q: Array, v: Array, t: Array, p: Any) -> Array:
    return 0.5 * v @ v - G * q[-1]


# The load of a rope of 1 m, which is cut as it passes x = p["x"].
LOAD = jm.System(
    falling, [jm.Unilateral(lambda q, t, p: 1.0 - q @ q, name="rope")], coordinates=("x", "y")
)
CUT = jm.Event(
    lambda q, v, t, p: q[0] - p["x"], 1, transition=jm.Transition(off="rope"), name="cut"
)


def cut(x: Any, speed: Any, steps: Any) -> jm.Solution:
    v0 = jnp.stack([speed, jnp.zeros_like(speed)])
    return jm.simulate(LOAD, [0.0, -1.0], v0, TS, {"x": x}, events=CUT, steps=steps)


@each_steps
def test_a_rope_that_is_cut(steps: Any) -> None:
    """From the cut on the load flies on a parabola; its speed there is that of a pendulum."""
    sol = cut(0.5, jnp.asarray(3.0), steps)
    record, drop = sol.events["cut"], 1 - np.sqrt(0.75)
    assert record.count == 1
    speed = np.sqrt(9.0 - 2 * G * drop)
    near = 1e-2 if steps == FIXED else 1e-9
    np.testing.assert_allclose(np.linalg.norm(record.v[0]), speed, rtol=near)
    rest = TS[-1] - record.t[0]
    flown = record.q[0] + record.v[0] * rest - jnp.array([0.0, G / 2]) * rest**2
    np.testing.assert_allclose(sol.q[-1], flown, atol=1e-12)
    in_place = sol.events.active["rope in place"]
    np.testing.assert_array_equal(in_place, record.t[0] > TS)
    np.testing.assert_array_equal(sol.events.active["rope"], in_place)


@pytest.mark.slow
def test_the_derivative_through_a_cut() -> None:
    def end(x: Any, speed: Any) -> Any:
        return cut(x, speed, jm.FixedSteps(40)).q[-1].sum()

    at, small = (jnp.asarray(0.5), jnp.asarray(3.0)), 1e-5
    slopes = jax.grad(end, (0, 1))(*at)
    for k, slope in enumerate(slopes):
        up, down = ([x + s * small * (j == k) for j, x in enumerate(at)] for s in (1, -1))
        np.testing.assert_allclose(slope, (end(*up) - end(*down)) / (2 * small), rtol=1e-7)


BALL = jm.System(falling, [jm.Unilateral(lambda q, t, p: q[0], name="shelf")], coordinates=("y",))
SHELF = [
    jm.Event(lambda q, v, t, p: t - p[0], 1, transition=jm.Transition(on="shelf"), name="put"),
    jm.Event(lambda q, v, t, p: t - p[1], 1, transition=jm.Transition(off="shelf"), name="away"),
]


@each_steps
def test_a_shelf_that_is_put_in_place_and_withdrawn(steps: Any) -> None:
    def run(times: Any) -> jm.Solution:
        start = [0.5], [0.0]
        return jm.simulate(
            BALL, *start, TS, times, events=SHELF, inactive="shelf", steps=steps, throw=False
        )

    # It catches the ball, comes when that is below already, or goes before it arrives.
    sol = jax.vmap(run)(jnp.array([[0.1, 0.7], [0.35, 0.7], [0.05, 0.2]]))
    assert sol.status.tolist() == [Status.OK, Status.NOT_ON_CONSTRAINT, Status.OK]
    ends = -G / 2 * 0.3**2, 0.5 - G / 2
    np.testing.assert_allclose(sol.q[::2, -1, 0], ends, atol=1e-9)
    assert sol.events["shelf closes"].count[::2].tolist() == [1, 0]


def test_names_that_no_event_can_switch() -> None:
    wrong = jm.Event(lambda q, v, t, p: t, 1, transition=jm.Transition(off="floor"))
    with pytest.raises(ValueError, match=r"'floor'. Its constraints: shelf\."):
        jm.simulate(BALL, [0.5], [0.0], TS, events=wrong)


# A trapdoor that jumps by p["by"] at 0.4 s.
TRAP = jm.System(
    falling,
    [jm.Unilateral(lambda q, t, p: q[0] + jnp.where(t < 0.4, 0.0, p["by"]), name="trap")],
    coordinates=("y",),
)


@pytest.mark.parametrize(
    "steps", [jm.FixedSteps(3), pytest.param(jm.Adaptive(), marks=pytest.mark.slow)], ids=repr
)
def test_a_gap_that_jumps(steps: Any) -> None:
    """One that jumps open lets the body fall; one that jumps closed is an error with its name."""
    sol = jm.simulate(TRAP, [0.0], [0.0], TS, {"by": 3.0}, steps=steps)
    np.testing.assert_allclose(sol.q[:, 0], -G / 2 * np.maximum(TS - 0.4, 0.0) ** 2, atol=1e-12)
    record = sol.events["trap opens"]
    assert record.count == 1
    assert not sol.integration_error > 1e-3
    np.testing.assert_allclose(record.t[0], 0.4)
    with pytest.raises(SimulationError, match=r"GAP_JUMPED at t = 0.4 s.*gap of 'trap' is -0.2\."):
        jm.simulate(TRAP, [0.0], [0.0], TS, {"by": -0.2}, steps=steps)


# A sled whose brake is put on at 0.3 s and taken off at 0.65 s; it acts alone, or by the floor.
START, PUSH, ON, OFF = 0.2, 1.0, 0.3, 0.65


def pushed(q: Array, v: Array, t: Array, p: Any) -> Array:
    return jnp.zeros_like(q).at[0].set(PUSH)


def slip(q: Array, v: Array, t: Array, p: Any) -> Array:
    return v[0]


SLED = jm.System(
    lambda q, v, t, p: 0.5 * v @ v, [jm.DryFriction(slip, lambda p: p["hold"], name="brake")],
    force=pushed, coordinates=("x",),
)  # fmt: skip
BOX = jm.System(
    falling,
    [
        jm.Unilateral(lambda q, t, p: q[1], name="floor"),
        jm.DryFriction(slip, lambda p: p["hold"] / G, normal="floor", name="brake"),
    ],
    force=pushed, coordinates=("x", "y"),
)  # fmt: skip
BRAKE = [
    jm.Event(lambda q, v, t, p: t - ON, 1, transition=jm.Transition(on="brake"), name="on"),
    jm.Event(lambda q, v, t, p: t - OFF, 1, transition=jm.Transition(off="brake"), name="off"),
]


def braked(hold: Any) -> Any:
    """The position at 1 s, in exact pieces."""
    x, u = START * ON + PUSH * ON**2 / 2, START + PUSH * ON
    stop = jnp.minimum(u / jnp.maximum(hold - PUSH, 1e-9), OFF - ON)
    x, u = x + u * stop + (PUSH - hold) * stop**2 / 2, u + (PUSH - hold) * stop
    return x + u * (1 - OFF) + PUSH * (1 - OFF) ** 2 / 2


def sled(system: jm.System, hold: Any, steps: Any = None, **ways: Any) -> jm.Solution:
    still = [0.0] * (system.n - 1)
    arguments = system, [0.0, *still], [START, *still], TS, {"hold": hold}
    return jm.simulate(*arguments, steps=steps, **ways)


@pytest.mark.parametrize("system", [SLED, pytest.param(BOX, marks=pytest.mark.slow)])
def test_a_brake_that_is_put_on_and_taken_off(system: jm.System) -> None:
    """It stops the sled, which goes on when it is taken off."""
    sol = sled(system, 4.0, jm.FixedSteps(1), events=BRAKE, inactive="brake")
    np.testing.assert_allclose(sol.q[-1, 0], braked(4.0), rtol=1e-12)
    assert sol.events["brake stops"].count == 1
    np.testing.assert_array_equal(sol.events.active["brake in place"], (TS >= ON) & (TS < OFF))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "steps"), [(SLED, BY_TOLERANCE), (BOX, None)], ids=["rub", "box"]
)
def test_brakes_in_a_batch_and_their_derivatives(system: jm.System, steps: Any) -> None:
    """A weak brake slows the sled down, a strong one stops it."""
    holds = jnp.array([0.5, 2.0, 4.0])

    def end(hold: Any) -> Any:
        sol = sled(system, hold, steps, events=BRAKE, inactive="brake")
        return sol.q[-1, 0], sol.events["brake stops"].count

    (ends, stops), slopes = jax.vmap(jax.value_and_grad(end, has_aux=True))(holds)
    assert stops.tolist() == [0, 0, 1]
    np.testing.assert_allclose(ends, jax.vmap(braked)(holds), atol=1e-9)
    np.testing.assert_allclose(slopes, jax.vmap(jax.grad(braked))(holds), atol=1e-8)


@pytest.mark.slow
def test_what_is_inactive_for_a_whole_run() -> None:
    """A brake, or a floor with its brake, which no event puts in place."""
    free, steps = START + PUSH / 2, jm.FixedSteps(1)
    np.testing.assert_allclose(sled(SLED, 4.0, steps, inactive="brake").q[-1], [free])
    np.testing.assert_allclose(sled(BOX, 4.0, steps, inactive="brake").q[-1], [free, 0.0])
    sol = sled(BOX, 4.0, steps, inactive=("floor", "brake"))
    np.testing.assert_allclose(sol.q[-1], [free, -G / 2])
    seen = jm.observe(BOX, sol, {"hold": 4.0})
    np.testing.assert_allclose(seen.qdd, np.tile([PUSH, -G], (len(TS), 1)))
    assert not jnp.concatenate([*seen.multipliers.values()]).any()
