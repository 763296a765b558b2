"""What the bodies of a model look like: the geoms of MJCF, the visuals of URDF files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from jaxmech.interop.mujoco.bodies import Floats, Mount, Offset
from jaxmech.interop.mujoco.source import is_any, mujoco
from jaxmech.meshes import Triangles
from jaxmech.parts import Visual, vectors
from jaxmech.utils.caller import warn_caller

_SHOWN = 2  # the last group of geoms that MuJoCo shows by default
_PLAIN = (0.5, 0.5, 0.5)  # the colour of a geom without one


class UnreadableMeshWarning(UserWarning):
    """A mesh of a robot cannot be read, so that pictures show its body without it."""


Looks = dict[int, tuple[Visual, ...]]  # by the index of a moving body, 0 for the world


def visuals_of_model(model: Any, spec: Any, source: Any, mounts: list[Mount]) -> Looks:
    """The visuals of the moving bodies and of the world, with those of the bodies fixed to them.

    Meshes that cannot be read are left out, with a warning.

    Args:
        model: the compiled model, which may lack meshes on which no inertia depends.
        spec: the model before, with all meshes.
        source: the path of the file, or its text.
        mounts: the carrier of each body.
    """
    looks: dict[int, list[Visual]] = {}
    missing: dict[str, str] = {}
    root = _urdf_root(source)
    if root is not None:
        pairs = _of_links(root, model, _folder(source), missing)
    else:
        pairs = _of_geoms(_with_meshes(model, spec, missing))
    for body, pose, make in pairs:
        look = mounts[body]
        position, attitude = look.pose.then(pose)
        visual = make(at=tuple(position.tolist()), turn=tuple(attitude.tolist()))
        looks.setdefault(look.index, []).append(visual)
    if missing:
        reasons = "; ".join(f"{file} ({reason})" for file, reason in missing.items())
        warn_caller(
            f"meshes cannot be read, so pictures show their bodies without them: {reasons}. "
            "The motion is not affected.",
            UnreadableMeshWarning,
        )
    return {index: tuple(visuals) for index, visuals in looks.items()}


def _with_meshes(model: Any, spec: Any, missing: dict[str, str]) -> Any:
    if not list(spec.meshes) or model.nmesh:
        return model
    try:
        return spec.copy().compile()  # since a failure leaves its mark on a spec
    except (ValueError, mujoco().FatalError) as error:
        files = ", ".join(mesh.file for mesh in spec.meshes if mesh.file)
        missing[files] = f"{str(error).splitlines()[0].rstrip('.')}; put it where the file names it"
        return model


def _of_geoms(model: Any) -> Iterator[tuple[int, Offset, Any]]:
    """The bodies of geoms, the poses on them, and functions that make their visuals."""
    for g in range(model.ngeom):
        rgba = model.mat_rgba[m] if (m := model.geom_matid[g]) >= 0 else model.geom_rgba[g]
        color = tuple(float(x) for x in rgba[:3])
        make = _geom(model, g, None if np.allclose(color, _PLAIN) else color)
        if make is not None and model.geom_group[g] <= _SHOWN and rgba[3] > 0:
            pose = Offset(model.geom_pos[g].copy(), model.geom_quat[g].copy())
            yield int(model.geom_bodyid[g]), pose, make


def _geom(model: Any, g: int, color: Any) -> Any:
    kinds, kind = mujoco().mjtGeom, model.geom_type[g]
    a, b, c = (float(x) for x in model.geom_size[g])
    if is_any(kind, kinds.mjGEOM_MESH):
        k = model.geom_dataid[g]
        first, count = model.mesh_vertadr[k], model.mesh_vertnum[k]
        start, number = model.mesh_faceadr[k], model.mesh_facenum[k]
        mesh = Triangles(
            np.array(model.mesh_vert[first : first + count], float),
            np.array(model.mesh_face[start : start + number], int),
        )
        return lambda **look: Visual.mesh(mesh, color=color, **look)
    makers: dict[Any, Callable[..., Visual]] = {
        kinds.mjGEOM_SPHERE: lambda **look: Visual.sphere(a, **look),
        kinds.mjGEOM_CAPSULE: lambda **look: Visual.capsule(a, 2 * b, **look),
        kinds.mjGEOM_ELLIPSOID: lambda **look: Visual.ellipsoid((a, b, c), **look),
        kinds.mjGEOM_CYLINDER: lambda **look: Visual.cylinder(a, 2 * b, **look),
        kinds.mjGEOM_BOX: lambda **look: Visual.box((2 * a, 2 * b, 2 * c), **look),
    }
    make = next((make for one, make in makers.items() if is_any(kind, one)), None)
    return None if make is None else lambda **look: make(color=color, **look)


def _urdf_root(source: Any) -> ET.Element | None:
    if not isinstance(source, str | Path):
        return None
    is_text = isinstance(source, str) and source.lstrip().startswith("<")
    text = str(source) if is_text else Path(source).read_text("utf-8", errors="replace")
    try:
        root = ET.fromstring(text)
    except ET.ParseError:
        return None
    return root if root.tag == "robot" else None


def _folder(source: Any) -> Path:
    is_text = isinstance(source, str) and source.lstrip().startswith("<")
    return Path.cwd() if is_text else Path(source).parent


def _of_links(
    root: ET.Element, model: Any, folder: Path, missing: dict[str, str]
) -> Iterator[tuple[int, Offset, Any]]:
    colors = {
        material.get("name"): color.get("rgba")
        for material in root.iter("material")
        if (color := material.find("color")) is not None
    }
    indices = {model.body(k).name: k for k in range(model.nbody)}
    for link in root.iterfind("link"):
        for visual in link.iterfind("visual"):
            material = visual.find("material")
            rgba = None if material is None else colors.get(material.get("name"))
            make = _shape(visual.find("geometry"), folder, rgba, missing)
            if make is not None:  # the root link is the world
                yield indices.get(link.get("name", ""), 0), _origin(visual.find("origin")), make


def _origin(element: ET.Element | None) -> Offset:
    text = {} if element is None else element.attrib
    position, (roll, pitch, yaw) = (_numbers(text.get(x, "0 0 0")) for x in ("xyz", "rpy"))
    turns = [
        np.array([np.cos(angle / 2), *(np.sin(angle / 2) * np.eye(3)[axis])])
        for axis, angle in ((2, yaw), (1, pitch), (0, roll))
    ]
    return Offset(
        position, np.asarray(vectors.product(vectors.product(turns[0], turns[1]), turns[2]))
    )


def _shape(
    geometry: ET.Element | None, folder: Path, rgba: str | None, missing: dict[str, str]
) -> Any:
    shape = None if geometry is None or not len(geometry) else geometry[0]
    color = None if rgba is None else tuple(_numbers(rgba)[:3].tolist())
    if shape is None:
        return None
    text = shape.attrib
    if shape.tag == "box":
        sizes = tuple(_numbers(text["size"]).tolist())
        return lambda **look: Visual.box(sizes, color=color, **look)
    if shape.tag == "cylinder":
        radius, height = float(text["radius"]), float(text["length"])
        return lambda **look: Visual.cylinder(radius, height, color=color, **look)
    if shape.tag == "sphere":
        radius = float(text["radius"])
        return lambda **look: Visual.sphere(radius, color=color, **look)
    name = text.get("filename", "")
    file = _file(name, folder)
    scale = tuple(_numbers(text.get("scale", "1 1 1")).tolist())
    if file is None:
        missing[name] = f"it is not there, seen from {folder}"
        return None
    try:
        whole = Visual.mesh(file, scale=scale).form
    except (ImportError, ValueError, IndexError, KeyError) as error:
        missing[name] = str(error).rstrip(".") or type(error).__name__
        return None
    return lambda **look: Visual.mesh(whole, scale=scale, color=color, **look)


def _file(name: str, folder: Path) -> Path | None:
    """The file of a mesh; a package is looked for in the folders around the URDF file."""
    path = name.removeprefix("file://")
    if path.startswith("package://"):
        inside = Path(path.removeprefix("package://"))
        tries = [above / inside for above in (folder, *folder.resolve().parents)]
        tries += [above / Path(*inside.parts[1:]) for above in (folder, *folder.resolve().parents)]
    else:
        tries = [folder / path]
    return next((file for file in tries if file.is_file()), None)


def _numbers(text: str) -> Floats:
    return np.array([float(x) for x in text.split()])
