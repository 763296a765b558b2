"""Parts with inequalities: contacts, stops, ropes, and dry friction in joints.

    contact         u . d - rb >= 0                     force along u: a plane of a, a point or a
                                                        ball of b
                    |d| - (ra + rb) >= 0                force along d: two balls, in the plane discs
    rope            length - straight parts >= 0        tension [N]
    stop            x - lower >= 0,  upper - x >= 0     torque [N m] or force [N] on b
    dry_friction    x sticks, or slides against         a torque [N m] or force [N] on b

d is the way from the point on a to the point on b, and u the normal of the plane on a. x is the
angle of a `revolute` or `planar` joint or a `screw`, or the position of a `prismatic` joint; for a
`cylindrical` joint, `coordinate` chooses between both. In the coordinates of joints, angles count
full turns.

Each function raises a TypeError for an argument that is not a body, a joint or a value, and a
ValueError for bodies, points, numbers or a joint that do not fit; the message names the part.
"""

import abc
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Annotated, Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frames, Moving, along, separation
from jaxmech.parts.joint_forces import InJoint
from jaxmech.parts.joints.base import (
    Joint,
    JointEquations,
    PairJoint,
    Position,
    Velocity,
    round_slip,
    slip,
)
from jaxmech.parts.joints.motions import Hinge
from jaxmech.parts.kinds import Direction, Kind, NonNegative, Number, Positive, partners, require_on
from jaxmech.parts.kinematics import AbstractKinematics
from jaxmech.parts.values import Reader, Value, non_negative, vector
from jaxmech.system import DryFriction, Unilateral
from jaxmech.utils.checks import is_known
from jaxmech.utils.text import capital


class Gap(Joint, abc.ABC):
    """A part with gaps, computed from the frames of bodies or from coordinates of joints.

    Its multipliers push, or pull in a rope.

    Attributes:
        restitution: the restitution of its impacts.
        rest_speed: the speed of a rebound below which a gap stays closed; None for the default.
        friction: the coefficient of friction, or the static and the kinetic one.
    """

    may_be_implied = False

    restitution: Value = 0.0
    rest_speed: float | None = None
    friction: Value | tuple[Value, Value] | None = None

    @property
    def positions(self) -> tuple[Position, ...]:
        return (self.residual,)

    @abc.abstractmethod
    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gaps, (k,)."""

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        return () if self.friction is None else (self.slip,)

    def slip(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity with which bodies slide where the gap is closed, (1,), in space (2,)."""
        raise NotImplementedError

    def unilateral(self, kinematics: AbstractKinematics) -> Any:
        """The gaps as a constraint on the coordinates of a mechanism."""
        friction, slip = self.friction, None
        if friction is not None:
            slip = JointEquations(self, kinematics, of_velocities=True)
            friction = OfParams(self.part, friction if isinstance(friction, tuple) else (friction,))
        return Unilateral(
            self.level(kinematics),
            restitution=value_of_params(self.part, self.restitution),
            rest_speed=self.rest_speed,
            friction=friction,
            slip=slip,
            name=self.name,
        )

    def level(self, kinematics: AbstractKinematics) -> Any:
        """The gaps as a function `level(q, t, params)` of the coordinates of a mechanism."""
        return JointEquations(self, kinematics)


@dataclass(frozen=True)
class OfParams:
    """Values as functions of params: one number, or for a friction the static and kinetic one."""

    part: str
    values: Value

    def __call__(self, params: Any) -> Any:
        read = Reader(self.part, jnp.zeros(()), params)
        if not isinstance(self.values, tuple):
            return jnp.asarray(read.number(self.values))
        numbers = [jnp.asarray(read.number(value)) for value in self.values]
        return numbers[0], numbers[-1]


def value_of_params(part: str, value: Value) -> Any:
    """A number, or a function of params."""
    return value if isinstance(value, float) else OfParams(part, value)


def _coefficients(
    part: str, argument: str, friction: Any, size: int
) -> Value | tuple[Value, Value]:
    if not isinstance(friction, tuple):
        return non_negative(part, "friction", friction)
    if len(friction) != 2:
        raise ValueError(
            f"{capital(part)} must have a coefficient of `friction`, or the static and the kinetic "
            f"one, but has {len(friction)} numbers."
        )
    static, kinetic = (non_negative(part, "friction", value) for value in friction)
    return static, kinetic


Friction = Annotated[Any, Kind("Friction", _coefficients)]


@dataclass(frozen=True)
class Contact(PairJoint, Gap):
    """Two bodies that touch and part: a plane and a point or ball, or two balls.

    With a `normal`, a has a plane through the point on it, on whose side b stays. Without one both
    are balls, in the plane discs, about their points. A body may have as many contacts as it has
    corners. The multiplier is the force with which they push each other apart [N].

    Args:
        name: name of the contact.
        a: first body, or `ground`.
        at_a: a point of the plane on a, or the centre of its ball [m].
        b: second body.
        at_b: the point or the centre of the ball on b [m].
        normal: normal of the plane, from a to b, along the axes of a.
        radius_a: radius of the ball of a [m]; without a `normal` only.
        radius_b: radius of the ball of b, 0 for a point [m].
        restitution: rate after an impact per rate before, from 0 to 1.
        rest_speed: speed of a rebound below which the bodies stay in contact [m/s], by default a
            millionth of the speeds of the motion.
        friction: coefficient of friction, or the static and the kinetic one; None for none, as
            between two balls in space. The force on b is observed under the name of the contact and
            " friction": in the plane to the right of the normal, in space along n1 and n2 of the
            plane, as that of a `rolling_sphere`.
    """

    _: KW_ONLY
    normal: Direction | None = None
    radius_a: NonNegative = 0.0
    radius_b: NonNegative = 0.0
    restitution: Number = 0.0
    rest_speed: float | None = None
    friction: Friction | None = None

    kind = "contact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normal is None and (self.radius_a, self.radius_b) == (0.0, 0.0):
            raise ValueError(
                f"{capital(self.part)} must have a `normal`, for a plane on {self.a.name!r}, or a "
                "`radius_a` or `radius_b`, for balls; give one of them."
            )
        if self.normal is not None and self.radius_a != 0.0:
            raise ValueError(
                f"{capital(self.part)} must have a plane or a ball on {self.a.name!r}, but has a "
                "`normal` and a `radius_a`; leave one of them out."
            )
        if self.normal is None and self.friction is not None and self.dimension == 3:
            raise ValueError(
                f"{capital(self.part)} must be without `friction` between two balls in space; "
                "leave it out, or give a plane by its `normal`."
            )

    def residual(self, frames: Frames, read: Reader) -> Array:
        d = separation(frames, self.at_a, self.at_b, read)
        if self.normal is not None:
            height = along(frames[0], self.normal, d, read)
            return (height - read.number(self.radius_b))[None]
        ra, rb = read.number(self.radius_a), read.number(self.radius_b)
        return (jnp.sqrt(d @ d) - (ra + rb))[None]

    def slip(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity of b at the contact, relative to a, across the normal."""
        if self.normal is not None:
            w = round_slip(self.normal, self.at_b, self.radius_b)(motions, read)
            return w if self.dimension == 3 else -w  # to the right of the normal
        a, b = (motion.frame for motion in motions)
        d = separation((a, b), self.at_a, self.at_b, read)
        n = d / jnp.sqrt(d @ d)
        w = slip(motions, a.point(read.vector(self.at_a, 2)) + read.number(self.radius_a) * n)
        return (n[1] * w[0] - n[0] * w[1])[None]


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
        gaps = []
        if self.lower is not None:
            gaps.append(x - read.number(self.lower))
        if self.upper is not None:
            gaps.append(read.number(self.upper) - x)
        return jnp.stack(gaps)

    def require(self, read: Reader) -> None:
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
        return self.freedom.position(frames, read)[None]

    def of_coordinate(self, x: Array, read: Reader) -> Array:
        return jnp.asarray(x)[None]

    def unilateral(self, kinematics: AbstractKinematics) -> Any:
        return DryFriction(
            self.level(kinematics),
            value_of_params(self.part, self.static),
            None if self.kinetic is None else value_of_params(self.part, self.kinetic),
            normal=self.pressed_by,
            name=self.name,
        )


@dataclass(frozen=True)
class Rope(Gap):
    """A rope that cannot be longer than its length; it pulls, and goes slack.

    It runs from the first point to the last, through a ring without friction at each point between
    them. The multiplier is the tension [N].

    Args:
        name: name of the rope.
        points: two or more pairs of a body, or `ground`, and a point on it [m].
        length: length of the rope [m].
        restitution: rate after the jerk of a rope that becomes taut per rate before, from 0 to 1.
        rest_speed: rate of a rebound below which the rope stays taut [m/s], by default a millionth
            of the speeds of the motion.
    """

    name: str
    points: Sequence[tuple[AbstractBody, Any]]
    length: Positive
    _: KW_ONLY
    restitution: Number = 0.0
    rest_speed: float | None = None

    kind = "rope"

    def __post_init__(self) -> None:
        super().__post_init__()
        start, ends = capital(self.part), [*self.points]
        if len(ends) < 2:
            raise ValueError(
                f"{start} must have two or more `points`, but has {len(ends)}; give its two ends, "
                "each as a pair of a body and a point on it."
            )
        for end in ends:
            if not isinstance(end, Sequence) or len(end) != 2:
                raise TypeError(
                    f"{start} must have pairs of a body and a point on it as `points`, but has "
                    f"{end!r}; write for example (ground, (0, 0))."
                )
        by_name: dict[Any, Any] = {getattr(body, "name", body): body for body, _ in ends}
        if len(by_name) == 1:
            only = next(iter(by_name))
            raise ValueError(f"{start} must be between different bodies, but has {only!r}.")
        bodies, size = partners(self.part, [*by_name.values()])
        by_name = {body.name: body for body in bodies}
        points = [(by_name[x.name], vector(self.part, "points", at, size)) for x, at in ends]
        for body, at in points:
            require_on(self.part, "points", body, at)
        object.__setattr__(self, "points", tuple(points))

    @property
    def bodies(self) -> tuple[AbstractBody, ...]:
        return tuple({body.name: body for body, _ in self.points}.values())

    def course(self, frames: Frames, read: Reader) -> list[Array]:
        """The points of a taut rope, along the axes of the ground."""
        by_name = {body.name: x for body, x in zip(self.bodies, frames, strict=True)}
        size = len(frames[0].origin)
        return [
            jnp.asarray(by_name[body.name].point(read.vector(at, size))) for body, at in self.points
        ]

    def residual(self, frames: Frames, read: Reader) -> Array:
        ways = (b - a for a, b in pairwise(self.course(frames, read)))
        return (read.number(self.length) - sum(jnp.sqrt(way @ way) for way in ways))[None]


contact, stop, dry_friction, rope = Contact, Stop, Rub, Rope
