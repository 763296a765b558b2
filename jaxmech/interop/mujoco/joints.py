"""The joints of a model, each between two bodies, at angles and positions as in qpos."""

from typing import Any

import numpy as np

from jaxmech.interop.mujoco.bodies import (
    IDENTITY,
    Offset,
    Placed,
    Values,
    carrier,
    massless,
    own_offset,
    tidy,
)
from jaxmech.interop.mujoco.coordinates import Quaternion, Scalar
from jaxmech.interop.mujoco.source import mujoco
from jaxmech.parts import prismatic, revolute, spherical
from jaxmech.parts.body import AbstractBody
from jaxmech.parts.joint_base import Joint
from jaxmech.parts.vectors import product, rotation

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

    def add(self, model: Any, index: int, places: list[Placed]) -> None:
        """Add a moving body with its joints; all but the last lead to bodies without mass."""
        parent = int(model.body_parentid[index])
        parent_body = carrier(places, self.moving, parent)
        pose = places[parent].pose.then(own_offset(model, index))
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
        axes, point, axis = rotation(pose.attitude), model.jnt_pos[j], model.jnt_axis[j]
        start = float(model.qpos0[address])
        at_a, axis_a = tidy(pose.position + axes @ point), tidy(axes @ axis)
        match kinds(int(model.jnt_type[j])):
            case kinds.mjJNT_HINGE:
                turn = tidy(product(pose.attitude, _about(axis, -start)))
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


def _about(axis: Any, angle: float) -> Any:
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) * np.asarray(axis))])
