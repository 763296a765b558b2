"""What a model has that has no counterpart in a mechanism of hard constraints."""

from typing import Any

import numpy as np

from jaxmech.interop.mujoco.names import names_of
from jaxmech.interop.mujoco.source import is_any, mujoco


class LeftOut:
    """Names of what is left out, by kind."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[str]] = {}

    def add(self, kind: str, name: str) -> None:
        """Add the name of something."""
        names = self.kinds.setdefault(kind, [])
        if name not in names:
            names.append(name)

    def frozen(self) -> dict[str, tuple[str, ...]]:
        """The names by kind."""
        return {kind: tuple(names) for kind, names in self.kinds.items()}


def add_model(left_out: LeftOut, model: Any, spec: Any, bodies: Any, joints: Any) -> None:
    """List contacts, limits, tendons and the like of a model with names of bodies and joints."""
    _contacts(left_out, spec, bodies)
    for j, name in enumerate(joints):
        _of_joint(left_out, model, j, name)
    for k, name in enumerate(bodies):
        if model.body_mocapid[k] >= 0:
            left_out.add("mocap", name)
    for kind in ("tendon", "flex", "plugin"):
        for name in names_of(model, kind, getattr(model, f"n{kind}")):
            left_out.add(kind, name)
    for name in ("density", "viscosity"):
        if getattr(model.opt, name):
            left_out.add("fluid", name)


def _of_joint(left_out: LeftOut, model: Any, j: int, name: str) -> None:
    kinds = mujoco().mjtJoint
    turns = is_any(model.jnt_type[j], kinds.mjJNT_BALL, kinds.mjJNT_FREE)
    if model.jnt_limited[j]:
        left_out.add("joint limit", name)
    if turns and np.any(model.jnt_stiffness[j]):
        left_out.add("spring of a ball or free joint", name)
    nonlinear = (
        ("nonlinear spring", "jnt_stiffnesspoly", j),
        ("nonlinear damping", "dof_dampingpoly", int(model.jnt_dofadr[j])),
        ("plastic spring", "jnt_springyield", j),
    )
    for kind, field, k in nonlinear:
        if _any(model, field, k):
            left_out.add(kind, name)


def _any(model: Any, field: str, k: int) -> bool:
    """Whether a field, which not every version of MuJoCo has, is set."""
    return bool(np.any(getattr(model, field, np.zeros((k + 1, 1)))[k]))


def _contacts(left_out: LeftOut, spec: Any, names: Any) -> None:
    """The bodies whose geoms may touch others, if there are at least two of them."""
    touching = [
        name
        for name, body in zip(names, spec.bodies, strict=True)
        if any(geom.contype or geom.conaffinity for geom in body.geoms)
    ]
    pair_names = [pair.name or f"{pair.geomname1} and {pair.geomname2}" for pair in spec.pairs]
    for name in (touching if len(touching) > 1 else []) + pair_names:
        left_out.add("contact", name)
