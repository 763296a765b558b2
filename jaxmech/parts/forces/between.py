"""Laws of force between two points, and bushings.

    force            acts on                                               enters as
    force_law        a point of a and a point of b, along the line         force
    bushing          a and b, by a spring for each direction and turn      potential
    bushing_damper   a and b, by a damper for each direction and turn      force

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the force.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Load, Moving, separation, shifted
from jaxmech.parts.forces.elements import (
    AbstractLoad,
    AbstractPairForce,
    AbstractPotential,
    point_with_velocity,
)
from jaxmech.parts.kinds import Coefficients
from jaxmech.parts.values import Reader
from jaxmech.parts.vectors import conjugate, product
from jaxmech.utils.checks import require_function


@dataclass(frozen=True)
class ForceLaw(AbstractPairForce, AbstractLoad):
    """A force between two points by any law, such as a nonlinear spring or a table.

    It has no potential, so the energy of the mechanism is not audited. The points must never meet.

    Args:
        law: `law(length, rate, t, params)`, a scalar: the force [N], positive where it pushes the
            points apart, at their distance [m] and its rate [m/s].
    """

    law: Callable[..., Any]

    kind = "force law"

    def __post_init__(self, name: str, a: AbstractBody, b: AbstractBody) -> None:
        super().__post_init__(name, a, b)
        require_function("law", self.law, "length, rate, t, params")

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        """The force on b at its point, and the opposite on a."""
        a, b = motions
        p, p_rate = point_with_velocity(a, self.at_a, read)
        r, r_rate = point_with_velocity(b, self.at_b, read)
        d = r - p
        length = jnp.sqrt(d @ d)
        rate = d @ (r_rate - p_rate) / length
        size = read.array(lambda t, params: self.law(length, rate, t, params), ())
        force, no_torque = size / length * d, jnp.zeros_like(a.spin)
        return shifted((-force, no_torque), p, a.frame), shifted((force, no_torque), r, b.frame)


@dataclass(frozen=True)
class Bushing(AbstractPairForce, AbstractPotential):
    """An elastic joint: a spring along and a spring about each axis of a.

    It is at rest where the points coincide and b has the attitude of a. The energy is
    k_d . d^2 / 2 for the way d from the point on a to that on b, and for a turn of b relative to a
    k_r . angle^2 / 2 in the plane, 2 k_r . vec(e)^2 in space, where a turn counts as 2 sin(angle/2)
    times its axis.

    Args:
        stiffness: three values [N/m] and three [N m/rad]; in the plane two and one.
    """

    _: KW_ONLY
    stiffness: Coefficients

    kind = "bushing"
    turning = True

    def energy(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The potential energy."""
        a, b = frames
        size = len(a.origin)
        k = read.vector(self.stiffness, 3 if size == 2 else 6)
        d = a.components(separation(frames, self.at_a, self.at_b, read))
        turn = (b.attitude - a.attitude)[None]
        if size == 3:
            turn = 2 * product(conjugate(a.attitude), b.attitude)[1:]
        return 0.5 * (k[:size] @ d**2 + k[size:] @ turn**2)


@dataclass(frozen=True)
class BushingDamper(AbstractPairForce, AbstractLoad):
    """The damper of a bushing: one along and one about each axis of a.

    Args:
        damping: three values [N s/m] and three [N m s/rad]; in the plane two and one.
    """

    _: KW_ONLY
    damping: Coefficients

    kind = "bushing damper"
    turning = True

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        """The force on b at its point and the torque on b, and the opposites on a."""
        a, b = motions
        size = a.velocity.shape[0]
        c = read.vector(self.damping, 3 if size == 2 else 6)
        end = b.frame.point(read.vector(self.at_b, size))
        rate = a.frame.components(b.velocity_at(end) - a.velocity_at(end))
        force = -a.frame.direction(c[:size] * rate)
        spin = b.spin - a.spin
        turning = c[2] * spin if size == 2 else a.frame.direction(c[3:] * a.frame.components(spin))
        torque = -turning
        return shifted((-force, -torque), end, a.frame), shifted((force, torque), end, b.frame)


force_law, bushing, bushing_damper = ForceLaw, Bushing, BushingDamper
