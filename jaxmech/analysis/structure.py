"""`structure`: examine a system at a state without simulating it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, Severity
from jaxmech.analysis.initial_state import contradictions, start_findings
from jaxmech.analysis.integrability import (
    Integrability,
    integrability,
    integrability_findings,
)
from jaxmech.analysis.mass import MassMatrix, mass, mass_findings
from jaxmech.analysis.nan_functions import not_numbers
from jaxmech.analysis.nearby_states import NEARBY, nearby, nearest_consistent
from jaxmech.analysis.redundancy import Ranks, rank_findings, ranks
from jaxmech.analysis.report import Equations, Structure
from jaxmech.analysis.short_run import ShortRun, Slope, lanes_of, slopes
from jaxmech.analysis.states import Pose, State, moved, pose, violated
from jaxmech.analysis.unused import idle_coordinates, idle_findings, unused_parameters
from jaxmech.compiler import Explanation, why_not
from jaxmech.formulations import Motion, acceleration
from jaxmech.stabilization import Violation
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_finite, require_kind, with_standard_promotion
from jaxmech.utils.jit_cache import jit_of


@with_standard_promotion
def structure(
    system: System,
    q: Any,
    v: Any,
    t: Any = 0.0,
    params: Params = None,
    *,
    run: ShortRun | None = None,
) -> Structure:
    """Examine a system at a state, and report possible problems.

    Counts degrees of freedom at the levels of position and velocity, tests by Frobenius' theorem
    whether constraints on velocities restrict positions, finds redundant and contradictory
    constraints by name, singular poses and masses, functions that are not finite, and unused
    parameters. Ranks are compared at the state, at states nearby on the constraints, and at states
    on no constraint. A host function of one state, not for `jit` or `vmap`.

    Args:
        system: the system, with n coordinates.
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        t: time [s].
        params: the parameters that the functions of the system expect.
        run: `ShortRun()` to take a few steps as well, which compares the reverse-mode gradient with
            differences, reports whether batches run as lanes, and compiles a gradient.

    Returns:
        A `Structure`, which prints itself.

    Raises:
        TypeError: `system` is not a `System`.
        ValueError: a shape is wrong, or a value is not finite.

    Example:
        >>> from jaxmech import Holonomic, models
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
    require_kind("system", system, System, "System(...)")
    if run is not None:
        require_kind("run", run, ShortRun, "ShortRun() or None")
    q, v, t, params = system.arguments(q, v, t, params)
    require_finite(q=q, v=v, t=t, params=params)
    state = State(q, v, t, params)
    sizes = system.sizes(*state)
    unused = unused_parameters(system, state)
    findings = not_numbers(system, state)
    found = _Examined()
    if _is_finite(pose(system, state)):
        found = _examine(system, sizes, state, findings, run)
    lanes = lanes_of(system, state) if run and why_not() is None else None
    findings += _lanes_findings(lanes) + idle_findings(unused, found.idle)
    return Structure(
        coordinates=tuple(system.coordinates),
        constraints=tuple(
            Equations(c.name, type(c).__name__, size)
            for c, size in zip(system.constraints, sizes, strict=True)
        ),
        ranks=found.ranks,
        integrability=found.integrability,
        mass=found.mass,
        violations=found.violations,
        unused=unused,
        idle=found.idle,
        slopes=found.slopes,
        lanes=lanes,
        findings=tuple(sorted(findings, key=lambda finding: -finding.severity)),
    )


@dataclass(frozen=True)
class _Examined:
    """The part of the report that needs finite equations."""

    ranks: Ranks | None = None
    integrability: Integrability | None = None
    mass: MassMatrix | None = None
    violations: tuple[Violation, ...] = ()
    idle: tuple[str, ...] = ()
    slopes: tuple[Slope, ...] | None = None


def _examine(
    system: System,
    sizes: Sequence[int],
    state: State,
    findings: list[Finding],
    run: ShortRun | None,
) -> _Examined:
    tolerance = float(jnp.finfo(state.q.dtype).eps) ** 0.5
    broken = violated(system, sizes, state)
    here, reached = nearest_consistent(system, state, tolerance)
    findings += start_findings(system, sizes, state, broken, here, reached=reached)
    if not broken:
        here, reached = pose(system, state), True
    around = [p for p in nearby(system, here.state, tolerance) if _is_finite(p)]
    found = _ranks(system, sizes, here, around, tolerance)
    closed = integrability(system, [p.state for p in (around or [here])])
    massed = mass(system, here, tolerance)
    motion = _motion(system, *here.state)
    excluded = contradictions(system, sizes, here, motion, tolerance) if reached else {}
    never_met = () if reached else [v.name for v in violated(system, sizes, here.state)]
    findings += rank_findings(found, {*excluded, *never_met}) + mass_findings(system, massed)
    findings += integrability_findings(closed) if closed else []
    findings += [finding for name, finding in excluded.items() if name not in found.flat]
    own_slopes = None
    if run and not any(finding.severity == Severity.SERIOUS for finding in findings):
        own_slopes = slopes(system, here, run, motion.qdd)
        findings += _slope_findings(own_slopes)
    return _Examined(found, closed, massed, broken, idle_coordinates(system, state), own_slopes)


@jit_of("system")
def _motion(system: System, q: Array, v: Array, t: Array, params: Params) -> Motion:
    return acceleration(system, q, v, t, params)


def _is_finite(pose: Pose) -> bool:
    return all(np.isfinite(x).all() for x in (pose.M, pose.Q, pose.A, pose.b, pose.level))


def _ranks(
    system: System, sizes: Sequence[int], here: Pose, around: Sequence[Pose], tolerance: float
) -> Ranks:
    off = [pose(system, moved(here.state, seed)) for seed in range(NEARBY)]
    off = [p for p in off if _is_finite(p)] or [here]
    return ranks(system, sizes, here, around, off, tolerance)


def _slope_findings(found: Sequence[Slope]) -> list[Finding]:
    remedy = (
        "look for a jump or a kink in the functions of the system there (round, where, abs, a "
        "contact), for a stop_gradient, or for a constraint that is redundant for these values only"
    )
    return [
        Finding(
            Severity.SERIOUS,
            f"the gradient of a short run by {slope.name!r} is {slope.reverse:.6g}, but "
            f"differences give {slope.difference:.6g}",
            remedy,
        )
        for slope in found
        if not slope.agrees
    ]


def _lanes_findings(found: Explanation | None) -> list[Finding]:
    reasons = {part.reason for part in found.parts if part.reason} if found else set()
    return [
        Finding(
            Severity.WARNING,
            f"batches run under plain vmap instead of as native code, because of {reason}",
            "the results are the same but take many times longer on a CPU: write that part with "
            "other operations",
        )
        for reason in sorted(reasons)
    ]
