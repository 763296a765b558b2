"""The actuators of a model on hinges and slides, with their inputs as parameters."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.mujoco.bodies import Floats
from jaxmech.interop.mujoco.coordinates import Conversion
from jaxmech.interop.mujoco.left_out import LeftOut
from jaxmech.interop.mujoco.source import is_any, mujoco
from jaxmech.parts.values import Reader

_FREE = (-np.inf, np.inf)
_MORE = ("actuator_armature", "actuator_damping", "actuator_dampingpoly", "actuator_delay")


@dataclass(frozen=True)
class Actuator:
    """The force gain * ctrl + bias along a joint, both affine in its way and speed.

    Way and speed are the coordinate of the joint, and its rate, times the gear; the force on the
    joint is that of the actuator times the gear.

    Attributes:
        name: name of the actuator; its input is `params["ctrl.name"]`.
        joint: index of the joint.
        index: index of the coordinate.
        gear: ratio of the actuator and its joint.
        gain: the coefficients of 1, way and speed.
        bias: the coefficients of 1, way and speed.
        ctrl_range: limits of the input.
        force_range: limits of the force.
    """

    name: str
    joint: int
    index: int
    gear: float
    gain: tuple[float, ...]
    bias: tuple[float, ...]
    ctrl_range: tuple[float, float] = _FREE
    force_range: tuple[float, float] = _FREE

    def force(self, q: Array, v: Array, ctrl: Any) -> Array:
        """The force along the coordinate of the joint."""
        length, speed = self.gear * q[self.index], self.gear * v[self.index]
        gain, bias = (x[0] + x[1] * length + x[2] * speed for x in (self.gain, self.bias))
        force = gain * _within(ctrl, self.ctrl_range) + bias
        return self.gear * _within(force, self.force_range)


@dataclass(frozen=True)
class Actuators:
    """The generalized force (n,) of all actuators.

    `limits` are those of the total force on some joints, by their indices.
    """

    actuators: tuple[Actuator, ...]
    limits: tuple[tuple[int, tuple[float, float]], ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The generalized force (n,)."""
        q, v = jnp.asarray(q), jnp.asarray(v)
        read = Reader("the actuators", jnp.asarray(t), params)
        totals: dict[int, Array] = {}
        positions = {}
        for a in self.actuators:
            ctrl = read.number(f"ctrl.{a.name}")
            totals[a.joint] = totals.get(a.joint, 0.0) + a.force(q, v, ctrl)
            positions[a.index] = a.joint
        limits = dict(self.limits)
        forces = {j: _within(force, limits.get(j, _FREE)) for j, force in totals.items()}
        zero = jnp.zeros((), q.dtype)
        return jnp.stack(
            [forces[positions[k]] if k in positions else zero for k in range(q.shape[0])]
        )


def _within(x: Array, limits: tuple[float, float]) -> Array:
    return x if limits == _FREE else jnp.clip(x, *limits)


def actuators(
    model: Any, names: tuple[str, ...], conversion: Conversion, left_out: LeftOut
) -> list[Actuators]:
    """The actuators of a model, and a list of those that have no counterpart."""
    bits = mujoco().mjtDisableBit
    if int(model.opt.disableflags) & int(bits.mjDSBL_ACTUATION):
        return []
    is_clamped = not int(model.opt.disableflags) & int(bits.mjDSBL_CLAMPCTRL)
    index = {s.dof: conversion.names.index(s.coordinate) for s in conversion.scalars}
    driving = []
    for k, name in enumerate(names):
        joint = _joint(model, k)
        if joint is None:
            left_out.add("actuator", name)
            continue
        clamp, limit = is_clamped and model.actuator_ctrllimited[k], model.actuator_forcelimited[k]
        actuator = Actuator(
            name,
            joint,
            index[int(model.jnt_dofadr[joint])],
            float(model.actuator_gear[k, 0]),
            _gain(model.actuator_gainprm[k], 3 if model.actuator_gaintype[k] else 1),
            _gain(model.actuator_biasprm[k], 3 if model.actuator_biastype[k] else 0),
            _pair(model.actuator_ctrlrange[k]) if clamp else _FREE,
            _pair(model.actuator_forcerange[k]) if limit else _FREE,
        )
        driving.append(actuator)
    limited = [j for j in range(model.njnt) if model.jnt_actfrclimited[j]]
    limits = tuple((j, _pair(model.jnt_actfrcrange[j])) for j in limited)
    return [Actuators(tuple(driving), limits)] if driving else []


def _joint(model: Any, k: int) -> int | None:
    """The hinge or slide that an actuator moves; None if it is of another kind."""
    p = mujoco()
    joint = int(model.actuator_trnid[k, 0])
    is_plain = (
        is_any(model.actuator_dyntype[k], p.mjtDyn.mjDYN_NONE)
        and is_any(model.actuator_gaintype[k], p.mjtGain.mjGAIN_FIXED, p.mjtGain.mjGAIN_AFFINE)
        and is_any(model.actuator_biastype[k], p.mjtBias.mjBIAS_NONE, p.mjtBias.mjBIAS_AFFINE)
        and is_any(model.actuator_trntype[k], p.mjtTrn.mjTRN_JOINT, p.mjtTrn.mjTRN_JOINTINPARENT)
        and is_any(model.jnt_type[joint], p.mjtJoint.mjJNT_HINGE, p.mjtJoint.mjJNT_SLIDE)
        and not any(_is_set(model, field, k) for field in _MORE)
    )
    return joint if is_plain else None


def _is_set(model: Any, field: str, k: int) -> bool:
    """Whether a field, which not every version of MuJoCo has, is not zero."""
    return hasattr(model, field) and bool(np.any(getattr(model, field)[k]))


def _gain(parameters: Floats, count: int) -> tuple[float, ...]:
    """The coefficients of 1, way and speed, of which the first `count` are in use."""
    return tuple(float(x) if k < count else 0.0 for k, x in enumerate(parameters[:3]))


def _pair(limits: Floats) -> tuple[float, float]:
    return float(limits[0]), float(limits[1])
