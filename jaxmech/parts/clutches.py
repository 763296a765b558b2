"""The clutch: a joint that events switch on and off, by which two joints move at one rate.

    rate_a - ratio rate_b = 0          torque [N m] or force [N] on joint a

Its multiplier is what it transmits. A clutch without a second joint is a brake, rate_a = 0.

`clutch` raises a TypeError for an argument that is not a joint or not a value, and a ValueError for
a joint without such a freedom; the message names the clutch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Moving
from jaxmech.parts.forces.in_joints import freedom_of
from jaxmech.parts.joint_equations import AbstractVelocity
from jaxmech.parts.joints.base import AbstractFreedom, EquationJoint, Joint
from jaxmech.parts.joints.checks import part_name
from jaxmech.parts.values import Reader, Value, number
from jaxmech.utils.text import capital


@dataclass(frozen=True)
class EqualRates(AbstractVelocity):
    """The rates of two joints are in a ratio, or that of a single one is zero."""

    of: tuple[AbstractFreedom, ...]
    ratio: Value

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual rate_a - ratio rate_b; each joint has two bodies."""
        rates = [
            freedom.coordinate(motions[2 * k : 2 * k + 2], read)[1]
            for k, freedom in enumerate(self.of)
        ]
        slip = rates[0] if len(rates) == 1 else rates[0] - read.number(self.ratio) * rates[1]
        return jnp.asarray(slip)[None]


def clutch(
    name: str,
    joint_a: Joint,
    joint_b: Joint | None = None,
    *,
    ratio: Value = 1.0,
    coordinates: Sequence[str | None] = (None, None),
) -> EquationJoint:
    """A clutch between two joints, or without a second one a brake; events engage and release it.

    It is engaged unless `simulate` is given `inactive=name`. An `Event` with
    `Transition(on=name)` engages it, at once and without slip: the impulse of the clutch takes both
    joints to a common rate. `Transition(off=name)` releases it.

    Args:
        name: name of the clutch, and of its constraint.
        joint_a: the first joint, such as that of a motor.
        joint_b: the second joint, such as that of its load; None for a brake.
        ratio: rate of joint a per rate of joint b while the clutch is engaged.
        coordinates: "angle" or "position" of each joint, for joints that have both.

    Example:
        A flywheel takes a load along, with the momentum that it had alone:

        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> from jaxmech.parts import Mechanism, ground, planar_body, revolute
        >>> wheel = planar_body("wheel", mass=1.0, inertia=0.03)
        >>> load = planar_body("load", mass=1.0, inertia=0.01)
        >>> shafts = [revolute(f"{b.name} shaft", ground, (0, 0), b, (0, 0)) for b in (wheel, load)]
        >>> drive = Mechanism([wheel, load], [*shafts, clutch("clutch", *shafts)])
        >>> engages = jm.Event(
        ...     lambda q, v, t, p: t - 0.5, 1, transition=jm.Transition(on="clutch"), name="engages"
        ... )
        >>> sol = jm.simulate(drive, [0.0] * 2, [8.0, 0.0], jnp.linspace(0, 1, 3),
        ...                   events=engages, inactive="clutch")
        >>> print(sol.v[-1])
        [6. 6.]
    """
    part = part_name("clutch", name)
    joints = (joint_a,) if joint_b is None else (joint_a, joint_b)
    choices = tuple(coordinates)
    if len(choices) != 2:
        raise ValueError(
            f"{capital(part)} must have two `coordinates`, one for each joint, but has "
            f"{len(choices)}; write None for a joint with one."
        )
    pairs = [freedom_of(part, *pair) for pair in zip(joints, choices, strict=False)]
    bodies = tuple(body for joint_bodies, _ in pairs for body in joint_bodies)
    freedoms = tuple(freedom for _, freedom in pairs)
    speed = EqualRates(freedoms, number(part, "ratio", ratio))
    return EquationJoint("clutch", name, bodies, velocities=(speed,))
