"""Stops of joints, and dry friction in them.

    stop            x - lower >= 0,  upper - x >= 0     torque [N m] or force [N] on b
    dry_friction    x sticks, or slides against         a torque [N m] or force [N] on b

x is the angle of a `revolute` or `planar` joint or a `screw`, or the position of a `prismatic`
joint; for a `cylindrical` joint, `coordinate` chooses between both. In the coordinates of joints,
angles count full turns.

Each function raises a TypeError for an argument that is not a joint or not a value, and a
ValueError for a joint without such a freedom or for numbers that do not fit; the message names the
part.
"""

import abc
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frames
from jaxmech.parts.forces.in_joints import InJoint
from jaxmech.parts.gaps.base import Gap, value_of_params
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.joints.motions import Hinge
from jaxmech.parts.kinds import NonNegative, Number
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader
from jaxmech.system import DryFriction
from jaxmech.utils.checks import is_known
from jaxmech.utils.text import capital


class JointGap(InJoint, Gap):
    """A part with gaps of a coordinate of a joint."""

    @abc.abstractmethod
    def of_coordinate(self, x: Array, read: Reader) -> Array:
        """The gaps at a value of the coordinate, (k,)."""

    def level(self, kinematics: AbstractKinematics) -> Any:
        """The gaps as a function of three arguments, by which `DryFriction` knows a coordinate."""
        return CoordinateGaps(self, kinematics)


@dataclass(frozen=True)
class CoordinateGaps:
    """The gaps of a coordinate of a joint as a function of all coordinates."""

    part: JointGap
    kinematics: AbstractKinematics

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """The gaps, (k,)."""
        q, t, part = jnp.asarray(q), jnp.asarray(t), self.part
        letter = "angle" if isinstance(part.freedom, Hinge) else "position"
        name, known = f"{part.joint.name}.{letter}", self.kinematics.coordinates
        read = Reader(part.part, t, params)
        if name in known:
            return part.of_coordinate(q[known.index(name)], read)
        return part.residual(self.kinematics.frames(part.bodies, q, t, params), read)


@dataclass(frozen=True)
class Stop(JointGap):
    """Stops of a joint: lower <= x <= upper.

    Its multipliers, one for each stop, are the torques [N m] or forces [N] with which it holds.

    Args:
        name: name of the stops.
        joint: the joint, which may be anywhere in the mechanism.
        lower: smallest angle [rad] or position [m]; None for no lower stop.
        upper: largest angle [rad] or position [m]; None for no upper stop.
        restitution: rate after an impact per rate before, from 0 to 1.
        rest_speed: rate of a rebound below which the joint stays at the stop [rad/s or m/s], by
            default a millionth of the rates of the motion.
        coordinate: "angle" or "position" of a joint that has both.
    """

    name: str
    joint: Joint
    _: KW_ONLY
    lower: Number | None = None
    upper: Number | None = None
    restitution: Number = 0.0
    rest_speed: float | None = None
    coordinate: str | None = None

    kind = "stop"

    def __post_init__(self) -> None:
        if self.lower is None and self.upper is None:
            raise ValueError(
                f"{capital(self.part)} must have `lower` or `upper`, but has neither; add one."
            )
        super().__post_init__()

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gaps, with an angle in space within half a turn of the middle of the range."""
        freedom = self.freedom
        x = freedom.position(frames, read)
        if isinstance(freedom, Hinge) and freedom.axes is not None:
            ends = [
                jnp.asarray(read.number(end)) for end in (self.lower, self.upper) if end is not None
            ]
            middle = sum(ends) / len(ends)
            x = x + 2 * jnp.pi * jnp.round((middle - x) / (2 * jnp.pi))
        return self.of_coordinate(x, read)

    def of_coordinate(self, x: Array, read: Reader) -> Array:
        """The distances from the lower and from the upper end."""
        gaps = []
        if self.lower is not None:
            gaps.append(x - read.number(self.lower))
        if self.upper is not None:
            gaps.append(read.number(self.upper) - x)
        return jnp.stack(gaps)

    def require(self, read: Reader) -> None:
        """Raise unless the lower end is below the upper one."""
        if self.lower is None or self.upper is None:
            return
        lower, upper = read.number(self.lower), read.number(self.upper)
        if is_known((lower, upper)) and not lower < upper:
            raise ValueError(
                f"{capital(read.part)} must have `lower` below `upper`, but has {float(lower):g} "
                f"and {float(upper):g}; swap or correct them."
            )


@dataclass(frozen=True)
class Rub(JointGap):
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

    name: str
    joint: Joint
    _: KW_ONLY
    static: NonNegative
    kinetic: NonNegative | None = None
    pressed_by: str | None = None
    coordinate: str | None = None

    kind = "dry friction"

    def __post_init__(self) -> None:
        super().__post_init__()
        limits, moving = self.static, self.kinetic
        if isinstance(limits, float) and isinstance(moving, float) and moving > limits:
            raise ValueError(
                f"{capital(self.part)} must have a `kinetic` of at most `static`, but has "
                f"{moving:g} and {limits:g}; friction that grows where bodies slide cannot stick."
            )

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The coordinate, an angle in space up to full turns."""
        return self.freedom.position(frames, read)[None]

    def of_coordinate(self, x: Array, read: Reader) -> Array:
        """The coordinate."""
        return jnp.asarray(x)[None]

    def unilateral(self, kinematics: AbstractKinematics) -> Any:
        """The friction as one along a coordinate of a mechanism."""
        return DryFriction(
            self.level(kinematics),
            value_of_params(self.part, self.static),
            None if self.kinetic is None else value_of_params(self.part, self.kinetic),
            normal=self.pressed_by,
            name=self.name,
        )


stop, dry_friction = Stop, Rub
