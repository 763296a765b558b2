"""The equalities of a model as constraints, and its limits as unilateral ones.

Limits are stops of joints, ranges of fixed tendons, and ropes. A limit of MuJoCo is a soft force,
which lets a joint pass it by a little. Here it is a gap that is never negative, with a restitution
of zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.mujoco.bodies import Conversion, Offset, Tree, tidy
from jaxmech.interop.mujoco.source import is_any, is_on, mujoco, names_of
from jaxmech.parts import Joint, rope, spherical, stop, vectors, weld
from jaxmech.system import Holonomic, Unilateral


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
        coordinate = jnp.zeros((), q.dtype) if self.b is None else q[self.b] - self.starts[1]
        value = jnp.zeros((), q.dtype)
        for coefficient in reversed(self.coefficients):
            value = value * coordinate + coefficient
        return q[self.a] - self.starts[0] - value


def loops(tree: Tree, names: Sequence[str]) -> list[Joint]:
    """The equalities between bodies, with these names: `connect` is a ball, `weld` a weld."""
    model, left_out = tree.model, tree.left_out
    kinds = mujoco().mjtEq
    joints: list[Joint] = []
    for k in range(model.neq if is_on("equality", model) else 0):
        if not model.eq_active0[k]:
            left_out.add("equality that is switched off", names[k])
            continue
        is_weld = is_any(model.eq_type[k], kinds.mjEQ_WELD)
        if not is_weld and not is_any(model.eq_type[k], kinds.mjEQ_CONNECT):
            if not is_any(model.eq_type[k], kinds.mjEQ_JOINT):  # which are `couplings`
                members = kinds.__members__.items()
                kind = next(name for name, kind in members if is_any(model.eq_type[k], kind))
                left_out.add(f"{kind.removeprefix('mjEQ_').lower()} equality", names[k])
            continue
        # Both bodies, each with the frame on it that coincides with the other.
        objects = int(model.eq_obj1id[k]), int(model.eq_obj2id[k])
        if is_any(model.eq_objtype[k], mujoco().mjtObj.mjOBJ_SITE):
            bodies = [int(model.site_bodyid[s]) for s in objects]
            poses = [Offset(model.site_pos[s], model.site_quat[s]) for s in objects]
        else:
            bodies, data, no_turn = [*objects], model.eq_data[k], np.eye(4)[0]
            poses = [Offset(data[:3], no_turn), Offset(data[3:6], no_turn)]
            if is_weld:  # the pose of the second body on the first, and the point on the second
                poses = [Offset(data[3:6], data[6:10]), Offset(data[:3], no_turn)]
        ends = [tree.mounts[x].pose.then(pose) for x, pose in zip(bodies, poses, strict=True)]
        a, b = map(tree.carrier, bodies)
        if a == b:
            left_out.add("equality within one body", names[k])
            continue
        points = [tidy(end.position) for end in ends]
        if is_weld:
            turn = tidy(vectors.product(ends[0].attitude, vectors.conjugate(ends[1].attitude)))
            joints.append(weld(names[k], a, points[0], b, points[1], turn=turn))
        else:
            joints.append(spherical(names[k], a, points[0], b, points[1]))
    return joints


def couplings(tree: Tree, names: Sequence[str], conversion: Conversion) -> list[Holonomic]:
    """The equalities between the coordinates of joints."""
    constraints = []
    model, index = tree.model, conversion.indices("qpos")
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


_FIELDS = tuple(  # of forces of a tendon; not every version has all
    f"tendon_{name}"
    for name in ("stiffness", "stiffnesspoly", "damping", "dampingpoly", "frictionloss", "armature")
)


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


def limits_of(
    tree: Tree, conversion: Conversion
) -> tuple[list[Joint | Unilateral], set[tuple[str, str]]]:
    """The parts that limits become, and what they take over: pairs of a kind and a name."""
    model = tree.model
    parts: list[Joint | Unilateral] = []
    taken: set[tuple[str, str]] = set()
    if not is_on("limit", model):
        return parts, taken
    joints = {joint.name: joint for joint in tree.joints}
    for j, name in enumerate(tree.joint_names):
        if model.jnt_limited[j] and name in tree.scalar_joints:
            lower, upper = map(float, model.jnt_range[j])
            parts.append(stop(f"{name}.limit", joints[name], lower=lower, upper=upper))
            taken.add(("joint limit", name))
    for k, name in enumerate(names_of(model, "tendon", model.ntendon)):
        part = _tendon(tree, k, name, conversion)
        if part is not None:
            parts.append(part)
            taken.add(("tendon", name))
    return parts, taken


def _tendon(tree: Tree, k: int, name: str, conversion: Conversion) -> Joint | Unilateral | None:
    """A tendon that does nothing but limit; None for any other."""
    model = tree.model
    has_force = any(np.any(getattr(model, field)[k]) for field in _FIELDS if hasattr(model, field))
    if not model.tendon_limited[k] or has_force:
        return None
    first, count = int(model.tendon_adr[k]), int(model.tendon_num[k])
    kinds = mujoco().mjtWrap
    wraps = range(first, first + count)
    lower, upper = map(float, model.tendon_range[k])
    if all(is_any(model.wrap_type[w], kinds.mjWRAP_JOINT) for w in wraps):
        index = conversion.indices("qpos")
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
        at = tidy(tree.mounts[body].pose.then(offset).position)
        points.append((tree.carrier(body), at))
    if len({body.name for body, _ in points}) == 1:
        return None  # its length does not change
    return rope(f"{name}.limit", points, upper)
