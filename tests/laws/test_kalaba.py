"""The pendulum of Kalaba, Udwadia, Xu and Itiki 1995, section 5, three ways against the paper."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import acceleration
from jaxmech.laws import (
    LDL,
    QR,
    SVD,
    GaussPrinciple,
    LagrangeFirstKind,
    UdwadiaKalaba,
    gauss_function,
)
from jaxmech.models import pendulum
from jaxmech.system import EquationsOfMotion
from tests.quick import quick

MODEL = pendulum()
M_, G_ = 1.7, 9.81  # mass and gravity, g* in the paper
# (x1, x2) and (x1', x2'): general, level, hanging, x1 = 0 included
STATES = [
    ((1.2, -1.6), (0.8, 0.6)),
    ((-0.3, 0.4), (2.0, 1.5)),
    ((2.0, 0.0), (0.0, -3.0)),
    ((0.0, -2.0), (1.5, 0.0)),
]


LAWS = {
    "LDL": UdwadiaKalaba(LDL()),
    "QR": UdwadiaKalaba(QR()),
    "SVD": UdwadiaKalaba(SVD()),
    "first kind": LagrangeFirstKind(),
    "Gauss": GaussPrinciple(),
}


@cache
def motions() -> Any:
    """By law: qdd and multipliers at all states, from one compilation."""

    def at(x: Any, u: Any) -> Any:
        params = {"m": M_, "g": G_, "l": jnp.hypot(*x)}
        found = {
            name: acceleration(MODEL.system, x, u, 0.0, params, formulation=law)
            for name, law in LAWS.items()
        }
        return {name: (motion.qdd, motion.multipliers) for name, motion in found.items()}

    return quick(jax.vmap(at))(*np.array(STATES).transpose(1, 0, 2))


def printed_27(x: Any, u: Any) -> np.ndarray:
    pull = (x[1] * G_ - (u[0] ** 2 + u[1] ** 2)) / (x[0] ** 2 + x[1] ** 2)
    return np.array([0.0, -G_]) + pull * np.asarray(x)


def printed_34(x: Any, u: Any) -> float:
    return (x[1] * G_ - (u[0] ** 2 + u[1] ** 2)) * M_ / (x[0] ** 2 + x[1] ** 2)


def printed_40(x: Any, u: Any, second: Any) -> Any:
    """G with the constraint put in, as a function of x2'' alone."""
    squared = u[0] ** 2 + u[1] ** 2
    return M_ * ((squared + x[1] * second) ** 2 / x[0] ** 2 + (second + G_) ** 2)


def printed_42_43(x: Any, u: Any) -> np.ndarray:
    squared, length = u[0] ** 2 + u[1] ** 2, x[0] ** 2 + x[1] ** 2
    second = -(x[0] ** 2 * G_ + squared * x[1]) / length
    return np.array([(x[1] * G_ - squared) * x[0] / length, second])


@pytest.mark.parametrize("state", range(len(STATES)))
@pytest.mark.parametrize("solver", ["LDL", "QR", "SVD"])
def test_generalized_inverse(state: int, solver: str) -> None:
    """Equation (27)."""
    qdd, multipliers = motions()[solver]
    np.testing.assert_allclose(qdd[state], printed_27(*STATES[state]), atol=1e-13)
    np.testing.assert_allclose(multipliers[state], [printed_34(*STATES[state])], rtol=1e-13)


@pytest.mark.parametrize("state", range(len(STATES)))
def test_lagrange_equations_of_the_first_kind(state: int) -> None:
    """Equations (34) to (36): the multiplier, and the accelerations that follow from it."""
    x, u = STATES[state]
    qdd, multipliers = motions()["first kind"]
    printed = printed_34(x, u)
    np.testing.assert_allclose(multipliers[state], [printed], rtol=1e-13)
    np.testing.assert_allclose(
        qdd[state], [printed * x[0] / M_, -G_ + printed * x[1] / M_], atol=1e-13
    )


@pytest.mark.parametrize("state", range(len(STATES)))
def test_gauss_principle(state: int) -> None:
    """Equations (42) and (43), which hold for x1 = 0 too."""
    qdd, multipliers = motions()["Gauss"]
    np.testing.assert_allclose(qdd[state], printed_42_43(*STATES[state]), atol=1e-13)
    np.testing.assert_allclose(multipliers[state], [printed_34(*STATES[state])], rtol=1e-13)


@pytest.mark.parametrize(("x", "u"), STATES[:3])
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
