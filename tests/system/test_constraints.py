"""The rows A a = b of each kind of constraint, their names, and errors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Acceleration, Holonomic, Nonholonomic, System
from tests.small import CASES, Case


def along_a_path(case: Case, constraint: Any, q: Any, v: Any, a: Any, t: Any) -> Any:
    """d^2 phi / dt^2, d psi / dt or chi along the path q + v s + a s^2 / 2."""

    def residual(s: Any) -> Any:
        return constraint.residual(q + v * s + a * s**2 / 2, v + a * s, a, t + s, case.params)

    derivatives = {
        Holonomic: jax.jacfwd(jax.jacfwd(residual)),
        Nonholonomic: jax.jacfwd(residual),
        Acceleration: residual,
    }
    return derivatives[type(constraint)](0.0)


@pytest.mark.parametrize("name", [name for name in CASES if name != "oscillator"])
def test_rows_are_the_derivative_along_any_path(name: str) -> None:
    case = CASES[name]

    @jax.jit
    @jax.vmap
    def pairs(q: Any, v: Any, a: Any, t: Any) -> Any:
        rows = [c.rows(q, v, t, case.params) for c in case.system.constraints]
        return [
            (A @ a - b, along_a_path(case, c, q, v, a, t))
            for c, (A, b) in zip(case.system.constraints, rows, strict=True)
        ]

    q, v, a = np.random.default_rng(4).uniform(0.5, 1.5, (3, 5, case.system.n))
    for ours, path in pairs(q, v, a, np.linspace(0.0, 2.0, 5)):
        assert np.abs(path).max() > 0.1
        np.testing.assert_allclose(ours, path, rtol=1e-12, atol=1e-12)


def system_with(chi: Any) -> System:
    constraint = Acceleration(chi, name="servo")
    return System(lambda q, v, t, p: 0.5 * v @ v, [constraint], coordinates=("x", "y"))


AFFINE = {
    "switched by the state": lambda q, v, a, t, p: jnp.where(q[0] > t, a[0] - 1, 2 * a[1]),
    "products with the state": lambda q, v, a, t, p: v[0] ** 2 * a[0] + jnp.sin(q[1]) * a[1] + t,
    "large coefficients": lambda q, v, a, t, p: 1e6 * a[0] - 1e-6 * a[1],
    "undefined at some states": lambda q, v, a, t, p: a[0] * jnp.sqrt(-q[0]),
    "none at all": lambda q, v, a, t, p: q[0],
}


@pytest.mark.parametrize("name", AFFINE)
def test_affine_in_a_is_accepted(name: str) -> None:
    system, q = system_with(AFFINE[name]), np.zeros(2)
    assert jax.eval_shape(system.equations, q, q).A.shape == (1, 2)


@pytest.mark.parametrize("name", CASES)
def test_jacobians_are_those_of_the_levels(name: str) -> None:
    system, params = CASES[name].system, CASES[name].params
    q, v = jnp.asarray(np.random.default_rng(5).uniform(0.5, 1.5, (2, system.n)))
    t = jnp.asarray(0.3)
    pairs = [
        (
            system.dynamics.position_jacobian(q, t, params),
            system.dynamics.position_level,
            (q, t, params),
            0,
        ),
        (
            system.dynamics.velocity_jacobian(q, v, t, params),
            system.dynamics.velocity_level,
            (q, v, t, params),
            1,
        ),
    ]
    for ours, level, state, place in pairs:
        np.testing.assert_allclose(ours, jax.jacrev(level, place)(*state), rtol=1e-12, atol=1e-12)
