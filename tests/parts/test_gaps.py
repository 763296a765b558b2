"""Stops, contacts and ropes between bodies: motions and forces in closed form.

At the end contacts in space, whose friction has a disc as its bound, and dry friction in joints.
"""

from math import pi
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmech as jm
from jaxmech import parts as jp

G, UP = 9.81, (0, 0, 1)
TS = jnp.linspace(0.0, 1.0, 11)


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


@pytest.mark.slow
def test_a_ball_in_space_slides_until_it_rolls() -> None:
    """Without spin it rolls after 2 v0 / (7 mu g), with 5/7 of its velocity, wherever it heads."""
    ball = jp.spatial_body("ball", mass=2.0, inertia=(0.008, 0.008, 0.008))
    floor = jp.contact("floor", jp.ground, (0, 0, 0.5), ball, (0, 0, 0), normal=UP, radius_b=0.1,
                       friction="mu")  # fmt: skip
    room = jp.Mechanism([ball], [floor], [jp.gravity(G)], {"mu": 0.2}, velocities="spins")
    q0, v0 = room.guess({"ball": jp.Start((0.0, 0.0, 0.6), velocity=(0.6, 0.8, 0.0))})
    ts = jnp.linspace(0.0, 0.5, 6)

    def roll(mu: Any) -> jm.Solution:
        return jm.simulate(room, q0, v0, ts, {"mu": mu}, steps=jm.FixedSteps(20))

    mu = np.array([0.1, 0.2, 0.4])
    sols = jax.vmap(roll)(jnp.array(mu))
    stop = 2 / (7 * mu * G)
    np.testing.assert_allclose(sols.events["floor friction stops"].t[:, 0], stop, rtol=1e-7)
    np.testing.assert_allclose(sols.v[:, -1, :2], np.tile([3 / 7, 4 / 7], (3, 1)), rtol=1e-7)
    np.testing.assert_allclose(sols.q[:, :, 2], 0.6, rtol=1e-12)
    path = 5 / 7 * 0.5 + stop / 7  # 6/7 of the velocity on average while it slides
    np.testing.assert_allclose(sols.q[:, -1, 1], 0.8 * path, rtol=1e-7)


def tilted_normal(t: Any, p: Any) -> Any:
    return jnp.stack([-jnp.sin(p["tilt"]), 0 * p["tilt"], jnp.cos(p["tilt"])])


@pytest.mark.slow
def test_a_box_on_two_feet_slides_down_a_steep_incline_only() -> None:
    """With g (sin a - mu cos a), or not at all, and the loads of the feet carry it."""
    box = jp.spatial_body("box", mass=2.0, inertia=(0.05, 0.07, 0.08))
    feet = [
        jp.contact(name, jp.ground, (0, 0, 0), box, (x, 0.0, -0.05), normal=tilted_normal,
                   friction="mu")
        for name, x in (("behind", -0.3), ("in front", 0.3))
    ]  # fmt: skip
    slope = jp.Mechanism([box], feet, [jp.gravity(G)], {"tilt": 0.3, "mu": 0.4})
    ts = jnp.array([0.0, 0.5])

    def run(mu: Any, tilt: Any) -> jm.Solution:
        at = 0.05 * tilted_normal(0.0, {"tilt": tilt})
        q0 = jnp.concatenate([at, jp.quaternion((0, 1, 0), -tilt)])
        params = {"mu": mu, "tilt": tilt}
        return jm.simulate(slope, q0, jnp.zeros(7), ts, params, steps=jm.FixedSteps(10))

    mu, tilt = np.array([0.4, 0.2, 0.3]), np.array([0.3, 0.3, 0.5])
    sols = jax.vmap(run)(jnp.array(mu), jnp.array(tilt))
    rate = np.maximum(G * (np.sin(tilt) - mu * np.cos(tilt)), 0.0)
    down = -np.stack([np.cos(tilt), 0 * tilt, np.sin(tilt)], axis=1)
    np.testing.assert_allclose(sols.v[:, -1, :3], 0.5 * rate[:, None] * down, atol=1e-9)
    way = sols.q[:, -1, :3] - sols.q[:, 0, :3]
    np.testing.assert_allclose(way, 0.125 * rate[:, None] * down, atol=1e-9)
    np.testing.assert_allclose(sols.q[:, -1, 3:], sols.q[:, 0, 3:], atol=1e-9)
    one = jax.tree.map(lambda x: x[1], sols)
    seen = jm.observe(slope, one, {"mu": mu[1], "tilt": tilt[1]})
    forces = sum(force for force, _ in seen.loads.values())
    np.testing.assert_allclose(forces[-1], 2 * (rate[1] * down[1] + G * np.array(UP)), atol=1e-8)


RADIUS, SPIN, TURNING, LOAD = 0.5, 0.45, 0.575, 0.5  # of the block, and inertia, torque and mass


def on_turntable() -> jp.Mechanism:
    """A block on a table that a motor turns about the vertical."""
    table = jp.spatial_body("table", mass=5.0, inertia=(0.3, 0.3, SPIN))
    axle = jp.revolute("axle", jp.ground, (0, 0, 0), table, (0, 0, 0), axis=UP)
    block = jp.point_mass("block", mass=LOAD, dimension=3)
    top = jp.contact("top", table, (0, 0, 0.1), block, (0, 0, 0), normal=UP, friction="mu")
    motor = jp.torque("motor", jp.ground, table, TURNING, axis=UP)
    return jp.Mechanism([table, block], [axle, top], [jp.gravity(G), motor], {"mu": 0.3})


def slides(t: float, s: Any, mu: float) -> Any:
    """The rates of the turn and the place of the block, and of their rates, while it slides."""
    _, x, y, spin, u, w = s
    slip = np.array([u + spin * y, w - spin * x])
    force = -mu * LOAD * G * slip / np.hypot(*slip)
    torque = TURNING - (x * force[1] - y * force[0])
    return [spin, u, w, torque / SPIN, *(force / LOAD)]


@pytest.mark.slow
def test_a_block_is_carried_by_a_turntable_until_it_slips() -> None:
    """As long as the friction is the acceleration, w^2 r inward and w' r along."""
    mechanism, ts = on_turntable(), jnp.linspace(0.0, 3.0, 7)
    start = jnp.array([0.0, RADIUS, 0.0, 0.1])

    def run(mu: Any) -> jm.Solution:
        steps = jm.FixedSteps(50)
        return jm.simulate(mechanism, start, jnp.zeros(4), ts, {"mu": mu}, steps=steps)

    mu = np.array([0.2, 0.3, 0.4])
    sols = jax.vmap(run)(jnp.array(mu))
    rate = TURNING / (SPIN + LOAD * RADIUS**2)
    along = rate * RADIUS
    exact = ((mu * G) ** 2 - along**2) ** 0.25 / RADIUS**0.5 / rate
    np.testing.assert_allclose(sols.events["top friction slips"].t[:, 0], exact, rtol=1e-8)
    for k, end in enumerate(exact):
        turn, spin = rate * end**2 / 2, rate * end
        c, s = RADIUS * np.cos(turn), RADIUS * np.sin(turn)
        # Just after it has begun, along what friction cannot hold.
        state = np.array([turn, c, s, spin, -spin * s, spin * c])
        hold = np.array([-(spin**2) * c - rate * s, -(spin**2) * s + rate * c])
        state[4:] -= 1e-7 * hold / np.hypot(*hold)
        motion = solve_ivp(slides, (end, 3.0), state, args=(mu[k],), rtol=1e-10, atol=1e-12)
        # Fixed steps are of second order where a slip begins.
        np.testing.assert_allclose(sols.q[k, -1, :3], motion.y[:3, -1], atol=1e-4)


def test_two_balls_in_space_have_no_friction_between_them() -> None:
    a, b = (jp.point_mass(name, mass=1.0, dimension=3) for name in "ab")
    with pytest.raises(ValueError, match="without `friction` between two balls in space"):
        jp.contact("touch", a, (0, 0, 0), b, (0, 0, 0), radius_a=0.1, radius_b=0.2, friction=0.3)


@pytest.mark.parametrize("coordinates", ["joints", pytest.param("bodies", marks=pytest.mark.slow)])
def test_a_pendulum_stays_within_the_range_of_its_friction(coordinates: Any) -> None:
    bar = jp.planar_body("bar", mass=2.0, inertia=0.1)
    hinge = jp.revolute("hinge", jp.ground, (0, 0), bar, (0.0, 0.5))
    rub = jp.dry_friction("rub", hinge, static="static", kinetic=1.0)
    arm = jp.Mechanism(
        [bar], [hinge, rub], [jp.gravity(G)], {"static": 5.0}, coordinates=coordinates
    )
    # m g l sin(angle) = 5
    limit = np.arcsin(5.0 / (2 * G * 0.5))
    for angle, stays in ((0.999 * limit, True), (1.001 * limit, False)):
        start = {"hinge" if coordinates == "joints" else "bar": _start(coordinates, angle)}
        sol = jm.simulate(arm, *arm.guess(start), TS, steps=jm.FixedSteps(20))
        moved = float(jnp.abs(sol.q - sol.q[:1]).max())
        assert (moved < 1e-14) == stays
        force = jm.observe(arm, sol).multipliers["rub"][:, 0]
        if stays:
            np.testing.assert_allclose(force, 2 * G * 0.5 * np.sin(angle), rtol=1e-12)
        else:
            np.testing.assert_allclose(jnp.abs(force[3]), 1.0, rtol=1e-12)


def test_the_friction_of_a_joint_has_its_rate_in_coordinates_of_bodies() -> None:
    bar = jp.planar_body("bar", mass=2.0, inertia=0.1)
    hinge = jp.revolute("hinge", jp.ground, (0, 0), bar, (0.0, 0.5))
    rub = jp.dry_friction("rub", hinge, static=5.0)
    arm = jp.Mechanism([bar], [hinge, rub], [jp.gravity(G)], coordinates="bodies")
    q, v = jnp.array([0.0, -0.5, 0.0]), jnp.array([0.35, 0.0, 0.7])
    (friction,) = arm.system.unilateral
    np.testing.assert_allclose(friction.values(q, v, jnp.zeros(()), {})[0], [0.7], rtol=1e-12)


def _start(coordinates: str, angle: float) -> jp.Start:
    if coordinates == "joints":
        return jp.Start((angle,))
    return jp.Start((0.5 * np.sin(angle), -0.5 * np.cos(angle)), angle)


@pytest.mark.slow
def test_a_ball_slides_until_it_rolls() -> None:
    radius, mu, speed = 0.1, 0.3, 2.0
    ball = jp.planar_body("ball", mass=1.0, inertia=0.5 * radius**2)
    floor = jp.contact("floor", jp.ground, (0, 0), ball, (0, 0), normal=(0, 1), radius_b=radius,
                       friction=(0.4, mu))  # fmt: skip
    lane = jp.Mechanism([ball], [floor], [jp.gravity(G)])
    q0, v0 = jnp.array([0.0, radius, 0.0]), jnp.array([speed, 0.0, 0.0])
    sol = jm.simulate(lane, q0, v0, TS, steps=jm.FixedSteps(8))
    np.testing.assert_allclose(sol.events["floor friction stops"].t[0], speed / (3 * mu * G))
    np.testing.assert_allclose(sol.v[-1], [2 * speed / 3, 0, -2 * speed / 3 / radius], atol=1e-12)
    force = jm.observe(lane, sol).multipliers["floor friction"][:, 0]
    np.testing.assert_allclose(force[0], -mu * G)
    np.testing.assert_allclose(force[-1], 0.0, atol=1e-12)


@pytest.mark.slow
def test_the_load_of_a_joint_presses() -> None:
    """A disc on a journal of radius r runs down in J w / (mu r m g)."""
    disc = jp.planar_body("disc", mass=3.0, inertia=0.02)
    shaft = jp.revolute("shaft", jp.ground, (0, 0), disc, (0, 0))
    rub = jp.dry_friction("rub", shaft, static=0.002, pressed_by="shaft")
    rotor = jp.Mechanism([disc], [shaft, rub], [jp.gravity(G)], coordinates="bodies")
    sol = jm.simulate(
        rotor, jnp.zeros(3), jnp.array([0, 0, 2.0]), jnp.linspace(0.0, 1.0, 3),
        steps=jm.FixedSteps(10),
    )  # fmt: skip
    np.testing.assert_allclose(sol.events["rub stops"].t[0], 0.02 * 2.0 / (0.002 * 3 * G))


@pytest.mark.slow
def test_the_push_of_a_stop_presses() -> None:
    """A lever at its stop presses on a disc, which the friction brings to rest in J w / (a T)."""
    lever, disc = (jp.planar_body(name, mass=1.0, inertia=0.02) for name in ("lever", "disc"))
    pivot, shaft = (
        jp.revolute(name, jp.ground, (0, 0), body, (0, 0))
        for name, body in (("pivot", lever), ("shaft", disc))
    )
    shoe = jp.stop("shoe", pivot, upper=0.0)
    brake = jp.dry_friction("brake", shaft, static="share", pressed_by="shoe")
    press = jp.torque("press", jp.ground, lever, "torque")
    drum = jp.Mechanism(
        [lever, disc], [pivot, shaft, shoe, brake], [press], {"torque": 3.0, "share": 0.1}
    )
    sol = jm.simulate(drum, [0.0, 0.0], [0.0, 3.0], jnp.linspace(0.0, 0.5, 3),
                      steps=jm.FixedSteps(4))  # fmt: skip
    np.testing.assert_allclose(sol.events["brake stops"].t[0], 0.02 * 3.0 / (0.1 * 3.0))
    np.testing.assert_allclose(sol.v[-1], 0.0, atol=1e-14)


@pytest.mark.slow
def test_the_loads_of_joints_have_friction() -> None:
    """A cart pulls a bar over the floor, whose friction slows both down."""
    mu, half, angle = 0.2, 0.5, 0.6
    cart, bar = (
        jp.planar_body(n, mass=m, inertia=1 / 12) for n, m in (("cart", 3.0), ("bar", 1.0))
    )
    rail = jp.prismatic("rail", jp.ground, (0, 0), cart, (0, 0), axis=(1, 0))
    hinge = jp.revolute("hinge", cart, (0, 0), bar, (half, 0))
    floor = jp.contact("floor", jp.ground, (0, -np.sin(angle)), bar, (-half, 0), normal=(0, 1),
                       friction=mu)  # fmt: skip
    sledge = jp.Mechanism([cart, bar], [rail, hinge, floor], [jp.gravity(G)])
    sol = jm.simulate(sledge, [0.0, angle], [2.0, 0.0], TS[:3], steps=jm.FixedSteps(4))
    np.testing.assert_allclose(sol.q[:, 1], angle, rtol=1e-12)
    seen = jm.observe(sledge, sol)
    push, slowdown = seen.multipliers["floor"][0, 0], (sol.v[0, 0] - sol.v[1, 0]) / TS[1]
    np.testing.assert_allclose(slowdown, mu * push / 4, rtol=1e-12)
    np.testing.assert_allclose(seen.loads["floor"][0][0], [-mu * push, push], rtol=1e-12)
    on_bar = [mu * push - slowdown, G - push]  # by the hinge
    np.testing.assert_allclose(seen.loads["hinge"][0][0], on_bar, rtol=1e-12)
