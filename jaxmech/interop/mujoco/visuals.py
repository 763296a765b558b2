"""What the bodies of a model look like: its geoms."""

from collections.abc import Callable
from functools import partial
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
    model = _with_meshes(model, spec)
    for g in range(model.ngeom):
        rgba = model.mat_rgba[m] if (m := model.geom_matid[g]) >= 0 else model.geom_rgba[g]
        make = _maker(model, g)
        if make is None or model.geom_group[g] > _SHOWN or rgba[3] <= 0:
            continue
        color = None if np.allclose(rgba[:3], _PLAIN) else tuple(float(x) for x in rgba[:3])
        mount = mounts[model.geom_bodyid[g]]
        pose = mount.pose.then(Offset(model.geom_pos[g], model.geom_quat[g]))
        position, attitude = (tuple(x.tolist()) for x in pose)
        looks.setdefault(mount.index, []).append(make(at=position, turn=attitude, color=color))
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


def _maker(model: Any, g: int) -> Callable[..., Visual] | None:
    """The function that makes the visual of a geom; None for kinds without one."""
    kinds, kind = mujoco().mjtGeom, model.geom_type[g]
    a, b, c = (float(x) for x in model.geom_size[g])
    if is_any(kind, kinds.mjGEOM_MESH):
        k = model.geom_dataid[g]
        first, count = model.mesh_vertadr[k], model.mesh_vertnum[k]
        start, number = model.mesh_faceadr[k], model.mesh_facenum[k]
        vertices = np.array(model.mesh_vert[first : first + count], float)
        faces = np.array(model.mesh_face[start : start + number], int)
        return partial(Visual.mesh, Triangles(vertices, faces))
    makers: dict[Any, Callable[..., Visual]] = {
        kinds.mjGEOM_SPHERE: partial(Visual.sphere, a),
        kinds.mjGEOM_CAPSULE: partial(Visual.capsule, a, 2 * b),
        kinds.mjGEOM_ELLIPSOID: partial(Visual.ellipsoid, (a, b, c)),
        kinds.mjGEOM_CYLINDER: partial(Visual.cylinder, a, 2 * b),
        kinds.mjGEOM_BOX: partial(Visual.box, (2 * a, 2 * b, 2 * c)),
    }
    return next((make for one, make in makers.items() if is_any(kind, one)), None)
