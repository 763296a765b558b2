"""LDL, QR and SVD against numpy's pseudo-inverse, on matrices of full and of deficient rank."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from jaxmech.compiler import explain
from jaxmech.linalg import LDL, QR, SVD, column_space_projector, metric, unit_rows

SOLVERS = [LDL(), QR(), SVD()]
SHAPES = [  # m, n, rank
    (1, 1, 1),
    (2, 5, 2),
    (4, 4, 4),
    (3, 5, 2),
    (6, 4, 3),
    (7, 3, 3),
    (3, 4, 0),
]
DRAWS = 5


def of_rank(m: int, n: int, rank: int, draw: np.random.Generator) -> np.ndarray:
    return draw.normal(size=(m, rank)) @ draw.normal(size=(rank, n))


@jax.jit
@jax.vmap
def smallest(C, r):
    """y, lambda and rank of every solver."""
    rows = [solver.factor(C) for solver in SOLVERS]
    return [(*row.min_norm_solve(r), row.rank) for row in rows]


@pytest.mark.parametrize(("m", "n", "rank"), SHAPES)
def test_smallest_solution(m: int, n: int, rank: int) -> None:
    draw = np.random.default_rng(100 * m + n)
    C = np.stack([of_rank(m, n, rank, draw) for _ in range(DRAWS)])
    x = draw.normal(size=(DRAWS, n))
    r = np.einsum("bmn,bn->bm", C, x)
    expected = np.einsum("bnm,bm->bn", np.linalg.pinv(C, rcond=1e-10), r)
    for y, multipliers, found in smallest(C, r):
        np.testing.assert_array_equal(found, rank)
        np.testing.assert_allclose(y, expected, atol=1e-10)
        np.testing.assert_allclose(np.einsum("bmn,bm->bn", C, multipliers), y, atol=1e-10)


def test_many_rows_are_native_code() -> None:
    """Eight bodies in space with coordinates of their own have 48 constraint equations."""

    def solved(C: Array, r: Array) -> tuple[Array, ...]:
        return *QR().factor(C).min_norm_solve(r), column_space_projector(C)

    assert "plain vmap" not in repr(explain(solved, jnp.ones((1, 48, 56)), jnp.ones((1, 48))))


def test_no_rows() -> None:
    for solver in SOLVERS:
        space = solver.factor(jnp.zeros((0, 3)))
        y, multipliers = space.min_norm_solve(jnp.zeros(0))
        assert y.tolist() == [0.0, 0.0, 0.0]
        assert multipliers.shape == (0,)
        assert space.rank == 0


def test_the_choice_of_rows_does_not_depend_on_units() -> None:
    """A length in millimetres or in light-years does not change the choice of dependent rows."""
    draw = np.random.default_rng(5)
    C = np.stack([of_rank(6, 4, 3, draw) for _ in range(DRAWS)])
    r = np.einsum("bmn,bn->bm", C, draw.normal(size=(DRAWS, 4)))
    scale = 10.0 ** draw.uniform(-9, 9, (DRAWS, 6))
    for plain, scaled in zip(
        smallest(C, r), smallest(C * scale[..., None], r * scale), strict=True
    ):
        np.testing.assert_array_equal(scaled[2], plain[2])
        np.testing.assert_allclose(scaled[0], plain[0], atol=1e-10)


def test_a_dropped_row_has_no_multiplier_and_the_order_decides() -> None:
    C, r = np.array([[[1.0, 2.0], [2.0, 4.0], [0.0, 1.0]]]), np.array([[3.0, 6.0, 1.0]])
    for y, multipliers, _ in smallest(C, r)[:2]:
        np.testing.assert_allclose(y[0], [1.0, 1.0], atol=1e-14)
        assert multipliers[0, 1] == 0.0
    later = smallest(C[:, ::-1], r[:, ::-1])
    for _, multipliers, _ in later[:2]:
        assert multipliers[0, 2] == 0.0


@pytest.mark.parametrize(("solver", "independent"), [(LDL, 1e-4), (QR, 1e-9), (SVD, 1e-9)])
def test_tolerance_decides_what_is_dependent(solver: Any, independent: float) -> None:
    """Two unit rows at an angle: LDL sees its square, QR and SVD the angle itself."""

    def rank(angle: float, **options: float) -> int:
        C = jnp.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
        return int(solver(**options).factor(C).rank)

    assert rank(independent) == 2
    assert rank(1e-12) == 1
    assert rank(0.05, tolerance=0.1) == 1
    assert rank(0.9, tolerance=0.1) == 2


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
def test_rows_outside_kept_are_dropped(solver: Any) -> None:
    """A third row that is nearly dependent is dropped if a nearby C had it as dependent."""
    there = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 0.0]])
    here = there + np.array([[0, 0, 0], [0, 0, 0], [0, 0, 1e-3]])
    independent = solver.factor(jnp.asarray(there)).independent
    np.testing.assert_array_equal(independent, [True, True, False])
    assert solver.factor(jnp.asarray(here)).rank == 3
    rows = solver.factor(jnp.asarray(here), independent)
    assert rows.rank == 2
    np.testing.assert_array_equal(rows.independent, independent)
    y, _ = rows.min_norm_solve(jnp.array([1.0, 2.0, 3.0]))  # the third row asks for 1,000 of y[2]
    assert np.abs(y).max() < 2


def test_qr_does_not_square_the_condition() -> None:
    """Rows at an angle of 1e-4: LDL loses twice the digits that QR loses."""
    angle = 1e-4
    C = np.array([[[1.0, 0.0], [np.cos(angle), np.sin(angle)]]])
    x = np.array([0.3, 0.7])
    errors = [np.abs(y[0] - x).max() for y, _, _ in smallest(C, C @ x)]
    assert errors[0] < 1e-7
    assert errors[1] < 1e-11
    assert errors[2] < 1e-11


def test_qr_stays_orthogonal_near_a_singular_pose() -> None:
    """The example of Läuchli 1961: one pass of Gram-Schmidt leaves angles of 60 degrees."""
    e = 1e-8
    C = jnp.array([[1.0, e, 0.0, 0.0], [1.0, 0.0, e, 0.0], [1.0, 0.0, 0.0, e]])
    rows = jax.jit(QR().factor)(C)
    np.testing.assert_allclose(rows.U @ rows.U.T, np.eye(3), atol=1e-14)
    assert rows.rank == 3


@pytest.mark.parametrize(
    "solver",
    [SOLVERS[0], *(pytest.param(s, marks=pytest.mark.slow) for s in SOLVERS[1:])],
    ids=lambda s: type(s).__name__,
)
def test_derivative_at_constant_rank(solver: Any) -> None:
    """The derivative for rank 2 with a repeated row and a consistent right-hand side."""
    draw = np.random.default_rng(3)
    F, G, H, x = (draw.normal(size=s) for s in [(2, 4), (2, 4), (3, 2), (4,)])

    def y(s: Any) -> Any:
        C = H @ (F + s * G)
        C = jnp.concatenate([C, C[:1]])
        return solver.factor(C).min_norm_solve(C @ x)[0]

    h = 1e-5
    slope = jax.jit(jax.jacfwd(y))(0.3)
    central = (jax.jit(y)(0.3 + h) - jax.jit(y)(0.3 - h)) / (2 * h)
    np.testing.assert_allclose(slope, central, atol=1e-8)
    assert np.abs(slope).max() > 0.1
    np.testing.assert_allclose(jax.jit(jax.jacrev(y))(0.3), slope, rtol=1e-10)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
def test_derivative_at_a_row_of_zeros_is_finite(solver: Any) -> None:
    def total(C: Any) -> Any:
        return solver.factor(C).min_norm_solve(jnp.array([1.0, 0.0]))[0].sum()

    slope = jax.jit(jax.grad(total))(jnp.array([[1.0, 0.5], [0.0, 0.0]]))
    assert np.isfinite(slope).all()


def test_unit_rows() -> None:
    C, scale = unit_rows(jnp.array([[3.0, 4.0], [0.0, 0.0], [0.0, -1e-200]]))
    np.testing.assert_allclose(C[0], [0.6, 0.8])
    np.testing.assert_allclose(scale[:2], [0.2, 0.0])


def test_metric_is_the_weighted_pseudo_inverse() -> None:
    """x = M^-1 A^T (A M^-1 A^T)^+ r."""
    draw = np.random.default_rng(8)
    F, A = draw.normal(size=(5, 5)), of_rank(4, 5, 3, draw)
    M, r = F @ F.T + np.eye(5), A @ draw.normal(size=5)
    pair = jax.jit(lambda M, A: metric(M, A, LDL()))(M, A)
    x, multipliers = pair.min_norm_solve(jnp.asarray(r))
    W = np.linalg.inv(M) @ A.T
    np.testing.assert_allclose(x, W @ np.linalg.pinv(A @ W, rcond=1e-10) @ r, atol=1e-12)
    np.testing.assert_allclose(M @ x, A.T @ multipliers, atol=1e-12)
    np.testing.assert_allclose(
        pair.solve(jnp.ones(5), jnp.zeros(len(pair.A)))[0],
        np.linalg.solve(M, np.ones(5)),
        rtol=1e-10,
    )
    assert pair.definite
    assert pair.rank == 3


def test_column_space_projector_makes_multipliers_smallest() -> None:
    draw = np.random.default_rng(9)
    A = of_rank(5, 4, 2, draw)
    some = draw.normal(size=5)
    smallest = column_space_projector(jnp.asarray(A)) @ some
    np.testing.assert_allclose(
        smallest, np.linalg.lstsq(A.T, A.T @ some, rcond=1e-10)[0], atol=1e-12
    )


@pytest.mark.parametrize("ratio", [1.0, 1e6, 1e14])
def test_column_space_projector_for_rows_in_different_units(ratio: float) -> None:
    """Units of rows change neither the rank nor which multipliers are undetermined."""
    A = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 0.0], [1.2, 1.6, 0.0]])
    units = np.array([1 / ratio, 1.0, 1.0, 2.0])
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        found = jax.jit(column_space_projector)((units[:, None] * A)[order])
        right = np.zeros((4, 4))
        right[0, 0], right[np.ix_([1, 3], [1, 3])] = 1.0, np.array([[1.0, 4.0], [4.0, 16.0]]) / 17
        np.testing.assert_allclose(found, right[np.ix_(order, order)], atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "traced"), [(LDL, "_eliminated"), (QR, "_orthogonalized"), (SVD, "_inverted")]
)
def test_a_factorization_is_traced_once_for_all_uses(kind: Any, traced: str) -> None:
    """Tracing one takes longer than compiling it."""

    def uses(M: Any, A: Any, independent: Any) -> Any:
        pairs = metric(M, A, kind()), metric(M, A, kind(), independent)
        return *pairs, kind(tolerance=1e-3).factor(A), kind().factor(2 * A, independent)

    found = jax.make_jaxpr(uses)(jnp.eye(5), jnp.ones((3, 5)), jnp.ones(3, bool))
    calls = [eqn.params for eqn in found.eqns if "jaxpr" in eqn.params]
    for name, count in (("cholesky", 2), ("with_rows", 2), (traced, 2)):
        of_name = [id(p["jaxpr"]) for p in calls if p["name"] == name]
        assert len(of_name) == count
        assert len(set(of_name)) == 1
