"""Whether a state meets the constraints, which gaps are closed, and consistent states nearby."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.analysis.findings import Finding, listed, note, serious
from jaxmech.analysis.states import Pose, State, moved, pose
from jaxmech.integrate import Gaps
from jaxmech.linalg import unit
from jaxmech.state import assemble
from jaxmech.system import DryFriction, System, Violation, mass_scale, near, violations
from jaxmech.utils.arrays import HostArray

NEARBY = 6  # number of states around a state
FAR = 0.3  # largest distance of one of them, relative to 1 + |q|


_Plane = tuple[HostArray, float]  # of the x with direction . x = offset


def nearest_consistent(
    system: System,
    state: State,
    tolerance: float,
    slices: tuple[_Plane | None, _Plane | None] = (None, None),
) -> tuple[Pose, bool]:
    """The nearest consistent state by Gauss-Newton, and whether the constraints hold there."""
    small = 1e3 * tolerance**2
    for _ in range(60):
        x, q, v = pose(system, state), np.asarray(state.q), np.asarray(state.v)
        dq = _step(x.metric, x.A_position, x.position, q, slices[0], tolerance)
        dv = _step(x.metric, x.A_velocity, x.velocity, v, slices[1], tolerance)
        if not np.isfinite([*dq, *dv]).all() or (
            _tiny(dq, state.q, small) and _tiny(dv, state.v, small)
        ):
            break
        state = state._replace(
            q=state.q - jnp.asarray(dq, state.q.dtype), v=state.v - jnp.asarray(dv, state.v.dtype)
        )
    x = pose(system, state)
    reached = _holds(x.position, x.A_position, state.q, small)
    return x, reached and _holds(x.velocity, x.A_velocity, state.v, small)


def _holds(level: HostArray, A: HostArray, x: Any, tolerance: float) -> bool:
    """Whether changes of x by at most tolerance (1 + |x|) cancel the residuals, row by row."""
    return bool(np.all(np.abs(level) <= tolerance * (np.abs(A) @ (1 + np.abs(np.asarray(x))))))


def _step(
    metric: HostArray,
    A: HostArray,
    level: HostArray,
    x: HostArray,
    plane: _Plane | None,
    tolerance: float,
) -> HostArray:
    """The smallest change, in the metric of M, that cancels the residuals to first order."""
    if plane is not None:
        direction, offset = plane
        A, level = np.vstack([A, direction]), np.append(level, direction @ x - offset)
    if not level.size:
        return np.zeros(A.shape[1])
    scale = mass_scale(metric)
    rows, lengths = unit(A / scale)
    target = level / np.where(lengths > 0, lengths, 1.0)
    return np.linalg.pinv(rows, rcond=tolerance) @ target / scale


def _tiny(step: HostArray, x: Any, tolerance: float) -> bool:
    return bool(np.all(np.abs(step) <= tolerance * (1 + np.abs(x))))


def nearby(system: System, state: State, tolerance: float) -> list[Pose]:
    """Consistent states, a few hundredths away from a state in several directions."""
    # Each is sought on a plane that does not contain the state: a singular pose is the apex of a
    # cone, and Gauss-Newton without such a plane would return to the apex.
    x = pose(system, state)
    poses = []
    for seed in range(NEARBY):
        away = moved(state, seed)
        slices = (
            _transverse_plane(x.A_position, np.asarray(state.q), np.asarray(away.q)),
            _transverse_plane(x.A_velocity, np.asarray(state.v), np.asarray(away.v)),
        )
        poses.append(nearest_consistent(system, away, tolerance, slices))
    # Others may be those of a different shape of the mechanism.
    center = np.asarray(state.q)
    return [
        other
        for other, reached in poses
        if reached and np.all(np.abs(other.state.q - center) <= FAR * (1 + np.abs(center)))
    ]


def _transverse_plane(A: HostArray, x: HostArray, away: HostArray) -> _Plane | None:
    """The plane across the free part of a change; None if the constraints have full rank."""
    change = away - x
    rows, _ = unit(A)
    free = change - np.linalg.pinv(rows, rcond=1e-6) @ (rows @ change)
    length = np.linalg.norm(free)
    if length < 1e-6 * np.linalg.norm(change):
        return None
    return (free / length, float(free @ x / length + length))


def start_findings(
    system: System, state: State, broken: Sequence[Violation], settled: State, *, reached: bool
) -> list[Finding]:
    """Findings on the constraints `broken` at a state, given the nearest consistent state found."""
    if not broken:
        return []
    if not reached:
        left = violations(system, *settled) or broken
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
