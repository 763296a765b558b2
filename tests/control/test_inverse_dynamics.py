"""The inputs that make a system follow a path: torques and tensions known from textbooks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import System
from jaxmech.control.inverse_dynamics import inverse_dynamics
from tests.small import PENDULUM, QUATERNION, REDUNDANT

G = 9.81
TS = np.linspace(0.0, 2.0, 7)


def swing(t: Any, p: Any) -> Any:
    """The pendulum's angle follows 0.8 sin(3 t)."""
    angle = 0.8 * jnp.sin(3 * t)
    return p["l"] * jnp.stack([jnp.sin(angle), -jnp.cos(angle)])


def torque(q: Any, t: Any, p: Any) -> Any:
    """Power of a torque at the pivot: tau (x y' - y x') / l^2."""
    return jnp.stack([-q[1], q[0]])[:, None] / (q @ q)


def angles(ts: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return 0.8 * np.sin(3 * ts), 2.4 * np.cos(3 * ts), -7.2 * np.sin(3 * ts)


@pytest.mark.parametrize("case", [PENDULUM, REDUNDANT], ids=["once", "redundant"])
def test_torque_and_tension_of_a_driven_pendulum(case: Any) -> None:
    m, l = case.params["m"], case.params["l"]  # noqa: E741
    found = inverse_dynamics(case.system, swing, TS, case.params, actuators=torque)
    angle, rate, acceleration = angles(TS)
    tau = m * l**2 * acceleration + m * G * l * np.sin(angle)
    np.testing.assert_allclose(found.u[:, 0], tau, atol=1e-10)
    tension = m * (G * np.cos(angle) + l * rate**2)
    pull = -tension[:, None] * np.asarray(found.q) / l
    np.testing.assert_allclose(found.constraint_force, pull, atol=1e-10)
    if case is PENDULUM:
        np.testing.assert_allclose(found.multipliers[:, 0], -tension / l, atol=1e-10)
    assert found.residual.max() < 1e-10
    assert found.consistent.all()
    assert found.followed.all()


@pytest.mark.slow
def test_more_actuators_than_needed_share_by_the_euclidean_norm() -> None:
    def three(q: Any, t: Any, p: Any) -> Any:
        return jnp.array([[1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])

    free = System(PENDULUM.system.lagrangian, coordinates=("x", "y"))
    found = inverse_dynamics(free, swing, TS, PENDULUM.params, actuators=three)
    push = PENDULUM.params["m"] * (np.asarray(found.qdd) + np.array([0.0, G]))
    np.testing.assert_allclose(found.u[:, :2], push[:, :1] * [0.2, 0.4], atol=1e-12)
    np.testing.assert_allclose(found.u[:, 2], push[:, 1], atol=1e-12)
    np.testing.assert_allclose(found.actuator_force, push, atol=1e-12)


def cart_and_pole(q: Any, v: Any, t: Any, p: Any) -> Any:
    """The pole stands upright at angle 0; masses M and m, length l."""
    kinetic = 0.5 * (p["M"] + p["m"]) * v[0] ** 2 + 0.5 * p["m"] * p["l"] ** 2 * v[1] ** 2
    kinetic += p["m"] * p["l"] * v[0] * v[1] * jnp.cos(q[1])
    return kinetic - p["m"] * G * p["l"] * jnp.cos(q[1])


CART = System(cart_and_pole, coordinates=("x", "angle"))
CART_PARAMS = {"M": 2.0, "m": 0.5, "l": 0.8}


def leaning(t: Any, p: Any) -> Any:
    """The pole is carried at 0.2 rad by a cart that accelerates at g tan(0.2)."""
    return jnp.stack([0.5 * G * jnp.tan(0.2) * t**2, 0.2 + 0 * t])


def test_fewer_actuators_follow_feasible_paths() -> None:
    found = inverse_dynamics(CART, leaning, TS, CART_PARAMS, actuators=["x"])
    np.testing.assert_allclose(found.u, 2.5 * G * np.tan(0.2), rtol=1e-12)
    assert found.followed.all()


def test_an_infeasible_path_is_refused_with_the_missing_acceleration() -> None:
    def upright_and_away(t: Any, p: Any) -> Any:
        return jnp.stack([t**2, 0.0 * t])

    message = (
        r"The actuators cannot produce the path at t = 0: with the best inputs, the acceleration "
        r"of 'angle' is missed by 2\.5; add an actuator"
    )
    with pytest.raises(ValueError, match=message):
        inverse_dynamics(CART, upright_and_away, TS, CART_PARAMS, actuators=["x"])
    found = inverse_dynamics(CART, upright_and_away, TS, CART_PARAMS, actuators=["x"], throw=False)
    assert not found.followed.any()
    # M qdd = (5, 0.8); the best cart force makes the rest smallest in the metric of M^-1.
    M = np.array([[2.5, 0.4], [0.4, 0.32]])
    W = np.linalg.inv(M)
    need = M @ [2.0, 0.0]
    best = (W[0] @ need) / W[0, 0]
    np.testing.assert_allclose(found.u, best, rtol=1e-12)
    missing = need - [best, 0.0]
    np.testing.assert_allclose(found.missing, np.tile(missing, (7, 1)), atol=1e-12)
    np.testing.assert_allclose(found.missed, np.tile([0.0, 2.5], (7, 1)), atol=1e-12)
    np.testing.assert_allclose(found.residual, np.sqrt(missing @ W @ missing), rtol=1e-12)


@pytest.mark.slow
def test_euler_torque_of_a_body_with_a_singular_mass_matrix() -> None:
    """A unit quaternion turns about its third axis at the rate t: the torque is J3, and k's."""

    def turn(t: Any, p: Any) -> Any:
        half = t**2 / 4
        return jnp.stack([jnp.cos(half), 0 * t, 0 * t, jnp.sin(half)])

    def about_third(q: Any, t: Any, p: Any) -> Any:
        """Power w3 = 2 (e0 e3' - e3 e0' + e2 e1' - e1 e2')."""
        return 2 * jnp.stack([-q[3], q[2], -q[1], q[0]])[:, None]

    params = {**QUATERNION.params, "k": 0.0}
    found = inverse_dynamics(QUATERNION.system, turn, TS, params, actuators=about_third)
    np.testing.assert_allclose(found.u, params["J"][2], rtol=1e-10)


@pytest.mark.slow
def test_gradients_of_the_effort() -> None:
    """The derivative of the summed squares of the torque by the mass is 2 / m times the sum."""

    def effort(m: Any) -> Any:
        p = {**PENDULUM.params, "m": m}
        return (inverse_dynamics(PENDULUM.system, swing, TS, p, actuators=torque).u ** 2).sum()

    value, slope = jax.value_and_grad(effort)(1.3)
    np.testing.assert_allclose(slope, 2 * value / 1.3, rtol=1e-10)


@pytest.mark.slow
def test_a_path_that_violates_a_constraint_is_refused() -> None:
    def off(t: Any, p: Any) -> Any:
        return swing(t, p) * (1 + 0.1 * t)

    with pytest.raises(ValueError, match=r"`path` must satisfy .* t = 0"):
        inverse_dynamics(PENDULUM.system, off, TS, PENDULUM.params, actuators=torque)
