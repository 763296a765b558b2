"""Stops, backlash, contacts and ropes between bodies: motions and forces in closed form."""

from math import pi
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.errors import SimulationError

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


@pytest.mark.slow
def test_a_rope_winds_round_a_pole() -> None:
    """Its free end moves at right angles to it, so that l^2 decreases by 2 r v t (involute)."""
    r, length, speed = 0.1, 1.0, 2.0
    ball = jp.point_mass("ball", mass=0.3)
    pole = jp.Drum(jp.ground, (0, 0), r, towards=(1, 0))
    game = jp.Mechanism([ball], [jp.rope("rope", [pole, (ball, (0, 0))], length)])
    # The rope leaves the lower edge of the pole, so that a blow upwards winds it on.
    q0, v0 = jnp.array([length, -r]), jnp.array([0.0, speed])
    ts = jnp.linspace(0.0, 1.0, 5)
    sol = jm.simulate(game, q0, v0, ts, steps=jm.FixedSteps(per_save=40))
    assert sol.events is not None
    assert sol.events["rope opens"].count == 0
    free = jnp.sqrt((sol.q**2).sum(1) - r**2)
    np.testing.assert_allclose(free, jnp.sqrt(length**2 - 2 * r * speed * ts), rtol=1e-9)
    tension = jm.observe(game, sol).multipliers["rope"][:, 0]
    np.testing.assert_allclose(tension, 0.3 * speed**2 / free, rtol=1e-8)


@pytest.mark.slow
def test_a_rope_that_leaves_a_drum_on_its_far_side_is_named() -> None:
    r, length, speed = 0.1, 2.0, 2.0
    ball = jp.point_mass("ball", mass=1.0)
    post = jp.Drum(jp.ground, (0, 0), r, towards=(0, 1))
    game = jp.Mechanism([ball], [jp.rope("string", [post, (ball, (0, 0))], length)])
    ts = jnp.linspace(0.0, 4.0, 41)
    with pytest.raises(
        SimulationError, match=r"gap of 'string' is NaN near ball\.x = -0\.6"
    ) as found:
        jm.simulate(game, [r, length], [-speed, 0.0], ts, steps=jm.FixedSteps(10))
    # Until then l^2 = length^2 - 2 r speed t; it has turned by (length - l) / r.
    q = found.value.solution.q[:26]
    free = jnp.sqrt((q**2).sum(1) - r**2)
    np.testing.assert_allclose(free, jnp.sqrt(length**2 - 2 * r * speed * ts[:26]), rtol=1e-7)
    assert jnp.isnan(found.value.solution.q[30:]).all()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [None, jm.Adaptive(rtol=1e-10)], ids=repr)
def test_a_rope_winds_round_a_post_more_than_twice(steps: Any) -> None:
    r, length, speed, ts = 0.1, 2.0, 2.0, np.linspace(0.0, 9.0, 31)
    ball = jp.point_mass("ball", mass=1.0)
    post = jp.Drum(jp.ground, (0, 0), r, towards=(0, 1), any_turn=True)
    game = jp.Mechanism([ball], [jp.rope("string", [post, (ball, (0, 0))], length)])
    sol = jm.simulate(game, [r, length], [-speed, 0.0], ts, steps=steps)
    free = np.sqrt(length**2 - 2 * r * speed * ts)
    turn = (length - free) / r  # 13.7 rad in the end
    exact = r * np.array([np.cos(turn), np.sin(turn)]) + free * np.array(
        [-np.sin(turn), np.cos(turn)]
    )
    np.testing.assert_allclose(sol.q, exact.T, atol=1e-4 if steps is None else 1e-8)
    tension = jm.observe(game, sol).multipliers["string"][:, 0]
    np.testing.assert_allclose(tension, speed**2 / free, rtol=1e-3 if steps is None else 1e-7)


@pytest.mark.slow
def test_a_load_unwinds_a_winch() -> None:
    """A drum of inertia J is J / r^2 more for the load to move."""
    r, m, J = 0.2, 3.0, 0.5
    reel, load = jp.planar_body("reel", mass=1.0, inertia=J), jp.point_mass("load", mass=m)
    shaft = jp.revolute("shaft", jp.ground, (0, 0), reel, (0, 0))
    drum = jp.Drum(reel, (0, 0), r, clockwise=True, towards=(0, -1))
    cable = jp.rope("cable", [drum, (load, (0, 0))], 1.0)
    winch = jp.Mechanism([reel, load], [shaft, cable], [jp.gravity(G)])
    q0 = jnp.array([0.0, r, -1.0])
    ts = jnp.linspace(0.0, 1.0, 5)
    sol = jm.simulate(winch, q0, jnp.zeros(3), ts, steps=jm.FixedSteps(per_save=8))
    fall = m * G / (m + J / r**2)
    np.testing.assert_allclose(sol.q[:, 2], -1.0 - fall * ts**2 / 2, rtol=1e-9)
    np.testing.assert_allclose(sol.q[:, 0], -fall * ts**2 / (2 * r), atol=1e-9)
    seen = jm.observe(winch, sol)
    np.testing.assert_allclose(seen.multipliers["cable"][:, 0], J / r**2 * fall, rtol=1e-9)


def test_a_rope_runs_over_a_pulley_in_an_arc() -> None:
    a, b = (jp.point_mass(name, mass=1.0) for name in "ab")
    pulley = jp.Drum(jp.ground, (0, 0), "r", clockwise=True)
    over = jp.rope("over", [(a, (0, 0)), pulley, (b, (0, 0))], 3.0)
    machine = jp.Mechanism([a, b], [over], params={"r": 0.2})
    gap, zero = machine.system.unilateral[0].constraint, jnp.zeros(())
    hanging = jnp.array([-0.2, -1.0, 0.2, -1.5])
    np.testing.assert_allclose(gap.value(hanging, zero, {"r": 0.2}), 0.5 - 0.2 * pi)
    # Turned by a right angle, so that there is a quarter of an arc less.
    aside = jnp.array([-0.2, -1.0, 1.5, 0.2])
    np.testing.assert_allclose(gap.value(aside, zero, {"r": 0.2}), 0.5 - 0.1 * pi)
    # The rope pulls a upwards and b to the left.
    np.testing.assert_allclose(gap.jacobian(aside, zero, {"r": 0.2})[0], [0, 1, -1, 0], atol=1e-12)
    shape = machine.geometry(aside, zero, {"r": 0.2})["over"]
    assert jnp.sqrt((jnp.diff(shape, axis=0) ** 2).sum(1)).sum() == pytest.approx(
        2.5 + 0.1 * pi, rel=1e-3
    )


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
