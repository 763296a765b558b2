"""The plate on a table: b moves in a plane of a and turns about its normal."""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import GROUND
from jaxmech.parts.body import AbstractBody
from jaxmech.parts.drawing import Drawing, Shapes
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.joints.checks import axes_of, pinned
from jaxmech.parts.joints.coordinates import (
    Axes,
    CoordinateJoint,
    angle_about_axis,
    slid,
    turn_about_axis,
)
from jaxmech.parts.kinematics.relations import Relation
from jaxmech.parts.position_equations import AbstractPosition, Level, Parallel
from jaxmech.parts.values import Reader, Vector, unit
from jaxmech.parts.vectors import normals


def planar(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    normal: Vector,
    normal_b: Vector | None = None,
) -> Joint:
    """A plate on a table: b moves in a plane of a, and turns about its normal; in space.

    Its multipliers are the force [N] along the normal and two torques [N m] across it.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: a point of the plane on a [m].
        b: second body.
        at_b: the point on b [m] that moves in the plane.
        normal: normal of the plane on a.
        normal_b: the same direction on b, by default the same components as `normal`.

    Example:
        >>> from jaxmech.parts import ground, spatial_body
        >>> plate, o = spatial_body("plate", mass=1.0, inertia=(0.1, 0.1, 0.2)), (0, 0, 0)
        >>> planar("table", ground, o, plate, o, normal=(0, 0, 1)).kind
        'planar joint'
    """
    kind = "planar joint"
    part, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(3,), turning=True)
    axes = axes_of(part, normal, normal_b)
    return Planar(kind, name, bodies, *points, axes)


@dataclass(frozen=True)
class Planar(CoordinateJoint):
    """A way along both normals of an axis on a, and a turn about the axis."""

    axes: Axes

    letters: ClassVar[tuple[str, ...]] = ("x", "y", "angle")
    slides: ClassVar[bool] = True

    @property
    def positions(self) -> tuple[AbstractPosition, ...]:
        """The point on b is in the plane, and the normals are parallel."""
        return Level(self.at_a, self.axes[0], self.at_b, 0.0), Parallel(*self.axes)

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on a moved in the plane, b turned about its normal."""
        axes, attitude, spin = turn_about_axis(self.axes, q[2], v[2], read)
        on_a, on_b = self.points(read)
        for k, u in enumerate(normals(unit(read, self.axes[0], 3))):
            on_a = slid(on_a, u, q[k], v[k])
        return Relation(axes, attitude, on_a, on_b, spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The ways in the plane and the angle about its normal, with their rates."""
        first, second = normals(unit(read, self.axes[0], 3))
        angle, rate = angle_about_axis(self.axes, relation, read)
        offset, speed = joint
        return [first @ offset, second @ offset, angle], [first @ speed, second @ speed, rate]

    def shapes(self, drawing: Drawing) -> Shapes:
        """A ball on a plate."""
        axes, at = drawing.axes(0, self.axes[0]), drawing.on(0, self.at_a)
        plate = drawing.solid(meshes.box(), axes, (14.0, 14.0, 0.3), GROUND, at)
        ball = drawing.solid(meshes.sphere(), drawing.frames[1].axes, (1.0,) * 3)
        return {drawing.name: ball, f"{drawing.name}.plate": plate}
