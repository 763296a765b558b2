"""The hinge: b turns about an axis that it shares with a, or about a point in the plane."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import DARK
from jaxmech.parts.body import AbstractBody
from jaxmech.parts.drawing import Drawing, Shapes
from jaxmech.parts.inertia import Inertia, rounded
from jaxmech.parts.joint_equations import AbstractPosition, Coincide, Parallel
from jaxmech.parts.joints.base import AbstractFreedom, Turning
from jaxmech.parts.joints.checks import partners, require_turn_between
from jaxmech.parts.joints.coordinates import (
    Axes,
    CoordinateJoint,
    angle_about_axis,
    turn_about_axis,
)
from jaxmech.parts.kinds import Axis, Turn, same_as
from jaxmech.parts.kinematics.base import Relation
from jaxmech.parts.values import Reader, unit
from jaxmech.parts.vectors import matmul, plane_rotation, quaternion_onto, rotation
from jaxmech.utils.arrays import AnyArray


@dataclass(frozen=True)
class Revolute(CoordinateJoint):
    """A hinge: a point of a coincides with a point of b, and in space they share an axis.

    Its multipliers are the force [N] on b along the axes of the ground, in space followed by two
    torques [N m] across the axis.

    Args:
        axis: direction of the axis on a; in space only.
        axis_b: direction of the axis on b, by default the same components as `axis`.
        turn: in space, the attitude of b relative to a at the joint angle zero, a quaternion that
            turns `axis_b` into `axis`; by default the first normals of the axes coincide there. It
            only affects the coordinate of the joint.
    """

    _: KW_ONLY
    axis: Axis = None
    axis_b: Axis = same_as("axis")
    turn: Turn = None

    kind = "revolute joint"
    letters = ("angle",)

    def __post_init__(self, a: AbstractBody, b: AbstractBody) -> None:
        super().__post_init__(a, b)
        if self.axes is not None:
            partners(self.part, self.bodies, turning=True)
            if self.turn is not None:
                require_turn_between(self.part, self.axes, self.turn)

    @property
    def axes(self) -> Axes | None:
        """The axis on a and on b in space; None in the plane."""
        return None if self.axis is None else (self.axis, self.axis_b)

    @property
    def positions(self) -> tuple[AbstractPosition, ...]:
        """Both points coincide, and in space the axes are parallel."""
        pin = Coincide(self.at_a, self.at_b)
        return (pin,) if self.axes is None else (pin, Parallel(*self.axes))

    @property
    def freedoms(self) -> dict[str, AbstractFreedom]:
        """The angle."""
        return {"angle": Turning(self.axes, self.turn)}

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on both bodies, turned about the axis."""
        if self.axes is None:
            return Relation(plane_rotation(q[0]), q[0], *self.points(read), v[0])
        axes, attitude, spin = turn_about_axis(self.axes, q[0], v[0], read, self.turn)
        return Relation(axes, attitude, *self.points(read), spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The angle about the axis and its rate."""
        if self.axes is None:
            return [relation.attitude], [relation.spin]
        angle, rate = angle_about_axis(self.axes, relation, read, self.turn)
        return [angle], [rate]

    def hinge_axes(self, read: Reader) -> tuple[AnyArray, AnyArray]:
        """Rotations to axes whose third one is that of the hinge, on a at an angle of zero."""
        if self.axes is None:
            return np.eye(3, dtype=read.dtype), np.eye(3, dtype=read.dtype)
        u, w = (unit(read, axis, 3) for axis in self.axes)
        on_b = rounded(rotation(quaternion_onto(w)))
        if self.turn is not None:
            return matmul(rotation(unit(read, self.turn, 4)), on_b), on_b
        if self.axes[0] == self.axes[1]:
            return on_b, on_b
        return rounded(rotation(quaternion_onto(u))), on_b

    def divided(self, inertia: Inertia, zero: Inertia) -> tuple[Inertia, Inertia]:
        """The mass, and the static moment along the axis, move with a."""
        along = np.eye(3, dtype=zero.mass.dtype)[2]
        shared = zero._replace(mass=inertia.mass, static=inertia.static * along)
        own = inertia._replace(mass=zero.mass, static=inertia.static * (1 - along))
        return own, shared

    def shapes(self, drawing: Drawing) -> Shapes:
        """A pin, in space in a collar."""
        name = drawing.name
        if self.axes is not None:
            axes = drawing.axes(1, self.axes[1])
            pin = drawing.solid(meshes.cylinder(24), axes, (0.75, 0.75, 3.0))
            collar = drawing.solid(meshes.cylinder(24), axes, (1.3, 1.3, 1.7), DARK)
            if any(map(drawing.has_visual, (0, 1))):
                return {name: pin, **drawing.base()}
            return {name: pin, f"{name}.collar": collar, **drawing.base()}
        sketch = drawing.sketch
        names = sorted((b.name for b in self.bodies), key=lambda x: sketch.levels.get(x, -1))
        low, high = map(sketch.depth, names)
        pin = drawing.solid(meshes.cylinder(24), drawing.frames[1].axes, (0.5, 0.5, 0.0), DARK)
        tall = (high - low + 1.3 * sketch.height) * meshes.cylinder(24).vertices[:, 2]
        lifted = pin.vertices.at[:, 2].set(tall + (high + low) / 2)
        return {name: pin._replace(vertices=lifted), **drawing.base()}


revolute = Revolute
