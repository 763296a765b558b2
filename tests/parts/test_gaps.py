"""Stops, contacts and ropes between bodies: motions and forces in closed form."""

from math import pi
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp

G = 9.81


def door() -> jp.Mechanism:
    """A door in space on a hinge along z, pushed against a stop three quarters of a turn away."""
    leaf = jp.spatial_body("leaf", mass=2.0, inertia=(0.5, 0.5, 0.5))
    hinge = jp.revolute("hinge", jp.ground, (0, 0, 0), leaf, (0, 0, 0), axis=(0, 0, 1))
    wall = jp.stop("wall", hinge, lower=0.0, upper="open", restitution="e")
    push = jp.torque("push", jp.ground, leaf, 0.5, axis=(0, 0, 1))
    params = {"open": 1.5 * pi, "e": 0.5}
    return jp.Mechanism([leaf], [hinge, wall], [push], params)


@pytest.mark.slow
def test_a_door_beyond_half_a_turn_bounces_off_its_stop() -> None:
    """With unit acceleration it hits at sqrt(2 x), and comes back by e times its rate."""
    mechanism, zero = door(), jnp.zeros(1)
    ts = jnp.linspace(0.0, 12.0, 13)
    sol = jm.simulate(mechanism, zero, zero, ts, steps=jm.FixedSteps(per_save=20))
    assert sol.events is not None
    hits = sol.events["wall[1] closes"]
    first = np.sqrt(3 * pi)
    np.testing.assert_allclose(hits.t[:2], [first, 2 * first], rtol=1e-6)
    upper = jm.observe(mechanism, sol).multipliers["wall"][-1, 1]
    np.testing.assert_allclose(upper, 0.5, rtol=1e-9)  # the torque that pushes it against the wall
    assert jnp.abs(sol.v[-1]).max() < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["joints", pytest.param("bodies", marks=pytest.mark.slow)])
def test_the_hinge_of_a_beam_that_rests_on_an_edge_bears_half_of_it(coordinates: Any) -> None:
    beam = jp.planar_body("beam", mass=3.0, inertia=0.25)
    hinge = jp.revolute("hinge", jp.ground, (0, 0), beam, (-0.5, 0))
    edge = jp.contact("edge", jp.ground, (0, 0), beam, (0.5, 0), normal=(0, 1))
    bridge = jp.Mechanism([beam], [hinge, edge], [jp.gravity(G)], coordinates=coordinates)
    q0 = jnp.zeros(1) if coordinates == "joints" else jnp.array([0.5, 0.0, 0.0])
    sol = jm.simulate(bridge, q0, 0 * q0, jnp.array([0.0, 0.5]), steps=jm.FixedSteps(per_save=2))
    seen = jm.observe(bridge, sol)
    half = 1.5 * G
    np.testing.assert_allclose(seen.multipliers["edge"][-1], [half], rtol=1e-12)
    assert seen.loads is not None
    force, torque = seen.loads["hinge"]
    np.testing.assert_allclose(force[-1], [0.0, half], atol=1e-9)
    np.testing.assert_allclose(torque[-1], 0.0, atol=1e-9)
    np.testing.assert_allclose(seen.loads["edge"][0][-1], [0.0, half], atol=1e-9)


@pytest.mark.slow
def test_a_bob_on_a_rope_leaves_its_circle_where_the_tension_vanishes() -> None:
    """At the height (v0^2 - 2 g l) / (3 g) over the pivot, by the balance of energy."""
    bob = jp.point_mass("bob", mass=0.7)
    string = jp.rope("string", [(jp.ground, (0, 0)), (bob, (0, 0))], "l")
    swing = jp.Mechanism([bob], [string], [jp.gravity(G)], {"l": 1.0})
    speed = np.sqrt(3.5 * G)

    def height(length: float) -> jax.Array:
        sol = jm.simulate(
            swing, jnp.stack([0.0 * length, -length]), [speed, 0.0], jnp.linspace(0.0, 0.8, 9),
            {"l": length}, steps=jm.FixedSteps(per_save=20),
        )  # fmt: skip
        assert sol.events is not None
        return sol.events["string opens"].q[0, 1]

    value, slope = jax.value_and_grad(height)(1.0)
    np.testing.assert_allclose(value, 0.5, rtol=1e-6)
    np.testing.assert_allclose(slope, -2 / 3, rtol=1e-5)


def test_balls_of_equal_mass_exchange_their_velocities() -> None:
    a, b = (jp.point_mass(name, mass=1.0) for name in "ab")
    touch = jp.contact("touch", a, (0, 0), b, (0, 0), radius_a=0.1, radius_b=0.2, restitution=1.0)
    table = jp.Mechanism([a, b], [touch])
    sol = jm.simulate(
        table, [-1.0, 0.0, 0.0, 0.0], [1.0, 0, 0, 0], jnp.array([0.0, 1.0]),
        steps=jm.FixedSteps(per_save=8),
    )  # fmt: skip
    np.testing.assert_allclose(sol.v[-1], [0, 0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(sol.q[-1], [-0.3, 0, 0.3, 0], atol=1e-12)
