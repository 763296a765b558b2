"""Cholesky against numpy, and a flag instead of NaN where there is no factor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.linalg import cholesky


def spd(n: int, seed: int, spread: float = 0.0) -> np.ndarray:
    """Positive definite with a diagonal over 10^spread."""
    draw = np.random.default_rng(seed)
    F = draw.normal(size=(n, n)) * 10 ** draw.uniform(-spread / 2, spread / 2, (n, 1))
    return F @ F.T


@jax.jit
def solve(M, B, y):
    factor = cholesky(M)
    return factor.lower(B), factor.lower(y), factor.upper(y), factor.definite


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("spread", [0, 8])
def test_solves_with_the_factor(n: int, spread: float) -> None:
    draw = np.random.default_rng(n)
    for seed in range(5):
        M, B, y = spd(n, seed, spread), draw.normal(size=(n, 3)), draw.normal(size=n)
        L = np.linalg.cholesky(M[::-1, ::-1])[::-1, ::-1]
        lower_B, lower_y, upper_y, definite = solve(M, B, y)
        assert definite
        np.testing.assert_allclose(lower_B, np.linalg.solve(L, B), rtol=1e-8)
        np.testing.assert_allclose(lower_y, np.linalg.solve(L, y), rtol=1e-8)
        np.testing.assert_allclose(upper_y, np.linalg.solve(L.T, y), rtol=1e-8)


@pytest.mark.parametrize(
    "M",
    [
        np.diag([1.0, 0.0, 2.0, 1.0]),
        np.diag([1.0, 1.0, 2.0, -1.0]),
        np.ones((4, 4)),
        np.zeros((4, 4)),
        np.diag([1e9, 1.0, 1.0, 0.0]),
        spd(4, 3)[:, :2] @ spd(4, 3)[:2, :],
    ],
    ids=["zero", "negative", "ones", "nothing", "scaled", "rank 2"],
)
def test_not_definite_is_flagged_and_finite(M: np.ndarray) -> None:
    *results, definite = solve(M + M.T, np.ones((4, 3)), np.ones(4))
    assert not definite
    assert all(np.isfinite(result).all() for result in results)


def test_small_masses_beside_large_ones_are_definite() -> None:
    """The threshold of a pivot is relative to its diagonal element, not to the largest mass."""
    assert solve(np.diag([1e12, 1e-12, 1.0, 1e-20]), np.ones((4, 3)), np.ones(4))[-1]


def test_nan_is_not_reported_as_singular() -> None:
    """A non-finite matrix is not reported as singular, and the results are NaN."""
    lower, *_, definite = solve(np.full((4, 4), np.nan), np.ones((4, 3)), np.ones(4))
    assert definite
    assert np.isnan(lower).all()


def test_derivative_of_equal_masses() -> None:
    """M = m I is where square roots by eigenvectors have no derivative."""
    slope = jax.jit(jax.jacfwd(lambda m: cholesky(m * jnp.eye(4)).upper(jnp.ones(4))))(4.0)
    np.testing.assert_allclose(slope, -np.ones(4) / 16, rtol=1e-14)
