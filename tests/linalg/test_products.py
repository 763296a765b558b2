"""Products, sizes and null spaces of small matrices."""

import jax
import numpy as np
import pytest

from jaxmech.linalg import max_abs, null_space
from tests.quick import quick


def test_the_largest_number_of_a_large_batch_is_nan_if_one_is() -> None:
    x = np.zeros((40_000, 3))
    x[-1, 1] = np.nan
    largest = jax.jit(jax.vmap(max_abs))(x)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(largest)), [len(x) - 1])


@pytest.mark.parametrize(("n", "m", "rank"), [(5, 2, 2), (5, 4, 2), (4, 6, 4), (3, 0, 0)])
def test_null_space(n: int, m: int, rank: int) -> None:
    draw = np.random.default_rng(n + m)
    A = draw.normal(size=(m, rank)) @ draw.normal(size=(rank, n))
    N = np.asarray(quick(null_space)(A))
    np.testing.assert_allclose(A @ N.T, 0.0, atol=1e-13)
    lengths = (N * N).sum(1)
    assert np.count_nonzero(lengths) == n - rank
    np.testing.assert_allclose(N @ N.T, np.diag(lengths > 0), atol=1e-14)


def test_null_space_beside_an_axis() -> None:
    """The null space of a row that is almost a unit vector has full precision."""
    A = np.array([[1.0, 1e-9, 0.0]])
    N = np.asarray(quick(null_space)(A))
    np.testing.assert_allclose(A @ N.T, 0.0, atol=1e-16)
    assert np.count_nonzero((N * N).sum(1)) == 2
