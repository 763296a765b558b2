"""Events of machines whose steps have no error and could be of any length."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import Adaptive, Event, FixedSteps, simulate
from jaxmech.analysis import choose_steps
from jaxmech.errors import StepWarning


def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v


CRANK = jm.System(
    lagrangian,
    constraints=[jm.Holonomic(lambda q, t, p: q[0] - p["speed"] * t)],
    coordinates=("angle",),
)
FREE = jm.System(lagrangian, coordinates=("angle",))
PASSES = [
    Event(lambda q, v, t, p: jnp.sin(q[0] - 0.3), direction=1, name="level", keep=16),
    # Steps over its jump are never refused, however short: its rate does not turn.
    Event(lambda q, v, t, p: q[0] % (2 * jnp.pi) - np.pi, direction=1, name="saw", keep=1),
]
EXACT = (0.3 + 2 * np.pi * np.arange(10)) / (2 * np.pi)
BY_TOLERANCE = {"steps": Adaptive()}
RUNS = [
    (CRANK, {}),
    (FREE, {}),
    (FREE, BY_TOLERANCE),
    (CRANK, BY_TOLERANCE | {"method": jm.Rodas5P()}),
]


def turned(system: jm.System, policies: Any, speed: Any = 2 * np.pi) -> jm.Solution:
    q, v = jnp.zeros(1), jnp.full(1, speed)
    ts = np.array([0.0, 3.7, 10.0])
    return simulate(system, q, v, ts, {"speed": speed}, **policies, events=PASSES)


@pytest.mark.slow
@pytest.mark.parametrize(("system", "policies"), RUNS)
def test_every_turn_of_a_uniform_rotation_is_an_event(system: jm.System, policies: Any) -> None:
    sol = turned(system, policies)
    assert sol.events["level"].count == 10
    assert abs(sol.events["level"].t[:10] - EXACT).max() < 1e-9
    assert sol.step < 1.0
    assert sol.accepted + sol.rejected < 250


@pytest.mark.slow
def test_each_of_a_batch_has_steps_for_its_own_events() -> None:
    speeds = 2 * np.pi * np.array([0.05, 1.0, 40.0])
    sols = jax.vmap(lambda speed: turned(CRANK, BY_TOLERANCE, speed))(speeds)
    assert sols.ok.all()
    assert sols.events["level"].count.tolist() == [1, 10, 400]
    assert sols.accepted[0] < 60


@pytest.mark.slow
def test_a_function_of_round_off_does_not_shorten_steps() -> None:
    """A pendulum that hangs still; the functions of its events are zero up to rounding."""
    system = jm.System(
        lambda q, v, t, p: 0.5 * v @ v - 9.81 * q[1],
        constraints=[jm.Holonomic(lambda q, t, p: q @ q - 1.0)],
        coordinates=("x", "y"),
    )
    q, v = np.array([np.sin(1e-13), -np.cos(1e-13)]), np.zeros(2)
    still = Event(lambda q, v, t, p: q[0], name="vertical", keep=1)
    sol = simulate(system, q, v, np.array([0.0, 100.0]), steps=Adaptive(), events=still)
    plain = simulate(system, q, v, np.array([0.0, 100.0]), steps=Adaptive())
    assert sol.accepted + sol.rejected <= plain.accepted + plain.rejected + 5


@pytest.mark.slow
def test_chosen_steps_are_those_of_the_run_with_its_events() -> None:
    times, start = np.array([0.0, 10.0]), (np.zeros(1), np.full(1, 2 * np.pi))
    fine = choose_steps(FREE, *start, times, events=PASSES)
    coarse = choose_steps(FREE, *start, times)
    sol = simulate(FREE, *start, times, events=PASSES)
    assert coarse.per_save < 20 < fine.per_save == sol.accepted
    assert sol.events["level"].count == 10


def pulse(x: Any, p: Any) -> Any:
    return jnp.exp(-(((x - p["at"]) / 0.004) ** 2)) - 0.5


PULSES = [
    Event(lambda q, v, t, p: pulse(t, p), name="in_time"),
    Event(lambda q, v, t, p: pulse(q[0], p), direction=1, name="in_place"),
]
SHORT = {"at": 0.737}


def pulsed(steps: Any, p: Any = SHORT) -> jm.Solution:
    return simulate(FREE, [0.0], [1.0], [0.0, 1.0], p, steps=steps, events=PULSES)


@pytest.mark.parametrize(
    "steps", [None, pytest.param(Adaptive(), marks=pytest.mark.slow)], ids=repr
)
def test_steps_become_short_enough_for_a_pulse(steps: Any) -> None:
    sol = pulsed(steps)
    assert [int(sol.events[name].count) for name in sol.events] == [2, 1]
    assert [int(sol.events[name].missed) for name in sol.events] == [0, 0]
    half = 0.004 * np.sqrt(np.log(2.0))
    np.testing.assert_allclose(sol.events["in_time"].t[:2], [0.737 - half, 0.737 + half])
    assert sol.accepted < 100


@pytest.mark.slow
def test_given_steps_that_are_too_long_are_reported_with_the_event() -> None:
    steps = FixedSteps(5)
    with pytest.warns(StepWarning) as record:
        sol = pulsed(steps)
    assert "event 'in_time' was missed 2 times: its" in str(record[0].message)
    assert "event 'in_place' was missed once: its" in str(record[1].message)
    assert [int(sol.events[name].count) for name in sol.events] == [0, 0]
    places = jnp.array([0.737, 5.0])
    with pytest.warns(StepWarning) as record:
        jax.vmap(lambda at: pulsed(steps, {"at": at}))(places)
    assert "missed 2 times for 1 of 2 trajectories" in str(record[0].message)
    jitted = jax.jit(lambda at: pulsed(steps, {"at": at}).events["in_time"].missed)
    assert [int(jitted(at)) for at in places] == [2, 0]
