"""The bodies of a model: those that move, with fixed ones joined to them, and their looks.

Hinges, slides and free bodies have the same positions as in MuJoCo. The quaternion of a ball is
that of its body relative to the body before it; in qpos it is relative to the reference pose. Where
q has the rates of a quaternion, qvel has the angular velocity along the axes of the body.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from jaxmech.interop.mujoco.source import LeftOut, is_any, mujoco, names_of
from jaxmech.meshes import Triangles
from jaxmech.parts import (
    AbstractBody,
    Joint,
    Visual,
    ground,
    prismatic,
    revolute,
    spatial_body,
    spherical,
    vectors,
)
from jaxmech.utils.caller import warn_caller

Floats = NDArray[np.floating[Any]]

_SHOWN = 2  # the last group of geoms that MuJoCo shows by default
_PLAIN = (0.5, 0.5, 0.5)  # the colour of a geom without one


@dataclass(frozen=True)
class Entry:
    """The indices in q, qpos and qvel of a number and its rate, or of a quaternion and its spin.

    Those of a quaternion are the first ones. `turn` is the attitude of its body at the reference
    pose, None for a number.
    """

    q: int
    qpos: int
    dof: int
    turn: tuple[float, ...] | None


@dataclass(frozen=True)
class Conversion:
    """From and to MuJoCo's qpos and qvel.

    Attributes:
        names: the names of the coordinates.
        scalars: entries that are the same numbers.
        quaternions: entries that are quaternions.
    """

    names: tuple[str, ...]
    scalars: tuple[Entry, ...]
    quaternions: tuple[Entry, ...]

    def q(self, qpos: Any) -> Array:
        """The coordinates, (n,)."""
        x = _sized("qpos", qpos, len(self.scalars) + 4 * len(self.quaternions))
        return self._joined("q", x[self._of("qpos")], [
            vectors.product(np.asarray(e.turn, x.dtype), x[e.qpos : e.qpos + 4])
            for e in self.quaternions
        ])  # fmt: skip

    def qpos(self, q: Any) -> Array:
        """MuJoCo's positions, (nq,)."""
        x = _sized("q", q, len(self.names))
        return self._joined("qpos", x[self._of("q")], [
            vectors.product(vectors.conjugate(np.asarray(e.turn, x.dtype)), x[e.q : e.q + 4])
            for e in self.quaternions
        ])  # fmt: skip

    def v(self, q: Any, qvel: Any) -> Array:
        """The rates of the coordinates, (n,), at the coordinates q."""
        x = _sized("q", q, len(self.names))
        u = _sized("qvel", qvel, len(self.scalars) + 3 * len(self.quaternions))
        return self._joined("q", u[self._of("dof")], [
            vectors.product(x[e.q : e.q + 4], jnp.append(0.0, u[e.dof : e.dof + 3])) / 2
            for e in self.quaternions
        ])  # fmt: skip

    def qvel(self, q: Any, v: Any) -> Array:
        """MuJoCo's velocities, (nv,), at the coordinates q and their rates v."""
        n = len(self.names)
        x, rate = _sized("q", q, n), _sized("v", v, n)
        spins = [
            vectors.spin_in_body(x[e.q : e.q + 4], rate[e.q : e.q + 4]) for e in self.quaternions
        ]
        return self._joined("dof", rate[self._of("q")], spins)

    def generalized(self, q: Array, force: Array) -> Array:
        """The force on the coordinates, (n,), that does the work of `force` (nv,) on qvel."""
        return self._joined("q", force[self._of("dof")], [
            2 * vectors.product(q[e.q : e.q + 4], jnp.append(0.0, force[e.dof : e.dof + 3]))
            for e in self.quaternions
        ])  # fmt: skip

    def indices(self, kind: Literal["qpos", "dof"]) -> dict[int, int]:
        """The index of the coordinate for each entry of qpos, or of qvel, that is a scalar."""
        return {getattr(e, kind): e.q for e in self.scalars}

    def _of(self, kind: str) -> np.ndarray:
        return np.array([getattr(e, kind) for e in self.scalars], int)

    def _joined(self, kind: str, scalars: Array, others: list[Array]) -> Array:
        """The numbers of scalars and of quaternions, or of spins, in their places."""
        pairs = zip(self.quaternions, others, strict=True)
        places = [getattr(e, kind) + np.arange(len(x)) for e, x in pairs]
        order = np.argsort(np.concatenate([self._of(kind), *places]))
        return jnp.concatenate([scalars, *others])[order]


def _sized(name: str, values: Any, size: int) -> Array:
    x = 1.0 * jnp.asarray(values)
    if x.shape != (size,):
        raise ValueError(
            f"Argument `{name}` must have shape ({size},), but has shape {x.shape}; for a batch "
            "use `jax.vmap`."
        )
    return x


class Offset(NamedTuple):
    """A position (3,) and a unit quaternion (4,)."""

    position: Floats
    attitude: Floats

    def then(self, inner: "Offset") -> "Offset":
        """The pose of something that has the pose `inner` relative to this one."""
        axes = vectors.rotation(self.attitude)
        attitude = vectors.product(self.attitude, inner.attitude)
        return Offset(self.position + axes @ inner.position, attitude / np.linalg.norm(attitude))

    @property
    def inverse(self) -> "Offset":
        """The pose of the surroundings relative to this one."""
        attitude = vectors.conjugate(self.attitude)
        return Offset(-vectors.rotation(attitude) @ self.position, attitude)


IDENTITY = Offset(np.zeros(3), np.eye(4)[0])


class Values:
    """Numbers of a model, of which some kinds are parameters by name; collects their defaults."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds
        self.params: dict[str, Any] = {}

    def value(self, kind: str, name: str, number: Any) -> Any:
        """A number, or the name "kind.name" of a parameter if its kind is among the parameters."""
        if kind not in self.kinds:
            return number
        self.params[f"{kind}.{name}"] = np.asarray(number, float)[()]
        return f"{kind}.{name}"


@dataclass(frozen=True)
class Mount:
    """The body of the mechanism that carries a body of the model, and the pose on it."""

    index: int  # of the carrying body in the model, 0 for the world
    pose: Offset


def _own_offset(model: Any, body: int) -> Offset:
    """The pose of a body relative to the one before it, all joints at their reference."""
    return Offset(model.body_pos[body].copy(), model.body_quat[body].copy())


def tidy(values: Floats) -> Floats:
    """Numbers with what is only round-off set to zero, so that it costs no operations."""
    return np.where(np.abs(values) < 1e-14 * np.abs(values).max(initial=0.0), 0.0, values)


class UnreadableMeshWarning(UserWarning):
    """A mesh of a robot cannot be read, so that pictures show its body without it."""


def _looks_of(model: Any, spec: Any, mounts: list[Mount]) -> dict[int, tuple[Visual, ...]]:
    """The visuals of the moving bodies, and of the world, with those of the bodies fixed to them.

    Meshes that cannot be read are left out, with a warning. A compiled model lacks meshes on which
    no inertia depends; the one before, `spec`, has all.
    """
    looks: dict[int, list[Visual]] = {}
    if list(spec.meshes) and not model.nmesh:
        try:
            model = spec.copy().compile()  # since a failure leaves its mark on a spec
        except (ValueError, mujoco().FatalError) as error:
            files = ", ".join(mesh.file for mesh in spec.meshes if mesh.file)
            warn_caller(
                "meshes cannot be read, so pictures show their bodies without them: "
                f"{files} ({str(error).splitlines()[0].rstrip('.')}); put them where the file "
                "names them. The motion is not affected.",
                UnreadableMeshWarning,
            )
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
    return next((make for number, make in makers.items() if is_any(kind, number)), None)


class Tree:
    """The moving bodies of a compiled model and their joints, and the coordinates they bring.

    Attributes:
        model: the compiled model.
        mounts: for each body of the model the moving one, or the world, to which it is fixed.
        looks: the visuals of the moving bodies, by their indices, and of the world at 0.
        values: numbers that are parameters.
        left_out: what has no counterpart.
        names: the names of all bodies of the model.
        joint_names: the names of all joints of the model.
        scalar_joints: the names of hinges and slides.
        moving: the bodies that move, by their indices in the model.
        bodies: those bodies, and those without mass between several joints of one body.
        joints: the joints between them.
    """

    def __init__(self, model: Any, spec: Any, values: Values, left_out: LeftOut) -> None:
        self.model, self.values, self.left_out = model, values, left_out
        self.mounts = [Mount(0, IDENTITY)]
        for k in range(1, model.nbody):
            mount = Mount(k, IDENTITY)
            if not model.body_jntnum[k]:
                parent = self.mounts[model.body_parentid[k]]
                mount = Mount(parent.index, parent.pose.then(_own_offset(model, k)))
            self.mounts.append(mount)
        self.looks = _looks_of(model, spec, self.mounts)
        kinds = mujoco().mjtJoint
        of_joints = [*zip(model.jnt_bodyid, model.jnt_type, strict=True)]
        self.names = names_of(model, "body", model.nbody, ("ground",))
        # A free joint has the coordinates of its body.
        floating = [self.names[k] for k, kind in of_joints if is_any(kind, kinds.mjJNT_FREE)]
        self.joint_names = names_of(model, "joint", model.njnt, floating)
        self.scalar_joints = tuple(
            name
            for name, (_, kind) in zip(self.joint_names, of_joints, strict=True)
            if is_any(kind, kinds.mjJNT_HINGE, kinds.mjJNT_SLIDE)
        )
        indices = [k for k in range(1, model.nbody) if model.body_jntnum[k]]
        self.moving = {k: self._moving(k) for k in indices}
        self.bodies: list[AbstractBody] = []
        self.joints: list[Joint] = []
        self._entries: list[tuple[str, tuple[int, int, tuple[float, ...] | None]]] = []
        for k in indices:
            self._add(k)

    def carrier(self, k: int) -> AbstractBody:
        """The body of the mechanism to which a body of the model belongs."""
        return self.moving.get(self.mounts[k].index, ground)

    def members(self, index: int) -> list[int]:
        """The bodies of the model that belong to a moving one."""
        return [k for k, mount in enumerate(self.mounts) if mount.index == index and k]

    def conversion(self, coordinates: tuple[str, ...]) -> Conversion:
        """From and to MuJoCo's qpos and qvel, with the coordinates in this order."""
        entries = [Entry(coordinates.index(x), *places) for x, places in self._entries]
        scalars = tuple(e for e in entries if e.turn is None)
        return Conversion(coordinates, scalars, tuple(e for e in entries if e.turn is not None))

    def _moving(self, index: int) -> AbstractBody:
        """A body with the masses of all that is fixed to it."""
        model, mounts, value, name = self.model, self.mounts, self.values.value, self.names[index]
        members = self.members(index)
        masses = model.body_mass[members]
        mass = float(masses.sum())
        poses = [
            mounts[k].pose.then(Offset(model.body_ipos[k], model.body_iquat[k])) for k in members
        ]
        centers = np.array([pose.position for pose in poses])
        center = masses @ centers / mass if mass else np.zeros(3)
        inertia = np.zeros((3, 3))
        for k, m, pose in zip(members, masses, poses, strict=True):
            axes, arm = vectors.rotation(pose.attitude), pose.position - center
            inertia += axes @ np.diag(model.body_inertia[k]) @ axes.T
            inertia += m * (arm @ arm * np.eye(3) - np.outer(arm, arm))
        symmetric = tuple(map(tuple, tidy((inertia + inertia.T) / 2)))
        return spatial_body(
            name,
            mass=value("mass", name, mass),
            center=value("center", name, tuple(tidy(center))),
            inertia=value("inertia", name, symmetric),
            visual=self.looks.get(index, ()),
        )

    def _add(self, index: int) -> None:
        """Add a moving body with its joints; all but the last lead to bodies without mass."""
        model, parent = self.model, int(self.model.body_parentid[index])
        parent_body = self.carrier(parent)
        pose = self.mounts[parent].pose.then(_own_offset(model, index))
        first, count = int(model.body_jntadr[index]), int(model.body_jntnum[index])
        for j in range(first, first + count):
            body = self.moving[index]
            if j < first + count - 1:
                name = f"{body.name}.after.{self.joint_names[j]}"
                body = spatial_body(name, mass=0.0, inertia=(0.0, 0.0, 0.0))
            self.bodies.append(body)
            self._connect(j, parent_body, body, pose)
            parent_body, pose = body, IDENTITY

    def _connect(self, j: int, a: AbstractBody, b: AbstractBody, pose: Offset) -> None:
        model, kinds, name = self.model, mujoco().mjtJoint, self.joint_names[j]
        address, dof = int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])
        axes, point, axis = vectors.rotation(pose.attitude), model.jnt_pos[j], model.jnt_axis[j]
        start = float(model.qpos0[address])
        at_a, axis_a = tidy(pose.position + axes @ point), tidy(axes @ axis)
        kind = kinds(int(model.jnt_type[j]))
        if kind == kinds.mjJNT_FREE:  # in the coordinates of the body
            for k, x in enumerate("xyz"):
                self._entries.append((f"{b.name}.{x}", (address + k, dof + k, None)))
            self._entries.append((f"{b.name}.e0", (address + 3, dof + 3, (1.0, 0.0, 0.0, 0.0))))
            return
        if kind == kinds.mjJNT_SLIDE:
            at_a = tidy(pose.position - start * axis_a)
        at_a = self.values.value("anchor", name, tuple(at_a))
        joint: Joint
        if kind == kinds.mjJNT_BALL:
            joint = spherical(name, a, at_a, b, point)
            self._entries.append((f"{name}.e0", (address, dof, tuple(pose.attitude))))
        elif kind == kinds.mjJNT_SLIDE:
            turn = tidy(pose.attitude)
            joint = prismatic(name, a, at_a, b, (0.0, 0.0, 0.0), axis=axis_a, turn=turn)
            self._entries.append((f"{name}.position", (address, dof, None)))
        else:
            back = np.array([np.cos(start / 2), *(-np.sin(start / 2) * axis)])
            turn = tidy(vectors.product(pose.attitude, back))
            joint = revolute(name, a, at_a, b, point, axis=axis_a, axis_b=axis, turn=turn)
            self._entries.append((f"{name}.angle", (address, dof, None)))
        self.joints.append(joint)
