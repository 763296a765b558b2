"""The actuators of a model on hinges and slides, with their inputs as parameters."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.mujoco.bodies import Floats
from jaxmech.interop.mujoco.coordinates import Conversion
from jaxmech.interop.mujoco.forces import Compensation
from jaxmech.interop.mujoco.left_out import LeftOut, is_on
from jaxmech.interop.mujoco.schema import fields_of
from jaxmech.interop.mujoco.source import is_any, mujoco
from jaxmech.parts import Reader

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
        and not any(_is_set(model, field, k) for field in fields_of("actuator"))
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
