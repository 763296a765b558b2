"""Joints in which b slides on a: the slider, the weld, which does not, and the plate on a table.

In the first two b keeps its attitude relative to a; the plate turns about the normal of the table.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import BY_BODY, GROUND, scaled
from jaxmech.parts.body import Ground
from jaxmech.parts.drawing import Drawing, Shapes
from jaxmech.parts.inertia import Inertia
from jaxmech.parts.joint_equations import (
    AbstractPosition,
    Across,
    Coincide,
    Level,
    Parallel,
    RelativeAttitude,
)
from jaxmech.parts.joints.base import AbstractFreedom, Sliding
from jaxmech.parts.joints.coordinates import (
    Axes,
    CoordinateJoint,
    angle_about_axis,
    slid,
    turn_about_axis,
)
from jaxmech.parts.kinds import Attitude, Direction, same_as
from jaxmech.parts.kinematics.base import Relation
from jaxmech.parts.values import Reader, unit
from jaxmech.parts.vectors import normals, plane_rotation, rotation


def _at_rest(joint: CoordinateJoint, turn: Any, read: Reader) -> Relation:
    """The joint on both bodies, b at its constant attitude."""
    zeros = np.zeros(3, read.dtype)
    if joint.dimension == 2:
        angle = read.number(turn)
        return Relation(plane_rotation(angle), angle, *joint.points(read), zeros[0])
    e = unit(read, turn, 4)
    return Relation(rotation(e), e, *joint.points(read), zeros)


@dataclass(frozen=True)
class Prismatic(CoordinateJoint):
    """A slider: a point of b stays on a line of a, and b does not turn relative to a.

    Its multipliers are the components of the force [N] across the line, one in the plane and two in
    space, followed by those of the torque [N m], one in the plane and three in space, along the
    axes of b.

    Args:
        axis: direction of the line on a.
        turn: constant attitude of b relative to a, an angle [rad] or a quaternion; by default none.
    """

    _: KW_ONLY
    axis: Direction
    turn: Attitude = None

    kind = "prismatic joint"
    letters = ("position",)
    slides = True
    turning = True

    @property
    def positions(self) -> tuple[AbstractPosition, ...]:
        """The point on b is on the line, and b has its attitude."""
        return Across(self.at_a, self.axis, self.at_b), RelativeAttitude(self.turn)

    @property
    def freedoms(self) -> dict[str, AbstractFreedom]:
        """The position."""
        return {"position": Sliding(self.at_a, self.at_b, self.axis)}

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on a moved along the axis, b at its constant attitude."""
        fixed = _at_rest(self, self.turn, read)
        u = unit(read, self.axis, self.dimension)
        return fixed._replace(at_a=slid(fixed.at_a, u, q[0], v[0]))

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The way along the axis and its rate."""
        u = unit(read, self.axis, self.dimension)
        return [u @ joint[0]], [u @ joint[1]]

    def divided(self, inertia: Inertia, zero: Inertia) -> tuple[Inertia, Inertia]:
        """The moments of inertia turn with a."""
        shared = zero._replace(moments=inertia.moments)
        return inertia._replace(moments=zero.moments), shared

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The second body, as a block."""
        return (1,)

    def shapes(self, drawing: Drawing) -> Shapes:
        """A block on a rail."""
        start, axes, name = drawing.on(0, self.at_a), drawing.axes(0, self.axis), drawing.name
        is_planar = drawing.dimension == 2
        reach = axes[:, 0 if is_planar else -1] @ (drawing.point - start)
        size = (3.6, 2.4, 1.0) if is_planar else (2.4, 2.4, 3.6)
        block = drawing.solid(meshes.box(), axes, size, BY_BODY)
        if is_planar:
            depth = (0.0, 0.0, drawing.depth(1))
            block = block._replace(vertices=scaled(block.vertices, (1.0,) * 3, depth))
        rail = drawing.rail(start, axes, reach)
        return {f"{self.bodies[1].name}.block": block, f"{name}.rail": rail}


@dataclass(frozen=True)
class Weld(CoordinateJoint):
    """A rigid connection of two bodies.

    Its multipliers are the force [N] on b along the axes of the ground, and the torque [N m], in
    space with three components along the axes of b.

    Args:
        turn: constant attitude of b relative to a, an angle [rad] or a quaternion; by default none.
    """

    _: KW_ONLY
    turn: Attitude = None

    kind = "weld"
    letters = ()
    turning = True

    @property
    def positions(self) -> tuple[AbstractPosition, ...]:
        """Both points coincide, and b has its attitude."""
        return Coincide(self.at_a, self.at_b), RelativeAttitude(self.turn)

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on both bodies, b at its constant attitude."""
        return _at_rest(self, self.turn, read)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """None."""
        return [], []

    def divided(self, inertia: Inertia, zero: Inertia) -> tuple[Inertia, Inertia]:
        """All of it moves with a."""
        return zero, inertia

    def shapes(self, drawing: Drawing) -> Shapes:
        """What holds it to the ground."""
        return drawing.base() if isinstance(self.bodies[0], Ground) else {}


@dataclass(frozen=True)
class Planar(CoordinateJoint):
    """A plate on a table: b moves in a plane of a, and turns about its normal; in space.

    Its multipliers are the force [N] along the normal and two torques [N m] across it.

    Args:
        normal: normal of the plane on a.
        normal_b: the same direction on b, by default the same components as `normal`.
    """

    _: KW_ONLY
    normal: Direction
    normal_b: Direction = same_as("normal")

    kind = "planar joint"
    letters = ("x", "y", "angle")
    slides = True
    dimensions = (3,)
    turning = True

    @property
    def axes(self) -> Axes:
        """The normal on a and on b."""
        return self.normal, self.normal_b

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


prismatic, weld, planar = Prismatic, Weld, Planar
