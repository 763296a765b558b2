"""The bodies of a model: those that move, with fixed ones joined to them, and where each is.

Hinges, slides and free bodies have the same positions as in MuJoCo. The quaternion of a ball is
that of its body relative to the body before it; in qpos it is relative to the reference pose. Where
q has the rates of a quaternion, qvel has the angular velocity along the axes of the body.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from jaxmech.interop.mujoco.source import LeftOut, is_any, mujoco, names_of
from jaxmech.parts import (
    AbstractBody,
    Joint,
    ground,
    prismatic,
    revolute,
    spatial_body,
    spherical,
    vectors,
)

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Scalar:
    """A coordinate that is an entry of qpos, and its rate one of qvel."""

    coordinate: str
    qpos: int
    dof: int


@dataclass(frozen=True)
class Quaternion:
    """Four coordinates, from the one of the given name on, that are a quaternion in qpos.

    `turn` is the attitude of the body at the reference pose.
    """

    coordinate: str
    qpos: int
    dof: int
    turn: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Conversion:
    """The entries of q, by their indices, and those of qpos and qvel to which they belong.

    Attributes:
        names: the names of the coordinates.
        scalars: entries that are the same numbers.
        quaternions: entries that are quaternions.
    """

    names: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    quaternions: tuple[Quaternion, ...]

    @property
    def size(self) -> tuple[int, int]:
        """The sizes of qpos and qvel."""
        n, k = len(self.scalars), len(self.quaternions)
        return n + 4 * k, n + 3 * k

    def q(self, qpos: Any) -> Array:
        """The coordinates, (n,)."""
        x = _sized("qpos", qpos, self.size[0])
        quaternions = [
            vectors.product(np.asarray(e.turn, x.dtype), x[e.qpos : e.qpos + 4])
            for e in self.quaternions
        ]
        return self._joined(x[self._of("qpos")], quaternions)

    def qpos(self, q: Any) -> Array:
        """MuJoCo's positions, (nq,)."""
        x = _sized("q", q, len(self.names))
        parts = [x[self._in_q]]
        for e, k in zip(self.quaternions, self._firsts, strict=True):
            parts.append(
                vectors.product(vectors.conjugate(np.asarray(e.turn, x.dtype)), x[k : k + 4])
            )
        return jnp.concatenate(parts)[self._order("qpos", 4)]

    def v(self, q: Any, qvel: Any) -> Array:
        """The rates of the coordinates, (n,), at the coordinates q."""
        x, u = _sized("q", q, len(self.names)), _sized("qvel", qvel, self.size[1])
        rates = [
            vectors.product(x[k : k + 4], jnp.append(0.0, u[e.dof : e.dof + 3])) / 2
            for e, k in zip(self.quaternions, self._firsts, strict=True)
        ]
        return self._joined(u[self._of("dof")], rates)

    def qvel(self, q: Any, v: Any) -> Array:
        """MuJoCo's velocities, (nv,), at the coordinates q and their rates v."""
        n = len(self.names)
        x, rate = _sized("q", q, n), _sized("v", v, n)
        parts = [rate[self._in_q]]
        parts += [vectors.spin_in_body(x[k : k + 4], rate[k : k + 4]) for k in self._firsts]
        return jnp.concatenate(parts)[self._order("dof", 3)]

    def generalized(self, q: Array, force: Array) -> Array:
        """The force on the coordinates, (n,), that does the work of `force` (nv,) on qvel."""
        turning = [
            2 * vectors.product(q[k : k + 4], jnp.append(0.0, force[e.dof : e.dof + 3]))
            for e, k in zip(self.quaternions, self._firsts, strict=True)
        ]
        return self._joined(force[self._of("dof")], turning)

    def indices(self, kind: Literal["qpos", "dof"]) -> dict[int, int]:
        """The index of the coordinate for each entry of qpos, or of qvel, that is a scalar."""
        return {getattr(s, kind): self.names.index(s.coordinate) for s in self.scalars}

    @property
    def _in_q(self) -> np.ndarray:
        return np.array([self.names.index(s.coordinate) for s in self.scalars], int)

    @property
    def _firsts(self) -> tuple[int, ...]:
        return tuple(self.names.index(e.coordinate) for e in self.quaternions)

    def _of(self, kind: str) -> np.ndarray:
        return np.array([getattr(s, kind) for s in self.scalars], int)

    def _order(self, kind: str, size: int) -> np.ndarray:
        """Where each entry of qpos or qvel is, if scalars come first."""
        starts = [getattr(e, kind) + np.arange(size) for e in self.quaternions]
        return np.argsort(np.concatenate([self._of(kind), *starts]))

    def _joined(self, scalars: Array, quaternions: list[Array]) -> Array:
        starts = [k + np.arange(4) for k in self._firsts]
        order = np.argsort(np.concatenate([self._in_q, *starts]))
        return jnp.concatenate([scalars, *quaternions])[order]


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


def mounts_of(model: Any) -> list[Mount]:
    """For each body of a model the moving one, or the world, to which it is fixed."""
    mounts = [Mount(0, IDENTITY)]
    for k in range(1, model.nbody):
        if model.body_jntnum[k]:
            mounts.append(Mount(k, IDENTITY))
        else:
            parent = mounts[model.body_parentid[k]]
            mounts.append(Mount(parent.index, parent.pose.then(_own_offset(model, k))))
    return mounts


def _own_offset(model: Any, body: int) -> Offset:
    """The pose of a body relative to the one before it, all joints at their reference."""
    return Offset(model.body_pos[body].copy(), model.body_quat[body].copy())


def tidy(values: Floats) -> Floats:
    """Numbers with what is only round-off set to zero, so that it costs no operations."""
    return np.where(np.abs(values) < 1e-14 * np.abs(values).max(initial=0.0), 0.0, values)


class Tree:
    """The moving bodies of a compiled model and their joints, and the coordinates they bring.

    Attributes:
        model: the compiled model.
        mounts: where each body of the model is, from `mounts_of`.
        values: numbers that are parameters.
        left_out: what has no counterpart.
        names: the names of all bodies of the model.
        joint_names: the names of all joints of the model.
        scalar_joints: the names of hinges and slides.
        moving: the bodies that move, by their indices in the model.
        bodies: those bodies, and those without mass between several joints of one body.
        joints: the joints between them.
    """

    def __init__(
        self, model: Any, mounts: list[Mount], looks: Mapping[int, Any], values: Values,
        left_out: LeftOut,
    ) -> None:  # fmt: skip
        self.model, self.mounts, self.values, self.left_out = model, mounts, values, left_out
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
        self.moving = {k: self._moving(k, looks.get(k, ())) for k in indices}
        self.bodies: list[AbstractBody] = []
        self.joints: list[Joint] = []
        self._entries: list[Scalar | Quaternion] = []
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
        scalars = tuple(e for e in self._entries if isinstance(e, Scalar))
        quaternions = tuple(e for e in self._entries if isinstance(e, Quaternion))
        return Conversion(coordinates, scalars, quaternions)

    def _moving(self, index: int, visual: Any) -> AbstractBody:
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
            visual=visual,
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
            letters = enumerate("xyz")
            self._entries += [Scalar(f"{b.name}.{x}", address + k, dof + k) for k, x in letters]
            self._entries.append(Quaternion(f"{b.name}.e0", address + 3, dof + 3))
            return
        if kind == kinds.mjJNT_SLIDE:
            at_a = tidy(pose.position - start * axis_a)
        at_a = self.values.value("anchor", name, tuple(at_a))
        joint: Joint
        if kind == kinds.mjJNT_BALL:
            joint = spherical(name, a, at_a, b, point)
            self._entries.append(Quaternion(f"{name}.e0", address, dof, tuple(pose.attitude)))
        elif kind == kinds.mjJNT_SLIDE:
            turn = tidy(pose.attitude)
            joint = prismatic(name, a, at_a, b, (0.0, 0.0, 0.0), axis=axis_a, turn=turn)
            self._entries.append(Scalar(f"{name}.position", address, dof))
        else:
            back = np.array([np.cos(start / 2), *(-np.sin(start / 2) * axis)])
            turn = tidy(vectors.product(pose.attitude, back))
            joint = revolute(name, a, at_a, b, point, axis=axis_a, axis_b=axis, turn=turn)
            self._entries.append(Scalar(f"{name}.angle", address, dof))
        self.joints.append(joint)
