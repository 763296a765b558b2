"""Program constraints, and constraints that are not linear in the velocity."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Nonholonomic, System, observe, simulate
from jaxmech.control.given_motion import given_motion
from jaxmech.state import Baumgarte
from tests.small import PENDULUM, along

G = 9.81


def position(q: Any, p: Any) -> Any:
    return q


def figure(t: Any, p: Any) -> Any:
    """A Lissajous figure."""
    return jnp.stack([jnp.sin(2 * t), 0.5 * jnp.sin(3 * t + 0.4)])


def test_force_on_a_particle_along_a_lissajous_figure() -> None:
    """The multiplier is the force that drives it: m times the acceleration, plus the weight."""
    system = System(along, [given_motion(position, figure, name="figure")], coordinates=("x", "y"))
    ts = np.linspace(0.0, 2.0, 11)
    start = np.array([0.0, 0.5 * np.sin(0.4)]), np.array([2.0, 1.5 * np.cos(0.4)])
    sol = simulate(system, *start, ts, PENDULUM.params, steps=FixedSteps(20))
    np.testing.assert_allclose(sol.q, np.asarray(figure(ts, None)).T, atol=1e-12)
    m = PENDULUM.params["m"]
    force = m * np.stack([-4 * np.sin(2 * ts), -4.5 * np.sin(3 * ts + 0.4) + G], 1)
    seen = observe(system, sol, PENDULUM.params)
    np.testing.assert_allclose(seen.multipliers["figure"], force, atol=1e-10)
    np.testing.assert_allclose(seen.reactions["figure"], force, atol=1e-10)


def test_from_an_inconsistent_state_the_error_decays_at_the_given_rates() -> None:
    """e'' + 2 alpha e' + alpha^2 e = 0 from e = e0 at rest: e = e0 (1 + alpha t) exp(-alpha t)."""
    follow = given_motion(position, figure, approach=Baumgarte(4.0, 4.0))
    system = System(along, [follow], coordinates=("x", "y"))
    ts = np.linspace(0.0, 1.5, 7)
    off = np.array([0.3, -0.2])
    q0 = np.array([0.0, 0.5 * np.sin(0.4)]) + off
    v0 = np.array([2.0, 1.5 * np.cos(0.4)])
    sol = simulate(system, q0, v0, ts, PENDULUM.params, steps=FixedSteps(50))
    error = np.asarray(sol.q) - np.asarray(figure(ts, None)).T
    np.testing.assert_allclose(error, off * ((1 + 4 * ts) * np.exp(-4 * ts))[:, None], atol=1e-8)


def cone(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v[2] ** 2 - p["k"] ** 2 * (v[0] ** 2 + v[1] ** 2)


APPELL_HAMEL = System(
    lambda q, v, t, p: 0.5 * p["m"] * v @ v - p["m"] * G * q[2],
    [Nonholonomic(cone, "cone")],
    coordinates=("x", "y", "z"),
)


@pytest.mark.parametrize("up", [1.0, -1.0])
def test_the_machine_of_appell_and_hamel(up: float) -> None:
    """z'^2 = k^2 (x'^2 + y'^2) under gravity, with the reaction along the gradient by v (Chetaev).

    The reaction turns the horizontal velocity no way, so with its size s and z' = +-k s the motion
    is that down an incline of the slope k: s' = -+ g k / (1 + k^2), z'' = -g k^2 / (1 + k^2), and
    m s' = -2 k^2 lambda s. It does no work, for psi is homogeneous in v.
    """
    p = {"m": 1.7, "k": 0.75}
    k, s0, direction = p["k"], 8.0, np.array([0.6, 0.8])
    v0 = s0 * np.array([*direction, up * k])
    ts = np.linspace(0.0, 1.0, 6)
    sol = simulate(APPELL_HAMEL, np.zeros(3), v0, ts, p, steps=FixedSteps(10))
    slowing = -up * G * k / (1 + k**2)
    way = s0 * ts + 0.5 * slowing * ts**2
    expected = np.stack([way * 0.6, way * 0.8, up * k * way], 1)
    np.testing.assert_allclose(sol.q, expected, atol=1e-11)
    np.testing.assert_allclose(sol.energy, sol.energy[0], rtol=1e-13)
    seen = observe(APPELL_HAMEL, sol, p)
    multiplier = -p["m"] * slowing / (2 * k**2 * (s0 + slowing * ts))
    np.testing.assert_allclose(seen.multipliers["cone"][:, 0], multiplier, rtol=1e-10)
    power = (np.asarray(seen.constraint_force) * np.asarray(sol.v)).sum(1)
    np.testing.assert_allclose(power, 0.0, atol=1e-11)
