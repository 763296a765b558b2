"""What acts on the joints of a model: rotors, springs, damping, friction, gravity and actuators.

Actuators are those on hinges and slides; their inputs are parameters.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.mujoco.bodies import Floats, Mount, Offset, Values, tidy
from jaxmech.interop.mujoco.left_out import FIELDS, LeftOut
from jaxmech.interop.mujoco.robot import Conversion
from jaxmech.interop.mujoco.source import is_any, is_on, mujoco
from jaxmech.parts import (
    AbstractBody,
    AbstractKinematics,
    AbstractRigidBody,
    AbstractTerm,
    Coordinates,
    CoordinateSprings,
    Gravity,
    Reader,
    Rotors,
    Support,
    Value,
    gravity,
    vectors,
)


@dataclass(frozen=True)
class SpinningRotors(AbstractTerm):
    """The kinetic energies a w . w / 2 of rotors about the axes of a body with a quaternion."""

    inertia: Value

    def lagrangian(self, coordinates: Coordinates, read: Reader) -> Array:
        """The sum of the kinetic energies."""
        spin = vectors.spin_in_body(*coordinates.entries(self.part, self.coordinates))
        return 0.5 * read.number(self.inertia) * (spin @ spin)


def terms(model: Any, joints: tuple[str, ...], conversion: Conversion, values: Values) -> list[Any]:
    """The energies of rotors (armature) and springs."""
    energies: list[Any] = []
    spring = is_on("spring", model)
    scalars = {s.dof: s for s in conversion.scalars}
    turning, sprung = [], []
    for j, name in enumerate(joints):
        dof = int(model.jnt_dofadr[j])
        entry = scalars.get(dof)
        armature = float(model.dof_armature[dof])
        stiffness = float(np.ravel(model.jnt_stiffness[j])[0])
        if entry is None or is_any(model.jnt_type[j], mujoco().mjtJoint.mjJNT_FREE):
            energies += _of_quaternion(model, j, name, armature, conversion, values)
            continue
        if armature or "armature" in values.kinds:
            turning.append((entry.coordinate, values.value("armature", name, armature)))
        if spring and (stiffness or "stiffness" in values.kinds):
            rest_position = float(model.qpos_spring[model.jnt_qposadr[j]])
            sprung.append(
                (entry.coordinate, values.value("stiffness", name, stiffness), rest_position)
            )
    if turning:
        energies.append(Rotors("rotors of the joints", *map(tuple, zip(*turning, strict=True))))
    if sprung:
        columns = map(tuple, zip(*sprung, strict=True))
        energies.append(CoordinateSprings("springs of the joints", *columns))
    return energies


def _of_quaternion(
    model: Any, j: int, name: str, armature: float, conversion: Conversion, values: Values
) -> list[AbstractTerm]:
    if not armature:
        return []
    value = values.value("armature", name, armature)
    dof, terms = int(model.jnt_dofadr[j]), list[AbstractTerm]()
    if is_any(model.jnt_type[j], mujoco().mjtJoint.mjJNT_FREE):
        along = tuple(s.coordinate for s in conversion.scalars if dof <= s.dof < dof + 3)
        terms.append(Rotors(f"rotors along {name!r}", along, (value,) * 3))
        dof += 3
    first = next(e.coordinate for e in conversion.quaternions if e.dof == dof)
    letters = tuple(f"{first[:-1]}{k}" for k in range(4))
    return [*terms, SpinningRotors(f"rotors of {name!r}", letters, value)]


def weights(model: Any) -> list[Gravity]:
    """Gravity, if there is any."""
    g = np.asarray(model.opt.gravity)
    size = float(np.linalg.norm(g))
    return [gravity(size, down=tuple(tidy(g)))] if size and is_on("gravity", model) else []


@dataclass(frozen=True)
class Resistance:
    """Damping -c u and friction -f tanh(u / s) of the joints, with u as in qvel.

    Attributes:
        conversion: between q and qpos.
        joint_of: the joint of each entry of qvel.
        damping: c of each joint.
        friction: f of each joint.
        speed: s, at which friction is 76 % of its limit.
    """

    conversion: Conversion
    joint_of: tuple[int, ...]
    damping: tuple[Value, ...]
    friction: tuple[Value, ...]
    speed: Value

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The generalized force (n,)."""
        q, v = jnp.asarray(q), jnp.asarray(v)
        read = Reader("resistance of the joints", jnp.asarray(t), params)
        joints, count = np.array(self.joint_of), len(self.damping)
        u = self.conversion.qvel(q, v)
        force = -read.vector(self.damping, count)[joints] * u
        if any(self.friction):
            limit = read.vector(self.friction, count)[joints]
            force = force - limit * jnp.tanh(u / read.number(self.speed))
        return self.conversion.generalized(q, force)


def resistance(
    model: Any, joints: tuple[str, ...], conversion: Conversion, values: Values, speed: Any,
    sticking: Collection[str] = (),
) -> tuple[list[Resistance], dict[str, Value]]:  # fmt: skip
    """The damping and the friction of all joints, if there are any.

    Also the limits of the friction of joints that are `sticking`, which is not among them.
    """
    damping = _each(model.dof_damping, "damping", "damper", model, joints, values)
    limits = model.dof_frictionloss
    friction = _each(limits, "frictionloss", "frictionloss", model, joints, values)
    dry = {name: x for name, x in zip(joints, friction, strict=True) if x and name in sticking}
    friction = tuple(0.0 if name in dry else x for name, x in zip(joints, friction, strict=True))
    if not any(damping) and not any(friction):
        return [], dry
    joint_of = tuple(int(j) for j in model.dof_jntid)
    return [Resistance(conversion, joint_of, damping, friction, speed)], dry


def _each(
    numbers: Floats, kind: str, flag: str, model: Any, joints: tuple[str, ...], values: Values
) -> tuple[Value, ...]:
    """A number for each joint: that of its first entry in qvel, or a parameter."""
    acts = is_on(flag, model)
    of_joints = [float(numbers[dof]) if acts else 0.0 for dof in model.jnt_dofadr]
    return tuple(values.value(kind, name, x) for name, x in zip(joints, of_joints, strict=True))


@dataclass(frozen=True)
class Compensation:
    """The generalized force (n,) of all supports, as a function of (q, t, params)."""

    kinematics: AbstractKinematics
    supports: tuple[Support, ...]

    def __call__(self, q: Array, t: Array, params: Any) -> Array:
        """The negative gradient of the potentials."""

        def energy(q: Array) -> Any:
            return sum(
                support.energy(
                    self.kinematics.frames(support.bodies, q, t, params),
                    Reader(support.part, t, params),
                )
                for support in self.supports
            )

        return -jax.grad(energy)(q)


def supports(
    model: Any, mounts: list[Mount], bodies: dict[int, AbstractBody], names: tuple[str, ...]
) -> tuple[Support, ...]:
    """The forces that carry a part of the weight of the moving bodies."""
    g = np.asarray(model.opt.gravity)
    is_passive = is_on("spring", model) or is_on("damper", model)  # else there are none in MuJoCo
    if not g.any() or not is_on("gravity", model) or not is_passive:
        return ()
    forces: list[Support] = []
    for index, moving in bodies.items():
        members = [k for k, mount in enumerate(mounts) if mount.index == index and k]
        factors = {float(model.body_gravcomp[k]) for k in members if model.body_mass[k]}
        if len(factors) == 1:
            forces += _of_body(names[index], moving, factors.pop() * g)
            continue
        _require_constant(names[index], moving)
        for k in members:
            factor = float(model.body_gravcomp[k])
            center = mounts[k].pose.then(Offset(model.body_ipos[k], model.body_iquat[k])).position
            part, mass = f"support of {names[k]!r}", float(model.body_mass[k])
            if factor:
                carried = tuple(tidy(factor * g))
                forces.append(Support(part, (moving,), mass, tuple(tidy(center)), carried))
    return tuple(forces)


def _of_body(name: str, body: AbstractBody, carried: Any) -> list[Support]:
    """The support of a whole body, whose mass and centre may be parameters."""
    if not carried.any():
        return []
    assert isinstance(body, AbstractRigidBody)
    own = body.properties
    part = f"support of {name!r}"
    return [Support(part, (body,), own.mass, own.center, tuple(tidy(carried)))]


def _require_constant(name: str, body: AbstractBody) -> None:
    """Raise for a mass that is a parameter, of a body with parts that are carried differently."""
    assert isinstance(body, AbstractRigidBody)
    if isinstance(body.properties.mass, str) or isinstance(body.properties.center, str):
        raise ValueError(
            f"The body {name!r}, which consists of bodies with different `gravcomp`, cannot have a "
            'mass or a centre that is a parameter; leave "mass" and "center" out of `params`, or '
            "give its bodies the same `gravcomp`."
        )


Range = tuple[float, float]
_FREE = (-np.inf, np.inf)
_OFF = (0.0, 0.0)


@dataclass(frozen=True)
class Actuator:
    """The force gain * ctrl + bias along a joint, both affine in its way and speed.

    Way and speed are the coordinate of the joint, and its rate, times the gear; the force on the
    joint is that of the actuator times the gear.

    Attributes:
        name: name of the actuator; its input is `params["ctrl.name"]`.
        index: index of the coordinate of the joint.
        gear: ratio of the actuator and its joint.
        gain: the coefficients of 1, way and speed.
        bias: the coefficients of 1, way and speed.
        ctrl_range: limits of the input.
        force_range: limits of the force.
    """

    name: str
    index: int
    gear: float
    gain: tuple[float, ...]
    bias: tuple[float, ...]
    ctrl_range: Range = _FREE
    force_range: Range = _FREE

    def force(self, q: Array, v: Array, ctrl: Any) -> Array:
        """The force along the coordinate of the joint."""
        length, speed = self.gear * q[self.index], self.gear * v[self.index]
        gain, bias = (x[0] + x[1] * length + x[2] * speed for x in (self.gain, self.bias))
        force = gain * _within(ctrl, self.ctrl_range) + bias
        return self.gear * _within(force, self.force_range)


@dataclass(frozen=True)
class Actuators:
    """The generalized force (n,) of all actuators.

    Attributes:
        actuators: the actuators.
        limits: those of the total force on some coordinates, by their indices.
        compensation: the forces that carry weights, as part of the energy of the mechanism.
        compensated: indices of coordinates on which it counts as a force of actuators.
    """

    actuators: tuple[Actuator, ...]
    limits: tuple[tuple[int, Range], ...]
    compensation: Compensation
    compensated: tuple[int, ...] = ()

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The generalized force (n,), without the compensation itself."""
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        read = Reader("the actuators", t, params)
        totals: dict[int, Array] = {}
        for a in self.actuators:
            force = a.force(q, v, read.number(f"ctrl.{a.name}"))
            totals[a.index] = totals.get(a.index, 0.0) + force
        limits = dict(self.limits)
        if self.compensated:
            carried = self.compensation(q, t, params)
        for k in self.compensated:
            total = totals.get(k, 0.0) + carried[k]
            totals[k] = _within(total, limits.pop(k, _FREE)) - carried[k]
        forces = {k: _within(force, limits.get(k, _FREE)) for k, force in totals.items()}
        zero = jnp.zeros((), q.dtype)
        return jnp.stack([forces.get(k, zero) for k in range(q.shape[0])])


def _within(x: Array, limits: Range) -> Array:
    return x if limits == _FREE else jnp.clip(x, *limits)


def actuators(
    model: Any,
    names: tuple[str, ...],
    conversion: Conversion,
    compensation: Compensation,
    left_out: LeftOut,
) -> list[Actuators]:
    """The actuators of a model; those that have no counterpart are listed."""
    acts = is_on("actuation", model)
    index = {s.dof: conversion.names.index(s.coordinate) for s in conversion.scalars}
    driving = []
    for k, name in enumerate(names if acts else ()):
        if _is_disabled(model, k):
            continue
        joint = _joint(model, k)
        if joint is None:
            left_out.add("actuator", name)
        else:
            driving.append(_actuator(model, k, name, index[int(model.jnt_dofadr[joint])]))
    limits = {
        index[int(model.jnt_dofadr[j])]: _pair(model.jnt_actfrcrange[j])
        for j in range(model.njnt)
        if model.jnt_actfrclimited[j] and _is_scalar(model, j)
    }
    compensated: list[int] = []
    if compensation.supports:
        for j in np.flatnonzero(model.jnt_actgravcomp):
            entries = conversion.entries(np.flatnonzero(model.dof_jntid == j))
            if not acts or not names:  # without actuators nothing carries these weights in MuJoCo
                limits |= dict.fromkeys(entries, _OFF)
            compensated += [k for k in entries if k in limits]
    if not driving and not compensated:
        return []
    pairs = tuple(limits.items())
    return [Actuators(tuple(driving), pairs, compensation, tuple(compensated))]


def _is_disabled(model: Any, k: int) -> bool:
    """Whether an actuator is in a group that the model switches off."""
    group = int(model.actuator_group[k])
    return 0 <= group < 31 and bool(int(model.opt.disableactuator) >> group & 1)


def _actuator(model: Any, k: int, name: str, index: int) -> Actuator:
    """The actuator with an index in the model, on a coordinate."""
    clamp = is_on("clampctrl", model) and model.actuator_ctrllimited[k]
    return Actuator(
        name,
        index,
        float(model.actuator_gear[k, 0]),
        _gain(model.actuator_gainprm[k], 3 if model.actuator_gaintype[k] else 1),
        _gain(model.actuator_biasprm[k], 3 if model.actuator_biastype[k] else 0),
        _pair(model.actuator_ctrlrange[k]) if clamp else _FREE,
        _pair(model.actuator_forcerange[k]) if model.actuator_forcelimited[k] else _FREE,
    )


def _joint(model: Any, k: int) -> int | None:
    """The hinge or slide that an actuator moves; None if it is of another kind."""
    p = mujoco()
    joint = int(model.actuator_trnid[k, 0])
    is_plain = (
        is_any(model.actuator_dyntype[k], p.mjtDyn.mjDYN_NONE)
        and is_any(model.actuator_gaintype[k], p.mjtGain.mjGAIN_FIXED, p.mjtGain.mjGAIN_AFFINE)
        and is_any(model.actuator_biastype[k], p.mjtBias.mjBIAS_NONE, p.mjtBias.mjBIAS_AFFINE)
        and is_any(model.actuator_trntype[k], p.mjtTrn.mjTRN_JOINT, p.mjtTrn.mjTRN_JOINTINPARENT)
        and _is_scalar(model, joint)
        and int(model.actuator_plugin[k]) < 0
        and not any(_is_set(model, field, k) for field in FIELDS["actuator"])
    )
    return joint if is_plain else None


def _is_scalar(model: Any, joint: int) -> bool:
    kinds = mujoco().mjtJoint
    return is_any(model.jnt_type[joint], kinds.mjJNT_HINGE, kinds.mjJNT_SLIDE)


def _is_set(model: Any, field: str, k: int) -> bool:
    """Whether a field, which not every version of MuJoCo has, is not zero."""
    return hasattr(model, field) and bool(np.any(getattr(model, field)[k]))


def _gain(parameters: Floats, count: int) -> tuple[float, ...]:
    """The coefficients of 1, way and speed, of which the first `count` are in use."""
    return tuple(float(x) if k < count else 0.0 for k, x in enumerate(parameters[:3]))


def _pair(limits: Floats) -> Range:
    return float(limits[0]), float(limits[1])
