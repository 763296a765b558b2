"""What the bodies of a model look like: its geoms."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxmech.interop.mujoco.bodies import Mount, Offset
from jaxmech.interop.mujoco.source import is_any, mujoco
from jaxmech.meshes import Triangles
from jaxmech.parts import Visual
from jaxmech.utils.caller import warn_caller

_SHOWN = 2  # the last group of geoms that MuJoCo shows by default
_PLAIN = (0.5, 0.5, 0.5)  # the colour of a geom without one


class UnreadableMeshWarning(UserWarning):
    """A mesh of a robot cannot be read, so that pictures show its body without it."""


Looks = dict[int, tuple[Visual, ...]]  # by the index of a moving body, 0 for the world


def visuals_of_model(model: Any, spec: Any, mounts: list[Mount]) -> Looks:
    """The visuals of the moving bodies and of the world, with those of the bodies fixed to them.

    Meshes that cannot be read are left out, with a warning.

    Args:
        model: the compiled model, which may lack meshes on which no inertia depends.
        spec: the model before, with all meshes.
        mounts: the carrier of each body.
    """
    looks: dict[int, list[Visual]] = {}
    for body, pose, make in _of_geoms(_with_meshes(model, spec)):
        look = mounts[body]
        position, attitude = look.pose.then(pose)
        visual = make(at=tuple(position.tolist()), turn=tuple(attitude.tolist()))
        looks.setdefault(look.index, []).append(visual)
    return {index: tuple(visuals) for index, visuals in looks.items()}


def _with_meshes(model: Any, spec: Any) -> Any:
    if not list(spec.meshes) or model.nmesh:
        return model
    try:
        return spec.copy().compile()  # since a failure leaves its mark on a spec
    except (ValueError, mujoco().FatalError) as error:
        files = ", ".join(mesh.file for mesh in spec.meshes if mesh.file)
        warn_caller(
            "meshes cannot be read, so pictures show their bodies without them: "
            f"{files} ({str(error).splitlines()[0].rstrip('.')}); put them where the file names "
            "them. The motion is not affected.",
            UnreadableMeshWarning,
        )
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
