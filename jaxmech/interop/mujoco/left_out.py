"""What a model has that has no counterpart in a mechanism of hard constraints."""

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from jaxmech.interop.mujoco.schema import KINDS, fields_of
from jaxmech.interop.mujoco.source import is_any, mujoco


def names_of(model: Any, kind: str, count: int, taken: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of all objects of a kind, such as "joint"; new ones where a name is missing.

    Args:
        model: the compiled model.
        kind: kind of the objects, as in MuJoCo's `mjtObj`.
        count: number of objects.
        taken: names that must not be used; an object with one of them gets a trailing underscore.
    """
    number = getattr(mujoco().mjtObj, f"mjOBJ_{kind.upper()}")
    file_names = [mujoco().mj_id2name(model, number, k) for k in range(count)]
    reserved = {*taken}
    names = []
    for k, name in enumerate(file_names):
        name = name or _new(f"{kind}{k}", {*file_names, *reserved})
        while name in reserved:
            name += "_"
        reserved.add(name)
        names.append(name)
    return tuple(names)


def inputs_of(model: Any) -> dict[str, int]:
    """The names of all actuators, each with the index of its first input in MuJoCo's ctrl."""
    # Since MuJoCo 4 an actuator may have several inputs.
    addresses = getattr(model, "actuator_ctrladr", range(model.nu))
    names = names_of(model, "actuator", len(addresses))
    return dict(zip(names, map(int, addresses), strict=True))


def _new(name: str, reserved: set[str | None]) -> str:
    while name in reserved:
        name += "_"
    return name


def is_on(flag: str, model: Any) -> bool:
    """Whether a model does not disable something, such as "gravity".

    Springs and dampers once were one flag. Without constraints there are no equalities, limits,
    contacts and friction either.
    """
    bits = mujoco().mjtDisableBit
    passive = getattr(bits, "mjDSBL_PASSIVE", 0)
    bit = int(getattr(bits, f"mjDSBL_{flag.upper()}", passive))
    if flag in ("equality", "limit", "contact", "frictionloss"):
        bit |= int(bits.mjDSBL_CONSTRAINT)
    return not int(model.opt.disableflags) & bit


class LeftOut:
    """Names of what is left out, by kind, in the words of the table in `schema`."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[str]] = {}

    def add(self, kind: str, name: str) -> None:
        """Add the name of something; KeyError for a kind that the table does not have."""
        fields_of(kind)
        names = self.kinds.setdefault(kind, [])
        if name not in names:
            names.append(name)

    def frozen(self) -> dict[str, tuple[str, ...]]:
        """The names by kind."""
        return {kind: tuple(names) for kind, names in self.kinds.items()}


def add_model(
    left_out: LeftOut, model: Any, spec: Any, bodies: Any, joints: Any,
    taken: Container[tuple[str, str]] = (),
) -> None:  # fmt: skip
    """List contacts, limits, tendons and the like of a model with names of bodies and joints.

    Pairs of a kind and a name that are `taken` over as limits are not listed.
    """
    if is_on("contact", model):
        _add_contacts(left_out, spec, bodies)
    of_dofs = [joints[j] for j in model.dof_jntid]
    names = {"jnt": joints, "dof": of_dofs, "actuator": [*inputs_of(model)]}
    for kind, fields in KINDS.items():
        if kind == "joint limit" and not is_on("limit", model):
            continue
        for field in fields:
            for name in _names(model, field, names):
                if (kind, name) not in taken:
                    left_out.add(kind, name)
    _add_springs(left_out, model, joints)
    for k, name in enumerate(bodies):
        if model.body_mocapid[k] >= 0:
            left_out.add("mocap", name)
    sleeping = getattr(mujoco().mjtEnableBit, "mjENBL_SLEEP", 0)
    if int(model.opt.enableflags) & int(sleeping):
        left_out.add("sleep", "flag")


def _names(model: Any, field: str, names: dict[str, Any]) -> list[str]:
    """The names of everything for which a field, which not every version has, is not zero."""
    if field.startswith("opt."):
        option = field.removeprefix("opt.")
        return [option] if getattr(model.opt, option) else []
    if field.startswith("n"):  # a number of things
        kind = field.removeprefix("n")
        return [*names_of(model, kind, getattr(model, field, 0))]
    values = getattr(model, field, np.zeros(0))
    return [names[field.partition("_")[0]][k] for k, value in enumerate(values) if np.any(value)]


def _add_springs(left_out: LeftOut, model: Any, joints: Any) -> None:
    """List springs of balls and free joints."""
    kinds = mujoco().mjtJoint
    for j, name in enumerate(joints if is_on("spring", model) else ()):
        is_turning = is_any(model.jnt_type[j], kinds.mjJNT_BALL, kinds.mjJNT_FREE)
        if is_turning and np.any(model.jnt_stiffness[j]):
            left_out.add("spring of a ball or free joint", name)


def _add_contacts(left_out: LeftOut, spec: Any, names: Any) -> None:
    """List the bodies whose geoms may touch others, if there are at least two of them."""
    touching = [
        name
        for name, body in zip(names, spec.bodies, strict=True)
        if any(geom.contype or geom.conaffinity for geom in body.geoms)
    ]
    pair_names = [pair.name or f"{pair.geomname1} and {pair.geomname2}" for pair in spec.pairs]
    for name in (touching if len(touching) > 1 else []) + pair_names:
        left_out.add("contact", name)
