"""The equalities of a model as hard constraints."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.constraints import Holonomic
from jaxmech.interop.mujoco.bodies import Mount, Offset, carrier, tidy
from jaxmech.interop.mujoco.coordinates import Conversion
from jaxmech.interop.mujoco.left_out import LeftOut, is_on
from jaxmech.interop.mujoco.source import is_any, mujoco
from jaxmech.parts import AbstractBody, Joint, conjugate, product, spherical, weld


@dataclass(frozen=True)
class Coupling:
    """The equation q_a - start_a = polynomial(q_b - start_b) of two joints, or of one alone.

    Attributes:
        a: index of the first coordinate.
        b: index of the second one, None if the first is held.
        starts: the coordinates at the reference pose.
        coefficients: those of the polynomial, the constant one first.
    """

    a: int
    b: int | None
    starts: tuple[float, float]
    coefficients: tuple[float, ...]

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """The residual of the equation."""
        coordinate = jnp.zeros((), q.dtype) if self.b is None else q[self.b] - self.starts[1]
        value = jnp.zeros((), q.dtype)
        for coefficient in reversed(self.coefficients):
            value = value * coordinate + coefficient
        return q[self.a] - self.starts[0] - value


def loops(
    model: Any,
    names: tuple[str, ...],
    mounts: list[Mount],
    bodies: dict[int, AbstractBody],
    left_out: LeftOut,
) -> list[Joint]:
    """The equalities between bodies: `connect` is a ball, `weld` a weld."""
    kinds, joints = mujoco().mjtEq, []
    for k in _active(model, names, left_out):
        if not is_any(model.eq_type[k], kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
            continue
        is_weld = is_any(model.eq_type[k], kinds.mjEQ_WELD)
        pairs = _ends(model, k, is_weld)
        ends = [mounts[body].pose.then(pose) for body, pose in pairs]
        a, b = (carrier(mounts, bodies, body) for body, _ in pairs)
        if a == b:
            left_out.add("equality within one body", names[k])
            continue
        points = [tidy(end.position) for end in ends]
        if is_weld:
            turn = tidy(product(ends[0].attitude, conjugate(ends[1].attitude)))
            joints.append(weld(names[k], a, points[0], b, points[1], turn=turn))
        else:
            joints.append(spherical(names[k], a, points[0], b, points[1]))
    return joints


def _ends(model: Any, k: int, is_weld: bool) -> tuple[tuple[int, Offset], tuple[int, Offset]]:
    """Both bodies of an equality, each with the frame on it that coincides with the other."""
    first, second = int(model.eq_obj1id[k]), int(model.eq_obj2id[k])
    no_turn = np.eye(4)[0]
    if is_any(model.eq_objtype[k], mujoco().mjtObj.mjOBJ_SITE):
        ends = [
            (int(model.site_bodyid[s]), Offset(model.site_pos[s], model.site_quat[s]))
            for s in (first, second)
        ]
        return ends[0], ends[1]
    data = model.eq_data[k]
    if is_weld:  # the pose of the second body on the first, and the point on the second
        return (first, Offset(data[3:6], data[6:10])), (second, Offset(data[:3], no_turn))
    return (first, Offset(data[:3], no_turn)), (second, Offset(data[3:6], no_turn))


def couplings(model: Any, names: tuple[str, ...], conversion: Conversion) -> list[Holonomic]:
    """The equalities between the coordinates of joints."""
    constraints = []
    index = {s.qpos: conversion.names.index(s.coordinate) for s in conversion.scalars}
    for k in range(model.neq if is_on("equality", model) else 0):
        is_coupling = is_any(model.eq_type[k], mujoco().mjtEq.mjEQ_JOINT)
        if not is_coupling or not model.eq_active0[k]:
            continue
        first, second = int(model.eq_obj1id[k]), int(model.eq_obj2id[k])
        addresses = [int(model.jnt_qposadr[j]) for j in (first, second) if j >= 0]
        starts = [float(model.qpos0[i]) for i in addresses] + [0.0]
        coefficients = tuple(float(x) for x in model.eq_data[k, : 5 if len(addresses) == 2 else 1])
        second_index = index[addresses[1]] if len(addresses) == 2 else None
        fn = Coupling(index[addresses[0]], second_index, (starts[0], starts[1]), coefficients)
        constraints.append(Holonomic(fn, name=names[k]))
    return constraints


def _kind(number: Any) -> str:
    kinds = mujoco().mjtEq.__members__.items()
    return next(name for name, kind in kinds if is_any(number, kind)).removeprefix("mjEQ_").lower()


def _active(model: Any, names: tuple[str, ...], left_out: LeftOut) -> list[int]:
    """The equalities that are on; those of kinds without a counterpart are listed."""
    kinds = mujoco().mjtEq
    kinds_read = (kinds.mjEQ_CONNECT, kinds.mjEQ_WELD, kinds.mjEQ_JOINT)
    active = []
    for k in range(model.neq if is_on("equality", model) else 0):
        if not model.eq_active0[k]:
            left_out.add("equality that is switched off", names[k])
        elif not is_any(model.eq_type[k], *kinds_read):
            left_out.add(f"{_kind(model.eq_type[k])} equality", names[k])
        else:
            active.append(k)
    return active
