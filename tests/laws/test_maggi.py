"""Maggi's two groups of equations: against closed forms, and for other pseudo-accelerations."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.laws import Maggi
from jaxmech.linalg import null_space
from jaxmech.system import EquationsOfMotion
from tests.quick import quick
from tests.small import SKATE

solve = quick(Maggi().solve)


def equations(n: int, m: int, rank: int, seed: int) -> EquationsOfMotion:
    draw = np.random.default_rng(seed)
    F, A = draw.normal(size=(n, n)), draw.normal(size=(m, rank)) @ draw.normal(size=(rank, n))
    parts = F @ F.T + np.eye(n), draw.normal(size=n), A, A @ draw.normal(size=n)
    return EquationsOfMotion(*map(jnp.asarray, parts))


@pytest.mark.parametrize(("n", "m", "rank"), [(5, 2, 2), (5, 4, 2), (4, 6, 4), (3, 0, 0)])
def test_null_space(n: int, m: int, rank: int) -> None:
    A = equations(n, m, rank, n + m).A
    N = np.asarray(quick(null_space)(A))
    np.testing.assert_allclose(A @ N.T, 0.0, atol=1e-13)
    lengths = (N * N).sum(1)
    assert np.count_nonzero(lengths) == n - rank
    np.testing.assert_allclose(N @ N.T, np.diag(lengths > 0), atol=1e-14)


def test_null_space_beside_an_axis() -> None:
    """The null space of a row that is almost a unit vector has full precision."""
    A = jnp.array([[1.0, 1e-9, 0.0]])
    N = np.asarray(quick(null_space)(A))
    np.testing.assert_allclose(A @ N.T, 0.0, atol=1e-16)
    assert np.count_nonzero((N * N).sum(1)) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("m", "rank"), [(2, 2), (3, 2)])
def test_two_groups(m: int, rank: int) -> None:
    """(3.2) and (3.3) hold for any choice of free pseudo-accelerations, not only for ours."""
    eom = equations(5, m, rank, m)
    law = solve(eom)
    push = np.asarray(eom.M @ law.qdd - eom.Q)
    A = np.asarray(eom.A)[:rank]
    chosen = np.random.default_rng(7).normal(size=(5 - rank, 5))  # w = chosen qdd
    transformation = np.linalg.inv(np.concatenate([chosen, A]))
    B, B_constraints = transformation[:, : 5 - rank], transformation[:, 5 - rank :]
    np.testing.assert_allclose(B.T @ push, 0.0, atol=1e-11)
    np.testing.assert_allclose(A.T @ (B_constraints.T @ push), push, atol=1e-11)
    if rank == m:
        np.testing.assert_allclose(B_constraints.T @ push, law.multipliers, atol=1e-11)
    np.testing.assert_allclose(eom.A @ law.qdd, eom.b, atol=1e-12)


def test_skate_on_an_incline() -> None:
    """Along the blade m s'' = m g cos(phi), phi'' = 0; across, the reaction turns the velocity."""
    p = SKATE.params
    phi, speed, omega = SKATE.q[2], 1.0, SKATE.v[2]
    eom = quick(SKATE.system.equations)(SKATE.q, SKATE.v, 0.0, p)
    law = solve(eom)
    along, across = np.array([np.cos(phi), np.sin(phi)]), np.array([-np.sin(phi), np.cos(phi)])
    qdd: Any = np.asarray(law.qdd)
    assert along @ qdd[:2] == pytest.approx(p["g"] * np.cos(phi), rel=1e-14)
    assert across @ qdd[:2] == pytest.approx(speed * omega, rel=1e-14)
    assert qdd[2] == pytest.approx(0.0, abs=1e-15)
    reaction = p["m"] * (speed * omega + p["g"] * np.sin(phi))
    np.testing.assert_allclose(law.multipliers, [-reaction], rtol=1e-14)
