"""Random poses, motions and loads of two bodies, made without the package's own formulas."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech import parts as jp

A, B = "a", "b"


def pair(size: int) -> tuple[Any, Any]:
    """Two bodies in the plane or in space."""
    if size == 2:
        return tuple(jp.planar_body(name, mass=1.3, inertia=0.2) for name in (A, B))
    return tuple(jp.spatial_body(name, mass=1.3, inertia=(0.1, 0.2, 0.25)) for name in (A, B))


def starts_at(mechanism: jp.Mechanism, q: Any, v: Any, t: Any, params: Any) -> dict[str, jp.Start]:
    """The starts of all bodies from a state of a mechanism."""
    moving = mechanism.kinematics.moving(mechanism.bodies, q, v, t, params)
    return {
        body.name: jp.Start(m.frame.origin, m.frame.attitude, m.velocity, m.spin)
        for body, m in zip(mechanism.bodies, moving, strict=True)
    }


def hamilton(a: Any, b: Any) -> Any:
    """The product of two quaternions."""
    return np.array(
        [a[0] * b[0] - a[1:] @ b[1:], *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))]
    )


def matrix(e: Any) -> Any:
    """Rodrigues' formula: the rotation matrix of a unit quaternion."""
    K = np.cross(np.eye(3), e[1:])  # K a = e x a
    return np.eye(3) + 2 * e[0] * K + 2 * K @ K


def plane_matrix(angle: float) -> Any:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def turn(axis: Any, angle: Any) -> Any:
    """The quaternion of a turn about an axis."""
    u = np.asarray(axis, float) / np.linalg.norm(axis)
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) * u)])


def placed(
    size: int, relative: Callable[[Any], tuple[Any, Any]], points: Any, seed: int
) -> Callable[[Any], Any]:
    """q(x) of both bodies; x moves both as one (3 or 6 numbers), then b by the freedoms between.

    `relative(f)` gives the way from the point on a to the point on b along the axes of a, and the
    attitude of b in a.
    """
    draw = np.random.default_rng(seed)
    r0, (pa, pb) = draw.normal(size=size), (np.asarray(p, float) for p in points)
    e0 = draw.normal(size=4)
    e0, angle0 = e0 / np.linalg.norm(e0), draw.uniform(-3, 3)

    def plane(x: Any) -> Any:
        (shift, angle), r, first = relative(x[3:]), r0 + x[:2], angle0 + x[2]
        b = r + plane_matrix(first) @ (pa + shift) - plane_matrix(first + angle) @ pb
        return np.array([*r, first, *b, first + angle])

    def space(x: Any) -> Any:
        (shift, e), r, w = relative(x[6:]), r0 + x[:3], x[3:6]
        ea = hamilton(np.array([np.sqrt(1 - w @ w / 4), *(w / 2)]), e0)
        eb = hamilton(ea, e)
        return np.array([*r, *ea, *(r + matrix(ea) @ (pa + shift) - matrix(eb) @ pb), *eb])

    return plane if size == 2 else space


def motions(q_of: Callable[[Any], Any], size: int, f: Any) -> tuple[Any, Any]:
    """q and all velocities that the joint allows, as columns to 1e-9, at the freedoms f."""
    x = np.array([*np.zeros(3 if size == 2 else 6), *f])
    steps = 1e-6 * np.eye(x.size)
    return jnp.asarray(q_of(x)), np.stack(
        [(q_of(x + h) - q_of(x - h)) / 2e-6 for h in steps], axis=1
    )


def rows(mechanism: jp.Mechanism, q: Any) -> dict[str, np.ndarray]:
    """A of each constraint by name, at rest."""
    t, params = jnp.zeros(()), dict(mechanism.params)

    def every(q: Any) -> dict[str, Any]:
        still = jnp.zeros_like(q)
        return {c.name: c.rows(q, still, t, params)[0] for c in mechanism.system.constraints}

    return {name: np.asarray(A) for name, A in jax.jit(every)(jnp.asarray(q)).items()}


def load(mechanism: jp.Mechanism, body: str, q: Any, generalized: Any) -> tuple[Any, Any]:
    """The force, and the torque about the reference point, of a force on a body's coordinates."""
    names = mechanism.system.coordinates
    first = names.index(f"{body}.x")
    force = np.asarray(generalized)[first:]
    if f"{body}.e0" not in names:
        return force[:2], force[2] if f"{body}.angle" in names else 0.0
    e = np.asarray(q)[first + 3 : first + 7]
    return force[:3], hamilton(force[3:7], e * np.array([1, -1, -1, -1]))[1:] / 2


def assert_balanced(mechanism: jp.Mechanism, q: Any, generalized: Any) -> None:
    """The forces on a and b are opposite and on one line: no sum, no moment about the origin."""
    total, moment = 0.0, 0.0
    for body in (A, B):
        force, torque = load(mechanism, body, q, generalized)
        total, arm = total + force, mechanism.frame(body, q).origin
        if arm.size == 2:
            moment = moment + torque + arm[0] * force[1] - arm[1] * force[0]
        else:
            moment = moment + torque + np.cross(arm, force)
    np.testing.assert_allclose(total, 0, atol=1e-13)
    np.testing.assert_allclose(moment, 0, atol=1e-13)
