"""The Udwadia-Kalaba acceleration against the multiplier system and the textbook formula."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.laws import LDL, QR, SVD, UdwadiaKalaba, null_projector
from jaxmech.system import EquationsOfMotion

LAWS = {solver: UdwadiaKalaba(solver=solver) for solver in (LDL(), QR(), SVD())}
SHAPES = [  # n, m, rank: none, few, as many as coordinates, redundant, more than coordinates
    (3, 0, 0),
    (5, 2, 2),
    (4, 4, 4),
    (5, 4, 2),
    (3, 6, 3),
    (4, 7, 2),
]
DRAWS = 4


def masses(kind: str, n: int, draw: np.random.Generator) -> np.ndarray:
    match kind:
        case "dense":
            F = draw.normal(size=(n, n))
            return F @ F.T + np.eye(n)
        case "equal":
            return 2.5 * np.eye(n)
        case _:
            return np.diag(10.0 ** draw.uniform(-4, 4, n))


Batch = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # M, Q, A, b of several


def equations(n: int, m: int, rank: int, kind: str) -> Batch:
    """A batch of random equations with consistent constraints."""
    draw = np.random.default_rng(1000 * n + 10 * m + rank)
    M = np.stack([masses(kind, n, draw) for _ in range(DRAWS)])
    A = draw.normal(size=(DRAWS, m, rank)) @ draw.normal(size=(DRAWS, rank, n))
    b = np.einsum("bmn,bn->bm", A, draw.normal(size=(DRAWS, n)))
    Q = np.einsum("bij,bj->bi", M, draw.normal(size=(DRAWS, n)))
    return M, Q, A, b


@jax.jit
@jax.vmap
def laws(*blocks: Any) -> Any:
    eom = EquationsOfMotion(*blocks)
    return [law.solve(eom) for law in LAWS.values()]


def kkt(M: Any, Q: Any, A: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """[[M, -A^T], [A, 0]] (qdd, lambda) = (Q, b), the smallest solution."""
    n, m = len(Q), len(b)
    K = np.block([[M, -A.T], [A, np.zeros((m, m))]])
    solution = np.linalg.lstsq(K, np.concatenate([Q, b]), rcond=1e-13)[0]
    return solution[:n], solution[n:]


def textbook(M: Any, Q: Any, A: Any, b: Any) -> np.ndarray:
    """a + M^-1/2 (A M^-1/2)^+ (b - A a), Kalaba et al. 1995, equation (2)."""
    values, vectors = np.linalg.eigh(M)
    root = vectors / np.sqrt(values) @ vectors.T
    a = np.linalg.solve(M, Q)
    return a + root @ np.linalg.pinv(A @ root, rcond=1e-11) @ (b - A @ a)


@pytest.mark.parametrize("kind", ["dense", "equal", "scaled"])
@pytest.mark.parametrize(("n", "m", "rank"), SHAPES)
def test_all_solvers_give_the_constrained_acceleration(
    n: int, m: int, rank: int, kind: str
) -> None:
    batch = equations(n, m, rank, kind)
    for law in laws(*batch):
        for k in range(DRAWS):
            M, Q, A, b = (part[k] for part in batch)
            qdd, multipliers = np.asarray(law.qdd[k]), np.asarray(law.multipliers[k])
            assert law.definite[k]
            assert law.rank[k] == rank
            np.testing.assert_allclose(A @ qdd, b, atol=1e-10)
            size = np.abs(M) @ np.abs(qdd) + np.abs(Q) + np.abs(A.T) @ np.abs(multipliers)
            assert np.all(np.abs(M @ qdd - Q - A.T @ multipliers) < 1e-12 * size)
            # LDL loses twice the digits that rows of condition 2e4 lose: 1e-8 for one of these.
            np.testing.assert_allclose(qdd, textbook(M, Q, A, b), rtol=1e-7, atol=1e-8)
            if kind != "scaled":
                np.testing.assert_allclose(qdd, kkt(M, Q, A, b)[0], atol=1e-10)
                np.testing.assert_allclose(qdd, textbook(M, Q, A, b), atol=1e-10)


def singular_equations() -> Batch:
    """M of rank 3, 2 and 0 of 4; with 3 rows, of rank 2, [M; A] is of rank 4, 4 and 2."""
    draw = np.random.default_rng(2)
    roots = [draw.normal(size=(4, rank)) for rank in (3, 2, 0)]
    M = np.stack([root @ root.T for root in roots])
    A = draw.normal(size=(3, 3, 2)) @ draw.normal(size=(3, 2, 4))
    b = np.einsum("bmn,bn->bm", A, draw.normal(size=(3, 4)))
    Q = np.einsum("bij,bj->bi", M, draw.normal(size=(3, 4)))
    Q = Q + np.einsum("bmn,bm->bn", A, draw.normal(size=(3, 3)))
    return M, Q, A, b


@pytest.mark.slow
@pytest.mark.parametrize("solver", LAWS, ids=lambda s: type(s).__name__)
def test_singular_mass(solver: Any) -> None:
    """Udwadia and Phohomsiri 2006: unique as long as [M; A] has full column rank."""
    batch = singular_equations()

    @jax.jit
    @jax.vmap
    def both(*blocks: Any) -> Any:
        eom = EquationsOfMotion(*blocks, singular_mass=True)
        laws = UdwadiaKalaba(solver), UdwadiaKalaba(solver, singular_mass=False)
        return [law.solve(eom) for law in laws]

    law, plain = both(*batch)
    assert law.definite.tolist() == [True, True, False]
    for k in range(2):
        M, Q, A, b = (part[k] for part in batch)
        np.testing.assert_allclose(law.qdd[k], kkt(M, Q, A, b)[0], atol=1e-10)
        np.testing.assert_allclose(M @ law.qdd[k], Q + A.T @ law.multipliers[k], atol=1e-10)
        assert law.rank[k] == 2
    assert not plain.definite.any()
    assert np.isfinite(plain.qdd).all()
    assert np.isfinite(law.qdd).all()


def test_the_flag_does_not_change_a_regular_system() -> None:
    batch = equations(5, 4, 2, "dense")

    @jax.jit
    @jax.vmap
    def always(*blocks: Any) -> Any:
        return UdwadiaKalaba(singular_mass=True).solve(EquationsOfMotion(*blocks))

    one, other = always(*batch), laws(*batch)[0]
    np.testing.assert_allclose(one.qdd, other.qdd, atol=1e-10)
    force, again = (np.einsum("bmn,bm->bn", batch[2], law.multipliers) for law in (one, other))
    np.testing.assert_allclose(again, force, atol=1e-10)


def test_null_projector() -> None:
    """The projector leaves the changes of multipliers that do not change the motion."""
    for m, n, rank in [(2, 5, 2), (4, 5, 2), (6, 3, 3)]:
        eom = EquationsOfMotion(*(jnp.asarray(part[0]) for part in equations(n, m, rank, "dense")))
        P = np.asarray(jax.jit(null_projector)(eom))
        np.testing.assert_allclose(P @ P, P, atol=1e-12)
        np.testing.assert_allclose(P, P.T, atol=1e-12)
        np.testing.assert_allclose(P @ np.asarray(eom.A), 0.0, atol=1e-12)
        assert np.trace(P) == pytest.approx(m - rank, abs=1e-10)


def test_null_projector_and_solvers_agree_on_dependent_rows() -> None:
    A = np.array([[1.0, 0.0], [1.0, 1e-12]])
    eom = EquationsOfMotion(jnp.eye(2), jnp.zeros(2), jnp.asarray(A), jnp.zeros(2))
    assert int(UdwadiaKalaba().solve(eom).rank) == 1
    assert np.trace(null_projector(eom)) == pytest.approx(1.0)
