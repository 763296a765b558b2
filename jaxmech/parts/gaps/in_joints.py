"""Stops of joints, backlash between them, and dry friction in them.

    stop        x - lower >= 0,  upper - x >= 0              torque [N m] or force [N] on b
    backlash    play / 2 -+ (x_a - ratio x_b - middle) >= 0  torque [N m] or force [N] on joint a
    dry_friction    x sticks, or slides against              a torque [N m] or force [N] on b

x is the angle of a `revolute` or `planar` joint or a `screw`, or the position of a `prismatic`
joint; for a `cylindrical` joint, `coordinate` chooses between both. In the coordinates of joints,
angles count full turns.

Each function raises a TypeError for an argument that is not a joint or not a value, and a
ValueError for a joint without such a freedom or for numbers that do not fit; the message names the
part.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frames
from jaxmech.parts.forces.in_joints import freedom_of
from jaxmech.parts.gaps.base import Gap, Restitution, RestSpeed, value_of_params
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.joints.motions import AbstractFreedom, Hinge
from jaxmech.parts.kinds import NonNegative, Number, check_kinds
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader
from jaxmech.system import DryFriction
from jaxmech.utils.checks import is_known
from jaxmech.utils.text import capital


@dataclass(frozen=True)
class JointCoordinate:
    """A coordinate of a joint: its name among those of a mechanism, and what frames tell of it."""

    name: str
    freedom: AbstractFreedom

    @property
    def counts_turns(self) -> bool:
        """Whether frames tell how often the joint has turned."""
        return not isinstance(self.freedom, Hinge) or self.freedom.axes is None


@dataclass(frozen=True)
class Stop(Gap):
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

    Example:
        A door that is pushed open hits its stop, and stays there:

        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> from jaxmech.parts import Mechanism, ground, planar_body, revolute, torque
        >>> door = planar_body("door", mass=20.0, inertia=2.0)
        >>> hinge = revolute("hinge", ground, (0, 0), door, (-0.4, 0))
        >>> push = torque("push", ground, door, 3.0)
        >>> open_door = Mechanism([door], [hinge, stop("wall", hinge, upper=1.5)], [push])
        >>> sol = jm.simulate(open_door, [0.0], [0.0], jnp.linspace(0, 4, 9))
        >>> print(sol.q[-1], jm.observe(open_door, sol).multipliers["wall"][-1])
        [1.5] [3.]
    """

    name: str
    joint: InitVar[Joint]
    bodies: tuple[AbstractBody, ...] = field(init=False)
    of: JointCoordinate = field(init=False)
    _: KW_ONLY
    lower: Number | None = None
    upper: Number | None = None
    restitution: Restitution = 0.0
    rest_speed: RestSpeed = None
    coordinate: InitVar[str | None] = None

    kind = "stop"

    def __post_init__(self, joint: Joint, coordinate: str | None) -> None:
        if self.lower is None and self.upper is None:
            raise ValueError(
                f"{capital(self.part)} must have `lower` or `upper`, but has neither; add one."
            )
        bodies, of = coordinate_of(self.part, joint, coordinate)
        check_kinds(self, self.part, 0, bodies=bodies, of=of)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The coordinate."""
        return (self.of.name,)

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gaps, with an angle in space within half a turn of the middle of the range."""
        x = self.of.freedom.position(frames, read)
        if not self.of.counts_turns:
            ends = [
                jnp.asarray(read.number(end)) for end in (self.lower, self.upper) if end is not None
            ]
            middle = sum(ends) / len(ends)
            x = x + 2 * jnp.pi * jnp.round((middle - x) / (2 * jnp.pi))
        return self.of_coordinates((x,), read)

    def of_coordinates(self, x: tuple[Array, ...], read: Reader) -> Array:
        """The distances from the lower and from the upper end."""
        gaps = []
        if self.lower is not None:
            gaps.append(x[0] - read.number(self.lower))
        if self.upper is not None:
            gaps.append(read.number(self.upper) - x[0])
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
class Backlash(Gap):
    """Two joints that drive each other with a play: |x_a - ratio x_b - middle| <= play / 2.

    Args:
        name: name of the part.
        joint_a: the first joint, such as that of a motor.
        joint_b: the second joint, such as that of its load.
        play: the whole play, by which joint a moves while joint b is held [rad or m].
        ratio: change of x_a per change of x_b while they touch; negative for a pair of gears.
        middle: value of x_a - ratio x_b in the middle of the play.
        restitution: rate after an impact per rate before, from 0 to 1.
        rest_speed: rate of a rebound below which teeth stay in contact [rad/s or m/s], by default a
            millionth of the rates of the motion.
        coordinates: "angle" or "position" of each joint, for joints that have both.
    """

    name: str
    joint_a: InitVar[Joint]
    joint_b: InitVar[Joint]
    bodies: tuple[AbstractBody, ...] = field(init=False)
    of: tuple[JointCoordinate, JointCoordinate] = field(init=False)
    first: tuple[int, int] = field(init=False)  # where the bodies of each joint are among `bodies`
    _: KW_ONLY
    play: NonNegative
    ratio: Number = 1.0
    middle: Number = 0.0
    restitution: Restitution = 0.0
    rest_speed: RestSpeed = None
    coordinates: InitVar[Sequence[str | None]] = (None, None)

    kind = "backlash"

    def __post_init__(
        self, joint_a: Joint, joint_b: Joint, coordinates: Sequence[str | None]
    ) -> None:
        choices = tuple(coordinates)
        if len(choices) != 2:
            raise ValueError(
                f"{capital(self.part)} must have two `coordinates`, one for each joint, but has "
                f"{len(choices)}; write None for a joint with one."
            )
        bodies_a, of_a = coordinate_of(self.part, joint_a, choices[0])
        bodies_b, of_b = coordinate_of(self.part, joint_b, choices[1])
        if of_a.name == of_b.name:
            raise ValueError(
                f"{capital(self.part)} must be between two joints, but has {of_a.name} twice."
            )
        first = (0, len(bodies_a))
        bodies = (*bodies_a, *bodies_b)
        check_kinds(self, self.part, 0, bodies=bodies, of=(of_a, of_b), first=first)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The coordinates of both joints."""
        return self.of[0].name, self.of[1].name

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gaps on both sides of a tooth."""
        pairs = zip(self.of, self.first, strict=True)
        x = tuple(of.freedom.position(frames[k : k + 2], read) for of, k in pairs)
        return self.of_coordinates(x, read)

    def of_coordinates(self, x: tuple[Array, ...], read: Reader) -> Array:
        """The gaps on both sides of a tooth."""
        shift = x[0] - read.number(self.ratio) * x[1] - read.number(self.middle)
        half = read.number(self.play) / 2
        return jnp.stack([half - shift, half + shift])

    def require_frames(self) -> None:
        """Raise for angles in space, of which frames do not tell the full turns."""
        if not all(of.counts_turns for of in self.of):
            raise ValueError(
                f"{capital(self.part)} must be between joints whose coordinates are those of the "
                f"mechanism, but {' or '.join(self.arguments)} is not; use the coordinates of "
                "joints, and do not cut these."
            )


@dataclass(frozen=True)
class Rub(Gap):
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
    joint: InitVar[Joint]
    bodies: tuple[AbstractBody, ...] = field(init=False)
    of: JointCoordinate = field(init=False)
    _: KW_ONLY
    static: NonNegative
    kinetic: NonNegative | None = None
    pressed_by: str | None = None
    coordinate: InitVar[str | None] = None

    kind = "dry friction"

    def __post_init__(self, joint: Joint, coordinate: str | None) -> None:
        bodies, of = coordinate_of(self.part, joint, coordinate)
        check_kinds(self, self.part, 0, bodies=bodies, of=of)
        limits, moving = self.static, self.kinetic
        if isinstance(limits, float) and isinstance(moving, float) and moving > limits:
            raise ValueError(
                f"{capital(self.part)} must have a `kinetic` of at most `static`, but has "
                f"{moving:g} and {limits:g}; friction that grows where bodies slide cannot stick."
            )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The coordinate."""
        return (self.of.name,)

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The coordinate, an angle in space up to full turns."""
        return self.of.freedom.position(frames, read)[None]

    def of_coordinates(self, x: tuple[Array, ...], read: Reader) -> Array:
        """The coordinate."""
        return jnp.asarray(x[0])[None]

    def unilateral(self, kinematics: AbstractKinematics) -> Any:
        """The friction as one along a coordinate of a mechanism."""
        return DryFriction(
            self.level(kinematics),
            value_of_params(self.part, self.static),
            None if self.kinetic is None else value_of_params(self.part, self.kinetic),
            normal=self.pressed_by,
            name=self.name,
        )


stop, backlash, dry_friction = Stop, Backlash, Rub


def coordinate_of(
    part: str, joint: Any, coordinate: str | None
) -> tuple[tuple[AbstractBody, ...], JointCoordinate]:
    """The bodies of a joint, and its coordinate."""
    bodies, freedom = freedom_of(part, joint, coordinate)
    kind = "angle" if isinstance(freedom, Hinge) else "position"
    return bodies, JointCoordinate(f"{joint.name}.{kind}", freedom)
