"""What acts on the joints of a model: rotors, springs, damping, friction, gravity and actuators.

Actuators are those on hinges and slides; their inputs are parameters.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.mujoco.bodies import Conversion, Floats, Offset, Tree, tidy
from jaxmech.interop.mujoco.source import FIELDS, is_any, is_on, mujoco
from jaxmech.parts import (
    AbstractRigidBody,
    CoordinateSprings,
    Reader,
    Rotors,
    Support,
    gravity,
)

Number = float | str  # or the name of a parameter


def terms(tree: Tree, conversion: Conversion) -> list[Any]:
    """The energies of rotors (armature) and springs."""
    energies: list[Any] = []
    model, values = tree.model, tree.values
    spring = is_on("spring", model)
    coordinates = {e.dof: conversion.names[e.q] for e in conversion.scalars}
    turning, sprung = [], []
    for j, name in enumerate(tree.joint_names):
        dof = int(model.jnt_dofadr[j])
        coordinate = coordinates.get(dof)
        armature = float(model.dof_armature[dof])
        stiffness = float(np.ravel(model.jnt_stiffness[j])[0])
        if coordinate is None or is_any(model.jnt_type[j], mujoco().mjtJoint.mjJNT_FREE):
            continue  # what turns about more than one axis has neither
        if armature or "armature" in values.kinds:
            turning.append((coordinate, values.value("armature", name, armature)))
        if spring and (stiffness or "stiffness" in values.kinds):
            rest_position = float(model.qpos_spring[model.jnt_qposadr[j]])
            sprung.append((coordinate, values.value("stiffness", name, stiffness), rest_position))
    if turning:
        energies.append(Rotors("rotors of the joints", *map(tuple, zip(*turning, strict=True))))
    if sprung:
        columns = map(tuple, zip(*sprung, strict=True))
        energies.append(CoordinateSprings("springs of the joints", *columns))
    return energies


def weights(model: Any) -> list[gravity]:
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
    damping: tuple[Number, ...]
    friction: tuple[Number, ...]
    speed: Number

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
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
    tree: Tree, conversion: Conversion, speed: Any, sticking: Collection[str] = ()
) -> tuple[list[Resistance], dict[str, Number]]:
    """The damping and the friction of all joints, if there are any.

    Also the limits of the friction of joints that are `sticking`, which is not among them.
    """
    model, joints, dry = tree.model, tree.joint_names, dict[str, Number]()

    def of_joints(numbers: Floats, kind: str, flag: str) -> list[Number]:
        """A number for each joint: that of its first entry in qvel, or a parameter."""
        first = [float(numbers[dof]) if is_on(flag, model) else 0.0 for dof in model.jnt_dofadr]
        return [tree.values.value(kind, name, x) for name, x in zip(joints, first, strict=True)]

    damping = of_joints(model.dof_damping, "damping", "damper")
    friction = of_joints(model.dof_frictionloss, "frictionloss", "frictionloss")
    for k, name in enumerate(joints):
        if friction[k] and name in sticking:
            dry[name], friction[k] = friction[k], 0.0
    if not any(damping) and not any(friction):
        return [], dry
    joint_of = tuple(int(j) for j in model.dof_jntid)
    return [Resistance(conversion, joint_of, tuple(damping), tuple(friction), speed)], dry


def supports(tree: Tree) -> tuple[Support, ...]:
    """The forces that carry a part of the weight of the moving bodies.

    That they count as forces of actuators, with limits, is left out.
    """
    model, names = tree.model, tree.names
    g = np.asarray(model.opt.gravity)
    is_passive = is_on("spring", model) or is_on("damper", model)  # else there are none in MuJoCo
    if not g.any() or not is_on("gravity", model) or not is_passive:
        return ()
    forces: list[Support] = []
    for index, moving in tree.moving.items():
        members = tree.members(index)
        factors = {float(model.body_gravcomp[k]) for k in members if model.body_mass[k]}
        assert isinstance(moving, AbstractRigidBody)
        props = moving.properties
        if len(factors) == 1:  # of a whole body, whose mass and centre may be parameters
            carried = tuple(tidy(factors.pop() * g))
            if any(carried):
                forces.append(Support(names[index], moving, props.mass, props.center, carried))
            continue
        if isinstance(props.mass, str) or isinstance(props.center, str):
            raise ValueError(
                f"The body {names[index]!r}, which consists of bodies with different `gravcomp`, "
                'cannot have a mass or a centre that is a parameter; leave "mass" and "center" out '
                "of `params`, or give its bodies the same `gravcomp`."
            )
        for k in members:
            factor = float(model.body_gravcomp[k])
            own_frame = Offset(model.body_ipos[k], model.body_iquat[k])
            center = tree.mounts[k].pose.then(own_frame).position
            mass = float(model.body_mass[k])
            if factor:
                carried = tuple(tidy(factor * g))
                forces.append(Support(names[k], moving, mass, tuple(tidy(center)), carried))
    for j in np.flatnonzero(model.jnt_actgravcomp) if forces else ():
        tree.left_out.add("weight carried by actuators", tree.joint_names[j])
    return tuple(forces)


Range = tuple[float, float]
_FREE = (-np.inf, np.inf)


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
    """

    actuators: tuple[Actuator, ...]
    limits: tuple[tuple[int, Range], ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        read = Reader("the actuators", t, params)
        totals: dict[int, Array] = {}
        for a in self.actuators:
            force = a.force(q, v, read.number(f"ctrl.{a.name}"))
            totals[a.index] = totals.get(a.index, 0.0) + force
        limits = dict(self.limits)
        forces = {k: _within(force, limits.get(k, _FREE)) for k, force in totals.items()}
        zero = jnp.zeros((), q.dtype)
        return jnp.stack([forces.get(k, zero) for k in range(q.shape[0])])


def _within(x: Array, limits: Range) -> Array:
    return x if limits == _FREE else jnp.clip(x, *limits)


def actuators(tree: Tree, names: Sequence[str], conversion: Conversion) -> list[Actuators]:
    """The actuators of a model; those that have no counterpart are listed."""
    model, index, p = tree.model, conversion.indices("dof"), mujoco()
    driving = []
    for k, name in enumerate(names if is_on("actuation", model) else ()):
        group = int(model.actuator_group[k])
        if 0 <= group < 31 and int(model.opt.disableactuator) >> group & 1:
            continue  # the model switches its group off
        joint = int(model.actuator_trnid[k, 0])
        is_known = (  # of a hinge or slide, affine, and without a state
            is_any(model.actuator_dyntype[k], p.mjtDyn.mjDYN_NONE)
            and is_any(model.actuator_gaintype[k], p.mjtGain.mjGAIN_FIXED, p.mjtGain.mjGAIN_AFFINE)
            and is_any(model.actuator_biastype[k], p.mjtBias.mjBIAS_NONE, p.mjtBias.mjBIAS_AFFINE)
            and is_any(
                model.actuator_trntype[k], p.mjtTrn.mjTRN_JOINT, p.mjtTrn.mjTRN_JOINTINPARENT
            )
            and tree.joint_names[joint] in tree.scalar_joints
            and int(model.actuator_plugin[k]) < 0
            and not any(
                np.any(getattr(model, x)[k]) for x in FIELDS["actuator"] if hasattr(model, x)
            )
        )
        if not is_known:
            tree.left_out.add("actuator", name)
        else:
            clamp = is_on("clampctrl", model) and model.actuator_ctrllimited[k]
            forced = model.actuator_forcelimited[k]
            driving.append(
                Actuator(
                    name,
                    index[int(model.jnt_dofadr[joint])],
                    float(model.actuator_gear[k, 0]),
                    _gain(model.actuator_gainprm[k], 3 if model.actuator_gaintype[k] else 1),
                    _gain(model.actuator_biasprm[k], 3 if model.actuator_biastype[k] else 0),
                    _pair(model.actuator_ctrlrange[k]) if clamp else _FREE,
                    _pair(model.actuator_forcerange[k]) if forced else _FREE,
                )
            )
    limits = {
        index[int(model.jnt_dofadr[j])]: _pair(model.jnt_actfrcrange[j])
        for j, name in enumerate(tree.joint_names)
        if model.jnt_actfrclimited[j] and name in tree.scalar_joints
    }
    return [Actuators(tuple(driving), tuple(limits.items()))] if driving else []


def _gain(parameters: Floats, count: int) -> tuple[float, ...]:
    """The coefficients of 1, way and speed, of which the first `count` are in use."""
    return tuple(float(x) if k < count else 0.0 for k, x in enumerate(parameters[:3]))


def _pair(limits: Floats) -> Range:
    return float(limits[0]), float(limits[1])
