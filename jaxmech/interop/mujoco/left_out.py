"""What a file has that has no counterpart in a mechanism of hard constraints.

`add_model` lists the things of a compiled model that would change its motion and are left out.
`unused` lists every element and attribute of the text of a file, also of pictures, sensors and
solvers, that is not in the one list of what is used.
"""

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from jaxmech.interop.mujoco.source import inputs_of, is_any, is_on, mujoco, names_of

_POSE = "axisangle euler pos quat xyaxes zaxis"
_ACTUATOR = (
    "biasprm biastype class ctrllimited ctrlrange dampratio forcelimited forcerange gainprm "
    "gaintype gear group inheritrange joint jointinparent kp kv name"
)
_EQUALITY = "active anchor body1 body2 class joint1 joint2 name polycoef relpose site1 site2"
_TENDON = "class limited name range"
# the attributes that are read, by element, and where its name has two meanings by its parent too
USED = {
    "mujoco": "model",
    "compiler": "alignfree angle assetdir autolimits balanceinertia boundinertia boundmass "
    "conflict coordinate eulerseq fitaabb fusestatic inertiafromgeom inertiagrouprange meshdir "
    "settotalmass strippath",
    "option": "actuatorgroupdisable gravity",
    "flag": "actuation clampctrl constraint contact damper equality frictionloss gravity limit "
    "passive spring",
    "include": "file",
    "default": "class",
    "asset": "",
    "mesh": "builtin class content_type face file inertia name params refpos refquat scale vertex",
    "material": "class name rgba",
    "model": "content_type file name",
    "worldbody": "",
    "body": f"{_POSE} childclass fuse gravcomp name simple",
    "inertial": f"{_POSE} diaginertia fullinertia mass",
    "joint": "actuatorfrclimited actuatorfrcrange armature axis class damping "
    "frictionloss limited name pos range ref springdamper springref stiffness type",
    "freejoint": "align name",
    "geom": f"{_POSE} class density fitscale fromto group material mass mesh name rgba "
    "shellinertia size type",
    "site": f"{_POSE} class fromto name",
    "attach": "body frame model prefix",
    "frame": f"{_POSE} childclass name",
    "replicate": "count euler offset sep",
    "equality": "",
    **dict.fromkeys(("equality/connect", "equality/joint", "equality/weld"), _EQUALITY),
    "tendon": "",
    "tendon/fixed": _TENDON,
    "tendon/spatial": _TENDON,
    "fixed/joint": "coef joint",
    "spatial/site": "site",
    "actuator": "",
    **dict.fromkeys(("general", "motor", "position", "velocity"), _ACTUATOR),
    "keyframe": "",
    "key": "ctrl name qpos qvel",
}
FIELDS = {  # the fields of a compiled model that are not zero where something is left out
    "actuator": tuple(f"actuator_{x}" for x in ("armature", "damping", "dampingpoly", "delay")),
    "flex": ("nflex",),
    "fluid": ("opt.density", "opt.viscosity"),
    "joint limit": ("jnt_limited",),
    "nonlinear damping": ("dof_dampingpoly",),
    "nonlinear spring": ("jnt_stiffnesspoly",),
    "plastic spring": ("jnt_springyield",),
    "plugin": ("nplugin",),
    "tendon": ("ntendon",),
}


def unused(xml: str, folder: Path = Path()) -> tuple[str, ...]:
    """The elements and attributes of an MJCF file that are not used, each once.

    Of an element that is not used the name alone is listed. Included files are searched too.

    Args:
        xml: the text of the file; that of a URDF file has none.
        folder: the folder of the file.
    """
    root = ET.fromstring(xml)
    return tuple(dict.fromkeys(_unused(root, "", folder))) if root.tag == "mujoco" else ()


def _unused(element: ET.Element, parent: str, folder: Path) -> Iterator[str]:
    names = USED.get(f"{parent}/{element.tag}", USED.get(element.tag))
    if names is None:
        yield element.tag
        return
    yield from (f"{element.tag} {name}" for name in element.attrib if name not in names.split())
    for inner in element:
        yield from _unused(inner, element.tag, folder)
    included = folder / element.get("file", "")
    if element.tag == "include" and included.is_file():
        for inner in ET.parse(included).getroot():
            yield from _unused(inner, parent, folder)


class LeftOut:
    """Names of what is left out, by kind."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[str]] = {}

    def add(self, kind: str, name: str) -> None:
        """Add the name of something of a kind."""
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
    if is_on("contact", model):  # the bodies whose geoms may touch others, if there are two of them
        touching = [
            name
            for name, body in zip(bodies, spec.bodies, strict=True)
            if any(geom.contype or geom.conaffinity for geom in body.geoms)
        ]
        pairs = [pair.name or f"{pair.geomname1} and {pair.geomname2}" for pair in spec.pairs]
        for name in (touching if len(touching) > 1 else []) + pairs:
            left_out.add("contact", name)
    of_dofs = [joints[j] for j in model.dof_jntid]
    names = {"jnt": joints, "dof": of_dofs, "actuator": [*inputs_of(model)]}
    for kind, fields in FIELDS.items():
        if kind == "joint limit" and not is_on("limit", model):
            continue
        for field in fields:
            for k, name in enumerate(_names(model, field, names)):
                if (kind, name) in taken:
                    continue
                label = kind
                if kind == "tendon":  # by what it runs round
                    wrap_kinds, first = mujoco().mjtWrap, int(model.tendon_adr[k])
                    wraps = model.wrap_type[first : first + int(model.tendon_num[k])]
                    round_geoms = wrap_kinds.mjWRAP_SPHERE, wrap_kinds.mjWRAP_CYLINDER
                    if any(is_any(wrap, *round_geoms) for wrap in wraps):
                        label = "tendon around geoms"
                    elif any(is_any(wrap, wrap_kinds.mjWRAP_PULLEY) for wrap in wraps):
                        label = "tendon with pulleys"
                left_out.add(label, name)
    kinds = mujoco().mjtJoint
    for j, name in enumerate(joints):
        if not is_any(model.jnt_type[j], kinds.mjJNT_BALL, kinds.mjJNT_FREE):
            continue
        if np.any(model.jnt_stiffness[j]) and is_on("spring", model):
            left_out.add("spring of a ball or free joint", name)
        if model.dof_armature[model.jnt_dofadr[j]]:
            left_out.add("armature of a ball or free joint", name)
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
