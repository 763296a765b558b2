"""The text that a mechanism prints: its bodies as a tree, then its constraints and forces."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp

from jaxmech.constraints import AbstractConstraint
from jaxmech.parts.body import AbstractBody
from jaxmech.parts.forces.coordinate_force import CoordinateForce
from jaxmech.parts.forces.elements import AbstractTerm, Gravity
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.kinematics.joint_coordinates import JointCoordinates
from jaxmech.parts.rigid_bodies import AbstractRigidBody
from jaxmech.parts.values import Value

_LAST, _BRANCH, _STEM, _BLANK = "└─ ", "├─ ", "│  ", "   "


def outline(mechanism: Any) -> str:
    """The lines that a mechanism prints."""
    kinematics, joints, tree = mechanism.kinematics, mechanism.joints, mechanism.tree
    counts = f"coordinates {len(kinematics.coordinates)}"
    if velocities := mechanism.system.velocities:
        counts += f", velocities {len(velocities)}"
    counts += f", constraint equations {_equations(mechanism)}"
    lines = [f"Mechanism: {counts}", "ground"]
    lines += _branches(_children(kinematics, joints), "ground", "")
    constraints = [joint for joint in joints if joint.name not in tree]
    for title, parts in (("constraints", constraints), ("forces", mechanism.forces)):
        if parts:
            lines += [f"{title}:", *(f"{_BLANK}{_called(part)}" for part in parts)]
    return "\n".join(lines)


def _equations(mechanism: Any) -> int:
    system, params = mechanism.system, dict(mechanism.params)
    q, v = jnp.zeros(system.n), jnp.zeros(system.n_velocities)
    sizes: tuple[int, ...] = system.dynamics.sizes(q, v, jnp.zeros(()), params)
    return sum(sizes)


def _children(
    kinematics: AbstractKinematics, joints: Sequence[Joint | AbstractConstraint]
) -> dict[str, list[tuple[AbstractBody, str]]]:
    """By name of a body, those that hang on it, each with a word on its coordinates."""
    children: dict[str, list[tuple[AbstractBody, str]]] = {}
    if not isinstance(kinematics, JointCoordinates):
        free = [(body, f"free: {', '.join(body.letters)}") for body in kinematics.bodies]
        return {"ground": free}
    for link in kinematics.links:
        letters = ", ".join(link.letters) or "no coordinates"
        how = "free" if link.joint is None else f"{link.name!r}, {link.joint.kind}"
        children.setdefault(link.parent, []).append((link.body, f"{how}: {letters}"))
    return children


def _branches(
    children: dict[str, list[tuple[AbstractBody, str]]], name: str, indent: str
) -> Iterator[str]:
    hanging = children.get(name, [])
    for k, (body, how) in enumerate(hanging):
        is_last = k == len(hanging) - 1
        yield f"{indent}{_LAST if is_last else _BRANCH}{body.name} ({_mass(body)}), {how}"
        yield from _branches(children, body.name, indent + (_BLANK if is_last else _STEM))


def _mass(body: Any) -> str:
    mass: Value = body.properties.mass if isinstance(body, AbstractRigidBody) else body.mass
    if isinstance(mass, float):
        return f"{mass:g} kg"
    return f"mass {mass!r}" if isinstance(mass, str) else "mass by a function"


def _called(part: Any) -> str:
    """The name of a joint or force, and of the bodies that it connects."""
    if isinstance(part, Gravity):
        return "gravity"
    if isinstance(part, CoordinateForce):
        return part.part
    if isinstance(part, AbstractTerm):
        return f"{part.part}: {', '.join(part.coordinates)}"
    if not hasattr(part, "bodies"):
        return repr(part) if isinstance(part, AbstractConstraint) else "a function"
    return f"{part.part}: {' - '.join(_names(part.bodies))}"


def _names(bodies: Iterable[AbstractBody]) -> list[str]:
    return [body.name for body in bodies]
