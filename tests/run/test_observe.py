"""Multipliers, reactions by name, residuals and rank along a trajectory."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, System, observe, simulate
from tests.small import MIXED, PENDULUM, QUATERNION, REDUNDANT

TS = np.linspace(0.0, 0.6, 4)


def seen(case: Any, **options: Any) -> Any:
    sol = simulate(case.system, *case[2:], TS, case.params, steps=FixedSteps(10))
    eom = jax.jit(jax.vmap(lambda q, v, t: case.system.equations(q, v, t, case.params)))
    return sol, observe(case.system, sol, case.params, **options), eom(sol.q, sol.v, sol.ts)


@pytest.mark.parametrize(
    "case", [MIXED, REDUNDANT, QUATERNION], ids=["mixed", "redundant", "quaternion"]
)
def test_the_parts_add_up(case: Any) -> None:
    sol, obs, eom = seen(case)
    total = sum(obs.reactions.values())
    np.testing.assert_allclose(total, obs.constraint_force, atol=1e-12)
    left = np.einsum("tij,tj->ti", eom.M, obs.qdd)
    np.testing.assert_allclose(left, eom.Q + obs.constraint_force, atol=1e-11)
    stacked = np.concatenate([obs.multipliers[c.name] for c in case.system.constraints], 1)
    force = np.einsum("tmi,tm->ti", eom.A, stacked)
    np.testing.assert_allclose(force, obs.constraint_force, atol=1e-11)
    np.testing.assert_allclose(np.einsum("tmi,ti->tm", eom.A, obs.qdd), eom.b, atol=1e-10)
    np.testing.assert_array_equal(obs.rank, np.linalg.matrix_rank(np.asarray(eom.A), tol=1e-9))
    np.testing.assert_allclose(obs.energy, sol.energy, rtol=1e-13)


def test_names_shapes_and_residuals() -> None:
    """phi for constraints on positions, psi for those on velocities, chi on accelerations."""
    sol, obs, _ = seen(MIXED)
    names = ["servo", "road", "blade and speed"]
    assert (
        sorted(obs.multipliers) == sorted(obs.reactions) == sorted(obs.residuals) == sorted(names)
    )
    assert [obs.multipliers[name].shape for name in names] == [(4, 1), (4, 1), (4, 2)]
    with pytest.raises(KeyError, match="`rod` is not among the names; did you mean `road`"):
        obs.multipliers["rod"]
    assert [obs.residuals[name].shape for name in names] == [(4, 1), (4, 1), (4, 2)]
    assert all(reaction.shape == (4, 5) for reaction in obs.reactions.values())
    assert all(np.abs(residual).max() < 1e-12 for residual in obs.residuals.values())
    worst = np.abs(obs.residuals["road"]).max(1)
    assert np.all(worst <= sol.position_residual + 1e-16)
    # the blade pushes across itself, the speed along it, neither turns it
    np.testing.assert_array_equal(obs.reactions["blade and speed"][:, 2:], 0.0)
    np.testing.assert_array_equal(obs.reactions["servo"][:, :3], 0.0)


def test_the_pull_of_a_rod() -> None:
    """T = m (v^2 - g y) / l, towards the pivot: the reaction is -T q / l."""
    sol, obs, _ = seen(PENDULUM)
    p, q, v = PENDULUM.params, np.asarray(sol.q), np.asarray(sol.v)
    tension = p["m"] * (np.sum(v * v, 1) - p["g"] * q[:, 1]) / p["l"]
    np.testing.assert_allclose(obs.reactions["rod"], -tension[:, None] * q / p["l"], rtol=1e-9)


def test_after_a_failure_all_values_are_nan() -> None:
    """NaN, and no error."""
    system = System(
        PENDULUM.system.lagrangian,
        [Holonomic(lambda q, t, p: q @ q - jnp.where(t > 0.3, -1.0, p["l"] ** 2), "rod")],
        coordinates=("x", "y"),
    )
    steps = FixedSteps(10, times=(0.3,))
    sol = simulate(system, *PENDULUM[2:], TS, PENDULUM.params, steps=steps, throw=False)
    obs = observe(system, sol, PENDULUM.params)
    assert np.isfinite(obs.qdd[:2]).all()
    assert np.isnan(obs.qdd[2:]).all()
    assert np.isnan(obs.multipliers["rod"][2:]).all()
