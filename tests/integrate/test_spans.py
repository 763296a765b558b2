"""Steps that end at given times: jumps of a force, drives that start, and the longest step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import (
    Adaptive,
    DormandPrince5,
    Event,
    FixedSteps,
    Rodas5P,
    System,
    simulate,
)
from jaxmech.integrate.spans import StepGrid, interval_at, intervals_of

TS = np.linspace(0.0, 10.0, 11)
P = {"at": jnp.asarray(5.4321), "width": jnp.asarray(0.3)}


def spring(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - 0.5 * q @ q


def blow(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A constant force of impulse one, on either side of a time that no operation shows."""
    inside = jnp.sin((t - p["at"]) / 20) ** 2 < jnp.sin(p["width"] / 40) ** 2
    return jnp.where(inside, 1.0 / p["width"], 0.0)[None]


HIT = System(spring, force=blow, coordinates=("x",))


def at_end(at: Any, width: Any) -> Any:
    """x(10) after a blow, from rest at x = 0."""
    return (np.cos(10 - at - width / 2) - np.cos(10 - at + width / 2)) / width


def ends(p: Any) -> Any:
    return p["at"] - p["width"] / 2, p["at"] + p["width"] / 2


def slopes(at: Any, width: Any) -> np.ndarray:
    """The derivatives of `at_end` by both arguments."""
    d = 1e-5
    by_at = (at_end(at + d, width) - at_end(at - d, width)) / (2 * d)
    return np.array([by_at, (at_end(at, width + d) - at_end(at, width - d)) / (2 * d)])


POLICIES = {
    "fixed": lambda p: {"steps": FixedSteps(20, times=ends(p))},
    "adaptive": lambda p: {
        "method": DormandPrince5(),
        "steps": Adaptive(max_steps=200, times=ends(p)),
    },
    "implicit": lambda p: {
        "method": Rodas5P(),
        "steps": Adaptive(max_steps=200, times=ends(p)),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", POLICIES)
def test_a_blow_and_its_derivatives_by_its_times(kind: str) -> None:
    def end(p: Any) -> Any:
        sol = simulate(HIT, [0.0], [0.0], TS, p, **POLICIES[kind](p), throw=False)
        return sol.q[-1, 0], sol.status

    # The third ends at a save, the last is shorter than a thousandth of a step.
    at, width = np.array([2.0, 5.4321, 5.95, 7.7]), np.array([0.01, 0.3, 0.1, 1e-4])
    batch = {"at": jnp.asarray(at), "width": jnp.asarray(width)}
    run = jax.jit(jax.vmap(jax.value_and_grad(end, has_aux=True)))
    (x, status), grads = run(batch)
    assert not status.any()
    np.testing.assert_allclose(x, at_end(at, width), atol=3e-7)
    np.testing.assert_allclose([grads["at"], grads["width"]], slopes(at, width), atol=3e-6)


@pytest.mark.slow
def test_tangents_agree_with_the_closed_form() -> None:
    def end(p: Any) -> Any:
        return simulate(HIT, [0.0], [0.0], TS, p, **POLICIES["adaptive"](p)).q[-1, 0]

    found = jax.jit(jax.jacfwd(end))(P)
    np.testing.assert_allclose(
        [found["at"], found["width"]], slopes(*map(float, P.values())), atol=3e-6
    )


@pytest.mark.slow
def test_the_chosen_step_and_a_run_backwards() -> None:
    sol = simulate(HIT, [0.0], [0.0], TS, P, steps=FixedSteps(times=ends(P)))
    assert abs(sol.q[-1, 0] - at_end(5.4321, 0.3)) < 1e-6
    assert sol.accepted < 300
    assert sol.integration_error < 1e-5
    back = simulate(
        HIT, sol.q[-1], sol.v[-1], TS[::-1], P, steps=FixedSteps(20, times=(*ends(P), 30.0))
    )
    assert abs(back.q[-1, 0]) < 1e-6
    assert abs(back.v[-1, 0]) < 1e-6


@pytest.mark.slow
def test_steps_are_not_longer_than_the_longest() -> None:
    sol = simulate(HIT, [0.0], [0.0], TS, P, steps=Adaptive(max_step=0.05))
    assert 0.049 < sol.step <= 0.05
    assert abs(sol.q[-1, 0] - at_end(5.4321, 0.3)) < 1e-6
    sol = simulate(HIT, [0.0], [0.0], TS, P, steps=FixedSteps(2, max_step=0.05, times=(0.25,)))
    assert sol.accepted == 11 * 20
    assert sol.step == pytest.approx(0.05)
    with pytest.raises(ValueError, match="`max_step` must go with known save times"):
        jax.jit(lambda ts: simulate(HIT, [0.0], [0.0], ts, P, steps=FixedSteps(max_step=0.1)))(TS)


@pytest.mark.slow
def test_the_time_of_an_event_follows_the_blow() -> None:
    passing = Event(lambda q, v, t, p: v[0], name="turn", terminal=True, direction=-1)

    def turn(p: Any) -> Any:
        way = {**POLICIES["fixed"](p), "events": passing}
        return simulate(HIT, [0.0], [0.0], TS, p, **way).events["turn"].t[0]

    t, slope = jax.value_and_grad(turn)(P)
    # From rest, the mass turns a quarter of a period after the middle of the blow.
    assert abs(t - (5.4321 + np.pi / 2)) < 1e-6
    np.testing.assert_allclose(slope["at"], 1.0, atol=1e-5)


def test_the_grid_of_saves_and_times() -> None:
    grid = StepGrid.of(jnp.array([0.0, 1.0, 3.0]), jnp.array([5.0, 1.0, 2.0, -1.0]))
    np.testing.assert_array_equal(grid.ts, [0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 3.0])
    np.testing.assert_array_equal(grid.rows, [0, 3, 6])
    interval = interval_at(
        jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 1.0, 3.0]), *jnp.array([0.0, 3.0])
    )
    assert interval
    np.testing.assert_allclose(interval.low, [-np.inf, 1.0, 2.0], atol=1e-14)
    np.testing.assert_allclose(interval.high, [1.0, 2.0, 3.0], atol=1e-14)
    np.testing.assert_array_equal(interval.turns, [False, True, False])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_grid_of_known_times_is_that_of_traced_ones(sign: float) -> None:
    """The first of the times are saves, the last ones are not; also where it is kept."""
    ts, times = sign * np.array([0.0, 1.0, 3.0]), sign * np.array([1.0, 3.0, 0.2, 2.0, 2.5])
    traced = StepGrid.of(jnp.asarray(ts), jnp.asarray(times[2:]))
    expected = intervals_of(traced.ts, jnp.asarray(times))
    assert expected
    for _ in range(2):
        known = jax.jit(lambda: StepGrid.known(ts, times, 3))()
        np.testing.assert_array_equal(known.ts, traced.ts)
        np.testing.assert_array_equal(known.rows, traced.rows)
        assert known.intervals
        np.testing.assert_array_equal(known.intervals.turns, expected.turns)
        np.testing.assert_array_equal(known.intervals.low, expected.low)
        np.testing.assert_array_equal(known.intervals.high, expected.high)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_spans_of_many_times_are_searched(sign: float) -> None:
    """More of them than are compared one by one, and some twice."""
    rng = np.random.default_rng(0)
    times = rng.permutation(np.concatenate([rng.uniform(0.0, 3.0, 298), [1.0, 1.0]]))
    instants = np.concatenate([rng.uniform(0.0, 3.0, 50), [1.0, 3.0], times[:5]])
    arguments = (jnp.asarray(sign * x) for x in (times, instants, 0.0, 3.0))
    interval = interval_at(*arguments)
    assert interval
    before = [max([-np.inf, *times[times <= min(x, 3.0)]]) for x in instants]
    after = [min([np.inf, *times[times > x]]) for x in instants]
    np.testing.assert_array_equal(interval.turns, instants == np.array(before))
    ends = (interval.low, interval.high) if sign > 0 else (-interval.high, -interval.low)
    np.testing.assert_allclose(ends, [before, after], atol=1e-13)
