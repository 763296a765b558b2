"""The equations of motion, the constraint residuals and the energy, by their definitions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import System
from tests.small import CASES, MIXED, PENDULUM, WIRE


def charged(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A charge in a magnetic field on a stiffening spring, with a mass that depends on q and t."""
    mass = p["m"] + 0.3 * q[0] ** 2 + 0.2 * jnp.sin(t)
    field = p["B"] * (q[0] * v[1] - q[1] * v[0])
    return 0.5 * mass * (v @ v + v[0] * v[1] ** 3) + field - (1 + t) * q @ q


CHARGED = System(charged, force=lambda q, v, t, p: -p["m"] * v * t, coordinates=("x", "y"))


@pytest.mark.parametrize("name", [*CASES, "charged"])
def test_mass_and_force_are_those_of_lagrange(name: str) -> None:
    """d/dt dL/dv - dL/dq - F = M a - Q along any path."""
    charge = (CHARGED, {"m": 1.2, "B": 0.7})
    system, p = charge if name == "charged" else CASES[name][:2]

    @jax.jit
    @jax.vmap
    def both(q: Any, v: Any, a: Any, t: Any) -> Any:
        def momentum(s: Any) -> Any:
            path = (q + v * s + a * s**2 / 2, v + a * s, t + s, p)
            return jax.grad(system.lagrangian, argnums=1)(*path)

        force = 0.0 if system.force is None else system.force(q, v, t, p)
        pull = jax.grad(system.lagrangian)(q, v, t, p) + force
        eom = system.equations(q, v, t, p)
        return jax.jacfwd(momentum)(0.0) - pull, eom.M @ a - eom.Q, eom.M

    q, v, a = np.random.default_rng(3).uniform(0.5, 1.5, (3, 4, system.n))
    expected, ours, M = both(q, v, a, np.linspace(0.0, 1.0, 4))
    np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(M, M.transpose(0, 2, 1), rtol=1e-13, atol=1e-13)


def test_energy_is_the_one_that_motion_conserves() -> None:
    """A magnetic field does no work; on any path the rate of the energy is -dL/dt + F v."""
    p, t = {"m": 1.2, "B": 0.7}, 0.3
    q, v = np.random.default_rng(1).normal(size=(2, 2))

    @jax.jit
    def rates(q: Any, v: Any, t: Any) -> Any:
        eom = CHARGED.equations(q, v, t, p)
        a = jnp.linalg.solve(eom.M, eom.Q)

        def energy(s: Any) -> Any:
            return CHARGED.dynamics.energy(q + v * s + a * s**2 / 2, v + a * s, t + s, p)

        explicit = jax.grad(lambda t: CHARGED.lagrangian(q, v, t, p))(t)
        return jax.grad(energy)(0.0), CHARGED.force(q, v, t, p) @ v - explicit

    np.testing.assert_allclose(*rates(q, v, t), rtol=1e-12)
    at_rest = jax.jit(CHARGED.dynamics.energy)(q, 0 * v, 0.0, {"m": 1.2, "B": 1e6})
    assert at_rest == pytest.approx(q @ q)


def test_levels_are_stacked_in_the_order_of_the_system() -> None:
    q, v, t, p = np.arange(5.0), np.arange(5.0) + 0.5, 0.7, MIXED.params
    servo, road, blade = MIXED.system.constraints
    position = jax.jit(MIXED.system.dynamics.position_level)(q, t, p)
    velocity = jax.jit(MIXED.system.dynamics.velocity_level)(q, v, t, p)
    np.testing.assert_allclose(position, road.fn(q, t, p)[None])
    h = 1e-6
    speed = (road.fn(q + h * v, t + h, p) - road.fn(q - h * v, t - h, p)) / (2 * h)
    np.testing.assert_allclose(velocity, [speed, *blade.fn(q, v, t, p)], rtol=1e-8)
    assert jax.jit(MIXED.system.dynamics.sizes, static_argnums=())(*MIXED[2:], 0.0, p) == (1, 1, 2)
    assert servo.name == "servo"


def test_arguments_take_the_precision_of_q_and_v() -> None:
    single = np.ones(2, np.float32)
    q, v, t, p = PENDULUM.system.arguments(single, single, 0, {"l": 2.0, "n": 3, "on": True})
    assert {x.dtype for x in (q, v, t, p["l"])} == {np.dtype("float32")}
    assert jnp.issubdtype(p["n"].dtype, jnp.integer)
    assert p["on"].dtype == bool
    for mixed in (([1, 0], [0, 1]), (single, np.ones(2)), ([1.0, 0.0], [0, 1])):
        q, v, t, _ = PENDULUM.system.arguments(*mixed, np.float32(0), None)
        assert q.dtype == v.dtype == t.dtype == np.float64


def test_two_systems_of_the_same_functions_are_one() -> None:
    """Equal systems share compiled programs."""

    def made() -> System:
        return System(WIRE.system.lagrangian, list(WIRE.system.constraints), coordinates=["x", "y"])

    assert made() == made()
    assert hash(made()) == hash(made())
    assert made() != WIRE.system  # which has a force
    assert made() != System(made().lagrangian, made().constraints, coordinates=("x", "z"))
