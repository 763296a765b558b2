"""`structure`: examine a system at a state without simulating it, and `Structure`, its report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, Severity, listed, note, serious, warning
from jaxmech.analysis.redundancy import Dependence, Ranks, contradictions, rank_findings, ranks
from jaxmech.analysis.states import (
    NEARBY,
    Pose,
    State,
    checked_in_rates,
    moved,
    nearby,
    nearest_consistent,
    pose,
)
from jaxmech.compiler import native_program
from jaxmech.integrate import Gaps
from jaxmech.laws import acceleration
from jaxmech.linalg import unit
from jaxmech.parts import MassAndForce
from jaxmech.run import REMEDY, bad_slopes, functions_of, state_names
from jaxmech.state import assemble
from jaxmech.system import (
    DryFriction,
    KnownState,
    Params,
    Subject,
    System,
    Violation,
    mass_scale,
    near,
    with_mass_rank,
    with_params,
)
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import with_standard_promotion
from jaxmech.utils.text import titled_lines
from jaxmech.utils.trees import number_names, unread

BADLY_CONDITIONED = 1e8
ACCELERATIONS = 2  # beside zero, for which M a - Q is compared
_GUARD = f"{REMEDY}, or start elsewhere"
_NOT_A_NUMBER = "look for 0 / 0, the root of a negative number or a parameter that is NaN"


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


@dataclass(frozen=True)
class Equations:
    """The name, the kind and the number of equations of a constraint."""

    name: str
    kind: str
    equations: int


@dataclass(frozen=True, repr=False)
class Structure:
    """The result of `structure`, which prints itself as a report.

    Attributes:
        coordinates: names of the coordinates.
        constraints: name, kind and number of equations of each.
        ranks: independent and dependent equations by name, degrees of freedom, conditioning; None
            if the functions of the system are not finite.
        mass: rank and conditioning of M, and whether [M; A] has full column rank; None likewise.
        violations: constraints that the given state does not satisfy.
        unused: parameters that do not affect the motion.
        findings: problems and facts with remedies, the serious ones first.
        states: names of the states of first order, which are no degrees of freedom.
    """

    coordinates: tuple[str, ...]
    constraints: tuple[Equations, ...]
    ranks: Ranks | None = None
    mass: MassMatrix | None = None
    violations: tuple[Violation, ...] = ()
    unused: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    states: tuple[str, ...] = ()

    @property
    def serious(self) -> bool:
        """Whether a finding makes results wrong."""
        return any(finding.severity == Severity.SERIOUS for finding in self.findings)

    @property
    def redundant(self) -> tuple[Dependence, ...]:
        """Equations that follow from others, by name."""
        return self.ranks.redundant if self.ranks else ()

    def __repr__(self) -> str:
        card = ["Structure", *titled_lines(_facts(self), 14)]
        return "\n".join([*card, *(str(finding) for finding in self.findings)])


@with_standard_promotion
def structure(
    system: Subject,
    q: Any,
    v: Any,
    t: Any = 0.0,
    params: Params = None,
) -> Structure:
    """Examine a system at a state, and report possible problems.

    Counts degrees of freedom at the levels of position and velocity, finds redundant and
    contradictory constraints by name, singular poses and masses, a `mass_and_force` that disagrees
    with the Lagrangian, functions that are not finite, and unused parameters. Ranks are compared at
    the state, at states nearby on the constraints, and at states on no constraint. A host function
    of one state, not for `jit` or `vmap`.

    Args:
        system: the system, with n coordinates.
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        t: time [s].
        params: the parameters that the functions of the system expect.

    Raises:
        TypeError: if `system` is not a `System`.
        ValueError: if a shape is wrong, or a value is not finite.

    Example:
        >>> from jaxmech import Holonomic, System, models
        >>> model = models.pendulum()
        >>> twice = System(
        ...     model.system.lagrangian,
        ...     [*model.system.constraints, Holonomic(lambda q, t, p: q @ q - 1.0, "again")],
        ...     coordinates=("x", "y"),
        ... )
        >>> found = structure(twice, [0.6, -0.8], [0.8, 0.6], 0.0, model.params)
        >>> found.redundant
        (Dependence(name='again', equations=(0,), others=('rod',)),)
        >>> found.ranks.position_freedom, found.serious
        (1, False)
    """
    system, params = with_params(system, params)
    full, at_start = system, State(*system.arguments(q, v, t, params))
    system, findings = with_closed_gaps(system, at_start)
    with_gaps, (system, state) = system, checked_in_rates(system, q, v, t, params)
    begin = state._replace(v=with_gaps.dynamics.from_speeds(*state))
    sizes = system.dynamics.sizes(*state)
    unused = unused_parameters(full, begin)
    findings = not_numbers(system, state) + findings
    rank, masses = None, None
    broken: tuple[Violation, ...] = ()
    if pose(system, state).is_finite:
        tolerance = float(jnp.finfo(state.q.dtype).eps) ** 0.5
        broken = tuple(KnownState(system, *state).violations())
        nearest, reached = nearest_consistent(system, state, tolerance)
        findings += start_findings(system, state, broken, nearest.state, reached=reached)
        if not broken:
            nearest, reached = pose(system, state), True
        around = [p for p in nearby(system, nearest.state, tolerance) if p.is_finite]
        generic_poses = [pose(system, moved(nearest.state, seed)) for seed in range(NEARBY)]
        generic_poses = [p for p in generic_poses if p.is_finite] or [nearest]
        rank = ranks(system, sizes, nearest, around, generic_poses, tolerance)
        masses = mass(system, nearest, tolerance)
        qdd = np.asarray(acceleration(system, *nearest.state).qdd)
        excluded = contradictions(system, sizes, nearest, qdd, tolerance) if reached else {}
        known = KnownState(system, *nearest.state)
        never_met = () if reached else [v.name for v in known.violations()]
        findings += rank_findings(rank, {*excluded, *never_met}) + mass_findings(system, masses)
        findings += mass_and_force_findings(system, nearest.state)
        findings += [finding for name, finding in excluded.items() if name not in rank.flat]
    if unused:
        names = f"parameter{'s' if len(unused) > 1 else ''} {listed(unused)}"
        problem = f"nothing in the motion depends on the {names}"
        findings.append(note(problem, "remove it, or look for a formula that should use it"))
    return Structure(
        coordinates=tuple(system.coordinates),
        states=tuple(system.states),
        constraints=tuple(
            Equations(c.name, type(c).__name__, size)
            for c, size in zip(system.constraints, sizes, strict=True)
        ),
        ranks=rank,
        mass=masses,
        violations=broken,
        unused=unused,
        findings=tuple(sorted(findings, key=lambda finding: -finding.severity)),
    )


def _facts(structure: Structure) -> list[tuple[str, str]]:
    names = structure.coordinates[: len(structure.coordinates) - len(structure.states)]
    lines = [("coordinates", f"{len(names)}: {', '.join(names)}")]
    if structure.states:
        lines.append(("states", f"{len(structure.states)}: {', '.join(structure.states)}"))
    for kind in ("Holonomic", "Nonholonomic", "Acceleration"):
        labels = [f"{c.name} ({c.equations})" for c in structure.constraints if c.kind == kind]
        lines += [(kind.lower(), ", ".join(labels))] if labels else []
    rows = sum(c.equations for c in structure.constraints)
    if structure.ranks and structure.mass:
        r, m = structure.ranks, structure.mass
        where = "to second order" if r.rigid else "nearby"
        size, full = len(structure.coordinates), "lacks full" if m.undetermined else "has full"
        lines += [
            ("freedom", f"{r.position_freedom} of position, {r.velocity_freedom} of velocity"),
            ("independent", f"{r.here} of {rows} equations here, {r.nearby} {where}"),
            ("condition", f"M {m.condition:.2g}, A M^-1 A^T {r.condition:.2g}, both scaled"),
            ("mass", f"rank {m.rank} of {size}; [M; A] {full} column rank"),
            ("state", "violates constraints" if structure.violations else "consistent"),
        ]
    serious = sum(finding.severity == Severity.SERIOUS for finding in structure.findings)
    lines.append(("findings", f"{len(structure.findings)}, of which {serious} serious"))
    return lines


def with_closed_gaps(system: System, state: State) -> tuple[System, list[Finding]]:
    """The system in which closed gaps are constraints and open ones are none, with findings."""
    q, _, t, params = state
    gaps = Gaps.of(system, q, t, params)
    if not gaps:
        return system, []
    closed, findings = [], []
    for gap in gaps.constraints:
        value, slope = gap.value(q, t, params), gap.jacobian(q, t, params)
        if near(value, slope, q, jnp.ones_like(q)):
            closed.append(gap)
            findings.append(
                note(
                    f"the gap of {gap.name!r} is closed; it counts as an equation here",
                    "nothing to do where bodies touch at the start",
                )
            )
        elif value[0] < 0:
            findings.append(
                serious(
                    f"the gap of {gap.name!r} is {float(value[0]):.3g}, but must not be negative",
                    "start from a state in which the bodies do not overlap",
                )
            )
    findings += [
        note(
            f"the friction {friction.name!r} is left out here",
            "nothing to do; `simulate` decides when it sticks",
        )
        for friction in system.unilateral
        if isinstance(friction, DryFriction)
    ]
    constraints = (*system.constraints, *closed)
    return replace(system, constraints=constraints, unilateral=()), findings


def not_numbers(system: System, state: State) -> list[Finding]:
    """Findings on functions with NaN or infinite values or derivatives at a state."""
    findings = []
    inputs = (*state_names(system.coordinates), *number_names(state.params))
    for function_name, (value, derivatives, bad) in _probe(system, *state).items():
        names = [name for name, is_bad in zip(inputs, bad, strict=True) if is_bad]
        if not _finite(value):
            findings.append(serious(f"{function_name} is non-finite", _NOT_A_NUMBER))
        elif not _finite(derivatives):
            problem = (
                f"{function_name} is finite, but the derivatives in the equations of motion are not"
            )
            findings.append(serious(problem, _GUARD))
        elif names:
            problem = (
                f"{function_name} can be simulated, but not differentiated: what the equations of "
                f"motion need of it has no finite derivative with respect to {listed(names)}"
            )
            findings.append(serious(problem, _GUARD))
    return findings


@native_program("system")
def _probe(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> dict[str, tuple[Any, Any, Array]]:
    """The value of each function, what the motion needs of it, and flags of `bad_slopes`."""
    probes = {}
    for function_name, fn in functions_of(system).items():
        derivatives, bad = bad_slopes(fn, q, v, t, params)
        probes[function_name] = jax.tree.leaves(derivatives)[0], derivatives, bad
    # The motion depends on the derivatives of the Lagrangian only, not on its value.
    _, *slopes = probes["`lagrangian`"]
    return probes | {"`lagrangian`": (system.lagrangian(q, v, t, params), *slopes)}


def _finite(tree: Any) -> bool:
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def unused_parameters(
    system: System, state: State, *, energy: bool = False, also: Callable[..., Any] | None = None
) -> tuple[str, ...]:
    """The parameters on which M, Q, A, b and the constraints do not depend, by name.

    With `energy`, a parameter that only adds to the energy counts as used, and so does one on which
    the results of `also(q, v, t, params)` depend.
    """

    def everything(params: Any) -> Any:
        q, v, t, _ = state
        params = system.with_outputs(params)
        levels = (
            system.dynamics.position_level(q, t, params),
            system.dynamics.velocity_level(q, v, t, params),
        )
        speeds = system.dynamics.speeds(q, v, t, params)
        forces = system.nonideal and system.nonideal(q, speeds, ones, t, params)
        value = system.lagrangian(q, speeds, t, params) if energy else ()
        extra = also(q, v, t, params) if also else ()
        more: list[Any] = [
            inequality.values(q, speeds, t, params) for inequality in system.unilateral
        ]
        if system.sampling is not None:
            more.append(system.sampling(system.memory_at(t[None], params), q, v, t, params))
        more.append(extra)
        return system.dynamics.at(q, v, t, params), levels, forces, value, more

    sizes = system.dynamics.sizes(*state[:3], system.with_outputs(state.params))
    ones = jnp.ones(sum(sizes), state.q.dtype)
    return unread(everything, state.params)


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
        foreseen=bool(with_mass_rank(system, *pose.state).singular_mass),
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


def start_findings(
    system: System, state: State, broken: Sequence[Violation], settled: State, *, reached: bool
) -> list[Finding]:
    """Findings on the constraints `broken` at a state, given the nearest consistent state found."""
    if not broken:
        return []
    if not reached:
        left = KnownState(system, *settled).violations() or broken
        names = list(dict.fromkeys(violation.name for violation in left))
        how = "cannot be met" if len(names) == 1 else "contradict each other"
        problem = (
            f"constraints {listed(names)} {how} near this state; the smallest violation found is "
            f"{max(violation.size for violation in left):.3g}"
        )
        remedy = "correct them or their parameters; if they agree at another state, start there"
        return [serious(problem, remedy)]
    # The changes that `assemble` makes, the largest first; under vmap, since it then returns
    # instead of raising where it does not converge.
    q, v, t, params = state
    new_q, new_v = jax.vmap(lambda q, v: assemble(system, q, v, t, params))(q[None], v[None])
    changes = [*(np.asarray(new_q[0]) - q), *(np.asarray(new_v[0]) - v)]
    coordinates = [*system.coordinates, *(f"{c}'" for c in system.coordinates)]
    pairs = sorted(zip(coordinates, changes, strict=True), key=lambda x: -round(abs(x[1]), 9))
    phrases = [f"{name} by {change:+.3g}" for name, change in pairs[:4] if abs(change) > 1e-9]
    remedy = "start from `assemble(system, q, v, t, params)`"
    remedy += f", which changes {', '.join(phrases)}" if phrases else ""
    return [
        serious(
            f"the state violates constraint {violation.name!r} at the level of its "
            f"{violation.level} by {violation.size:.3g}",
            remedy,
        )
        for violation in broken
    ]
