"""Dry friction in joints and contacts of parts."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
import jaxmech.parts as jp

G = 9.81
TS = jnp.linspace(0.0, 1.0, 11)


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
