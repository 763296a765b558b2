"""`Joint`, and the equations between the frames of two bodies, a and b, of which joints are made.

d is the vector from the point on a to the point on b, u a unit vector fixed to a, w one fixed to b,
n1 and n2 are the normals of u. Each residual is a length [m] or the sine of an angle, whose
multiplier is the force [N] or torque [N m] of a on b.

    coincide           d = 0                        force along the axes of the ground, at the point
    on_line            n1 . d = n2 . d = 0          force along n1, n2
    level              u . d = height               force along u
    apart              (d . d - l^2) / (2 l) = 0    force along d, positive: pushes apart
    parallel           n1 . w = n2 . w = 0          torque along w x n1, w x n2
    perpendicular      u . w = 0                    torque along w x u
    relative_attitude  angle of b from a; in space  torque, in space along the axes of b
                       2 sin(angle / 2) times the axis
    relative_angle     sin(angle of b about u - given angle) = 0     torque along u

coincide, apart, perpendicular and on_line are the spherical, distance, dot-1 and dot-2 primitives
of Haug, "Computer Aided Kinematics and Dynamics of Mechanical Systems" (1989), chapter 9. None has
a square root that vanishes where the equation holds, since that would have no derivative there.

The residual of an equation on velocities is the velocity [m/s] of b relative to a at a point, in
one direction or two; its multiplier is the force [N] of a on b there. A contact point belongs to
neither body: it is a point of space, at which the velocities of the two bodies are compared.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import (
    Frame,
    Frames,
    Moving,
    across,
    along,
    pointing,
    separation,
    turn_about,
)
from jaxmech.parts.kinds import Pair, Part
from jaxmech.parts.kinematics import AbstractKinematics
from jaxmech.parts.values import Reader, Value, Vector, unit
from jaxmech.parts.vectors import apply, conjugate, product
from jaxmech.system import Holonomic, ImpliedEquations, Nonholonomic
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.probing import cached_by_shapes

Position = Callable[[Frames, Reader], Array]  # the residual of equations on positions, (k,)
Velocity = Callable[[tuple[Moving, ...], Reader], Array]  # that of equations on velocities, (k,)


def coincide(at_a: Vector, at_b: Vector) -> Position:
    """Two points coincide."""
    return lambda frames, read: separation(frames, at_a, at_b, read)


def on_line(at_a: Vector, axis: Vector, at_b: Vector) -> Position:
    """A point of b lies on a line of a."""

    def residual(frames: Frames, read: Reader) -> Array:
        d = separation(frames, at_a, at_b, read)
        return apply(across(frames[0], axis, read), frames[0].components(d))

    return residual


def level(at_a: Vector, normal: Vector, at_b: Vector, height: Value) -> Position:
    """A point of b is at a given height over a line or plane of a."""

    def residual(frames: Frames, read: Reader) -> Array:
        d = separation(frames, at_a, at_b, read)
        return (along(frames[0], normal, d, read) - read.number(height))[None]

    return residual


def apart(at_a: Vector, at_b: Vector, distance: Value) -> Position:
    """Two points keep their distance."""

    def residual(frames: Frames, read: Reader) -> Array:
        d, length = separation(frames, at_a, at_b, read), read.number(distance)
        return ((d @ d - length**2) / (2 * length))[None]

    return residual


def parallel(axis_a: Vector, axis_b: Vector) -> Position:
    """A direction on b is parallel to one on a."""

    def residual(frames: Frames, read: Reader) -> Array:
        w = pointing(frames[1], axis_b, read)
        return apply(across(frames[0], axis_a, read), frames[0].components(w))

    return residual


def perpendicular(axis_a: Vector, axis_b: Vector) -> Position:
    """A direction on b is perpendicular to one on a."""

    def residual(frames: Frames, read: Reader) -> Array:
        return along(frames[0], axis_a, pointing(frames[1], axis_b, read), read)[None]

    return residual


def relative_attitude(turn: Any) -> Position:
    """b has a given attitude relative to a."""

    def residual(frames: Frames, read: Reader) -> Array:
        a, b = frames
        if a.attitude.ndim == 0:
            return (b.attitude - a.attitude - read.number(turn))[None]
        e = product(conjugate(a.attitude), b.attitude)
        miss = product(conjugate(unit(read, turn, 4)), e)
        # Of half the angle, since its sine is not zero at half a turn; of the unit quaternion, so
        # that the rows of A are never taken for those which make M definite along e.
        return jnp.where(miss[0] < 0, -2, 2) * miss[1:] / jnp.sqrt(miss @ miss)

    return residual


def relative_angle(axis_a: Vector, axis_b: Vector, angle: Value) -> Position:
    """b is at a given angle from a, about an axis that they share."""

    def residual(frames: Frames, read: Reader) -> Array:
        cosine, sine = turn_about(frames, axis_a, axis_b, read)
        c, s = jnp.cos(read.number(angle)), jnp.sin(read.number(angle))
        miss = sine * c - cosine * s
        back = jnp.where(miss < 0, -2, 2) - miss  # no second zero, at half a turn
        return jnp.where(cosine * c + sine * s < 0, back, miss)[None]

    return residual


def slip(motions: tuple[Moving, ...], point: AnyArray) -> AnyArray:
    """The velocity of b relative to a at a point, (d,)."""
    a, b = motions
    return b.velocity_at(point) - a.velocity_at(point)


def round_slip(normal: Vector, at_b: Vector, radius: Value) -> Velocity:
    """The slip of a disk or ball of b, along the line of a or along n1, n2 of its plane."""

    def residual(motions: tuple[Moving, ...], read: Reader) -> Array:
        a, b = motions[0].frame, motions[1].frame
        n = pointing(a, normal, read)
        center = b.point(read.vector(at_b, n.shape[0]))
        velocity = slip(motions, center - read.number(radius) * n)
        return apply(across(a, normal, read), a.components(velocity))

    return residual


class Joint(Part):
    """A connection between bodies, with everything that is known about it.

    Subclasses have the equations on positions or on velocities that hold where the joint is a
    constraint. A `CoordinateJoint` can also move its second body by coordinates of its own.

    Its name is that of its constraint. A joint with equations on positions and on velocities has
    two, `name.contact` and `name.slip`.
    """

    may_be_implied: ClassVar[bool] = True  # by the joints of a tree

    @property
    def positions(self) -> tuple[Position, ...]:
        """The equations on the positions of the bodies."""
        return ()

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        """The equations on the velocities of the bodies."""
        return ()

    @property
    def freedoms(self) -> dict[str, Any]:
        """The freedoms in which forces and stops can act, by the names of their coordinates."""
        return {}

    def position_level(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The residuals of the equations on positions, (k,)."""
        return jnp.concatenate([residual(frames, read) for residual in self.positions])

    def velocity_level(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residuals of the equations on velocities, (k,)."""
        return jnp.concatenate([residual(motions, read) for residual in self.velocities])

    def point_on_b(self, frame: Frame, read: Reader) -> AnyArray:
        """The joint on its second body, by default the reference point, along the ground's axes."""
        at_b = getattr(self, "at_b", None)
        return frame.origin if at_b is None else frame.point(read.vector(at_b, len(frame.origin)))

    def constraints(self, kinematics: AbstractKinematics) -> Iterator[Holonomic | Nonholonomic]:
        """The equations as constraints on the coordinates of a mechanism."""
        has_two_levels = self.positions and self.velocities
        if self.positions:
            name = f"{self.name}.contact" if has_two_levels else self.name
            yield Holonomic(JointEquations(self, kinematics), name=name)
        if self.velocities:
            name = f"{self.name}.slip" if has_two_levels else self.name
            yield Nonholonomic(JointEquations(self, kinematics, of_velocities=True), name=name)


class PairJoint(Pair, Joint):
    """A joint between a point of a and a point of b."""

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        dimension: int = self.b.dimension
        return dimension


@dataclass(frozen=True)
class JointEquations:
    """The residuals of a joint's equations on positions or velocities, of all coordinates."""

    joint: Joint
    kinematics: AbstractKinematics
    of_velocities: bool = False

    def __call__(self, *state: Any) -> Array:
        """The residuals (k,) at q, t and params, those on velocities at q, v, t and params."""
        *x, t = map(jnp.asarray, state[:-1])
        values = self.level(*x, t, state[-1])
        if not (self.kinematics.has_tree and self.joint.may_be_implied):
            return values
        return _implied(self, *x, t, state[-1]).as_constants(values, x[-1])

    def level(self, *state: Any) -> Array:
        """The residuals as they are, also those of equations that the tree implies."""
        *_, t, params = state
        bodies, read = self.joint.bodies, Reader(self.joint.part, t, params)
        if self.of_velocities:
            return self.joint.velocity_level(self.kinematics.moving(bodies, *state), read)
        return self.joint.position_level(self.kinematics.frames(bodies, *state), read)


@cached_by_shapes
def _implied(fn: JointEquations, *state: Any) -> ImpliedEquations:
    *x, t, params = state
    with_units = fn.kinematics.with_units

    def equations(first: Array, *others: Any) -> Array:
        *q, t, params = others
        x = jax.jvp(with_units, (q[0],), (first,)) if q else (with_units(first),)
        return fn.level(*x, t, params)

    return ImpliedEquations.among(equations, tuple(reversed(x)), (t, params))
