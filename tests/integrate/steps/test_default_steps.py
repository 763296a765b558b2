"""The default step: accuracy, transformations, and a warning where no values are known."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import DormandPrince5, FixedSteps, simulate
from jaxmech.analysis import choose_steps
from tests.small import PENDULUM

CHOSEN = FixedSteps()
ANGLE = jm.System(lambda q, v, t, p: 0.5 * v @ v + p["g"] * jnp.cos(q[0]), coordinates=("angle",))
TS = np.linspace(0.0, 1.0, 11)
P = {"g": jnp.asarray(9.81)}


def angle(q: Any, p: Any = P, steps: Any = CHOSEN) -> jm.Solution:
    return simulate(ANGLE, q, jnp.zeros(1), TS, p, steps=steps)


def per_save(sol: jm.Solution) -> np.ndarray:
    return np.round(0.1 / np.asarray(sol.step))


def test_a_pendulum_with_few_saves() -> None:
    run = partial(simulate, PENDULUM.system, PENDULUM.q, PENDULUM.v, TS, PENDULUM.params)
    sol, fine = run(), run(method=DormandPrince5(), steps=FixedSteps(200))
    target = 1e-6
    assert target / 1000 < abs(sol.q - fine.q).max() < 3 * target
    assert sol.integration_error < 30 * target


@pytest.mark.slow
def test_it_is_the_same_for_all_of_a_batch_and_about_what_the_worst_needs() -> None:
    q = jnp.array([[1e-3], [3.0], [0.5]])
    most = max(float(per_save(angle(x))) for x in q)
    nested = jax.vmap(jax.vmap(lambda q, g: angle(q, {"g": g}), (None, 0)), (0, None))
    for batch in (jax.vmap(angle)(q), nested(q, jnp.array([9.81, 1.0]))):
        found = np.unique(per_save(batch))
        assert found.size == 1
        assert most / 1.6 < found[0] < most * 1.6


@pytest.mark.slow
def test_gradients_choose_as_the_motion_does() -> None:
    q = jnp.array([2.0])
    fixed = FixedSteps(int(per_save(angle(q))))

    def end(p: Any, q: Any = q, steps: Any = CHOSEN) -> Any:
        return angle(q, p, steps).q[-1, 0]

    wanted = jax.grad(end)(P, q, fixed)["g"]
    assert jax.grad(end)(P)["g"] == wanted
    batch = {"g": jnp.array([9.81, 9.81])}
    np.testing.assert_allclose(jax.vmap(jax.grad(end))(batch)["g"], wanted, rtol=1e-12)
    np.testing.assert_allclose(
        jax.grad(lambda b: jax.vmap(end)(b).sum())(batch)["g"], wanted, rtol=1e-12
    )


@pytest.mark.slow
def test_a_motion_that_becomes_violent_after_a_thousand_steps() -> None:
    """Swinging Atwood machine: the mass comes close to the pulley after more than two swings."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        kinetic = 0.5 * (v[0] ** 2 + v[1] ** 2) + 1.5 * v[2] ** 2
        return kinetic - 9.81 * q[1] - 3 * 9.81 * q[2]

    rope = jm.Holonomic(lambda q, t, p: jnp.hypot(q[0], q[1]) - q[2])
    machine = jm.System(lagrangian, [rope], coordinates=("x", "y", "z"))
    start, ts = ([1.0, 0.0, 1.0], np.zeros(3)), np.linspace(0.0, 10.0, 3)
    sol = simulate(machine, *start, ts, steps=CHOSEN)
    fine = simulate(machine, *start, ts, method=DormandPrince5(), steps=FixedSteps(20_000))
    assert abs(sol.q - fine.q).max() < 3e-6


def test_under_jit_nothing_is_known() -> None:
    q = jnp.array([2.0])
    with pytest.warns(jm.errors.StepWarning, match=r"choose_steps"):
        end = jax.jit(lambda q: angle(q).q[-1])(q)
    np.testing.assert_array_equal(end, angle(q, steps=FixedSteps(1)).q[-1])
    with pytest.raises(ValueError, match="outside of it"):
        jax.jit(lambda q: choose_steps(ANGLE, q, jnp.zeros(1), TS, P))(q)
    assert choose_steps(ANGLE, q, [0.0], TS, P).per_save == per_save(angle(q))


def test_members_that_fail_leave_the_steps_of_the_others() -> None:
    """Their trials go on with ever smaller steps, whose errors are round-off."""
    q, wrong = jnp.array([[2.0], [2.0], [jnp.nan]]), jnp.array(TS).at[-1].set(jnp.nan)
    ts = jnp.stack([jnp.array(TS), wrong, jnp.array(TS)])
    batch = jax.vmap(lambda q, ts: simulate(ANGLE, q, jnp.zeros(1), ts, P))(q, ts)
    np.testing.assert_array_equal(batch.status, np.array([0, 1, 1]))
    np.testing.assert_array_equal(batch.t_failed[1:], 0.0)
    alone = angle(q[0])
    assert batch.step[0] == alone.step
    np.testing.assert_array_equal(batch.q[0], alone.q)


@pytest.mark.slow
def test_a_collision_after_the_first_steps_of_a_trial() -> None:
    """An event ends the fall before it; a trial of 20,000 of 65,536 steps does not reach it."""
    kepler = jm.System(lambda q, v, t, p: 0.5 * v @ v + 1 / jnp.sqrt(q @ q), coordinates=("x", "y"))
    near = jm.Event(lambda q, v, t, p: q @ q - 0.01, direction=-1, terminal=True, name="near")
    sol = simulate(kepler, [1.0, 0.0], [0.0, 0.0], [0.0, 1.0, 2.0], events=near)
    exact = (np.sqrt(0.1 * 0.9) + np.arccos(np.sqrt(0.1))) / np.sqrt(2)
    np.testing.assert_allclose(sol.events.t_end, exact, rtol=1e-9)


@pytest.mark.slow
def test_a_stiff_system_gets_its_small_steps() -> None:
    stiff = jm.System(
        lambda q, v, t, p: 0.5 * v @ v - 0.5 * (q[0] ** 2 + 1e6 * q[1] ** 2),
        coordinates=("soft", "stiff"),
    )
    sol = simulate(stiff, [1.0, 1e-3], [0.0, 0.0], [0.0, 1.0], steps=CHOSEN)
    exact = np.cos(1.0), 1e-3 * np.cos(1e3)
    np.testing.assert_allclose(sol.q[-1], exact, atol=1e-5)


@pytest.mark.slow
def test_a_force_with_jumps_does_not_take_forever() -> None:
    dry = jm.System(
        lambda q, v, t, p: 0.5 * (v @ v - 10 * q @ q),
        force=lambda q, v, t, p: -jnp.sign(v),
        coordinates=("x",),
    )
    steps = choose_steps(dry, [1.0], [0.0], [0.0, 1.0])
    assert 10 < steps.per_save < 100_000


@pytest.mark.parametrize(
    "steps", [None, pytest.param(jm.Adaptive(), marks=pytest.mark.slow)], ids=repr
)
def test_a_mechanism_at_rest_has_no_error(steps: Any) -> None:
    """An inverted pendulum whose mass is at the origin, where all motion is round-off."""
    up = np.array([np.sin(0.7), np.cos(0.7)])
    inverted = jm.System(
        lambda q, v, t, p: 0.5 * v @ v - p["g"] * up @ q,
        [jm.Holonomic(lambda q, t, p: ((q + up) @ (q + up) - 1) / 2)],
        coordinates=("x", "y"),
    )
    ts = np.linspace(0.0, 0.5, 6)
    still, moved = (
        simulate(inverted, np.zeros(2), v * up[::-1] * [1, -1], ts, P, steps=steps)
        for v in (0.0, 1e-6)
    )
    assert 0 < abs(still.q).max() < 1e-14
    assert still.integration_error == 0
    assert still.accepted <= 64
    assert 0 < moved.integration_error < 1e-4


@pytest.mark.slow
def test_a_block_that_sticks_before_it_slides() -> None:
    """The trial is of sliding too: of 3 pi / 4 s each, after 1.25 s and then 1 s of sticking."""

    def belt(q: Any, v: Any, t: Any, p: Any) -> Any:
        return v[0] - 0.1

    def excess(q: Any, v: Any, t: Any, p: Any, reactions: Any) -> Any:
        return reactions.multipliers["belt"][0] - 0.2

    block = jm.System(
        lambda q, v, t, p: 0.5 * v @ v - 2.0 * q @ q,
        [jm.Nonholonomic(belt)],
        force=lambda q, v, t, p: jnp.array([0.3]),
        coordinates=("x",),
    )
    switches = [
        jm.Event(belt, direction=1, transition=jm.Transition(on="belt"), name="sticks"),
        jm.Event(excess, direction=1, transition=jm.Transition(off="belt"), name="slides"),
    ]
    run = partial(simulate, block, [0.0], [0.1], np.linspace(0.0, 8.0, 9), events=switches)
    sol, slide = run(), 0.75 * np.pi
    sticks = 1.25 + slide + np.array([0.0, 1.0 + slide])
    np.testing.assert_allclose(sol.events["sticks"].t[:2], sticks, rtol=2e-6)
    assert sol.integration_error < 1e-6


@pytest.mark.slow
def test_a_constraint_whose_release_has_no_end_keeps_the_steps_of_the_motion() -> None:
    """Without its support this body falls into a pole of its potential."""

    def height(q: Any, t: Any, p: Any) -> Any:
        return q[0] - 1.0

    pole = jm.System(
        lambda q, v, t, p: 0.5 * v @ v + 1.0 / q[0] ** 3 - 0.5 * q[1] ** 2,
        [jm.Holonomic(height, name="support")],
        coordinates=("x", "y"),
    )
    late = jm.Event(
        lambda q, v, t, p: t - 50.0, name="late", transition=jm.Transition(off="support")
    )
    sol = simulate(pole, [1.0, 1.0], [0.0, 0.0], np.linspace(0.0, 10.0, 11), events=late)
    np.testing.assert_allclose(sol.q[-1], [1.0, np.cos(10.0)], atol=1e-5)


@pytest.mark.slow
def test_steps_are_chosen_again_where_impacts_need_more_than_the_fall_before_them() -> None:
    def lagrangian(q, v, t, p):  # two masses on a spring that the fall does not stretch
        return v @ v / 2 - 9.81 * q.sum() - 500.0 * (q[1] - q[0] - 1.0) ** 2

    floor = jm.Unilateral(lambda q, t, p: q[0], restitution=0.5, name="floor")
    system = jm.System(lagrangian, [floor], coordinates=("low", "high"))
    start, ts = ([0.5, 1.5], [0.0, 0.0]), np.linspace(0.0, 0.6, 7)
    trial = choose_steps(system, *start, ts).per_save
    sol = simulate(system, *start, ts)
    assert sol.accepted > 2 * 6 * trial
    assert sol.integration_error < 16e-6


@pytest.mark.slow
def test_steps_between_the_samples_of_a_controller_show_their_error() -> None:
    plant = jm.System(
        lambda q, v, t, p: v @ v / 2, force=lambda q, v, t, p: p["u"][None], coordinates=("x",)
    )
    spring = jm.Controller(lambda m, mem, t, p: (-4 * m[0][0], mem), 0.05, delay=0.03, name="u")
    sol = simulate(jm.controlled(plant, spring), [1.0], [0.0], np.linspace(0.0, 1.0, 11))
    assert sol.integration_error < 1e-6
