"""Dense output: states between the saves, on the constraints, with derivatives and transitions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import Adaptive, FixedSteps, simulate
from tests.integrate.events.falling import (
    BALL,
    BALL_PARAMS,
    BEAD,
    BEAD_PARAMS,
    BOUNCE,
    DROPPED,
    LANDS,
    LEAVES,
    G,
    released,
)
from tests.small import PENDULUM

SPRING = jm.System(lambda q, v, t, p: 0.5 * (v @ v - p["k"] * q @ q), coordinates=("x",))
BETWEEN = np.array([0.0, 0.13, 1.0, 1.77, 2.0])
ENDS = np.array([0.0, 1.0, 2.0])


def swung(steps: Any, ts: Any = ENDS, p: Any = PENDULUM.params) -> jm.Solution:
    return simulate(PENDULUM.system, PENDULUM.q, PENDULUM.v, ts, p, steps=steps)


def test_it_has_the_order_of_the_method() -> None:
    def error(per_save: int) -> Any:
        steps, p = FixedSteps(per_save), {"k": jnp.asarray(4.0)}
        sol = simulate(SPRING, [1.0], [0.0], [0.0, 2.0], p, steps=steps)
        states = sol.at(BETWEEN[1:-1])
        x, rate = states["x"], states["x.rate"] / 2
        return np.hypot(x - np.cos(2 * states.t), rate + np.sin(2 * states.t))

    coarse, fine = error(16), error(32)
    np.testing.assert_allclose(np.log2(coarse / fine), 4.0, atol=0.15)
    assert (fine < 2e-5).all()


@pytest.mark.parametrize(
    "steps", [FixedSteps(64), pytest.param(Adaptive(rtol=1e-10), marks=pytest.mark.slow)], ids=repr
)
def test_states_are_those_of_a_run_that_saves_them(steps: Any) -> None:
    sol, saved = swung(steps), swung(steps, BETWEEN)
    states = sol.at(BETWEEN)
    np.testing.assert_allclose(states.q, saved.q, atol=1e-7)
    np.testing.assert_allclose(states.v, saved.v, atol=1e-7)
    np.testing.assert_allclose(states["x.rate"], saved["x.rate"], atol=1e-7)
    assert abs((states.q**2).sum(1) - 4).max() < 1e-13
    assert abs((states.q * states.v).sum(1)).max() < 1e-13
    np.testing.assert_array_equal(states.q[0], PENDULUM.q)
    # From the save before, a save is computed as in the run, but `Adaptive` steps start anew.
    np.testing.assert_allclose(
        states.q[2::2], sol.q[1:], rtol=0, atol=1e-9 if isinstance(steps, Adaptive) else 1e-13
    )
    assert sol.at(0.13).q.shape == (2,)
    assert sol.at(np.full((3, 1), 0.13))["y"].shape == (3, 1)


@pytest.mark.slow
def test_derivatives_batches_and_jit() -> None:
    def height(g: Any, t: Any) -> Any:
        return swung(FixedSteps(32), p={**PENDULUM.params, "g": g}).at(t)["y"]

    g, t, e = jnp.asarray(9.81), 1.77, 1e-5
    by_g, by_t = jax.jit(jax.grad(height, (0, 1)))(g, t)
    run = jax.jit(jax.vmap(lambda g: swung(FixedSteps(32), p={**PENDULUM.params, "g": g})))
    batch = run(jnp.array([g - e, g, g + e]))
    states = batch.at(jnp.array([t, 0.13]))
    assert states.q.shape == (3, 2, 2)
    difference = float(states["y"][2, 0] - states["y"][0, 0])
    assert by_g == pytest.approx(difference / (2 * e), rel=1e-6)
    assert by_t == pytest.approx(float(states["y.rate"][1, 0]), rel=1e-4)
    with pytest.raises(ValueError, match=r"from 0 s to 2 s, but 2.5 s does not; simulate up to"):
        batch.at(2.5)
    single = jax.tree.map(lambda x: x[1], batch)
    late = jax.jit(lambda sol, t: sol.at(t).q)(single, jnp.array([t, 2.5]))
    np.testing.assert_array_equal(late[0], states.q[1, 0])
    assert np.isnan(late[1]).all()


def fallen(events: Any, ts: Any = (0.0, 0.2, 2.0), **more: Any) -> jm.Solution:
    steps = FixedSteps(16)
    return simulate(BALL, *DROPPED, np.array(ts), BALL_PARAMS, steps=steps, events=events, **more)


@pytest.mark.slow
def test_impacts_between_saves_are_those_of_the_run() -> None:
    first = np.sqrt(2 / G)
    second = first + 2 * 0.9 * first
    t = np.array([0.1, first - 1e-3, first + 1e-3, 1.0, second + 0.05])
    after = t - np.array([0, 0, first, first, second])
    up = np.array([0, 0, 0.9, 0.9, 0.81]) * G * first
    y = np.where(t < first, 1.0, 0.0) + up * after - 0.5 * G * after**2
    states = fallen(BOUNCE).at(t)
    np.testing.assert_allclose(states["y"], y, atol=1e-10)
    np.testing.assert_allclose(states["y.rate"], up - G * after, atol=1e-10)
    few = fallen(jm.Event(*_but_keep(1)))
    np.testing.assert_allclose(few.at(t[:2])["y"], y[:2], atol=1e-10)
    with pytest.raises(ValueError, match="give the events of the run a larger `keep`"):
        few.at(t)


@pytest.mark.slow
def test_derivatives_after_an_impact() -> None:
    t = jnp.array([0.1, 1.0])

    def heights(g: Any) -> Any:
        first = jnp.sqrt(2 / g)
        after = t[1] - first
        return jnp.stack([1 - g * t[0] ** 2 / 2, 0.9 * g * first * after - g * after**2 / 2])

    def computed(g: Any) -> Any:
        p, ts = {**BALL_PARAMS, "g": g}, np.array([0.0, 0.2, 2.0])
        sol = simulate(BALL, *DROPPED, ts, p, steps=FixedSteps(16), events=BOUNCE)
        return sol.at(t)["y"]

    np.testing.assert_allclose(jax.jacfwd(computed)(G), jax.jacfwd(heights)(G), rtol=1e-9)
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda g: computed(g)[1]))(G),
        jax.grad(lambda g: heights(g)[1])(G),
        rtol=1e-9,
    )


def _but_keep(keep: int) -> tuple[Any, ...]:
    return BOUNCE.fn, BOUNCE.direction, BOUNCE.terminal, BOUNCE.transition, BOUNCE.name, keep


@pytest.mark.slow
def test_nothing_moves_after_a_terminal_event() -> None:
    sol = fallen(LANDS)
    states = sol.at(np.array([0.3, 0.5, 1.9]))
    np.testing.assert_allclose(states["y"][0], 1 - 0.5 * G * 0.09, atol=1e-12)
    np.testing.assert_allclose(states.q[1:], np.stack([sol.q[-1]] * 2), atol=1e-12)


@pytest.mark.slow
def test_constraints_are_on_as_in_the_run() -> None:
    """A bead on a hoop that it leaves between two saves."""
    ts = np.array([0.0, 2.0])
    start = released(jnp.asarray(0.1), BEAD_PARAMS)
    policies: Any = {"steps": FixedSteps(400), "events": LEAVES}
    sol = simulate(BEAD, *start, ts, BEAD_PARAMS, **policies)
    leaves = float(sol.events["leaves"].t[0])
    t = leaves + np.array([-0.1, 0.1])
    on, off = sol.at(t).q
    assert on @ on == pytest.approx(1.0, abs=1e-13)
    assert sol.events["leaves"].count == 1
    q, v = sol.events["leaves"].q[0], sol.events["leaves"].v[0]
    np.testing.assert_allclose(off, q + 0.1 * v - np.array([0, 0.005 * G]), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps", [FixedSteps(40), pytest.param(Adaptive(rtol=1e-9), marks=pytest.mark.slow)], ids=repr
)
def test_steps_end_at_given_times_and_states_of_first_order_follow(steps: Any) -> None:
    """A motor that is switched on at a time between two saves, and a run backwards in time."""
    steps = type(steps)(**{**vars(steps), "times": (0.7,)})
    motor = jm.System(
        lambda q, v, t, p: 0.5 * v[0] ** 2, coordinates=("angle",), states=("current",),
        rates=lambda q, v, t, p: jnp.where(t < 0.7, 0.0, 1.0)[None] - v[1:],
    )  # fmt: skip
    t = np.array([0.5, 0.7, 0.9])
    sol = simulate(motor, [0.0, 0.0], [0.0, 0.0], ENDS, {}, steps=steps)
    current = np.where(t < 0.7, 0.0, 1 - np.exp(0.7 - t))
    np.testing.assert_allclose(sol.at(t)["current"], current, atol=1e-9)
    back = simulate(motor, sol.q[-1], sol.v[-1], ENDS[::-1], {}, steps=steps)
    np.testing.assert_allclose(back.at(t)["current"], current, atol=1e-8)


def test_many_parameters_are_kept_for_one_trajectory_only() -> None:
    p = {"k": jnp.full(2000, 4.0)}
    system = jm.System(lambda q, v, t, p: 0.5 * (v @ v - p["k"][0] * q @ q), coordinates=("x",))

    def run(q: Any) -> jm.Solution:
        return simulate(system, q, jnp.zeros(1), ENDS, p, steps=FixedSteps(64))

    assert run(jnp.ones(1)).at(0.5).q[0] == pytest.approx(np.cos(1.0), abs=1e-6)
    batch = jax.vmap(run)(jnp.ones((2, 1)))
    with pytest.raises(ValueError, match="more than 1,000 numbers are not kept; save the times"):
        batch.at(0.5)
