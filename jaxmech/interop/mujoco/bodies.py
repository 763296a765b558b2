"""The bodies of a model: those that move, with fixed ones joined to them, and where each is."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jaxmech.interop.mujoco.robot import Quaternion, Scalar
from jaxmech.interop.mujoco.source import mujoco
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
            mounts.append(Mount(parent.index, parent.pose.then(own_offset(model, k))))
    return mounts


def own_offset(model: Any, body: int) -> Offset:
    """The pose of a body relative to the one before it, all joints at their reference."""
    return Offset(model.body_pos[body].copy(), model.body_quat[body].copy())


def moving_body(
    model: Any, index: int, name: str, mounts: list[Mount], values: Values, visual: Any = ()
) -> AbstractBody:
    """A body with the masses of all that is fixed to it."""
    members = [k for k, mount in enumerate(mounts) if mount.index == index and k]
    masses = model.body_mass[members]
    mass = float(masses.sum())
    poses = [mounts[k].pose.then(Offset(model.body_ipos[k], model.body_iquat[k])) for k in members]
    centers = np.array([pose.position for pose in poses])
    center = masses @ centers / mass if mass else np.zeros(3)
    inertia = np.zeros((3, 3))
    for k, m, pose in zip(members, masses, poses, strict=True):
        axes, arm = vectors.rotation(pose.attitude), pose.position - center
        inertia += axes @ np.diag(model.body_inertia[k]) @ axes.T
        inertia += m * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return spatial_body(
        name,
        mass=values.value("mass", name, mass),
        center=values.value("center", name, tuple(tidy(center))),
        inertia=values.value("inertia", name, tuple(map(tuple, tidy((inertia + inertia.T) / 2)))),
        visual=visual,
    )


def massless(name: str) -> AbstractBody:
    """A body between two joints of one body."""
    return spatial_body(name, mass=0.0, inertia=(0.0, 0.0, 0.0))


def tidy(values: Floats) -> Floats:
    """Numbers with what is only round-off set to zero, so that it costs no operations."""
    return np.where(np.abs(values) < 1e-14 * np.abs(values).max(initial=0.0), 0.0, values)


def carrier(mounts: list[Mount], bodies: dict[int, AbstractBody], k: int) -> AbstractBody:
    """The body of the mechanism to which a body of the model belongs."""
    return bodies.get(mounts[k].index, ground)


Entry = Scalar | Quaternion


class Tree:
    """Bodies and joints as they are added, and the coordinates that they bring."""

    def __init__(
        self, bodies: dict[int, AbstractBody], names: tuple[str, ...], values: Values
    ) -> None:
        self.moving = bodies
        self.values = values
        self.names = names
        self.bodies: list[AbstractBody] = []
        self.joints: list[Joint] = []
        self.entries: list[Entry] = []

    def add(self, model: Any, index: int, mounts: list[Mount]) -> None:
        """Add a moving body with its joints; all but the last lead to bodies without mass."""
        parent = int(model.body_parentid[index])
        parent_body = carrier(mounts, self.moving, parent)
        pose = mounts[parent].pose.then(own_offset(model, index))
        first, count = int(model.body_jntadr[index]), int(model.body_jntnum[index])
        for j in range(first, first + count):
            body = self.moving[index]
            if j < first + count - 1:
                body = massless(f"{body.name}.after.{self.names[j]}")
            self.bodies.append(body)
            self._connect(model, j, parent_body, body, pose)
            parent_body, pose = body, IDENTITY

    def _connect(self, model: Any, j: int, a: AbstractBody, b: AbstractBody, pose: Offset) -> None:
        kinds, name = mujoco().mjtJoint, self.names[j]
        address, dof = int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])
        axes, point, axis = vectors.rotation(pose.attitude), model.jnt_pos[j], model.jnt_axis[j]
        start = float(model.qpos0[address])
        at_a, axis_a = tidy(pose.position + axes @ point), tidy(axes @ axis)
        match kinds(int(model.jnt_type[j])):
            case kinds.mjJNT_HINGE:
                back = np.array([np.cos(start / 2), *(-np.sin(start / 2) * axis)])
                turn = tidy(vectors.product(pose.attitude, back))
                at_a = self.values.value("anchor", name, tuple(at_a))
                self.joints.append(
                    revolute(name, a, at_a, b, point, axis=axis_a, axis_b=axis, turn=turn)
                )
                self.entries.append(Scalar(f"{name}.angle", address, dof))
            case kinds.mjJNT_SLIDE:
                at_a = tidy(pose.position - start * axis_a)
                at_a = self.values.value("anchor", name, tuple(at_a))
                turn = tidy(pose.attitude)
                origin = (0.0, 0.0, 0.0)
                self.joints.append(prismatic(name, a, at_a, b, origin, axis=axis_a, turn=turn))
                self.entries.append(Scalar(f"{name}.position", address, dof))
            case kinds.mjJNT_BALL:
                at_a = self.values.value("anchor", name, tuple(at_a))
                self.joints.append(spherical(name, a, at_a, b, point))
                self.entries.append(Quaternion(f"{name}.e0", address, dof, tuple(pose.attitude)))
            case _:  # free, in the coordinates of the body
                letters = enumerate("xyz")
                self.entries += [Scalar(f"{b.name}.{x}", address + k, dof + k) for k, x in letters]
                self.entries.append(Quaternion(f"{b.name}.e0", address + 3, dof + 3))
