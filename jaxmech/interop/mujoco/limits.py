"""Limits as unilateral constraints: stops of joints, ranges of fixed tendons, and ropes.

A limit of MuJoCo is a soft force, which lets a joint pass it by a little. Here it is a gap that is
never negative, with a restitution of zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.mujoco.bodies import Mount, Offset, carrier, tidy
from jaxmech.interop.mujoco.coordinates import Conversion
from jaxmech.interop.mujoco.left_out import is_on, names_of
from jaxmech.interop.mujoco.source import is_any, mujoco
from jaxmech.parts import AbstractBody, Joint, rope, stop
from jaxmech.unilateral import Unilateral

_FIELDS = tuple(  # of forces of a tendon; not every version has all
    f"tendon_{name}"
    for name in ("stiffness", "stiffnesspoly", "damping", "dampingpoly", "frictionloss", "armature")
)


@dataclass(frozen=True)
class Limits:
    """The parts that limits become, and what they take over: pairs of a kind and a name."""

    parts: tuple[Joint | Unilateral, ...]
    taken: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class TendonRange:
    """The distances of a linear function of coordinates from both ends of its range."""

    coefficients: tuple[tuple[int, float], ...]
    lower: float
    upper: float

    def __call__(self, q: Array, t: Array, params: Any) -> Array:
        """The gaps, (2,)."""
        length = sum(factor * q[mount] for mount, factor in self.coefficients)
        return jnp.stack([length - self.lower, self.upper - length])


def scalar_joints(model: Any, names: Sequence[str]) -> tuple[str, ...]:
    """The names of hinges and slides."""
    kinds = mujoco().mjtJoint
    scalars = (kinds.mjJNT_HINGE, kinds.mjJNT_SLIDE)
    return tuple(x for j, x in enumerate(names) if is_any(model.jnt_type[j], *scalars))


def limits_of(
    model: Any, joints: Mapping[str, Joint], names: Sequence[str], conversion: Conversion,
    mounts: list[Mount], moving: dict[int, AbstractBody],
) -> Limits:  # fmt: skip
    """The limits of a model; `names` are those of all its joints."""
    parts: list[Joint | Unilateral] = []
    taken: set[tuple[str, str]] = set()
    if not is_on("limit", model):
        return Limits((), frozenset())
    scalars = scalar_joints(model, names)
    for j, name in enumerate(names):
        if model.jnt_limited[j] and name in scalars:
            lower, upper = map(float, model.jnt_range[j])
            parts.append(stop(f"{name}.limit", joints[name], lower=lower, upper=upper))
            taken.add(("joint limit", name))
    for k, name in enumerate(names_of(model, "tendon", model.ntendon)):
        part = _tendon(model, k, name, conversion, mounts, moving)
        if part is not None:
            parts.append(part)
            taken.add(("tendon", name))
    return Limits(tuple(parts), frozenset(taken))


def _tendon(
    model: Any, k: int, name: str, conversion: Conversion, mounts: list[Mount],
    moving: dict[int, AbstractBody],
) -> Joint | Unilateral | None:  # fmt: skip
    """A tendon that does nothing but limit; None for any other."""
    has_force = any(np.any(getattr(model, field)[k]) for field in _FIELDS if hasattr(model, field))
    if not model.tendon_limited[k] or has_force:
        return None
    first, count = int(model.tendon_adr[k]), int(model.tendon_num[k])
    kinds = mujoco().mjtWrap
    wraps = range(first, first + count)
    lower, upper = map(float, model.tendon_range[k])
    if all(is_any(model.wrap_type[w], kinds.mjWRAP_JOINT) for w in wraps):
        index = {s.qpos: conversion.names.index(s.coordinate) for s in conversion.scalars}
        pairs = tuple(
            (index[int(model.jnt_qposadr[model.wrap_objid[w]])], float(model.wrap_prm[w]))
            for w in wraps
        )
        return Unilateral(TendonRange(pairs, lower, upper), name=f"{name}.limit")
    if lower > 0 or not all(is_any(model.wrap_type[w], kinds.mjWRAP_SITE) for w in wraps):
        return None
    points = []
    for w in wraps:
        site = model.wrap_objid[w]
        body = int(model.site_bodyid[site])
        offset = Offset(model.site_pos[site], model.site_quat[site])
        at = tidy(mounts[body].pose.then(offset).position)
        points.append((carrier(mounts, moving, body), at))
    if len({body.name for body, _ in points}) == 1:
        return None  # its length does not change
    return rope(f"{name}.limit", points, upper)
