"""Joints by subclasses of `CoordinateJoint`, and axes that change with time."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.parts.joints import CoordinateJoint, Direction, Hinge, Slide


@dataclass(frozen=True)
class PinInSlot(CoordinateJoint):
    """A pin of b slides along a slot of a, and b turns about it; in the plane."""

    _: KW_ONLY
    axis: Direction

    kind = "pin in slot"

    @property
    def motions(self) -> Any:
        return Slide(self.at_a, self.at_b, self.axis), Hinge()


def swing(coordinates: Any) -> jp.Mechanism:
    """A bar on a pin in a slot of a turning disk, with a spring and a stop along the slot."""
    disk = jp.planar_body("disk", mass=3.0, inertia=0.5)
    bar = jp.planar_body("bar", mass=1.0, inertia=0.1)
    slot = PinInSlot("slot", disk, (0.0, 0.2), bar, (0.5, 0.0), axis=(8, 6))
    spring = jp.joint_force("spring", slot, lambda x, rate, t, p: -20 * x, coordinate="position")
    return jp.Mechanism(
        [disk, bar],
        [jp.revolute("axle", jp.ground, (0, 0), disk, (0, 0)), slot],
        [jp.gravity(), spring],
        coordinates=coordinates,
    )


def test_a_joint_of_ones_own_moves_as_its_equations_say() -> None:
    by_joints, by_bodies = swing("joints"), swing("bodies")
    assert by_joints.tree == ("axle", "slot")
    assert by_joints.system.coordinates == ("axle.angle", "slot.position", "slot.angle")
    q, v = jnp.array([0.3, 0.1, -0.4]), jnp.array([1.0, -0.5, 2.0])
    starts = {}
    for name in ("disk", "bar"):
        frame, rate = by_joints.frame(name, q), by_joints.velocity(name, (0, 0), q, v)
        spin = 1.0 if name == "disk" else 3.0
        starts[name] = jp.Start(tuple(frame.origin), frame.attitude, tuple(rate), spin)
    np.testing.assert_allclose(by_joints.guess(starts)[0], q, atol=1e-12)
    np.testing.assert_allclose(by_joints.guess(starts)[1], v, atol=1e-12)
    ts = jnp.linspace(0.0, 0.2, 3)
    policy = {"steps": jm.FixedSteps(per_save=20), "method": jm.RK4()}
    sol = jm.simulate(by_joints.system, q, v, ts, {}, **policy)
    other = jm.simulate(by_bodies.system, *by_bodies.guess(starts), ts, {}, **policy)
    for name in ("disk", "bar"):
        ends = [m.frame(name, s.q[-1]).origin for m, s in ((by_joints, sol), (by_bodies, other))]
        np.testing.assert_allclose(*ends, atol=1e-7)
    loads = [
        jm.observe(m.system, s).loads["slot"] for m, s in ((by_joints, sol), (by_bodies, other))
    ]
    np.testing.assert_allclose(loads[0][0], loads[1][0], rtol=1e-5, atol=1e-5)
    assert {"slot", "slot.guide"} <= by_joints.geometry(q, 0.0, {}).keys()


@pytest.mark.parametrize("make", [jp.revolute, jp.cylindrical])
def test_an_axis_that_changes_with_time_moves_the_body(make: Any) -> None:
    top = jp.spatial_body("top", mass=1.0, inertia=(0.1, 0.2, 0.3))
    tilting = (lambda t, p: jnp.sin(2 * t), 0.0, lambda t, p: jnp.cos(2 * t))
    o = (0, 0, 0)
    mechanism = jp.Mechanism(
        [top], [make("axle", jp.ground, o, top, o, axis=tilting, axis_b=tilting)]
    )
    q, t = jnp.linspace(0.7, 0.9, mechanism.system.n), jnp.asarray(0.3)
    speed = jax.jvp(lambda t: mechanism.point("top", (1, 2, 3), q, t), (t,), (1.0,))[1]
    assert np.linalg.norm(speed) > 0.1
    found = mechanism.velocity("top", (1, 2, 3), q, 0 * q, t)
    np.testing.assert_allclose(found, speed, atol=1e-12)
