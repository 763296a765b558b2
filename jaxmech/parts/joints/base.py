"""`Joint`: a connection of bodies under one name, with its equations as constraints."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

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
        return without_implied(values, x[-1], _implied(self, *x, t, state[-1]))

    def level(self, *state: Any) -> Array:
        """The residuals as they are, also those of equations that the tree implies."""
        *_, t, params = state
        bodies, read = self.joint.bodies, Reader(self.joint.part, t, params)
        if self.of_velocities:
            return self.joint.velocity_level(self.kinematics.moving(bodies, *state), read)
        return self.joint.position_level(self.kinematics.frames(bodies, *state), read)


@cached_by_shapes
def _implied(fn: JointEquations, *state: Any) -> list[float | None]:
    *x, t, params = state
    with_units = fn.kinematics.with_units

    def equations(first: Array, *others: Any) -> Array:
        *q, t, params = others
        x = jax.jvp(with_units, (q[0],), (first,)) if q else (with_units(first),)
        return fn.level(*x, t, params)

    return terms_of(equations, tuple(reversed(x)), (t, params))
