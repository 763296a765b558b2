"""Linear systems of implicit steps, and their derivatives of second order."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.linalg import saddle_point
from tests.quick import quick

DRAW = np.random.default_rng(3)
N, M = 4, 2
# As in a step: K is positive definite, and the rows at both ends of it are similar.
K0 = 5 * np.eye(N) + DRAW.uniform(-1, 1, (N, N))
B0 = np.eye(M, N) + DRAW.uniform(-0.3, 0.3, (M, N))
J0 = B0 + DRAW.uniform(-0.1, 0.1, (M, N))
SLOPES = [DRAW.uniform(-1, 1, shape) for shape in ((N, N), (M, N), (M, N), (N,), (M,))]
KEPT = np.array([True, True])


def solution(s: Any) -> Any:
    """A number that depends on all matrices and both right-hand sides."""
    K, B, J, f, g = (
        start + jnp.sin(s) * slope
        for start, slope in zip((K0, B0, J0, np.ones(N), np.ones(M)), SLOPES, strict=True)
    )
    x, multipliers = saddle_point(K, B, J, jnp.asarray(KEPT)).solve(f, g)
    return (x**2).sum() + multipliers @ jnp.arange(1.0, M + 1)


def by_numpy(s: float) -> float:
    K, B, J, f, g = (
        start + np.sin(s) * slope
        for start, slope in zip((K0, B0, J0, np.ones(N), np.ones(M)), SLOPES, strict=True)
    )
    whole = np.block([[K, -B.T], [J, np.zeros((M, M))]])
    x = np.linalg.solve(whole, np.concatenate([f, g]))
    return float((x[:N] ** 2).sum() + x[N:] @ np.arange(1.0, M + 1))


def test_the_solution() -> None:
    np.testing.assert_allclose(quick(solution)(0.4), by_numpy(0.4), rtol=1e-12)


@pytest.mark.parametrize("inner", [jax.grad, jax.jacfwd])
@pytest.mark.parametrize("outer", [jax.grad, jax.jacfwd])
def test_second_derivatives_in_all_orders_of_the_modes(inner: Any, outer: Any) -> None:
    h = 1e-3
    values = [by_numpy(0.4 + k * h) for k in (-2, -1, 0, 1, 2)]
    expected = np.dot([-1, 16, -30, 16, -1], values) / (12 * h**2)
    np.testing.assert_allclose(quick(outer(inner(solution)))(0.4), expected, rtol=1e-6)
