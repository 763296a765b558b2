"""Belts, racks and screws: accelerations in closed form, in both coordinates."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp

O2, O3 = (0.0, 0.0), (0.0, 0.0, 0.0)
X, Z = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
COORDINATES = pytest.mark.parametrize("coordinates", ["joints", "bodies"])


def accelerations(mechanism: jp.Mechanism, starts: Any) -> Any:
    """The accelerations of all bodies at rest, linear and angular."""
    params, t = dict(mechanism.params), jnp.zeros(())
    q, v = mechanism.guess(starts)
    qdd = jm.acceleration(mechanism.system, q, v, t, params).qdd
    # At rest, rates along qdd are those of velocities.
    moving = mechanism.kinematics.moving(mechanism.bodies, q, qdd, t, params)
    return {body.name: m for body, m in zip(mechanism.bodies, moving, strict=True)}


@pytest.mark.slow
@COORDINATES
def test_a_belt(coordinates: Any) -> None:
    """T on a pulley of radius r: (J + J r^2 / R^2) a = T, and the other one turns r / R as fast."""
    one, two = (jp.planar_body(name, mass=1.0, inertia=0.1) for name in ("one", "two"))
    joints = [
        jp.revolute("A", jp.ground, O2, one, O2),
        jp.revolute("B", jp.ground, (1, 0), two, O2),
        jp.belt("belt", one, 0.1, two, "R"),
    ]
    motor = jp.torque("motor", jp.ground, one, 0.5)
    mechanism = jp.Mechanism([one, two], joints, [motor], {"R": 0.2}, coordinates=coordinates)
    found = accelerations(mechanism, {"one": jp.Start(O2), "two": jp.Start((1.0, 0.0))})
    np.testing.assert_allclose(found["one"].spin, 0.5 / (0.1 + 0.1 / 4), rtol=1e-12)
    np.testing.assert_allclose(found["two"].spin, found["one"].spin / 2, rtol=1e-12)


@pytest.mark.slow
@COORDINATES
@pytest.mark.parametrize("size", [2, 3])
def test_a_rack(coordinates: Any, size: int) -> None:
    """T on a pinion of radius r: (J / r + m r) x'' = T."""
    o: Any = O2 if size == 2 else O3
    if size == 2:
        wheel, bar = (jp.planar_body(name, mass=2.0, inertia=0.1) for name in ("wheel", "bar"))
        axes: Any = {}
    else:
        wheel, bar = (
            jp.spatial_body(name, mass=2.0, inertia=(0.1, 0.1, 0.1)) for name in ("wheel", "bar")
        )
        axes = {"axis": Z}
    joints = [
        jp.revolute("A", jp.ground, o, wheel, o, **axes),
        jp.prismatic("guide", jp.ground, o, bar, o, axis=X[:size]),
        jp.rack("teeth", wheel, 0.1, bar, axis=X[:size], axis_a=Z if size == 3 else None),
    ]
    motor = jp.torque("motor", jp.ground, wheel, 0.5, **axes)
    mechanism = jp.Mechanism([wheel, bar], joints, [motor], coordinates=coordinates)
    found = accelerations(mechanism, {"wheel": jp.Start(o), "bar": jp.Start(o)})
    expected = 0.5 / (0.1 / 0.1 + 2.0 * 0.1)
    np.testing.assert_allclose(found["bar"].velocity, expected * np.eye(size)[0], atol=1e-12)


@pytest.mark.slow
@COORDINATES
def test_a_nut_falls_along_its_screw(coordinates: Any) -> None:
    """With h = lead / 2 pi: (J + m h^2) angle'' = -m g h."""
    nut = jp.spatial_body("nut", mass=0.5, inertia=(1e-4, 1e-4, 2e-4))
    spindle = jp.screw("spindle", jp.ground, O3, nut, O3, axis=Z, lead="lead")
    mechanism = jp.Mechanism(
        [nut], [spindle], [jp.gravity()], {"lead": 0.05}, coordinates=coordinates
    )
    h = 0.05 / (2 * np.pi)
    found = accelerations(mechanism, {"nut": jp.Start(O3)})["nut"]
    expected = -0.5 * 9.81 * h / (2e-4 + 0.5 * h**2)
    np.testing.assert_allclose(found.spin, expected * np.array(Z), atol=1e-10)
    np.testing.assert_allclose(found.velocity, h * expected * np.array(Z), atol=1e-12)


def test_the_start_of_a_nut_many_turns_away() -> None:
    nut = jp.spatial_body("nut", mass=0.5, inertia=(1e-4, 1e-4, 2e-4))
    spindle = jp.screw("spindle", jp.ground, O3, nut, O3, axis=Z, lead=0.05)
    mechanism = jp.Mechanism([nut], [spindle])
    angle = 7.3 * 2 * np.pi
    start = jp.Start((0.0, 0.0, 0.05 * 7.3), jp.quaternion(Z, angle))
    np.testing.assert_allclose(mechanism.guess({"nut": start})[0], [angle], rtol=1e-12)


def test_a_given_position() -> None:
    """A piston is moved along a slide: the force of the drive is m s''."""
    piston = jp.planar_body("piston", mass=2.0, inertia=0.1)
    joints = [
        jp.prismatic("slide", jp.ground, O2, piston, O2, axis=(3, 4)),
        jp.given_position(
            "ram", jp.ground, O2, piston, O2, lambda t, p: p["a"] * t**2, axis=(3, 4)
        ),
    ]
    mechanism = jp.Mechanism([piston], joints, params={"a": 0.7})
    motion = jm.acceleration(mechanism.system, [0.0], [0.0], 0.0, mechanism.params)
    np.testing.assert_allclose(motion.qdd, [1.4])
    np.testing.assert_allclose(motion.multipliers, [2.8])
