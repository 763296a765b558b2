"""Long-time methods with redundant rows, a singular M, forces and moving constraints."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import jaxmech as jm
from tests.small import PENDULUM, QUATERNION, REDUNDANT, WIRE, Case

TS = np.linspace(0.0, 1.0, 6)


def run(case: Case, method: Any, per_save: int) -> jm.Solution:
    return jm.simulate(
        case.system, case.q, case.v, TS, case.params, method=method, steps=jm.FixedSteps(per_save)
    )


@pytest.mark.slow
def test_dependent_rows_change_nothing() -> None:
    """The motion of the rod three times is that of the rod."""
    three, one = run(REDUNDANT, jm.RATTLE(), 20), run(PENDULUM, jm.RATTLE(), 20)
    np.testing.assert_allclose(three.q, one.q, atol=1e-12)
    np.testing.assert_allclose(three.v, one.v, atol=1e-12)
    assert three.rank == 1


def test_a_force_and_a_moving_constraint_against_the_closed_form() -> None:
    """r'' = w^2 r - (c / m) r' of the bead on a rotating wire."""
    p, sol = WIRE.params, run(WIRE, jm.Variational(), 40)
    rate = np.array([[0.0, 1.0], [p["w"] ** 2, -p["c"] / p["m"]]])
    r = np.array([(expm(rate * t) @ [0.5, 0.3])[0] for t in TS])
    expected = r[:, None] * np.stack([np.cos(p["w"] * TS), np.sin(p["w"] * TS)], axis=1)
    np.testing.assert_allclose(sol.q, expected, atol=1e-5)
    assert sol.velocity_residual.max() < 1e-14


@pytest.mark.slow
def test_a_singular_mass_matrix_with_the_constraints_that_make_up_for_it() -> None:
    """The unit quaternion: the energy error falls with the square of the step."""
    coarse, fine = run(QUATERNION, jm.Variational(), 10), run(QUATERNION, jm.Variational(), 20)
    assert coarse.ok
    assert fine.position_residual.max() < 1e-14
    assert 3.5 < coarse.energy_drift / fine.energy_drift < 4.5


RELATIVISTIC = Case(
    jm.System(
        lambda q, v, t, p: -p["m"] * jnp.sqrt(1 - v @ v) - q[2],
        [jm.Holonomic(lambda q, t, p: (q @ q - 1) / 2, "sphere")],
        coordinates=("x", "y", "z"),
    ),
    {"m": 1.0},
    np.array([1.0, 0.0, 0.0]),
    np.array([0.0, 0.6, 0.3]),
)


@pytest.mark.slow
def test_momenta_that_are_not_linear_in_v() -> None:
    """Against RK4; the momentum about the vertical, v / sqrt(1 - v^2), to rounding."""
    fine, sol = run(RELATIVISTIC, jm.RK4(), 100), run(RELATIVISTIC, jm.Variational(), 40)
    np.testing.assert_allclose(sol.q, fine.q, atol=1e-5)
    np.testing.assert_allclose(sol.v, fine.v, atol=1e-5)
    slow = np.sqrt(1 - (np.asarray(sol.v) ** 2).sum(1))
    momentum = (sol.q[:, 0] * sol.v[:, 1] - sol.q[:, 1] * sol.v[:, 0]) / slow
    np.testing.assert_allclose(momentum, momentum[0], atol=1e-13)


@pytest.mark.slow
def test_single_precision() -> None:
    single = PENDULUM._replace(q=np.float32(PENDULUM.q), v=np.float32(PENDULUM.v))
    for method in (jm.RATTLE(), jm.Variational()):
        sol = run(single, method, 20)
        assert sol.q.dtype == jnp.float32
        assert sol.ok
        assert sol.position_residual.max() < 2e-6
