"""`BodyGraph`: a mechanism as a graph of bodies and of constraints on few bodies each.

Everything here is known before any numbers are: groups of alike parts, which blocks of the matrices
are not zero, and the order in which they are eliminated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from jaxmech.constraints import AbstractConstraint
from jaxmech.parts.body import AbstractBody, Ground
from jaxmech.parts.equations import AppliedForces, EnergyDifference, UnitNorm
from jaxmech.parts.forces.elements import AbstractLoad, Gravity
from jaxmech.parts.joint_base import Joint, JointPositions, JointVelocities
from jaxmech.parts.kinematics.body_coordinates import BodyCoordinates
from jaxmech.sparse.groups import Group, grouped
from jaxmech.sparse.order import EliminationOrder, Indices, order_of, table_of
from jaxmech.system import System

SIZES = {2: 3, 3: 6}  # velocities of a body in the plane and in space
_MOST_GROUPS = 100


@dataclass(frozen=True)
class JointEquations:
    """The equations of a joint on positions or on velocities, which are one constraint."""

    joint: Joint
    of_velocities: bool


@dataclass(frozen=True, eq=False)
class Meetings:
    """Bodies that constraints meet: constraint `node[i]` is on body `body[i]`, (I,) each.

    Attributes:
        at_nodes, at_bodies: tables of the meetings of each constraint and of each body.
        first, second: pairs of meetings of different constraints with one body, (p,).
        at_edges: table of the pairs of each edge.
        ends: the two constraints of each edge, (2, e).
    """

    node: Indices
    body: Indices
    at_nodes: Indices
    at_bodies: Indices
    first: Indices
    second: Indices
    at_edges: Indices
    ends: Indices


@dataclass(frozen=True, eq=False)
class BodyGraph:
    """The graph of a mechanism in the coordinates of its bodies.

    Attributes:
        n: number of coordinates.
        size: velocities of a body, 3 in the plane and 6 in space.
        bodies: groups of bodies.
        order: the place of each body among those of all groups.
        entries: the place of each coordinate among those of all groups.
        constraints: groups of `JointEquations`.
        names: of the constraints, in the order of the groups.
        meetings: which constraint is on which body.
        elimination: the order in which the constraints are eliminated.
        gravities, potentials, loads: forces, the last two in groups.
        at_entries: table of the entries of all potentials and then loads, for each coordinate.
        others: functions `force(q, v, t, params)`.
    """

    n: int
    size: int
    bodies: tuple[Group, ...]
    order: Indices
    entries: Indices
    constraints: tuple[Group, ...]
    names: tuple[str, ...]
    meetings: Meetings
    elimination: EliminationOrder
    gravities: tuple[Gravity, ...]
    potentials: tuple[Group, ...]
    loads: tuple[Group, ...]
    at_entries: Indices
    others: tuple[Callable[..., Any], ...]

    @property
    def nodes(self) -> int:
        """The number of constraints, without unit quaternions."""
        return len(self.names)

    @property
    def norms(self) -> int:
        """The number of unit quaternions."""
        return sum(len(g.members) for g in self.bodies if g.template.has_norm)


def structure_of(system: System) -> BodyGraph:
    """The structure of the system of a mechanism, made once for each system.

    Raises:
        ValueError: if the system has no such structure.
    """
    structure = system.__dict__.get("_structure")
    if structure is None:
        structure = system.__dict__["_structure"] = _structure(system)
    return structure


def _structure(system: System) -> BodyGraph:
    energies, bodies = _parts_of(system)
    numbers = {body.name: k for k, body in enumerate(bodies)}
    firsts = np.cumsum([0, *(len(body.letters) for body in bodies)])

    def place_of(body: AbstractBody) -> tuple[int, Indices]:
        if isinstance(body, Ground):
            return -1, np.zeros(0, int)
        k = numbers[body.name]
        return k, np.arange(firsts[k], firsts[k + 1])

    joints = [c for c in system.constraints if not isinstance(c.fn, UnitNorm)]
    equations = [_equations_of(constraint) for constraint in joints]
    constraints = grouped(equations, lambda e: e.joint.bodies, place_of)
    groups = grouped(bodies, lambda body: (body,), place_of)
    meetings = _meetings(constraints, len(bodies))
    loads: tuple[AbstractLoad, ...] = ()
    functions: tuple[Callable[..., Any], ...] = ()
    if isinstance(system.force, AppliedForces):
        loads, functions = system.force.loads, system.force.others
    potentials = grouped(energies.elements.potentials, lambda force: force.bodies, place_of)
    forces = grouped(loads, lambda force: force.bodies, place_of)
    acted = [places.ravel() for g in (*potentials, *forces) for places in g.entries]
    entries = np.concatenate([np.zeros(0, int), *acted])
    structure = BodyGraph(
        n=system.n,
        size=SIZES[max(body.dimension for body in bodies)],
        bodies=groups,
        order=np.argsort(np.concatenate([g.members for g in groups])),
        entries=np.argsort(np.concatenate([g.entries[0].ravel() for g in groups])),
        constraints=constraints,
        names=tuple(joints[k].name for g in constraints for k in g.members),
        meetings=meetings,
        elimination=order_of(len(joints), [(int(a), int(b)) for a, b in meetings.ends.T]),
        gravities=energies.gravities,
        potentials=potentials,
        loads=forces,
        at_entries=table_of(entries, system.n, entries.size),
        others=functions,
    )
    _require_few_groups(structure)
    return structure


def _parts_of(system: System) -> tuple[EnergyDifference, tuple[AbstractBody, ...]]:
    """The energies and bodies of a system, or an error if it has parts that are not supported."""
    energies = system.lagrangian
    if not isinstance(energies, EnergyDifference):
        raise ValueError(
            "Argument `formulation` must not be SparseElimination() for this system, which is not "
            "that of a jaxmech.parts.Mechanism; use the default."
        )
    kinematics = energies.kinematics
    if not isinstance(kinematics, BodyCoordinates):
        raise ValueError(
            "Argument `formulation` must not be SparseElimination() with the coordinates of "
            'joints; make the system by Mechanism(..., coordinates="bodies").'
        )
    unsupported = [f"force {term.part!r} on coordinates" for term in energies.elements.terms]
    unsupported += [
        f"constraint {c.name!r}, which is not a joint"
        for c in system.constraints
        if not isinstance(c.fn, UnitNorm | JointPositions | JointVelocities)
    ]
    unsupported += ["states of first order"] if system.states else []
    unsupported += ["quasi-velocities"] if system.velocities else []
    unsupported += ["non-ideal forces"] if system.nonideal else []
    if unsupported:
        raise ValueError(
            "Argument `formulation` must not be SparseElimination() for a system with "
            f"{'; '.join(unsupported[:5])}; leave them out or use the default."
        )
    return energies, kinematics.bodies


def _equations_of(constraint: AbstractConstraint) -> JointEquations:
    fn: Any = constraint.fn
    return JointEquations(fn.joint, isinstance(fn, JointVelocities))


def _meetings(constraints: tuple[Group, ...], count: int) -> Meetings:
    """Where the groups meet bodies, in the order of groups, of their bodies and of members."""
    first, nodes, bodies = 0, [np.zeros(0, int)], [np.zeros(0, int)]
    for group in constraints:
        numbers = first + np.arange(group.members.size)
        for body in group.bodies:
            if (body >= 0).all():  # the ground is a kind of its own
                nodes.append(numbers)
                bodies.append(body)
        first += numbers.size
    node, body = np.concatenate(nodes), np.concatenate(bodies)
    at_body: dict[int, list[int]] = {}
    for meeting, b in enumerate(body):
        at_body.setdefault(int(b), []).append(meeting)
    pairs = [
        (i, j) if node[i] < node[j] else (j, i)
        for meetings in at_body.values()
        for i, j in combinations(meetings, 2)
    ]
    edges: dict[tuple[int, int], int] = {}
    places = [edges.setdefault((int(node[i]), int(node[j])), len(edges)) for i, j in pairs]
    first_meetings, second_meetings = np.array(pairs, int).reshape(-1, 2).T
    return Meetings(
        node,
        body,
        table_of(node, first, node.size),
        table_of(body, count, node.size),
        first_meetings,
        second_meetings,
        table_of(places, len(edges), len(places)),
        np.array(list(edges), int).reshape(-1, 2).T,
    )


def _require_few_groups(structure: BodyGraph) -> None:
    parts = structure.bodies, structure.constraints, structure.potentials, structure.loads
    count = sum(map(len, parts))
    if count > _MOST_GROUPS:
        raise ValueError(
            f"Argument `formulation` must not be SparseElimination() for parts of {count} kinds, "
            f"each of which is compiled by itself (at most {_MOST_GROUPS}); parts are of one kind "
            "if they differ in numbers and names of parameters only, and not in functions."
        )
