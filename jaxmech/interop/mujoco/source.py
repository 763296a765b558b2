"""Files of MuJoCo, read and compiled, with one message for whatever is wrong with them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from packaging.version import Version

from jaxmech.utils.text import capital

_KNOWN = {  # the elements within each one that has any
    "robot": {"gazebo", "joint", "link", "material", "mujoco", "transmission"},
    "link": {"collision", "inertial", "visual"},
    "joint": {
        "axis",
        "calibration",
        "child",
        "dynamics",
        "limit",
        "mimic",
        "origin",
        "parent",
        "safety_controller",
    },
    "inertial": {"inertia", "mass", "origin"},
}


def unknown_elements(xml: str) -> tuple[str, ...]:
    """The elements of a URDF file that mean nothing in it, such as "joint/spring"; each once."""
    robot = _robot(xml)
    return () if robot is None else tuple(dict.fromkeys(_unknown(robot)))


def _unknown(element: ET.Element) -> Iterator[str]:
    attributes = _KNOWN.get(element.tag)
    if attributes is None:
        return
    for inner in element:
        if inner.tag in attributes:
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


_GOOD_URDF = Version("3.14")  # before, M differs from that of pinocchio
_URDF = re.compile(r"\s*(<\?.*?\?>|<!--.*?-->|\s)*<robot\b", re.DOTALL)


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
