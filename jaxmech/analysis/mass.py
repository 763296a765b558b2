"""The mass matrix: its rank, alone and together with the constraints."""

from dataclasses import dataclass

import numpy as np

from jaxmech.analysis.findings import Finding, listed, note, serious, warning
from jaxmech.analysis.states import Numbers, Pose
from jaxmech.linalg import unit
from jaxmech.properties import mass_scale, singular_mass
from jaxmech.system import System

BADLY_CONDITIONED = 1e8


@dataclass(frozen=True)
class MassMatrix:
    """The rank and conditioning of M, by itself and together with A.

    Attributes:
        rank: rank of M.
        condition: condition number of M scaled to a unit diagonal; infinite if it is singular.
        negative: coordinates of a direction in which the kinetic energy is negative.
        undetermined: coordinates whose accelerations neither M nor A determines: [M; A] lacks full
            column rank there.
        foreseen: whether M is singular at almost all states and parameter values.
    """

    rank: int
    condition: float
    negative: tuple[str, ...]
    undetermined: tuple[str, ...]
    foreseen: bool


def mass(system: System, pose: Pose, tolerance: float) -> MassMatrix:
    """Examine M at a state, by itself and together with A."""
    scale = mass_scale(pose.M)
    scaled = pose.M / np.outer(scale, scale)
    values, directions = np.linalg.eigh(scaled)
    largest = max(np.abs(values).max(), np.finfo(float).tiny)
    rank = int((values > tolerance * largest).sum())
    least = values[0] if rank == system.n else 0.0
    # Rows of A are scaled to the length of those of the scaled M, so that one tolerance suits both.
    stacked = np.vstack([scaled / largest, unit(pose.A / scale)[0]])
    _, sizes, right_vectors = np.linalg.svd(stacked)
    null = right_vectors[(sizes <= tolerance * max(sizes[0], tolerance)).nonzero()[0]]
    return MassMatrix(
        rank=rank,
        condition=float(largest / least) if least > 0 else float("inf"),
        negative=_taking_part(system, directions.T[values < -tolerance * largest]),
        undetermined=_taking_part(system, null),
        foreseen=bool(singular_mass(system, *pose.state)),
    )


def _taking_part(system: System, directions: Numbers) -> tuple[str, ...]:
    strength = np.abs(directions).max(0, initial=0.0)
    return tuple(c for c, s in zip(system.coordinates, strength, strict=True) if s > 0.1)


def mass_findings(system: System, mass_matrix: MassMatrix) -> list[Finding]:
    """Findings on the mass matrix."""
    findings = []
    if mass_matrix.negative:
        problem = f"the kinetic energy is negative in a direction of {listed(mass_matrix.negative)}"
        remedy = "check the masses, and the sign of the kinetic energy in `lagrangian`"
        findings.append(serious(problem, remedy))
    if mass_matrix.undetermined:
        problem = (
            f"neither a mass nor a constraint determines the acceleration of "
            f"{listed(mass_matrix.undetermined)}: [M; A] lacks full column rank"
        )
        remedy = "give it a mass in `lagrangian`, tie it with a constraint, or remove it"
        findings.append(serious(problem, remedy))
    elif mass_matrix.rank < system.n and not mass_matrix.negative:
        problem = (
            f"M is singular, rank {mass_matrix.rank} of {system.n}; with the constraints it is not"
        )
        if mass_matrix.foreseen:
            findings.append(note(problem, "none needed: M is singular everywhere, and handled"))
        else:
            remedy = "only at this state: pass formulation=UdwadiaKalaba(singular_mass=True)"
            findings.append(serious(problem, f"{remedy} everywhere"))
    elif BADLY_CONDITIONED < mass_matrix.condition < float("inf"):
        problem = f"M with a unit diagonal has the condition number {mass_matrix.condition:.1e}"
        remedy = "choose coordinates that share less of their mass, or check the masses"
        findings.append(warning(problem, remedy))
    return findings
