"""What acts on the joints of a model: rotors, springs, damping, friction and gravity."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.mujoco.bodies import Floats, Values, tidy
from jaxmech.interop.mujoco.coordinates import Conversion
from jaxmech.interop.mujoco.flags import is_on
from jaxmech.interop.mujoco.source import is_any, mujoco
from jaxmech.parts import gravity
from jaxmech.parts.forces.elements import (
    AbstractTerm,
    Coordinates,
    CoordinateSprings,
    Gravity,
    Rotors,
)
from jaxmech.parts.values import Reader, Value
from jaxmech.parts.vectors import spin_in_body


@dataclass(frozen=True)
class SpinningRotors(AbstractTerm):
    """The kinetic energies a w . w / 2 of rotors about the axes of a body with a quaternion."""

    inertia: Value

    def lagrangian(self, coordinates: Coordinates, read: Reader) -> Array:
        """The sum of the kinetic energies."""
        spin = spin_in_body(*coordinates.entries(self.part, self.coordinates))
        return 0.5 * read.number(self.inertia) * (spin @ spin)


def terms(model: Any, joints: tuple[str, ...], conversion: Conversion, values: Values) -> list[Any]:
    """The energies of rotors (armature) and springs."""
    energies: list[Any] = []
    spring = is_on("spring", model)
    scalars = {s.dof: s for s in conversion.scalars}
    turning, sprung = [], []
    for j, name in enumerate(joints):
        dof = int(model.jnt_dofadr[j])
        entry = scalars.get(dof)
        armature = float(model.dof_armature[dof])
        stiffness = float(np.ravel(model.jnt_stiffness[j])[0])
        if entry is None or is_any(model.jnt_type[j], mujoco().mjtJoint.mjJNT_FREE):
            energies += _of_quaternion(model, j, name, armature, conversion, values)
            continue
        if armature or "armature" in values.kinds:
            turning.append((entry.coordinate, values.value("armature", name, armature)))
        if spring and (stiffness or "stiffness" in values.kinds):
            rest_position = float(model.qpos_spring[model.jnt_qposadr[j]])
            sprung.append(
                (entry.coordinate, values.value("stiffness", name, stiffness), rest_position)
            )
    if turning:
        energies.append(Rotors("rotors of the joints", *map(tuple, zip(*turning, strict=True))))
    if sprung:
        columns = map(tuple, zip(*sprung, strict=True))
        energies.append(CoordinateSprings("springs of the joints", *columns))
    return energies


def _of_quaternion(
    model: Any, j: int, name: str, armature: float, conversion: Conversion, values: Values
) -> list[AbstractTerm]:
    if not armature:
        return []
    value = values.value("armature", name, armature)
    dof, terms = int(model.jnt_dofadr[j]), list[AbstractTerm]()
    if is_any(model.jnt_type[j], mujoco().mjtJoint.mjJNT_FREE):
        along = tuple(s.coordinate for s in conversion.scalars if dof <= s.dof < dof + 3)
        terms.append(Rotors(f"rotors along {name!r}", along, (value,) * 3))
        dof += 3
    first = next(e.coordinate for e in conversion.quaternions if e.dof == dof)
    letters = tuple(f"{first[:-1]}{k}" for k in range(4))
    return [*terms, SpinningRotors(f"rotors of {name!r}", letters, value)]


def weights(model: Any) -> list[Gravity]:
    """Gravity, if there is any."""
    g = np.asarray(model.opt.gravity)
    size = float(np.linalg.norm(g))
    return [gravity(size, down=tuple(tidy(g)))] if size and is_on("gravity", model) else []


@dataclass(frozen=True)
class Resistance:
    """Damping -c u and friction -f tanh(u / s) of the joints, with u as in qvel.

    Attributes:
        conversion: between q and qpos.
        joint_of: the joint of each entry of qvel.
        damping: c of each joint.
        friction: f of each joint.
        speed: s, at which friction is 76 % of its limit.
    """

    conversion: Conversion
    joint_of: tuple[int, ...]
    damping: tuple[Value, ...]
    friction: tuple[Value, ...]
    speed: Value

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The generalized force (n,)."""
        q, v = jnp.asarray(q), jnp.asarray(v)
        read = Reader("resistance of the joints", jnp.asarray(t), params)
        joints, count = np.array(self.joint_of), len(self.damping)
        u = self.conversion.qvel(q, v)
        force = -read.vector(self.damping, count)[joints] * u
        if any(self.friction):
            limit = read.vector(self.friction, count)[joints]
            force = force - limit * jnp.tanh(u / read.number(self.speed))
        return self.conversion.generalized(q, force)


def resistance(
    model: Any, joints: tuple[str, ...], conversion: Conversion, values: Values, speed: Any
) -> list[Resistance]:
    """The damping and the friction of all joints, if there are any."""
    damping = _each(model.dof_damping, "damping", "damper", model, joints, values)
    limits = model.dof_frictionloss
    friction = _each(limits, "frictionloss", "frictionloss", model, joints, values)
    if not any(damping) and not any(friction):
        return []
    joint_of = tuple(int(j) for j in model.dof_jntid)
    return [Resistance(conversion, joint_of, damping, friction, speed)]


def _each(
    numbers: Floats, kind: str, flag: str, model: Any, joints: tuple[str, ...], values: Values
) -> tuple[Value, ...]:
    """A number for each joint: that of its first entry in qvel, or a parameter."""
    acts = is_on(flag, model)
    of_joints = [float(numbers[dof]) if acts else 0.0 for dof in model.jnt_dofadr]
    return tuple(values.value(kind, name, x) for name, x in zip(joints, of_joints, strict=True))
