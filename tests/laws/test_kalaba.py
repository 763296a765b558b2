"""Gauss's function of the pendulum of Kalaba, Udwadia, Xu and Itiki 1995, section 5."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.laws import gauss_function
from jaxmech.system import EquationsOfMotion
from tests.quick import quick

M_, G_ = 1.7, 9.81  # mass and gravity, g* in the paper
# (x1, x2) and (x1', x2'): general and level
STATES = [((1.2, -1.6), (0.8, 0.6)), ((-0.3, 0.4), (2.0, 1.5)), ((2.0, 0.0), (0.0, -3.0))]


def printed_40(x: Any, u: Any, second: Any) -> Any:
    """G with the constraint put in, as a function of x2'' alone."""
    squared = u[0] ** 2 + u[1] ** 2
    return M_ * ((squared + x[1] * second) ** 2 / x[0] ** 2 + (second + G_) ** 2)


def printed_42_43(x: Any, u: Any) -> np.ndarray:
    squared, length = u[0] ** 2 + u[1] ** 2, x[0] ** 2 + x[1] ** 2
    second = -(x[0] ** 2 * G_ + squared * x[1]) / length
    return np.array([(x[1] * G_ - squared) * x[0] / length, second])


@pytest.mark.parametrize(("x", "u"), STATES)
def test_the_gauss_function_along_the_constraint(x: Any, u: Any) -> None:
    """Equation (40), its slope (41), and the minimum where the slope vanishes."""
    squared = u[0] ** 2 + u[1] ** 2
    b = jnp.array([-squared])
    eom = EquationsOfMotion(M_ * jnp.eye(2), jnp.array([0.0, -M_ * G_]), jnp.array([x]), b)

    def along(second: Any) -> Any:
        first = -(squared + x[1] * second) / x[0]  # equation (39)
        return gauss_function(eom, jnp.stack([first, second]))

    trials = np.array([-20.0, -3.0, 0.0, printed_42_43(x, u)[1]])
    values, slopes = quick(jax.vmap(jax.value_and_grad(along)))(trials)
    np.testing.assert_allclose(values, printed_40(x, u, trials), rtol=1e-12)
    printed_41 = (squared + x[1] * trials) * x[1] / x[0] ** 2 + trials + G_
    np.testing.assert_allclose(slopes, 2 * M_ * printed_41, rtol=1e-12, atol=1e-11)
    assert np.all(values[:3] > values[3])
    np.testing.assert_allclose(slopes[3], 0.0, atol=1e-11)


def test_the_gauss_function_is_zero_without_constraint() -> None:
    """G (37) is m (x1''^2 + (x2'' + g*)^2)."""
    eom = EquationsOfMotion(
        M_ * jnp.eye(2), jnp.array([0.0, -M_ * G_]), jnp.array([[1.0, 0.0]]), jnp.zeros(1)
    )
    assert gauss_function(eom, jnp.array([0.0, -G_])) == pytest.approx(0.0, abs=1e-28)
    assert gauss_function(eom, jnp.array([3.0, 1.0])) == pytest.approx(
        M_ * (3.0**2 + (1.0 + G_) ** 2), rel=1e-14
    )


def test_the_gauss_function_of_a_singular_mass() -> None:
    """Refused as it stands; with the constraints the differences are those of x^T M x - 2 Q^T x."""
    M, Q = jnp.diag(jnp.array([2.0, 0.0])), jnp.array([1.0, 4.0])
    eom = EquationsOfMotion(M, Q, jnp.array([[1.0, 1.0]]), jnp.array([3.0]))
    with pytest.raises(ValueError, match="singular_mass=True"):
        gauss_function(eom, jnp.zeros(2))
    assert np.isnan(jax.jit(gauss_function)(eom, jnp.zeros(2)))
    trials = [jnp.array([0.0, 3.0]), jnp.array([2.0, 1.0])]
    one, other = (gauss_function(eom, x, singular_mass=True) for x in trials)
    expected = np.subtract(*(x @ M @ x - 2 * Q @ x for x in trials))
    assert one - other == pytest.approx(expected, rel=1e-13)
