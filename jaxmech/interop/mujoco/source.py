"""Files of MuJoCo, read and compiled, with one message for whatever is wrong with them.

What has no counterpart in a mechanism of hard constraints is listed: `add_model` has the things of
a compiled model that would change its motion, and `unused` every element and attribute of the text
of a file, also of pictures, sensors and solvers, that is not in the one list of what is used.
"""

import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from packaging.version import Version

from jaxmech.utils.text import capital

_KNOWN = {  # the elements within each one of a URDF file that has any
    "robot": "gazebo joint link material mujoco transmission",
    "link": "collision inertial visual",
    "joint": "axis calibration child dynamics limit mimic origin parent safety_controller",
    "inertial": "inertia mass origin",
}
_GOOD_URDF = Version("3.14")  # before, M differs from that of pinocchio
_URDF = re.compile(r"\s*(<\?.*?\?>|<!--.*?-->|\s)*<robot\b", re.DOTALL)
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


def mujoco() -> Any:
    """The package MuJoCo, which is an extra."""
    try:
        import mujoco
    except ImportError as error:
        raise ImportError(
            "MJCF and URDF files need MuJoCo, which is not installed: pip install mujoco."
        ) from error
    return mujoco


def is_any(number: Any, *kinds: Any) -> bool:
    """Whether a number of a model is one of some members of MuJoCo's enumerations."""
    return int(number) in [int(kind) for kind in kinds]


def spec_of(source: Any) -> tuple[Any, str]:
    """The `MjSpec` of a path or of the text of a file, not yet compiled, and words for it."""
    if isinstance(source, mujoco().MjSpec):
        return source.copy(), "the `MjSpec`"
    if not isinstance(source, str | Path):
        raise TypeError(
            "Argument `source` must be the path of an MJCF or URDF file, its text or an `MjSpec`, "
            f"but is {source!r}."
        )
    read, content = mujoco().MjSpec, text_of(source)
    is_text = content == source
    source_name = "the text" if is_text else f"the file {str(source)!r}"
    version, robot = mujoco().__version__, _robot(content)
    if Version(version) < _GOOD_URDF and _URDF.match(content):
        raise ImportError(
            f"URDF files need MuJoCo {_GOOD_URDF} or newer, but {version} is installed, which "
            "turns inertias with a rotated origin the wrong way: pip install -U mujoco."
        )
    if robot is not None:  # whose links must be a single tree
        links = [link.get("name", "") for link in robot.iterfind("link")]
        children = {child.get("link", "") for child in robot.iterfind("joint/child")}
        roots = [name for name in links if name not in children]
        fault = f"it has {', '.join(roots)}; connect them by joints, fixed ones if need be"
        if not roots:
            fault = "every link is the child of a joint; leave out the joint that leads to the root"
        if links and len(roots) != 1:
            raise ValueError(f"{capital(source_name)} must have one root link, but {fault}.")
    if is_text:
        return _explained(source_name, lambda: read.from_string(content)), source_name
    return _explained(source_name, lambda: read.from_file(str(source))), source_name


def text_of(source: Any) -> str:
    """The text of a file, from its path or from itself; empty for an `MjSpec`."""
    if not isinstance(source, str | Path):
        return ""
    if isinstance(source, str) and source.lstrip().startswith("<"):
        return source
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(
            f"Argument `source` must be the path of an MJCF or URDF file, or its text, but there "
            f"is no file {str(source)!r}; correct the path."
        )
    return path.read_text("utf-8", errors="replace")


def compiled(spec: Any, source_name: str) -> Any:
    """The compiled model; meshes on which no inertia depends are left out, if they can be."""
    spec.compiler.fusestatic = False  # keeps the names of fixed links; bodies are joined here
    lean = _without_pictures(spec.copy())
    if lean is not None:
        try:
            return lean.compile()
        except (ValueError, mujoco().FatalError):
            pass  # another element refers to a mesh: its own message comes from the whole
    return _explained(source_name, spec.compile)


def _without_pictures(spec: Any) -> Any:
    """The model without meshes, if the inertias of their bodies are stated; else None."""
    automatic = 2  # mjINERTIAFROMGEOM_AUTO: geoms count where a body has no inertial
    if int(spec.compiler.inertiafromgeom) == 1 or not list(spec.meshes):
        return None
    kind = mujoco().mjtGeom.mjGEOM_MESH
    pictures = [
        (body, geom) for body in spec.bodies for geom in body.geoms if is_any(geom.type, kind)
    ]
    for body, geom in pictures:
        inertial = body.explicitinertial or int(spec.compiler.inertiafromgeom) != automatic
        if not inertial and _moves(body):
            return None
        _delete(spec, geom)
    for mesh in list(spec.meshes):
        _delete(spec, mesh)
    return spec


def _moves(body: Any) -> bool:
    while body is not None:
        if list(body.joints):
            return True
        body = body.parent
    return False


def _delete(spec: Any, element: Any) -> None:
    """Remove an element; before MuJoCo 3.3.3 elements did that by themselves."""
    if hasattr(spec, "delete"):
        spec.delete(element)
    else:
        element.delete()


def _explained(source_name: str, read: Any) -> Any:
    """The result of reading or compiling, or what MuJoCo says of a failure."""
    try:
        return read()
    except (ValueError, mujoco().FatalError) as error:
        message = " ".join(str(error).split())
        raise ValueError(f"{capital(source_name)} cannot be read: {message}.") from error


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
        is_new, name = not name, name or f"{kind}{k}"
        while name in reserved or (is_new and name in file_names):
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


def unknown_elements(xml: str) -> tuple[str, ...]:
    """The elements of a URDF file that mean nothing in it, such as "joint/spring"; each once."""
    robot = _robot(xml)
    return () if robot is None else tuple(dict.fromkeys(_unknown(robot)))


def _unknown(element: ET.Element) -> Iterator[str]:
    known = _KNOWN.get(element.tag, "").split()
    for inner in element if known else ():
        if inner.tag in known:
            yield from _unknown(inner)
        else:
            yield f"{element.tag}/{inner.tag}"


def _robot(xml: str) -> ET.Element | None:
    """The root of a URDF file; None if the text is another one."""
    try:
        root = ET.fromstring(xml)
    except ET.ParseError:  # MuJoCo says where
        return None
    return root if root.tag == "robot" else None


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
        names = self.kinds.setdefault(kind, [])
        if name not in names:
            names.append(name)


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
