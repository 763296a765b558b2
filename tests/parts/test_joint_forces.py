"""Forces in joints: their generalized force on the coordinate of the joint, and their power."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import parts as jp
from tests.parts.poses import starts_at

P, R = (0.1, -0.2, 0.3), (-0.3, 0.1, 0.2)
AXIS = (1.0, -2.0, 2.0)
T = jnp.asarray(0.3)


def boxes() -> list[Any]:
    return [jp.spatial_body(name, mass=1.0, inertia=(0.1, 0.2, 0.25)) for name in "ab"]


def plates() -> list[Any]:
    return [jp.planar_body(name, mass=1.0, inertia=0.1) for name in "ab"]


def chain(kind: str) -> tuple[list[Any], list[Any]]:
    """A body on a ball or hinge, and a second one on a joint of a kind."""
    if kind == "plane hinge":
        a, b = plates()
        root = jp.revolute("root", jp.ground, (0, 0), a, P[:2])
        return [a, b], [root, jp.revolute("J", a, P[:2], b, R[:2])]
    if kind == "plane slide":
        a, b = plates()
        root = jp.revolute("root", jp.ground, (0, 0), a, P[:2])
        return [a, b], [root, jp.prismatic("J", a, P[:2], b, R[:2], axis=(3, 4))]
    a, b = boxes()
    root = jp.revolute("root", jp.ground, P, a, R, axis=(0, 1, 1))
    made = {
        "hinge": lambda: jp.revolute("J", a, P, b, R, axis=AXIS),
        "turned hinge": lambda: jp.revolute(
            "J", a, P, b, R, axis=AXIS, turn=jp.quaternion(AXIS, 0.7)
        ),
        "slide": lambda: jp.prismatic("J", a, P, b, R, axis=AXIS),
        "sleeve": lambda: jp.cylindrical("J", a, P, b, R, axis=AXIS),
        "table": lambda: jp.planar("J", a, P, b, R, normal=AXIS),
    }
    return [a, b], [root, made[kind]()]


CASES = [("plane hinge", None, 0), ("plane slide", None, 0), ("hinge", None, 0),
         ("turned hinge", None, 0),
         ("slide", None, 0), ("sleeve", "position", 0), ("sleeve", "angle", 1),
         ("table", "angle", 2)]  # fmt: skip


@pytest.mark.parametrize(("kind", "coordinate", "which"), CASES)
def test_a_force_acts_on_its_coordinate(kind: str, coordinate: Any, which: int) -> None:
    bodies, joints = chain(kind)

    def law(x: Any, rate: Any, t: Any, p: Any) -> Any:
        return p["k"] * x + 0.5 * rate + t

    force = jp.joint_force("law", joints[1], law, coordinate=coordinate)
    mechanism = jp.Mechanism(bodies, joints, [force], {"k": 2.0})
    draw = np.random.default_rng(3).uniform(-1.0, 1.0, (2, mechanism.system.n))
    q, v = jnp.asarray(draw)
    expected = np.zeros(len(q))
    expected[1 + which] = 2.0 * q[1 + which] + 0.5 * v[1 + which] + T
    found = mechanism.system.dynamics.applied_force(q, v, T, {"k": 2.0})
    np.testing.assert_allclose(found, expected, atol=1e-14)

    starts = starts_at(mechanism, q, v, T, {"k": 2.0})
    others = replace(mechanism, coordinates="bodies")
    at = others.guess(starts)
    power = others.system.dynamics.applied_force(*at, T, {"k": 2.0}) @ at[1]
    np.testing.assert_allclose(power, expected @ v, rtol=1e-12)


def effort(force: Any, angle: float, rate: float, params: Any) -> float:
    bodies, joints = chain("plane hinge")
    mechanism = jp.Mechanism(bodies, joints, [force(joints[1])], params)
    q, v = jnp.array([0.3, angle]), jnp.array([0.1, rate])
    found = mechanism.system.dynamics.applied_force(q, v, T, params)
    assert found[0] == 0
    return float(found[1])


def test_laws_of_drives() -> None:
    def servo(joint: Any) -> Any:
        return jp.servo(
            "s", joint, target=0.5, stiffness=10.0, damping=1.0, target_rate=0.2, limit=3.0
        )

    assert effort(servo, 0.4, 0.5, {}) == pytest.approx(1.0 - 0.3)
    assert effort(servo, -4.0, 0.0, {}) == pytest.approx(3.0)
    assert effort(servo, 4.0, 0.0, {}) == pytest.approx(-3.0)

    def brake(joint: Any) -> Any:
        return jp.friction(
            "f", joint, coulomb=1.0, viscous=0.1, static="s", stribeck=0.1, smooth=0.01
        )

    for rate in (-0.2, 0.05, 3.0):
        curve = 1.0 + 0.5 * np.exp(-((rate / 0.1) ** 2))
        expected = -curve * np.tanh(rate / 0.01) - 0.1 * rate
        assert effort(brake, 0.0, rate, {"s": 1.5}) == pytest.approx(expected)
