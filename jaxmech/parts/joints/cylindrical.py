"""Joints with an axis along which b slides and about which it turns: the sleeve and the screw."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import DARK, Solid, scaled
from jaxmech.parts.body import Moving, pointing
from jaxmech.parts.drawing import STEEL, Drawing, Shapes
from jaxmech.parts.joint_equations import AbstractPosition, AbstractVelocity, Across, Parallel, slip
from jaxmech.parts.joints.base import AbstractFreedom, Sliding, Turning
from jaxmech.parts.joints.coordinates import (
    Axes,
    CoordinateJoint,
    angle_about_axis,
    slid,
    turn_about_axis,
)
from jaxmech.parts.kinds import Direction, Number, same_as
from jaxmech.parts.kinematics.base import Relation
from jaxmech.parts.values import Reader, Value, Vector, unit


@dataclass(frozen=True)
class Cylindrical(CoordinateJoint):
    """A shaft in a sleeve: b turns about a line of a and slides along it; in space.

    Its multipliers are two forces [N] and two torques [N m] across the axis.

    Args:
        axis: direction of the axis on a.
        axis_b: direction of the axis on b, by default the same components as `axis`.
    """

    _: KW_ONLY
    axis: Direction
    axis_b: Direction = same_as("axis")

    kind = "cylindrical joint"
    letters: ClassVar[tuple[str, ...]] = ("position", "angle")
    slides = True
    dimensions = (3,)
    turning = True

    @property
    def axes(self) -> Axes:
        """The axis on a and on b."""
        return self.axis, self.axis_b

    @property
    def positions(self) -> tuple[AbstractPosition, ...]:
        """The point on b is on the axis of a, and the axes are parallel."""
        return Across(self.at_a, self.axes[0], self.at_b), Parallel(*self.axes)

    @property
    def freedoms(self) -> dict[str, AbstractFreedom]:
        """The position and the angle."""
        sliding = Sliding(self.at_a, self.at_b, self.axes[0])
        return {"position": sliding, "angle": Turning(self.axes)}

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on a moved along the axis, b turned about it."""
        axes, attitude, spin = turn_about_axis(self.axes, q[1], v[1], read)
        on_a, on_b = self.points(read)
        u = unit(read, self.axes[0], 3)
        return Relation(axes, attitude, slid(on_a, u, q[0], v[0]), on_b, spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The way along the axis and the angle about it, with their rates."""
        u = unit(read, self.axes[0], 3)
        angle, rate = angle_about_axis(self.axes, relation, read)
        return [u @ joint[0], angle], [u @ joint[1], rate]

    def shapes(self, drawing: Drawing) -> Shapes:
        """A sleeve on a rail."""
        axes, start = drawing.axes(1, self.axes[1]), drawing.on(0, self.at_a)
        rail_axes, name = drawing.axes(0, self.axes[0]), drawing.name
        rail = drawing.rail(start, rail_axes, rail_axes[:, 2] @ (drawing.point - start))
        sleeve = drawing.solid(meshes.cylinder(24), axes, (1.5, 1.5, 3.6), DARK)
        return {name: sleeve, f"{name}.rail": rail}


@dataclass(frozen=True)
class Screw(Cylindrical):
    """A nut or spindle: b turns about an axis of a and moves along it by its lead; in space.

    In the coordinates of joints it has an `angle`, at whose zero the points coincide; as a
    constraint it keeps the initial offset.

    Args:
        axis: direction of the axis on a.
        lead: displacement along the axis per full turn [m], positive for a right-handed screw.
        axis_b: direction of the axis on b, by default the same components as `axis`.
    """

    _: KW_ONLY
    lead: Number

    kind = "screw"
    letters = ("angle",)

    @property
    def velocities(self) -> tuple[AbstractVelocity, ...]:
        """The speed along the axis is in proportion to that about it."""
        return (ScrewSpeed(self.axes[0], self.at_b, self.lead),)

    @property
    def freedoms(self) -> dict[str, AbstractFreedom]:
        """The angle."""
        return {"angle": Turning(self.axes)}

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on a moved along the axis, b turned about it."""
        axes, attitude, spin = turn_about_axis(self.axes, q[0], v[0], read)
        on_a, on_b = self.points(read)
        pitch = read.number(self.lead) / (2 * np.pi)
        u = unit(read, self.axes[0], 3)
        return Relation(axes, attitude, slid(on_a, u, pitch * q[0], pitch * v[0]), on_b, spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The angle that is nearest to the way along the axis, and its rate."""
        u = unit(read, self.axes[0], 3)
        angle, rate = angle_about_axis(self.axes, relation, read)
        way = 2 * np.pi * (u @ joint[0]) / read.number(self.lead)
        return [angle + 2 * np.pi * jnp.round((way - angle) / (2 * np.pi))], [rate]

    def shapes(self, drawing: Drawing) -> Shapes:
        """A sleeve on a rail with a thread."""
        size, mesh = drawing.width, meshes.coil(12, 0.2)
        thread = scaled(mesh.vertices, (9 * size, size, size), (-4.5 * size, 0.0, 0.0))
        axes = drawing.axes(0, self.axes[0])[:, jnp.array([2, 0, 1])]
        coil = Solid(drawing.point, axes, thread, mesh.faces, STEEL)
        shapes = super().shapes(drawing)
        rail = shapes.pop(f"{drawing.name}.rail")
        return {**shapes, f"{drawing.name}.thread": coil, f"{drawing.name}.rail": rail}


@dataclass(frozen=True)
class ScrewSpeed(AbstractVelocity):
    """b moves along an axis on a in proportion to its turns about it."""

    axis: Vector
    at_b: Vector
    lead: Value

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual u . v - lead / (2 pi) u . w, with v and w relative to a."""
        a, b = motions
        u = pointing(a.frame, self.axis, read)
        speed = u @ slip(motions, b.frame.point(read.vector(self.at_b, 3)))
        pitch = read.number(self.lead) / (2 * np.pi)
        return (speed - pitch * (u @ (b.spin - a.spin)))[None]


cylindrical, screw = Cylindrical, Screw
