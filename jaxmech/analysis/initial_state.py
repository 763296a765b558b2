"""Whether a state satisfies the constraints, and whether the constraints agree with each other."""

from collections.abc import Sequence

import jax
import numpy as np

from jaxmech.analysis.findings import Finding, listed, serious
from jaxmech.analysis.row_dependence import dependences, independence, owners
from jaxmech.analysis.states import Pose, State
from jaxmech.assemble import assemble
from jaxmech.consistency import Violation, violations
from jaxmech.system import System
from jaxmech.utils.arrays import HostArray


def start_findings(
    system: System, state: State, broken: Sequence[Violation], settled: State, *, reached: bool
) -> list[Finding]:
    """Findings on the constraints `broken` at a state, given the nearest consistent state found."""
    if not broken:
        return []
    if not reached:
        return [_cannot_be_met(violations(system, *settled) or broken)]
    remedy = f"start from `assemble(system, q, v, t, params)`{_changes(system, state)}"
    return [
        serious(
            f"the state violates constraint {violation.name!r} at the level of its "
            f"{violation.level} by {violation.size:.3g}",
            remedy,
        )
        for violation in broken
    ]


def _cannot_be_met(violations: Sequence[Violation]) -> Finding:
    names = list(dict.fromkeys(violation.name for violation in violations))
    how = "cannot be met" if len(names) == 1 else "contradict each other"
    worst = max(violation.size for violation in violations)
    return serious(
        f"constraints {listed(names)} {how} near this state; the smallest violation found is "
        f"{worst:.3g}",
        "correct them or their parameters; if they agree at another state, start there",
    )


def _changes(system: System, state: State) -> str:
    """The changes that `assemble` would make, the largest first."""
    q, v, t, params = state
    # Under vmap, since `assemble` then returns instead of raising where it does not converge.
    new_q, new_v = jax.vmap(lambda q, v: assemble(system, q, v, t, params))(q[None], v[None])
    changes = [*(np.asarray(new_q[0]) - q), *(np.asarray(new_v[0]) - v)]
    names = [*system.coordinates, *(f"{c}'" for c in system.coordinates)]
    pairs = sorted(zip(names, changes, strict=True), key=lambda pair: -round(abs(pair[1]), 9))
    phrases = [f"{name} by {change:+.3g}" for name, change in pairs[:4] if abs(change) > 1e-9]
    return f", which changes {', '.join(phrases)}" if phrases else ""


def contradictions(
    system: System, sizes: Sequence[int], pose: Pose, qdd: HostArray, tolerance: float
) -> dict[str, Finding]:
    """Findings, by name, on the constraints whose accelerations exclude each other."""
    # The test is that of a step of `simulate`.
    eps, qdd = float(np.finfo(qdd.dtype).eps), qdd.astype(float)
    miss = np.abs(pose.A @ qdd - pose.b)
    terms = np.abs(pose.A).sum(1) * np.abs(qdd).max() + np.abs(pose.b)
    # Near an equilibrium, and in rows of zeros, all terms may be round-off of greater ones.
    free = np.abs(np.linalg.lstsq(pose.metric, pose.Q)[0]).max()
    rounding = eps**0.75 * (np.abs(pose.A).sum(1) * free + terms).max(initial=0.0)
    bad = np.nonzero(miss > np.maximum(eps**0.25 * terms, rounding))[0]
    names = [c.name for c in system.constraints]
    owner, _ = owners(names, sizes)
    missed: dict[str, float] = {}
    for k in bad:
        missed[owner[k]] = max(float(miss[k]), missed.get(owner[k], 0.0))
    return {
        d.name: serious(
            f"no acceleration satisfies constraint {d.name!r}"
            + (f" and {listed(d.others)} at once" if d.others else ", whose row of A is zero")
            + f"; it is missed by {missed[d.name]:.3g}",
            "make them consistent, or leave one of them out",
        )
        for d in dependences(independence(pose.rows, tolerance), names, sizes)
        if d.name in missed
    }
