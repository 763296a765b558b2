"""`structure`: examine a system at a state without simulating it."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmech.analysis.findings import listed, note
from jaxmech.analysis.functions import not_numbers, unused_parameters
from jaxmech.analysis.initial_state import (
    NEARBY,
    nearby,
    nearest_consistent,
    start_findings,
    with_closed_gaps,
)
from jaxmech.analysis.mass import mass, mass_and_force_findings, mass_findings
from jaxmech.analysis.redundancy import contradictions, rank_findings, ranks
from jaxmech.analysis.report import Equations, Structure
from jaxmech.analysis.states import State, checked_in_rates, moved, pose
from jaxmech.laws import acceleration
from jaxmech.system import Params, Subject, Violation, violations, with_params
from jaxmech.utils.checks import with_standard_promotion


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
    whole, at_start = system, State(*system.arguments(q, v, t, params))
    system, findings = with_closed_gaps(system, at_start)
    with_gaps, (system, state) = system, checked_in_rates(system, q, v, t, params)
    begin = state._replace(v=with_gaps.dynamics.from_speeds(*state))
    sizes = system.dynamics.sizes(*state)
    unused = unused_parameters(whole, begin)
    findings = not_numbers(system, state) + findings
    rank, masses = None, None
    broken: tuple[Violation, ...] = ()
    if pose(system, state).is_finite:
        tolerance = float(jnp.finfo(state.q.dtype).eps) ** 0.5
        broken = tuple(violations(system, *state))
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
        never_met = () if reached else [v.name for v in violations(system, *nearest.state)]
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
