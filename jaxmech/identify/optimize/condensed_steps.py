"""Least squares whose segments must join, by Gauss-Newton steps with the joints eliminated.

A step closes the linearized jumps and minimizes the linearized residuals of what is left free
(Bock 1987, "Randwertproblemmethoden zur Parameteridentifizierung in Systemen nichtlinearer
Differentialgleichungen"). On the way the segments need not join. Steps are limited by a trust
region in units of the residuals, as Byrd and Omojokun do (Nocedal and Wright 2006, section 18.5),
and judged by half the sum of squares plus mu times the size of the jumps, an exact penalty.

Where jumps cannot be closed without a rise of the loss, the linear model says little, as along a
chaotic motion with poor parameters. There jumps count as squares for a while, like residuals.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxmech.identify.optimize.trust_region import (
    PER_UNKNOWN,
    ROUND_OFF,
    End,
    TrustRegion,
    Unknowns,
    minimize,
    negligible,
    promise,
)
from jaxmech.identify.problem.least_squares import Conditions, jumps
from jaxmech.identify.problem.rows import (
    Point,
    ResidualRows,
    Task,
    residual_rows,
    state_sizes,
    with_joints,
)

CONTINUOUS = 1e-9  # size of a jump, relative to the states, that counts as none
_ROUNDED = 100  # the same in units of round-off
_CLOSING = 0.8  # share of the trust region that closing the jumps may take
_SMALLER, _LARGER = 0.25, 0.75  # shares of a promise below and above which the region changes
_ACCEPTED = 1e-3  # share of a promise that an accepted step keeps
_JUMPS = 0.3  # share of the fall of the penalty that a step must promise
_RISE = 0.1  # share of the loss by which closing the jumps may raise it
_SOFT, _HARDER, _PHASES = 1e-2, 10.0, 5  # tolerance of soft phases, growth of weights, their number
_REACH = 10.0  # of a step in a parameter, relative to it or to its start
_LEAST = 1e-12  # radius, relative to the step, at which it ends
_DEPENDENT = 1e-10  # singular value, relative to the largest, that counts as zero
_EXACT = 1e-2  # share of the tolerance of the loss, which is judged before the step


class _Iterate(NamedTuple):
    x: np.ndarray
    at: Point
    rows: ResidualRows
    jump: float  # size of the weighted jumps
    largest: float  # largest jump, relative to the size of the states

    @property
    def misfit(self) -> float:
        """Half the sum of squares of the residuals and of the weighted jumps."""
        return self.rows.loss + 0.5 * self.jump**2


class _TrialStep(NamedTuple):
    x: np.ndarray  # where it leads
    share: float  # of the jumps, which it closes
    gain: float  # by which the loss falls in the linear model
    size: float  # in units of the residuals
    length: float  # in those of the unknowns


def minimize_continuous(
    policy: TrustRegion, task: Task, at: Point, conditions: Conditions,
    record: Callable[[float], None], used: int = 0,
) -> End:  # fmt: skip
    """Minimize such that no jump is left; `record` gets the loss of each accepted point.

    Of the evaluations that the policy allows so many are `used` already.
    """
    unknowns = Unknowns(task, at, conditions)
    here = _iterate(unknowns, unknowns.first, at)
    # the radius of the trust region, in units of the residuals, and the weight of the jumps
    first, radius, mu = here.rows.loss, _first_radius(unknowns, here), 0.0
    most = policy.evaluations or PER_UNKNOWN * here.rows.jacobian.shape[1]
    count, phases, reason, best = used + 1, 0, "", here
    while not reason:
        step, loss = _step(unknowns, here, radius), here.rows.loss
        joined = here.largest <= _continuous(task)
        if joined and (step.gain <= _EXACT * policy.tolerance * loss or loss <= ROUND_OFF * first):
            reason = f"the loss would fall by less than {policy.tolerance:g} of itself"
        elif joined and step.length <= policy.tolerance * np.linalg.norm(here.x):
            reason = f"the unknowns would change by less than {policy.tolerance:g} of themselves"
        elif count >= most:
            reason = f"the {most} evaluations are used up"
        elif -step.gain > _RISE * loss and phases < _PHASES:
            # With jumps among the residuals, which weigh more in every phase.
            weight = _HARDER**phases * np.asarray(conditions.jump_weight, float)
            soft = TrustRegion(most - count, max(_SOFT, policy.tolerance))
            joined_task, free = replace(task, hard=False), here.at._replace(condensed=None)
            heavier = replace(conditions, jump_weight=weight)
            end = minimize(soft, joined_task, free, heavier, record)
            count, phases = count + end.evaluations, phases + 1
            start = with_joints(task, end.at)
            unknowns = Unknowns(task, start, conditions)
            here = _iterate(unknowns, unknowns.first, start)
            radius, mu = _first_radius(unknowns, here), 0.0
        else:
            there, radius, mu, accepted = _trial(unknowns, here, step, radius, mu)
            count += 1
            if accepted:
                here = there
                record(here.rows.loss)
            elif radius < _LEAST * np.linalg.norm(here.rows.values):
                apart = f"no step closes the jumps between segments, {here.largest:.1g} of the"
                reason = "no step lowers the loss" if joined else f"{apart} states"
        best = min(best, here, key=lambda one: one.misfit)
    if here.largest > _continuous(task):  # closing the jumps may have led anywhere
        here = best
    gain, at_bound = promise(unknowns, here.rows, here.x)
    enough = negligible(task, here.rows.loss, here.rows.jacobian.shape[1])
    settled = gain <= enough or here.rows.loss <= ROUND_OFF * first
    converged = settled and here.largest <= _continuous(task)
    return End(here.at, bool(converged), reason, count >= most, count - used, at_bound)


def _continuous(task: Task) -> float:
    return max(CONTINUOUS, _ROUNDED * float(np.finfo(task.data.segments.ts.dtype).eps))


def _first_radius(unknowns: Unknowns, here: _Iterate) -> float:
    """The size of the parameters, as in scipy, and of the step that closes the jumps."""
    p = unknowns.size
    sizes = np.linalg.norm(here.rows.jacobian[:, :p], axis=0)
    closing = float(np.linalg.norm(here.rows.closing))
    return float(np.linalg.norm(sizes * here.x[:p])) + 2 * closing or np.inf


def _trial(
    unknowns: Unknowns, here: _Iterate, step: _TrialStep, radius: float, mu: float
) -> tuple[_Iterate, float, float, bool]:
    """The point to which a step leads, the next radius and weight, and whether to go there."""
    fall = step.share * here.jump
    if fall > 0:
        mu = max(mu, -step.gain / ((1 - _JUMPS) * fall))
    there = _iterate(unknowns, step.x, unknowns.at(step.x))
    promised = step.gain + mu * fall
    kept = here.rows.loss + mu * here.jump - there.rows.loss - mu * there.jump
    share = kept / promised if np.isfinite(kept) and promised > 0 else -1.0
    if share < _SMALLER:
        radius = _SMALLER * step.size
    elif share > _LARGER and step.size > 0.9 * radius:
        radius = 2 * radius
    return there, radius, mu, share > _ACCEPTED


def _iterate(unknowns: Unknowns, x: np.ndarray, at: Point) -> _Iterate:
    task, weight = unknowns.task, np.asarray(unknowns.conditions.jump_weight, float)
    rows = residual_rows(task, at, unknowns.conditions)
    gaps = np.asarray(jumps(at.run.end, at.run.begin, task.data), float)
    gaps = np.where(weight > 0, gaps, 0.0)
    largest = np.abs(gaps).max() / state_sizes(at.run.begin).max()
    return _Iterate(x, at, rows, float(np.linalg.norm(weight * gaps)), float(largest))


def _step(unknowns: Unknowns, here: _Iterate, radius: float) -> _TrialStep:
    rows, p, x = here.rows, unknowns.size, here.x
    closing = float(np.linalg.norm(rows.closing))
    share = min(1.0, _CLOSING * radius / closing) if closing > 0 else 1.0
    left = rows.values + share * rows.closing
    sizes = np.linalg.norm(rows.jacobian, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    low, high = np.full((2, sizes.size), [[-np.inf], [np.inf]])
    reach = _REACH * np.maximum(np.abs(x[:p]), 1.0)
    low[:p], high[:p] = np.clip(unknowns.limits[:, :p] - x[:p], -reach, reach)
    rest = np.inf if np.isinf(radius) else np.sqrt(radius**2 - (share * closing) ** 2)
    w = _within(rows.jacobian / sizes, left, rest, low * sizes, high * sizes) / sizes
    after = left + rows.jacobian @ w
    # The initial states follow, and close a share of the linearized jumps.
    eliminated = here.at.condensed
    assert eliminated is not None  # of a task whose segments join exactly
    starts = eliminated.maps[:, p:] @ w + share * eliminated.closing[:, p:]
    new = np.clip(x + np.concatenate([w[:p], starts.ravel()]), *unknowns.limits)
    return _TrialStep(
        new, share, rows.loss - 0.5 * float(after @ after),
        float(np.hypot(np.linalg.norm(sizes * w), share * closing)),
        float(np.linalg.norm(new - x)),
    )  # fmt: skip


def _within(
    J: np.ndarray, r: np.ndarray, radius: float, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """The step of length `radius` at most, and within limits, that minimizes |r + J w|."""
    U, s, V = np.linalg.svd(J, full_matrices=False)
    keep = s > _DEPENDENT * s.max(initial=0.0)
    s, V, b = s[keep], V[keep], -(U.T @ r)[keep]
    damping = 0.0
    if np.linalg.norm(b / s) > radius:
        from scipy.optimize import brentq  # slow to import, and seldom needed

        top = np.log(np.linalg.norm(s * b) / radius)
        damping = np.exp(
            brentq(
                lambda log: np.linalg.norm(s * b / (s**2 + np.exp(log))) / radius - 1,
                top - 60, top + 1e-6,
            )
        )  # fmt: skip
    w = V.T @ (s * b / (s**2 + damping))
    if (low <= w).all() and (w <= high).all():
        return np.asarray(w)
    from scipy.optimize import lsq_linear  # slow to import, and seldom needed

    count = J.shape[1]
    damped = np.concatenate([J, np.sqrt(damping + _DEPENDENT**2) * np.eye(count)])
    right = -np.concatenate([r, np.zeros(count)])
    return np.clip(lsq_linear(damped, right, (low, high), method="bvls").x, low, high)
