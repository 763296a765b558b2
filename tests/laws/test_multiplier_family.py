"""The family of multipliers, Kalaba et al. 1995, equation (17)."""

from typing import Any

import numpy as np
import pytest

from jaxmech.laws import multiplier_family
from jaxmech.system import EquationsOfMotion
from tests.quick import quick
from tests.small import CASES, PENDULUM, REDUNDANT


def printed_17(eom: EquationsOfMotion, w3: Any) -> np.ndarray:
    """(C^T)^+ C^+ (b - A a) + (I - C C^+) w3 with C = A M^-1/2, word for word."""
    M, Q, A, b = (np.asarray(part) for part in (eom.M, eom.Q, eom.A, eom.b))
    values, vectors = np.linalg.eigh(M)
    C = A @ (vectors / np.sqrt(values) @ vectors.T)
    inverse = np.linalg.pinv(C, rcond=1e-10)
    particular = np.linalg.pinv(C.T, rcond=1e-10) @ inverse @ (b - A @ np.linalg.solve(M, Q))
    return particular + (np.eye(len(b)) - C @ inverse) @ w3


@pytest.mark.parametrize("name", ["redundant", "double"])
def test_it_is_the_printed_family(name: str) -> None:
    case = CASES[name]

    @quick
    def both(q: Any, v: Any) -> Any:
        family = multiplier_family(case.system, q, v, 0.3, case.params)
        return case.system.equations(q, v, 0.3, case.params), family

    eom, family = both(case.q, case.v)
    draw = np.random.default_rng(0)
    for w3 in (np.zeros(eom.b.size), *draw.normal(size=(3, eom.b.size))):
        right = printed_17(eom, w3)
        member = family.member(w3)
        np.testing.assert_allclose(member, right, atol=1e-9 * np.abs(right).max())
        np.testing.assert_allclose(eom.A.T @ member, family.constraint_force, atol=1e-9)
        assert np.linalg.norm(member) >= np.linalg.norm(family.smallest) * (1 - 1e-12)
    assert family.dimension == eom.b.size - np.linalg.matrix_rank(eom.A)


def test_a_given_member_of_the_family() -> None:
    """One rod, written three times: any sharing of the load that adds up is in the family."""
    state = REDUNDANT.q, REDUNDANT.v, 0.0, REDUNDANT.params
    family, alone = quick(
        lambda *state: [multiplier_family(c.system, *state) for c in (REDUNDANT, PENDULUM)]
    )(*state)
    wanted = np.array([0.0, float(alone.smallest[0]), 0.0])  # the second copy carries all of it
    np.testing.assert_allclose(family.member(wanted), wanted, atol=1e-10)
    assert family.dimension == 2
    assert alone.dimension == 0
    np.testing.assert_allclose(alone.member([5.0]), alone.smallest, rtol=1e-14)
