"""Elimination of sparse block matrices, against dense solutions."""

import jax.numpy as jnp
import numpy as np

from jaxmech.sparse.factor import factorized
from jaxmech.sparse.order import order_of

RING = [(k, k + 1) for k in range(11)] + [(0, 11)]
STAR = [(a, b) for a in range(5) for b in range(a + 1, 5)] + [(4, k) for k in range(5, 12)]


def dense(D: np.ndarray, E: np.ndarray, edges: list[tuple[int, int]]) -> np.ndarray:
    b, _, m = D.shape
    S = np.zeros((m, b, m, b))
    for k in range(m):
        S[k, :, k] = D[..., k]
    for k, (i, j) in enumerate(edges):
        S[i, :, j], S[j, :, i] = E[..., k], E[..., k].T
    return S.reshape(m * b, m * b)


def test_solutions_are_those_of_dense_matrices() -> None:
    draw = np.random.default_rng(0)
    for edges in (RING, STAR):
        D = draw.normal(size=(2, 2, 12))
        D = D + D.swapaxes(0, 1) + 12 * np.eye(2)[..., None]
        E, r = draw.normal(size=(2, 2, len(edges))), draw.normal(size=(2, 12))
        order = order_of(12, edges)
        least = jnp.full((2, 12), 1e-9)
        factor = factorized(order, jnp.asarray(D), jnp.asarray(E), least)
        x = np.linalg.solve(dense(D, E, edges), r.T.ravel()).reshape(12, 2).T
        np.testing.assert_allclose(factor.solve(jnp.asarray(r)), x, atol=1e-13)
        assert factor.independent.all()


def test_dependent_rows_are_dropped() -> None:
    """The Gram matrix of rows of which one repeats another."""
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(5, 2, 12))
    rows[3, 1] = rows[1, 0]  # beside each other, as all blocks are
    edges = [(a, b) for a in range(5) for b in range(a + 1, 5)]
    S = np.einsum("iax,jbx->iajb", rows, rows)
    D = np.stack([S[k, :, k] for k in range(5)], axis=-1)
    E = np.stack([S[a, :, b] for a, b in edges], axis=-1)
    w = draw.normal(size=12)
    r = (rows @ w).T
    factor = factorized(order_of(5, edges), jnp.asarray(D), jnp.asarray(E), jnp.full((2, 5), 1e-9))
    assert factor.independent.sum() == 9
    x = np.einsum("iax,ai->x", rows, factor.solve(jnp.asarray(r)))
    expected = np.linalg.pinv(rows.reshape(10, 12)) @ r.T.ravel()
    np.testing.assert_allclose(x, expected, atol=1e-12)


def test_a_chain_takes_as_many_rounds_as_its_length_has_bits() -> None:
    phases = order_of(1000, [(k, k + 1) for k in range(999)]).phases
    assert sum(len(phase.pivots) for phase in phases) == 10
    assert len(phases) == 3
