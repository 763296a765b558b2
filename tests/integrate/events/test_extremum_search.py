"""Events that come and go within one step, whose signs at its ends are the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm
from jaxmech.integrate.events.extremum_search import ExtremumSearch
from tests.integrate.events.falling import BALL, BALL_PARAMS, G

POLICIES = {
    "fixed": {"steps": jm.FixedSteps(1)},
    "tolerance": {"method": jm.DormandPrince5(), "steps": jm.Adaptive(max_steps=64)},
}
by_policies = pytest.mark.parametrize("policies", POLICIES.values(), ids=POLICIES)
TS = jnp.array([0.0, 1.2])  # one step, in which the parabola is exact
SPEED = 5.0
TOP = SPEED**2 / (2 * G)


def reaches(q: Array, v: Array, t: Array, p: Any) -> Array:
    return p["H"] - q[1]


def thrown(height: Any, policies: Any, *events: jm.Event, speed: Any = SPEED) -> jm.Solution:
    """A ball thrown up from zero, past a height and back."""
    q0, v0 = jnp.zeros(2), jnp.stack([jnp.ones_like(speed), speed])
    p = {**BALL_PARAMS, "H": jnp.asarray(height)}
    return jm.simulate(BALL, q0, v0, TS, p, **policies, events=events)


def exactly(height: Any, speed: Any = SPEED) -> Array:
    root = jnp.sqrt(speed**2 - 2 * G * height)
    return jnp.stack([(speed - root) / G, (speed + root) / G])


@pytest.mark.slow
@by_policies
def test_both_passages_are_found_in_every_direction(policies: Any) -> None:
    events = [jm.Event(reaches, direction, name=str(direction)) for direction in (-1, 0, 1)]
    batch = jax.vmap(lambda height: thrown(height, policies, *events))
    below = np.array([1e-8, 1e-6, 0.01, 0.3, TOP - 0.01])
    found, times = batch(TOP - below), np.stack([exactly(TOP - x) for x in below])
    accuracy = 4e-14 + 4e-16 / np.sqrt(below)[:, None]  # of roots that are nearly double
    for direction, expected in ((-1, times[:, :1]), (0, times), (1, times[:, 1:])):
        record = found.events[str(direction)]
        np.testing.assert_array_equal(record.count, expected.shape[1])
        assert (abs(record.t[:, : expected.shape[1]] - expected) < accuracy).all()
    above = batch(TOP + below)
    assert all((above.events[event.name].count == 0).all() for event in events)


@pytest.mark.slow
@by_policies
def test_a_ceiling_that_is_just_touched(policies: Any) -> None:
    """The ball bounces off it, and after the step it is where the impact sent it."""
    hits = jm.Event(reaches, -1, transition=jm.Transition(restitution=0.5), name="hits")
    stops = jm.Event(reaches, -1, terminal=True, name="stops")
    height = TOP - 0.001
    t = exactly(height)[0]
    up, left = SPEED - G * t, TS[1] - t
    sol = thrown(height, policies, hits)
    np.testing.assert_allclose(sol.events["hits"].t[0], t, atol=1e-13)
    assert sol.events["hits"].count == 1
    np.testing.assert_allclose(sol.q[-1, 1], height - 0.5 * up * left - G / 2 * left**2, atol=1e-12)
    assert thrown(height, policies, stops).events.reason == "stops"


@pytest.mark.slow
@by_policies
def test_derivatives_of_both_times(policies: Any) -> None:
    def times(speed: Any) -> Array:
        passes = jm.Event(reaches, name="passes")
        return thrown(TOP - 0.01, policies, passes, speed=speed).events["passes"].t[:2]

    expected = jax.jacfwd(lambda speed: exactly(TOP - 0.01, speed))(SPEED)
    np.testing.assert_allclose(jax.jacrev(times)(SPEED), expected, rtol=1e-9)


@pytest.mark.slow
def test_several_functions_in_one_step() -> None:
    """Two heights are passed on the way up and down, another one just once."""
    heights = (0.5, 1.0, -0.5)
    events = [
        jm.Event(lambda q, v, t, p, level=level: q[1] - level, name=f"{level}") for level in heights
    ]
    sol = thrown(0.0, POLICIES["fixed"], *events)
    for level in heights:
        record, expected = sol.events[f"{level}"], exactly(level)[0 if level > 0 else 1 :]
        assert record.count == len(expected)
        np.testing.assert_allclose(record.t[: len(expected)], expected, atol=1e-12)


@pytest.mark.slow
def test_functions_of_velocities_by_a_tolerance() -> None:
    """cos t and its slope: -0.9 and less around the fastest point, in crude steps."""
    system = jm.System(lambda q, v, t, p: 0.5 * v @ v - 0.5 * q @ q, coordinates=("x",))
    fast = jm.Event(lambda q, v, t, p: v[0] + 0.999, name="fast")
    sol = jm.simulate(
        system, [1.0], [0.0], [0.0, 3.0], events=fast,
        method=jm.DormandPrince8(), steps=jm.Adaptive(rtol=1e-7, atol=1e-7),
    )  # fmt: skip
    assert sol.accepted < 12
    first = np.arcsin(0.999)
    np.testing.assert_allclose(sol.events["fast"].t[:2], [first, np.pi - first], atol=1e-5)


def test_the_search_stops_where_no_zero_is_possible() -> None:
    """A minimum well above zero, a load without rates, one below, and one that only falls."""
    start = jnp.ones(4), jnp.array([-1.0, jnp.nan, -5.0, -1.0])
    end = jnp.array([1.0, 1.0, 1.0, 0.5]), jnp.array([1.0, jnp.nan, 5.0, -0.1])
    ones = jnp.ones(4, jnp.int32)
    found = ExtremumSearch.of((True, False, True, True), ones, ones > 0, start, end)
    np.testing.assert_array_equal(found.is_sought, [False, False, True, False])
    np.testing.assert_allclose(found.after(jnp.zeros(())), 0.5)
    beyond = found.updated(jnp.asarray(0.5), jnp.array([0.7, 0.1, -0.2, 0.7]), jnp.zeros(4), ones)
    assert not beyond.is_sought.any()
    none = ExtremumSearch.of((False,) * 4, ones, ones > 0, start, end)
    np.testing.assert_allclose(none.after(jnp.zeros(())), 1.0)
    assert not none.is_sought.any()
    np.testing.assert_allclose(beyond.after(jnp.asarray(0.2)), 0.5)
    np.testing.assert_allclose(beyond.after(jnp.asarray(0.6)), 1.0)
    np.testing.assert_allclose(beyond.without(jnp.asarray(True)).after(jnp.zeros(())), 1.0)
