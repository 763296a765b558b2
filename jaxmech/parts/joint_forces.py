"""Servos, friction and other forces in the freedoms of joints.

    force              acts on the joint with
    joint_force        any function of coordinate, rate, time and parameters
    servo              stiffness (target - coordinate) + damping (target_rate - rate), limited
    friction           -(coulomb + (static - coulomb) exp(-(rate / stribeck)^2)) tanh(rate / smooth)
                       - viscous rate

They turn a `revolute` or `planar` joint and push a `prismatic` one; for a `cylindrical` joint,
`coordinate` chooses between both. The force [N] or torque [N m] acts on b along the axis on a, and
its opposite on a. They work with both kinds of coordinates of a mechanism. Angles in space are
between -pi and pi.

The friction is the Stribeck curve of Armstrong-Hélouvry, Dupont and Canudas de Wit, "A survey of
models, analysis tools and compensation methods for the control of machines with friction"
(Automatica 30, 1994), with a smooth step at rest.

Each function raises a TypeError for an argument that is not a joint or not a value, and a
ValueError for a joint without such a freedom; the message names the force.
"""

import abc
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Load, Moving
from jaxmech.parts.forces import AbstractLoad
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.joints.motions import AbstractFreedom
from jaxmech.parts.kinds import NonNegative, Number, Part, Positive
from jaxmech.parts.values import Reader
from jaxmech.utils.checks import require_function, require_kind
from jaxmech.utils.text import capital


class InJoint(Part):
    """A part in a freedom of a joint."""

    joint: Joint
    coordinate: str | None  # "angle" or "position" of a joint that has both

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.freedom  # which the joint must have

    @property
    def bodies(self) -> tuple[AbstractBody, ...]:
        return self.joint.bodies

    @property
    def freedom(self) -> AbstractFreedom:
        """The freedom of the joint.

        Raises:
            ValueError: if the joint has no such freedom.
        """
        joint, coordinate = self.joint, self.coordinate
        require_kind(f"{self.part}: joint", joint, Joint, "revolute(...)")
        freedoms = joint.freedoms if all(body.rotates for body in joint.bodies) else {}
        if not freedoms:
            raise ValueError(
                f"{capital(self.part)} must be in a joint with one axis, such as `revolute` or "
                f"`prismatic`, but has a {joint.part}; use `force_law` or `torque`."
            )
        if coordinate is None and len(freedoms) == 1:
            coordinate = next(iter(freedoms))
        if coordinate not in freedoms:
            names = " or ".join(f'"{name}"' for name in freedoms)
            raise ValueError(
                f"{capital(self.part)} must have {names} as `coordinate`, one of the {joint.part}, "
                f"but has {coordinate!r}."
            )
        freedom: AbstractFreedom = freedoms[coordinate]
        return freedom


@dataclass(frozen=True)
class AbstractJointForce(InJoint, AbstractLoad):
    """A force in a freedom of a joint.

    Args:
        name: name of the force.
        joint: the joint in which it acts.
        coordinate: "angle" or "position" of a joint that has both.
    """

    name: str
    joint: Joint
    _: KW_ONLY
    coordinate: str | None = None

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        effort = self.effort(*self.freedom.coordinate(motions, read), read)
        return self.freedom.loads(motions, effort, read)

    @abc.abstractmethod
    def effort(self, x: Array, rate: Array, read: Reader) -> Any:
        """The force [N] or torque [N m] at a coordinate and its rate."""


@dataclass(frozen=True)
class JointLaw(AbstractJointForce):
    """A force or torque in a joint with any law, such as a spring with a gap.

    A law that depends on other coordinates too is a function `force(q, v, t, params)`.

    Args:
        law: `law(x, rate, t, params)`, a scalar: the force [N] or torque [N m] of a on b along the
            axis, at the coordinate x [m or rad] and its rate.
    """

    law: Callable[..., Any]

    kind = "joint force"

    def __post_init__(self) -> None:
        require_function("law", self.law, "x, rate, t, params")
        super().__post_init__()

    def effort(self, x: Array, rate: Array, read: Reader) -> Any:
        return read.array(lambda t, params: self.law(x, rate, t, params), ())


@dataclass(frozen=True)
class PositionServo(AbstractJointForce):
    """A position servo (PD controller): a spring and a damper towards a target.

    Args:
        target: the desired coordinate [rad or m].
        stiffness: proportional gain [N m/rad or N/m].
        damping: derivative gain [N m s/rad or N s/m].
        target_rate: the desired rate [rad/s or m/s].
        limit: largest torque [N m] or force [N], by default none.
    """

    _: KW_ONLY
    target: Number
    stiffness: Number
    damping: Number = 0.0
    target_rate: Number = 0.0
    limit: Positive | None = None

    kind = "servo"

    def effort(self, x: Array, rate: Array, read: Reader) -> Any:
        miss = read.number(self.target) - x
        slip = read.number(self.target_rate) - rate
        effort = read.number(self.stiffness) * miss + read.number(self.damping) * slip
        if self.limit is None:
            return effort
        limit = read.number(self.limit)
        return jnp.clip(effort, -limit, limit)


@dataclass(frozen=True)
class JointFriction(AbstractJointForce):
    """Dry and viscous friction in a joint, with a smooth step at rest.

    A body that sticks creeps at a fraction of `smooth`, which the steps have to resolve.

    Args:
        coulomb: sliding friction, a torque [N m] or force [N]; by default none.
        viscous: viscous coefficient [N m s/rad or N s/m]; by default none.
        static: friction at the beginning of sliding, a torque [N m] or force [N]; by default
            `coulomb`.
        stribeck: rate of the transition from static to sliding friction [rad/s or m/s].
        smooth: rate at which 76 % of the friction is reached [rad/s or m/s].
    """

    _: KW_ONLY
    coulomb: NonNegative = 0.0
    viscous: Number = 0.0
    static: NonNegative | None = None
    stribeck: Positive = 0.01
    smooth: Positive = 1e-3

    kind = "friction"

    def effort(self, x: Array, rate: Array, read: Reader) -> Any:
        dry, smooth = read.number(self.coulomb), read.number(self.smooth)
        if self.static is not None:
            excess = read.number(self.static) - dry
            dry = dry + excess * jnp.exp(-((rate / read.number(self.stribeck)) ** 2))
        return -dry * jnp.tanh(rate / smooth) - read.number(self.viscous) * rate


joint_force, servo, friction = JointLaw, PositionServo, JointFriction
