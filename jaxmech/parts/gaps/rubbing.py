"""Dry friction in joints.

    dry_friction    x sticks, or slides against a torque [N m] or force [N] on b

x is the angle of a `revolute` joint or a `screw`, or the position of a `prismatic` one; for a
`cylindrical` joint, `coordinate` chooses between both.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frames
from jaxmech.parts.gaps.base import AbstractGap, Gap, value_of_params
from jaxmech.parts.gaps.in_joints import JointCoordinate, coordinate_of
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinds import part_name
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader, Value, non_negative
from jaxmech.system import DryFriction
from jaxmech.utils.text import capital


@dataclass(frozen=True)
class Travel(AbstractGap):
    """The coordinate of a joint, along which it rubs."""

    of: JointCoordinate

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The coordinate."""
        return (self.of.name,)

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The coordinate, an angle in space up to full turns."""
        return self.of.freedom.position(frames, read)[None]

    def of_coordinates(self, x: tuple[Array, ...], read: Reader) -> Array:
        """The coordinate."""
        return jnp.asarray(x[0])[None]


@dataclass(frozen=True)
class Rub(Gap):
    """Dry friction along the coordinate of a joint."""

    static: Value = 0.0
    kinetic: Value | None = None
    pressed_by: str | None = None

    def unilateral(self, kinematics: AbstractKinematics) -> Any:
        """The friction as one along a coordinate of a mechanism."""
        return DryFriction(
            self.level(kinematics),
            value_of_params(self.part, self.static),
            None if self.kinetic is None else value_of_params(self.part, self.kinetic),
            normal=self.pressed_by,
            name=self.name,
        )


def dry_friction(
    name: str,
    joint: Joint,
    *,
    static: Value,
    kinetic: Value | None = None,
    pressed_by: str | None = None,
    coordinate: str | None = None,
) -> Rub:
    """Dry friction in a joint, which holds it up to a limit, and brakes it from there on.

    It is given among the joints. For friction that depends on the speed use `friction`. The
    multiplier is the torque [N m] or force [N] on the second body.

    Args:
        name: name of the friction.
        joint: the joint, which may be anywhere in the mechanism.
        static: largest torque [N m] or force [N] while the joint sticks.
        kinetic: torque or force while it moves, at most `static`; by default the same.
        pressed_by: name of a constraint whose load presses. The limits are then arms of friction
            [m] or coefficients, which are multiplied by the norm of its multipliers. The load of a
            joint in the plane is that of its constraint, so the joint has to be one, by
            `Mechanism(cut=...)` or `coordinates="bodies"`.
        coordinate: "angle" or "position" of a joint that has both.
    """
    part = part_name("dry friction", name)
    bodies, of = coordinate_of(part, joint, coordinate)
    limits = non_negative(part, "static", static)
    moving = None if kinetic is None else non_negative(part, "kinetic", kinetic)
    if isinstance(limits, float) and isinstance(moving, float) and moving > limits:
        raise ValueError(
            f"{capital(part)} must have a `kinetic` of at most `static`, but has {moving:g} and "
            f"{limits:g}; friction that grows where bodies slide cannot stick."
        )
    return Rub(
        "dry friction", name, bodies, (Travel(of),), static=limits, kinetic=moving,
        pressed_by=pressed_by,
    )  # fmt: skip
