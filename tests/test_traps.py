"""Known pitfalls of constrained mechanics, each in `acceleration` and in a short `simulate`.

Most of them are one system with other numbers, so that it is compiled once. Statuses as such are
tested in test_status.py, redundancy in laws/ and test_simulate.py, singular poses at length
in test_published.py.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import (
    FixedSteps,
    Holonomic,
    Nonholonomic,
    Status,
    System,
    acceleration,
    simulate,
)
from tests.small import OSCILLATOR, PRESCRIBED

TS = np.linspace(0.0, 0.2, 3)
G, M = 9.81, 1.3
ROD = -0.5, (0.0, 0.0), np.eye(2)  # (x^2 + y^2 - 1) / 2


def _position(which: int, q: Any, t: Any, p: Any) -> Any:
    """c + d q + q H q / 2 + s t^2 / 2."""
    bend = 0.5 * (q[None, :] * p["H"][which] * q[:, None]).sum()
    return p["c"][which] + (p["d"][which] * q).sum() + bend + 0.5 * p["s"][which] * t**2


def _velocity(q: Any, v: Any, t: Any, p: Any) -> Any:
    return (p["W"] * v**2).sum()


GENERAL = System(
    lambda q, v, t, p: 0.5 * M * v @ v - M * G * q[1],
    [
        Holonomic(partial(_position, 0), "first"),
        Holonomic(partial(_position, 1), "second"),
        Nonholonomic(_velocity, "speed"),
    ],
    coordinates=("x", "y"),
)


def numbers(*positions: Any, s: float = 0.0, W: Any = (0.0, 0.0)) -> dict[str, Any]:
    """Up to two constraints (c, d, H), the others being 0 = 0."""
    rows = [*positions, *[(0.0, (0.0, 0.0), np.zeros((2, 2)))] * (2 - len(positions))]
    c, d, H = (np.array(part, float) for part in zip(*rows, strict=True))
    return {"c": c, "d": d, "H": H, "s": np.array([s, 0.0]), "W": np.array(W, float)}


@jax.jit
def at(q: Any, v: Any, p: Any) -> Any:
    return acceleration(GENERAL, q, v, 0.0, p)


def run(p: Any, q: Any = (0.0, 0.0), v: Any = (0.0, 0.0)) -> Any:
    return simulate(GENERAL, np.array(q), np.array(v), TS, p, steps=FixedSteps(4), throw=False)


def found(p: Any, q: Any = (0.0, 0.0), v: Any = (0.0, 0.0)) -> Any:
    return at(np.array(q), np.array(v), p)


FALLING = np.stack([0 * TS, -G * TS**2 / 2], 1)


def test_a_loop_that_is_closed_twice_moves_as_one() -> None:
    state = (0.6, -0.8), (0.8, 0.6)
    once, twice = numbers(ROD), numbers(ROD, (-1.5, (0.0, 0.0), 3 * np.eye(2)))
    alone, shared = found(once, *state), found(twice, *state)
    np.testing.assert_allclose(shared.qdd, alone.qdd, rtol=1e-14)
    np.testing.assert_allclose(
        shared.multipliers, alone.multipliers[0] * np.array([0.1, 0.3, 0.0]), rtol=1e-13
    )
    assert (alone.rank, shared.rank) == (1, 1)
    one, both = run(once, *state), run(twice, *state)
    np.testing.assert_allclose(both.q, one.q, atol=1e-14)
    assert (both.status, both.rank) == (Status.OK, 1)


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_constraints_that_exclude_each_other(apart: float) -> None:
    """x = 0 with x = 0 is one constraint; x = 0 with x = 1 has a status, not NaN."""
    p = numbers((0.0, (1.0, 0.0), np.zeros((2, 2))), (-apart, (1.0, 0.0), np.zeros((2, 2))))
    motion = found(p)
    np.testing.assert_allclose(motion.qdd, [0.0, -G], rtol=1e-15)
    assert motion.rank == 1
    sol = run(p)
    assert Status(int(sol.status)) == (Status.INCONSISTENT if apart else Status.OK)
    assert np.isfinite(sol.q[0]).all()
    assert np.isnan(sol.q[1:]).all() == bool(apart)


def test_accelerations_that_exclude_each_other() -> None:
    """x = 0 and x = t^2 / 2 agree at t = 0 in position and velocity, but not in acceleration."""
    line = 0.0, (1.0, 0.0), np.zeros((2, 2))
    p = numbers(line, line, s=-1.0)
    motion = found(p)
    assert np.isfinite(motion.qdd).all()
    assert np.isfinite(motion.multipliers).all()
    assert motion.residual == 1
    sol = run(p)
    assert Status(int(sol.status)) == Status.CONTRADICTORY
    assert sol.t_failed == 0
    assert np.isfinite(sol.q[0]).all()


@pytest.mark.parametrize(("gap", "status"), [(0.0, Status.OK), (0.5, Status.INCONSISTENT)])
def test_a_constraint_that_does_not_depend_on_q(gap: float, status: Status) -> None:
    """Rows of zeros: they constrain nothing, and an unsatisfied one cannot be satisfied."""
    p = numbers((gap, (0.0, 0.0), np.zeros((2, 2))))
    motion = found(p)
    np.testing.assert_allclose(motion.qdd, [0.0, -G], rtol=1e-15)
    np.testing.assert_array_equal(motion.multipliers, [0.0, 0.0, 0.0])
    assert (motion.rank, motion.residual) == (0, 0)
    sol = run(p)
    assert Status(int(sol.status)) == status
    expected = FALLING if status == Status.OK else np.full((3, 2), np.nan)
    np.testing.assert_allclose(sol.q[1:], expected[1:], atol=1e-14)


def test_a_constraint_on_time_alone_is_contradictory() -> None:
    """t^2 = 0 and its rate hold at t = 0, but its second derivative is 2 for any motion."""
    p = numbers(s=2.0)
    motion = found(p)
    np.testing.assert_allclose(motion.qdd, [0.0, -G], rtol=1e-15)
    assert motion.residual == 2
    sol = run(p)
    assert Status(int(sol.status)) == Status.CONTRADICTORY
    assert np.isfinite(sol.q[0]).all()


def test_at_rest_a_quadratic_constraint_on_the_velocity_holds_nothing() -> None:
    """x'^2 = y'^2 has no gradient at v = 0: the mass falls freely, which violates it at once."""
    p = numbers(W=(1.0, -1.0))
    motion = found(p)
    np.testing.assert_allclose(motion.qdd, [0.0, -G], rtol=1e-15)
    assert (motion.rank, motion.residual) == (0, 0)
    sol = run(p)
    assert Status(int(sol.status)) != Status.OK
    np.testing.assert_array_equal(sol.q[0], [0.0, 0.0])
    moving = run(p, v=(-1.0, -1.0))
    assert moving.status == Status.OK
    np.testing.assert_allclose(moving.v[:, 0], moving.v[:, 1], rtol=1e-12)


def test_where_two_lines_cross_the_gradient_vanishes() -> None:
    """(x^2 - y^2) / 2 = 0 at the crossing: no NaN, and the motion continues along its line."""
    p = numbers((0.0, (0.0, 0.0), np.diag([1.0, -1.0])))
    motion = found(p, v=(-1.0, -1.0))
    np.testing.assert_allclose(motion.qdd, [0.0, -G], rtol=1e-15)
    assert motion.rank == 0
    sol = run(p, q=(0.1, 0.1), v=(-1.0, -1.0))  # at (0, 0) between two steps
    assert sol.status == Status.OK
    np.testing.assert_allclose(sol.q[:, 0], sol.q[:, 1], atol=1e-14)
    np.testing.assert_allclose(sol.q[:, 0], 0.1 - TS - G * TS**2 / 4, atol=1e-6)


def _parallelogram(q: Any, t: Any, p: Any) -> Any:
    left, right = q[:2], q[2:] - jnp.array([1.0, 0.0])
    bar = q[2:] - q[:2]
    return (jnp.stack([left @ left, right @ right, bar @ bar]) - 1) / 2


FOUR_BAR = System(
    lambda q, v, t, p: 0.5 * v @ v - G * (q[1] + q[3]),
    [Holonomic(_parallelogram, "bars")],
    coordinates=("x0", "y0", "x1", "y1"),
)


def test_a_four_bar_passes_the_pose_in_which_it_is_flat() -> None:
    """There one row of three is dependent; after it the bar is still level."""

    def state(angle: float, rate: float) -> tuple[np.ndarray, np.ndarray]:
        arm = np.array([np.cos(angle), np.sin(angle)])
        turn = rate * np.array([-arm[1], arm[0]])
        return np.array([*arm, arm[0] + 1, arm[1]]), np.tile(turn, 2)

    motion = jax.jit(lambda q, v: acceleration(FOUR_BAR, q, v))(*state(0.0, -1.0))
    assert motion.rank == 2
    assert np.isfinite(motion.qdd).all()
    assert motion.residual < 1e-13
    q, v = state(0.1, -1.0)
    sol = simulate(FOUR_BAR, q, v, TS, steps=FixedSteps(20))
    assert sol.q[0, 1] > 0 > sol.q[-1, 1]
    np.testing.assert_allclose(sol.q[:, 1], sol.q[:, 3], atol=1e-9)
    np.testing.assert_allclose(sol.energy, sol.energy[0], rtol=1e-7)


def test_without_constraints_nothing_is_added() -> None:
    """The trajectory is tested in integrate/test_rollout.py."""
    case = OSCILLATOR
    motion = acceleration(case.system, case.q, case.v, 0.0, case.params)
    np.testing.assert_allclose(motion.qdd, -4.0 * case.q, rtol=1e-15)
    assert (motion.multipliers.shape, motion.rank, motion.residual) == ((0,), 0, 0)
    np.testing.assert_array_equal(motion.constraint_force, [0.0, 0.0])


def test_with_as_many_constraints_as_coordinates_the_motion_is_prescribed() -> None:
    """x = sin t, y = l t^3, whatever the forces; its trajectory is in integrate/test_rollout.py."""
    case, t = PRESCRIBED, 0.2
    p = case.params
    q, v = [np.sin(t), p["l"] * t**3], [np.cos(t), 3 * p["l"] * t**2]
    motion = acceleration(case.system, q, v, t, p)
    np.testing.assert_allclose(motion.qdd, [-np.sin(t), 6 * p["l"] * t], rtol=1e-14)
    force = p["m"] * np.array([-np.sin(t), 6 * p["l"] * t + p["g"]])
    np.testing.assert_allclose(motion.multipliers, force, rtol=1e-14)
