"""Complete pivoting: rank, independent columns, and the inverse that belongs to them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.linalg import Pivots

SHAPES = [(3, 5, 3), (5, 4, 4), (4, 6, 2), (5, 3, 1), (1, 4, 1)]  # rows, columns, rank


def matrix(m: int, n: int, rank: int) -> np.ndarray:
    """Rows of very different lengths."""
    draw = np.random.default_rng(100 * m + 10 * n + rank)
    A = draw.normal(size=(m, rank)) @ draw.normal(size=(rank, n))
    return A * 10.0 ** draw.uniform(-3, 3, m)[:, None]


@jax.jit
def chosen(A: Any) -> Any:
    found = Pivots.of(A)
    return found.rank, found.dependent, found.rows, found.columns, found.inverse(A)


def sizes(A: Any) -> list[float]:
    return np.round(np.asarray(Pivots.of(jnp.array(A)).sizes), 6).tolist()


@pytest.mark.parametrize(("m", "n", "rank"), SHAPES)
def test_as_many_columns_as_the_rank_and_they_are_independent(m: int, n: int, rank: int) -> None:
    A = matrix(m, n, rank)
    found, dependent, rows, columns, B = chosen(A)
    assert found == rank == dependent.sum() == rows.sum()
    assert set(dependent.tolist()) <= {0.0, 1.0}
    assert np.linalg.matrix_rank(A[:, dependent == 1], tol=1e-9 * np.abs(A).max()) == rank
    # B is the inverse of the chosen square, and zero around it
    square = np.asarray(rows)[:rank] @ A @ np.asarray(columns)[:rank].T
    inside = np.asarray(columns)[:rank] @ B @ np.asarray(rows)[:rank].T
    np.testing.assert_allclose(inside, np.linalg.inv(square), rtol=1e-9)
    assert np.count_nonzero(B) <= rank**2
    np.testing.assert_allclose(A @ B @ A, A, rtol=1e-9, atol=1e-12 * np.abs(A).max())


def test_the_largest_number_of_a_row_comes_first() -> None:
    _, dependent, rows, columns, _ = chosen(jnp.array([[1.0, 2.0, 0.5], [0.0, 30.0, 10.0]]))
    np.testing.assert_array_equal(rows, [[0, 1], [1, 0]])  # 30 of 31.6 is more than 2 of 2.3
    np.testing.assert_array_equal(columns, [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(dependent, [1, 1, 0])
    assert sizes([[3.0, 4.0], [0.0, 2.0]]) == [1.0, 0.6]
    assert sizes([[3.0, 4.0], [6.0, 8.0]]) == [0.8, 0.0]


def test_what_counts_as_a_pivot() -> None:
    A = jnp.array([[1.0, 0.0], [1.0, 1e-4]])
    assert Pivots.of(A).rank == 2
    assert Pivots.of(A, tolerance=1e-3).rank == 1
    assert Pivots.of(A * 1e-9).rank == 2
    assert Pivots.of(jnp.zeros((2, 3))).rank == 0
    assert Pivots.of(jnp.zeros((0, 3))).inverse(jnp.zeros((0, 3))).shape == (3, 0)
    assert Pivots.of(jnp.full((1, 2), jnp.nan)).rank == 0


def test_a_choice_serves_neighbours_until_its_pivot_vanishes() -> None:
    found = Pivots.of(jnp.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(found.inverse(jnp.array([[5.0, 4.0]])), [[0.0], [0.25]])
    np.testing.assert_array_equal(found.inverse(jnp.array([[5.0, 0.0]])), np.zeros((2, 1)))


def test_the_derivative_of_the_inverse() -> None:
    """The derivative along a direction of constant rank is exact; the choice itself has none."""
    A, dA = matrix(4, 5, 2), matrix(4, 5, 2) @ np.diag(np.linspace(-1.0, 2.0, 5))

    def inverse(s: Any) -> Any:
        whole = jnp.asarray(A) + s * jnp.asarray(dA)
        return Pivots.of(whole).inverse(whole)

    h = 1e-6
    slope = (jax.jit(inverse)(h) - jax.jit(inverse)(-h)) / (2 * h)
    for mode in (jax.jacfwd, jax.jacrev):
        found = jax.jit(mode(inverse))(0.0)
        np.testing.assert_allclose(found, slope, rtol=1e-6, atol=1e-7 * np.abs(slope).max())
    assert np.abs(slope).max() > 1e-3
