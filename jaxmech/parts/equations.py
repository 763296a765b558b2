"""The system of a mechanism: its Lagrangian, its forces, its constraints and unit quaternions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Load, sum_of_loads
from jaxmech.parts.dynamics import MassAndForce
from jaxmech.parts.forces import (
    AbstractForce,
    AbstractLoad,
    AbstractPotential,
    AbstractTerm,
    Gravity,
)
from jaxmech.parts.gaps import Gap
from jaxmech.parts.joint_loads import JointLoads
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinematics import AbstractKinematics
from jaxmech.parts.tree import JointCoordinates, Spins
from jaxmech.parts.values import Reader
from jaxmech.system import DryFriction, Holonomic, System, Unilateral


@dataclass(frozen=True)
class Elements:
    """What potentials of forces and elements on coordinates add to a Lagrangian."""

    kinematics: AbstractKinematics
    potentials: tuple[AbstractPotential, ...]
    terms: tuple[AbstractTerm, ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        total = jnp.zeros((), q.dtype)
        for force in self.potentials:
            frames = self.kinematics.frames(force.bodies, q, t, params)
            total = total - force.energy(frames, Reader(force.part, t, params))
        for term in self.terms:
            x, rates = term.entries(self.kinematics.coordinates, q, v)
            total = total + term.lagrangian(x, rates, Reader(term.part, t, params))
        return total


@dataclass(frozen=True)
class EnergyDifference:
    """Kinetic minus potential energy [J] of bodies, their weights and other elements."""

    kinematics: AbstractKinematics
    gravities: tuple[Gravity, ...]
    elements: Elements

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        total = self.elements(q, v, t, params)
        for body, kinetic, frame in self.kinematics.inertial(q, v, t, params):
            total = total + kinetic
            for weight in self.gravities:
                moment = body.moment(frame, Reader(body.part, t, params))
                total = total - weight.energy(moment, Reader("gravity", t, params))
        return total


@dataclass(frozen=True)
class AppliedForces:
    """The generalized force (n,) of loads, and of functions `force(q, v, t, params)`."""

    kinematics: AbstractKinematics
    loads: tuple[AbstractLoad, ...]
    others: tuple[Callable[..., Any], ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        sums: dict[str, Load] = {}
        for force in self.loads:
            motions = self.kinematics.moving(force.bodies, q, v, t, params)
            loads = force.loads(motions, Reader(force.part, t, params))
            for body, load in zip(force.bodies, loads, strict=True):
                if body.letters:
                    partial_sum = sums.get(body.name)
                    if partial_sum is not None:
                        load = sum_of_loads(partial_sum, load)
                    sums[body.name] = load
        n = len(self.kinematics.coordinates)  # without states of first order
        total = self.kinematics.generalized(sums, q[:n], v[:n], t, params)
        for force_function in self.others:
            force = force_function(q, v, t, params)
            if jnp.shape(force) != total.shape:
                raise ValueError(
                    f"Argument `forces` must hold functions that return shape {total.shape} (one "
                    f"number per coordinate), but one returned {jnp.shape(force)}."
                )
            total = total + force
        return total


@dataclass(frozen=True)
class UnitNorm:
    """The constraint (e . e - 1) / 2 = 0 on a quaternion, from the first of its coordinates."""

    first: int

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        e = jnp.asarray(q)[self.first : self.first + 4]
        return (e @ e - 1) / 2


def system_of(
    kinematics: AbstractKinematics,
    joints: Sequence[Any],
    forces: Sequence[Any],
    tree: Sequence[str],
    states: Sequence[str],
    rates: Callable[..., Any] | None,
    spins: Spins | None,
) -> System:
    """The system of a mechanism, of whose joints those of the tree are no constraints."""
    units = [Holonomic(UnitNorm(first), name=f"{name}.unit") for name, first in kinematics.norms]
    constraints: list[Any] = [] if spins else [*units]
    gaps: list[Unilateral | DryFriction] = []
    rows: list[tuple[Joint, slice]] = []  # where the constraints of each joint are
    for joint in joints:
        first = len(constraints)
        if isinstance(joint, Gap):
            gaps.append(joint.unilateral(kinematics))
        elif not isinstance(joint, Joint):
            (gaps if isinstance(joint, Unilateral | DryFriction) else constraints).append(joint)
        else:
            if joint.name not in tree:
                constraints += joint.constraints(kinematics)
            rows.append((joint, slice(first, len(constraints))))
    gravities = tuple(f for f in forces if isinstance(f, Gravity))
    potentials = tuple(f for f in forces if isinstance(f, AbstractPotential))
    loads = tuple(f for f in forces if isinstance(f, AbstractLoad))
    terms = tuple(f for f in forces if isinstance(f, AbstractTerm))
    functions = tuple(
        f for f in forces if not isinstance(f, AbstractForce | AbstractTerm | Gravity)
    )
    elements = Elements(kinematics, potentials, terms)
    extra_terms = elements if potentials or terms else None
    recursions = None
    if isinstance(kinematics, JointCoordinates):
        recursions = MassAndForce(kinematics, gravities, extra_terms)
    quasi: dict[str, Any] = {}
    if spins is not None:
        free = JointCoordinates(kinematics.bodies, kinematics.links)
        by_spins = recursions or MassAndForce(free, gravities, extra_terms)
        quasi = {"velocities": spins.units(_unit), "kinematics": spins, "invariants": units}
        quasi["quasi_mass_and_force"] = replace(by_spins, spins=spins)
    system = System(
        EnergyDifference(kinematics, gravities, elements),
        constraints,
        AppliedForces(kinematics, loads, functions) if loads or functions else None,
        coordinates={name: _unit(name) for name in kinematics.coordinates},
        mass_and_force=recursions,
        unilateral=gaps,
        states=states,
        rates=rates,
        **quasi,
    )
    names = [constraint.name for constraint in system.constraints]
    joints_with_names = tuple((joint, tuple(names[of_joint])) for joint, of_joint in rows)
    for gap in (joint for joint in joints if isinstance(joint, Gap)):
        rows_of_slip = f"{gap.name} friction", f"{gap.name} friction across"
        joints_with_names += ((gap, (gap.name, *rows_of_slip)),)
    return replace(
        system, loads=JointLoads(kinematics, joints_with_names, gravities, potentials, loads)
    )


def _unit(coordinate: str) -> str:
    """The unit of a coordinate of a joint or a body; those of quaternions have none."""
    letter = coordinate.rpartition(".")[2]
    return "rad" if letter.startswith("angle") else "" if letter.startswith("e") else "m"
