"""Products and sizes of small vectors and matrices."""

import jax
import numpy as np

from jaxmech.linalg import max_abs


def test_the_largest_number_of_a_large_batch_is_nan_if_one_is() -> None:
    x = np.zeros((40_000, 3))
    x[-1, 1] = np.nan
    largest = jax.jit(jax.vmap(max_abs))(x)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(largest)), [len(x) - 1])
