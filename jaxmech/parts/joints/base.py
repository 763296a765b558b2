"""`Joint`: a connection of bodies under one name, with its equations as constraints."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frame, Moving
from jaxmech.parts.joint_equations import Position, Velocity
from jaxmech.parts.kinds import Pair, Part
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader
from jaxmech.system import Holonomic, Nonholonomic, terms_of, without_implied
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.probing import cached_by_shapes


class Joint(Part):
    """A connection between bodies, with everything that is known about it.

    Subclasses have the equations on positions or on velocities that hold where the joint is a
    constraint. A `CoordinateJoint` can also move its second body by coordinates of its own.

    Its name is that of its constraint. A joint with equations on positions and on velocities has
    two, `name.contact` and `name.slip`.
    """

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
            yield Holonomic(JointPositions(self, kinematics), name=name)
        if self.velocities:
            name = f"{self.name}.slip" if has_two_levels else self.name
            yield Nonholonomic(JointVelocities(self, kinematics), name=name)


class PairJoint(Pair, Joint):
    """A joint between a point of a and a point of b."""

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        dimension: int = self.b.dimension
        return dimension


@dataclass(frozen=True)
class JointPositions:
    """The residuals of a joint as a function of all coordinates."""

    joint: Joint
    kinematics: AbstractKinematics

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """The residuals of the equations on positions, (k,)."""
        q, t = jnp.asarray(q), jnp.asarray(t)
        values = self.level(q, t, params)
        if not self.kinematics.has_tree:
            return values
        return without_implied(values, q, _implied_positions(self, q, t, params))

    def level(self, q: Array, t: Array, params: Any) -> Array:
        """The residuals as they are, also those of equations that the tree implies."""
        frames = self.kinematics.frames(self.joint.bodies, q, t, params)
        return self.joint.position_level(frames, Reader(self.joint.part, t, params))


@dataclass(frozen=True)
class JointVelocities:
    """The same of its equations on velocities."""

    joint: Joint
    kinematics: AbstractKinematics

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The residuals of the equations on velocities, (k,)."""
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        values = self.level(q, v, t, params)
        if not self.kinematics.has_tree:
            return values
        return without_implied(values, v, _implied_velocities(self, q, v, t, params))

    def level(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The residuals as they are, also those of equations that the tree implies."""
        motions = self.kinematics.moving(self.joint.bodies, q, v, t, params)
        return self.joint.velocity_level(motions, Reader(self.joint.part, t, params))


@cached_by_shapes
def _implied_positions(fn: JointPositions, q: Array, *context: Any) -> list[float | None]:
    def equations(q: Array, *context: Any) -> Array:
        return fn.level(fn.kinematics.with_units(q), *context)

    return terms_of(equations, (q,), context)


@cached_by_shapes
def _implied_velocities(
    fn: JointVelocities, q: Array, v: Array, *context: Any
) -> list[float | None]:
    def equations(v: Array, q: Array, *context: Any) -> Array:
        pair = jax.jvp(fn.kinematics.with_units, (q,), (v,))
        return fn.level(*pair, *context)

    return terms_of(equations, (v, q), context)
