"""Rows that are redundant only on the constraints, with stages far off the constraints.

A plate hangs on two cranks, and a third of its points is constrained to the circle on which it
moves anyway. At the stages of a step this row is slightly independent of the others.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmech as jm
from experiments.linkages import bricard

POINTS = np.array([[-1.0, 0.0], [1.0, 0.0], [0.3, 0.4]])  # of the plate, in its frame
G, END = 9.81, 1.0


def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    kinetic = 0.5 * (v @ (v * jnp.array([1, 1, 1 / 3, 1 / 3, 1 / 3])))
    return kinetic - G * (q[1] - (jnp.cos(q[3]) + jnp.cos(q[4])) / 2)


def joints(q: Any, t: Any, p: Any) -> Any:
    """The points of the plate are the heads of the cranks; the third keeps its distance."""
    c, s = jnp.cos(q[2]), jnp.sin(q[2])
    turn = jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])
    arms = q[None, :2] + POINTS @ turn.T - POINTS
    heads = jnp.stack([jnp.sin(q[3:]), -jnp.cos(q[3:])], axis=1)
    return jnp.append((arms[:2] - heads).ravel(), (arms[2] @ arms[2] - 1) / 2)


PLATE = jm.System(lagrangian, [jm.Holonomic(joints)], coordinates=("x", "y", "turn", "a", "b"))


def pose(angle: float, rate: float) -> tuple[np.ndarray, np.ndarray]:
    along, across = np.sin(angle), -np.cos(angle)
    return (
        np.array([along, across, 0, angle, angle]),
        np.array([-rate * across, rate * along, 0, rate, rate]),
    )


def swung(angle: float, rate: float, end: float) -> np.ndarray:
    """The exact position of the plate, which moves like a pendulum of a point and two rods."""
    run = solve_ivp(
        lambda t, y: [y[1], -2 / (1 + 2 / 3) * G * np.sin(y[0])], (0, end), [angle, rate],
        method="DOP853", rtol=1e-12, atol=1e-12,
    )  # fmt: skip
    return pose(*run.y[:, -1])[0]


def errors(start: Any, steps: int, **policies: Any) -> tuple[jm.Solution, float]:
    ts, policies["steps"] = np.array([0, END]), jm.FixedSteps(steps)
    sol = jm.simulate(PLATE, *pose(*start), ts, throw=False, **policies)
    return sol, float(np.abs(np.asarray(sol.q[-1]) - swung(*start, END)).max())


@pytest.mark.slow
@pytest.mark.parametrize("solver", [jm.laws.LDL(), jm.laws.QR()], ids=lambda s: type(s).__name__)
def test_a_coarse_step_is_accurate(solver: Any) -> None:
    """Steps of 50 ms, for which a rank decision per stage ends in `PROJECTION_FAILED`."""
    sol, error = errors((1.2, -2.0), 20, formulation=jm.laws.UdwadiaKalaba(solver=solver))
    assert (int(sol.status), int(sol.rank)) == (jm.Status.OK, 4)
    assert error < 2e-5
    assert sol.energy_drift < 5e-4


@pytest.mark.slow
def test_a_derivative_goes_through_such_a_step() -> None:
    """By the rate at the start, against differences of the run itself."""

    def angle(rate: Any) -> Any:
        q0, v0 = pose(1.2, 1.0)
        steps = jm.FixedSteps(per_save=20)
        return jm.simulate(PLATE, q0, rate * v0, [0.0, END], steps=steps).q[-1, 3]

    slope = jax.jit(jax.grad(angle))(-2.0)
    wanted = (angle(-2.0 + 1e-4) - angle(-2.0 - 1e-4)) / 2e-4
    np.testing.assert_allclose(slope, wanted, rtol=1e-6)


@pytest.mark.slow
def test_a_step_that_starts_in_a_singular_pose_leaves_it() -> None:
    """Two cranks in line with the plate: the row that was dropped there is back after the step."""
    model = jm.models.four_bars(1)
    q0, v0 = model.initial({"angle": 0.0, "omega": -2.0})
    sol = jm.simulate(
        model.system, q0, v0, [0.0, 0.02], model.params, steps=jm.FixedSteps(per_save=20)
    )
    exact = solve_ivp(
        lambda t, y: [y[1], -1.2 * G * np.cos(y[0])], (0, 0.02), [0.0, -2.0], rtol=1e-12, atol=1e-14
    ).y[0, -1]
    assert sol.rank == 7
    assert np.abs(np.asarray(sol.q[-1])[[2, 5]] - exact).max() < 5e-9  # 2e-8 without


@pytest.mark.slow
def test_bricards_linkage_at_a_coarse_step() -> None:
    """35 coordinates and equations, rank 34: there and back again in a second of 20 ms steps."""
    mechanism, starts = bricard()
    start, ts = mechanism.guess(starts), jnp.linspace(0.0, 1.0, 51)
    there = jm.simulate(mechanism.system, *start, ts, steps=jm.FixedSteps(1))
    back = jm.simulate(mechanism.system, there.q[-1], there.v[-1], ts[::-1], steps=jm.FixedSteps(1))
    for sol in (there, back):
        assert sol.rank == 34
        assert sol.energy_drift < 1e-5  # 2 J where stages judge for themselves
    assert np.abs(np.asarray(there.q[-1] - start[0])).max() > 0.1
    np.testing.assert_allclose(back.q[-1], start[0], atol=1e-6)
