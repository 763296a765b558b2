"""The mass matrix: its rank, alone and together with the constraints."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, listed, note, serious, warning
from jaxmech.analysis.states import Pose, State
from jaxmech.compiler import native_program
from jaxmech.linalg import unit
from jaxmech.parts import MassAndForce
from jaxmech.system import Params, System, mass_scale, singular_mass
from jaxmech.utils.arrays import HostArray

ACCELERATIONS = 2  # beside zero, for which M a - Q is compared


def mass_and_force_findings(system: System, state: State) -> list[Finding]:
    """A finding on the coordinates whose equations of motion are not those of the Lagrangian."""
    if system.mass_and_force is None or isinstance(system.mass_and_force, MassAndForce):
        return []  # The recursions of `parts` are tested, and a comparison takes long to compile.
    mechanical = system.dynamics.mechanical
    draw = np.random.default_rng(31).normal(size=(ACCELERATIONS, mechanical))
    accelerations = jnp.asarray(np.vstack([np.zeros(mechanical), draw]), state.q.dtype)
    residual, expected, size = map(np.asarray, _equations(system, accelerations, *state))
    eps = float(jnp.finfo(state.q.dtype).eps)
    tolerance = eps**0.5 * size + 100 * eps * size.max(initial=0.0)
    differs = (np.abs(residual - expected) > tolerance).any(0)
    names = [name for name, wrong in zip(system.coordinates, differs, strict=False) if wrong]
    if not names:
        return []
    problem = (
        f"M or Q of `mass_and_force` are not those of `lagrangian` in the rows of {listed(names)}"
    )
    remedy = "correct one of them, or leave `mass_and_force` out"
    return [serious(problem, remedy)]


@native_program("system")
def _equations(
    system: System, accelerations: Array, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array, Array]:
    """M a - Q by `mass_and_force` and by the Lagrangian, and the size of their terms, (k, n - s).

    The latter is d/dt dL/dv - dL/dq along a path with these accelerations, which needs one
    derivative in their direction instead of M.
    """
    mechanical = accelerations.shape[1]
    rates = system.dynamics.state_rates(q, v, t, params)
    M = system.dynamics.mass(q, v, t, params)[:mechanical, :mechanical]
    Q = system.dynamics.conservative_force(q, v, t, params)[:mechanical]

    def by_lagrangian(a: Array) -> Array:
        path = v, jnp.concatenate([a, rates]), jnp.ones_like(t)
        (pull, _), (_, change) = jax.jvp(
            lambda *x: system.dynamics.slopes(*x, params), (q, v, t), path
        )
        return (change - pull)[:mechanical]

    residual = accelerations @ M - Q[None]
    size = jnp.abs(accelerations) @ jnp.abs(M) + jnp.abs(Q)[None]
    return residual, jax.vmap(by_lagrangian)(accelerations), size


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


def _taking_part(system: System, directions: HostArray) -> tuple[str, ...]:
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
