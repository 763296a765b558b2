"""The shapes by which a mechanism is drawn, from its parts alone.

A body in the plane is the outline of its centre of mass and of the points where joints and forces
act on it; in space it is a star of lines from the centre of mass to them. A body without such
points is a circle, or a cross, of the size of its radius of gyration. Joints and centres of mass
are dots; rods, springs, dampers, wheels, gears and blades have shapes of their own.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.geometry import circle, coil, line, outline
from jaxmech.parts.body import AbstractBody, Frame, Ground
from jaxmech.parts.contacts.base import AbstractContact
from jaxmech.parts.contacts.curves import RollerGap
from jaxmech.parts.forces.elements import AbstractForce, Applied, Damper, Spring
from jaxmech.parts.joint_base import Joint
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.position_equations import (
    Across,
    Apart,
    Coincide,
    Level,
    Mesh,
    OnSurface,
    across,
    pointing,
)
from jaxmech.parts.rigid_bodies import AbstractRigidBody
from jaxmech.parts.values import Reader, Value, Vector
from jaxmech.parts.vectors import turned
from jaxmech.parts.velocity_equations import Edge, GearSpeed, RoundSlip, WheelSlip

Shapes = dict[str, Array]

_FAR = 1e3  # half the length of a straight ground [m]; a picture shows the visible part


def shapes(
    kinematics: AbstractKinematics,
    connections: Iterable[Joint | AbstractForce],
    q: Array,
    t: Array,
    params: Any,
) -> Shapes:
    """The shapes of bodies, and of the joints and forces between them, by name."""
    marks: dict[str, list[Vector]] = {body.name: [] for body in kinematics.bodies}
    round_ones: set[str] = set()
    drawn: Shapes = {}
    names = {*marks}
    for connection in connections:
        name = connection.name if isinstance(connection, Joint) else connection.part
        while name in names:  # a joint may have no name, or that of a body
            name += ".joint"
        names.add(name)
        read = Reader(connection.part, t, params)
        frames = kinematics.frames(connection.bodies, q, t, params)
        for element in _elements(connection):
            for k, local in _marks(element):
                body_marks = marks.get(connection.bodies[k].name, [])
                body_marks += [local] if local not in body_marks else []
            round_ones |= {connection.bodies[k].name for k in _round(element)}
            drawn |= _element(name, element, frames, connection.bodies, read)
    bodies: Shapes = {}
    body_frames = kinematics.frames(kinematics.bodies, q, t, params)
    for body, frame in zip(kinematics.bodies, body_frames, strict=True):
        if isinstance(body, AbstractRigidBody):
            bare = body.name not in round_ones
            read = Reader(f"body {body.name!r}", t, params)
            bodies |= _rigid(body, frame, marks[body.name], read, bare=bare)
        else:
            bodies |= {body.name: frame.origin}
    lines = {name: shape for name, shape in bodies.items() if shape.ndim == 2}
    return {**lines, **drawn, **bodies}


def joint_points(
    kinematics: AbstractKinematics, joints: Iterable[Any], q: Array, t: Array, params: Any
) -> Shapes:
    """The points of joints on their second bodies, where their loads act, by name."""
    points: Shapes = {}
    for joint in joints:
        if isinstance(joint, Joint) and joint.name:
            frame = kinematics.frames(joint.bodies[1:2], q, t, params)[0]
            points[joint.name] = joint.point_on_b(frame, Reader(joint.part, t, params))
    return points


def _elements(connection: Joint | AbstractForce) -> Sequence[Any]:
    if isinstance(connection, Joint):
        return (*connection.positions, *connection.velocities)
    return (connection,)


def _marks(element: Any) -> list[tuple[int, Vector]]:
    """The points on bodies that an element acts on, each with the index of the body."""
    if isinstance(element, Coincide | Apart | Across | Spring | Damper):
        return [(0, element.at_a), (1, element.at_b)]
    if isinstance(element, OnSurface | Edge | Applied | RollerGap):
        return [(-1, element.at_b)]
    return []


def _round(element: Any) -> tuple[int, ...]:
    """The indices of the bodies that an element makes round."""
    if isinstance(element, RoundSlip | WheelSlip):
        return (1,)
    if isinstance(element, AbstractContact):
        return element.round_bodies
    return (0, 1) if isinstance(element, Mesh | GearSpeed) else ()


def _element(
    name: str, element: Any, frames: tuple[Frame, ...], bodies: Sequence[AbstractBody], read: Reader
) -> Shapes:
    size = frames[0].origin.shape[0]
    ends = [frames[k].point(read.vector(local, size)) for k, local in _marks(element)]
    match element:
        case Coincide() | OnSurface():
            return {name: jnp.asarray(ends[-1])}
        case Apart() | Damper():
            return {name: line(*ends)}
        case Across():
            return {f"{name}.guide": line(*ends), name: jnp.asarray(ends[-1])}
        case Spring():
            return {name: coil(*ends)}
        case AbstractContact():
            return element.shapes(name, frames, read)
        case Level(at_a, normal, _, _) if size == 2 and isinstance(bodies[0], Ground):
            origin, n = frames[0].point(read.vector(at_a, 2)), pointing(frames[0], normal, read)
            return {f"{name}.ground": line(origin - _FAR * turned(n), origin + _FAR * turned(n))}
        case Edge(_, along):
            u = pointing(frames[1], along, read)
            reach = 0.4 * _gyration(bodies[1], read)
            return {f"{name}.blade": line(ends[0] - reach * u, ends[0] + reach * u)}
        case _:
            return _wheels(name, element, frames, read)


def _wheels(name: str, element: Any, frames: tuple[Frame, ...], read: Reader) -> Shapes:
    size = frames[0].origin.shape[0]
    middle = (0.0,) * size
    match element:
        case RoundSlip(_, at_b, radius):
            return _wheel(name, frames[1], (at_b, radius, None), read)
        case WheelSlip(_, at_b, axle, radius):
            return _wheel(name, frames[1], (at_b, radius, axle), read)
        case Mesh(ra, rb, _):
            pair = (ra, None), (rb, None)
        case GearSpeed(axis_a, ra, axis_b, rb):
            pair = (ra, axis_a), (rb, axis_b)
        case _:
            return {}
    gears: Shapes = {}
    for k, (radius, axis) in enumerate(pair):
        gears |= _wheel(f"{name}.{k + 1}", frames[k], (middle, radius, axis), read)
    return gears


def _wheel(
    name: str, frame: Frame, wheel: tuple[Vector, Value, Vector | None], read: Reader
) -> Shapes:
    """A circle with a diameter that turns with it; a sphere, without an axle, has three."""
    at, radius, axle = wheel
    size = frame.origin.shape[0]
    center, r = frame.point(read.vector(at, size)), jnp.abs(read.number(radius))
    if size == 3 and axle is not None:
        e1, e2 = (frame.direction(n) for n in across(frame, axle, read))
    else:
        e1, e2 = frame.axes[:, 0], frame.axes[:, 1]
    lines = {
        f"{name}.wheel": circle(center, r, line(e1, e2)),
        f"{name}.spoke": line(center - r * e1, center + r * e1),
    }
    if size == 3 and axle is None:
        e3 = frame.axes[:, 2]
        lines[f"{name}.wheel2"] = circle(center, r, line(e2, e3))
        lines[f"{name}.wheel3"] = circle(center, r, line(e3, e1))
    return lines


def _rigid(
    body: AbstractRigidBody, frame: Frame, marks: Sequence[Vector], read: Reader, *, bare: bool
) -> Shapes:
    """Draw a rigid body; if it is bare and has no other extension, as a circle or a cross."""
    size = body.dimension
    center = frame.point(_center(body, read))
    ends = [frame.point(read.vector(local, size)) for local in marks]
    lines: Shapes = {}
    if ends and size == 2:
        lines[body.name] = _around(jnp.stack([center, *ends]))
    elif ends:
        lines[body.name] = jnp.stack([x for end in ends for x in (center, end)])
    if bare:
        reach = jnp.max(jnp.stack([jnp.abs(end - center).max() for end in [center, *ends]]))
        r = _gyration(body, read)
        r = jnp.where(reach < 1e-3 * r, r, 0.0)
        if size == 2:
            lines[f"{body.name}.disc"] = circle(center, r)
            lines[f"{body.name}.radius"] = line(center, center + r * frame.axes[:, 0])
        else:
            arms = [center + s * r * e for e in frame.axes.T for s in (1, -1, 0)]
            lines[f"{body.name}.cross"] = jnp.stack(arms)
    return {**lines, f"{body.name}.center": center}


def _around(points: Array) -> Array:
    """The outline through points in the plane, in the order of their directions from the center."""
    away = points - points.mean(axis=0, keepdims=True)
    order = jnp.argsort(jnp.arctan2(away[:, 1], away[:, 0]))
    return outline(*points[order])


def _center(body: AbstractRigidBody, read: Reader) -> Any:
    m, S = body.properties.static(read, body.dimension)
    return S / jnp.where(m == 0, 1.0, m)


def _gyration(body: Any, read: Reader) -> Array:
    """The radius of gyration about the centre of mass [m]; in space that of the mean moment."""
    m, _ = body.properties.static(read, body.dimension)
    c = _center(body, read)
    if body.dimension == 2:
        moment = body.properties.planar_inertia(read) - m * (c @ c)
    else:
        moment = jnp.trace(body.properties.spatial_inertia(read)) / 3 - m * (c @ c) * 2 / 3
    return jnp.sqrt(jnp.maximum(moment, 0.0) / jnp.where(m == 0, 1.0, m))
