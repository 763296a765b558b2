"""Names for everything in a model, also for what has none in its file."""

from collections.abc import Sequence
from typing import Any

from jaxmech.interop.mujoco.source import mujoco


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
