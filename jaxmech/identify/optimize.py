"""Minimize the residuals of a task: steps within bounds, rounds, and many starting points.

scipy's `trf` (Branch, Coleman and Li 1999) needs the residuals and their Jacobian only. Both come
from one program, so that a first fit compiles one; a rejected trial point costs its Jacobian, too.

Where segments must join, a step of Gauss-Newton type closes the linearized jumps and minimizes the
linearized residuals of what is left free (Bock 1987, "Randwertproblemmethoden zur
Parameteridentifizierung in Systemen nichtlinearer Differentialgleichungen"). On the way the
segments need not join. Steps are limited by a trust region in units of the residuals, as Byrd and
Omojokun do (Nocedal and Wright 2006, section 18.5), and judged by half the sum of squares plus mu
times the size of the jumps, an exact penalty. Where jumps cannot be closed without a rise of the
loss, the linear model says little, as along a chaotic motion with poor parameters. There jumps
count as squares for a while, like residuals.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from jaxmech.identify.noise import correlated, estimated, misfit, standard_residuals
from jaxmech.identify.problem import (
    Conditions,
    Point,
    ResidualRows,
    Task,
    column_sizes,
    evaluated,
    half_squares,
    jumps,
    residual_rows,
    state_sizes,
    with_joints,
)
from jaxmech.identify.segments import integration_error, is_too_coarse, needed_steps
from jaxmech.integrate import FixedSteps
from jaxmech.utils.checks import require_positive, require_positive_integer, require_seed
from jaxmech.utils.text import setting

_NEAR = 0.1  # distance from the minimum in standard errors at which a fit has converged
_ROUND_OFF = 1e-13  # share of the first loss at which perfect data are fitted to round-off
_PER_UNKNOWN = 100  # evaluations, by default, as in scipy's `least_squares`
_TIMES = 5  # the trust region begins anew, at most, if it ends away from the minimum
_RANK = 1e-8  # share of each column, that keeps the rank of the Jacobian full
_NONE = 1e-100  # size of the effect of an unknown that counts as none: steps by it would overflow


@dataclass(frozen=True)
class MultiStart:
    """Evaluate many random starting points as one batch, and fit from the best of them.

    The given parameters are one of the starting points.

    Args:
        count: number of starting points.
        spread: standard deviation of the free numbers: with 0.5, a positive parameter varies by a
            factor of about 3 in both directions, an unbounded one by half its size.
        refine: number of the best starting points from which fits are made; the best fit is the
            result.
        seed: seed of the random numbers.

    Raises:
        ValueError: if a number is not positive, or `refine` exceeds `count`.
    """

    count: int = setting(64, "starting points, the given one among them")
    spread: float = setting(0.5, "how far they scatter; 0.5 is a factor of about 3")
    refine: int = setting(3, "how many of the best are fitted")
    seed: int = setting(0, "seed of the draws")

    def __post_init__(self) -> None:
        require_positive_integer("count", self.count, "give the number of starting points")
        require_positive_integer("refine", self.refine, "give the number of fits")
        require_seed(self.seed)
        require_positive("spread", self.spread)
        if self.refine > self.count:
            raise ValueError(
                f"Argument `refine` must be at most `count`, {self.count}, but is {self.refine}."
            )

    def draws(self, size: int) -> np.ndarray:
        """The free numbers z of all starting points, (count, size); the first are zero."""
        z = np.random.default_rng(self.seed).normal(0.0, self.spread, (self.count, size))
        z[0] = 0.0
        return z


@dataclass(frozen=True)
class TrustRegion:
    """The trust region of `scipy.optimize.least_squares` with exact Jacobians, the default.

    Args:
        evaluations: maximum total number of evaluations; by default 100 for each unknown.
        tolerance: relative change of the unknowns, or of the loss, below which it ends.
        starts: random starting points, of which the best are fitted.

    Raises:
        ValueError: if a number is not positive.
    """

    evaluations: int | None = setting(
        None, "maximum number of evaluations in all; 100 for each unknown by default"
    )
    tolerance: float = setting(
        1e-8, "relative change of the parameters, or of the loss, at which it stops", positive=True
    )
    starts: MultiStart | None = setting(
        None, "random starting points, for problems with several minima"
    )

    def __post_init__(self) -> None:
        if self.evaluations is not None:
            require_positive_integer("evaluations", self.evaluations, "give a number")
        require_positive("tolerance", self.tolerance)


class End(NamedTuple):
    """The end of an optimization."""

    at: Point
    converged: bool  # whether no gain is left
    reason: str  # why it ended
    spent: bool  # whether the budget is used up
    evaluations: int  # those of rejected points included
    at_bound: tuple[tuple[int, float], ...] = ()  # index of a number, and its multiplier


class Unknowns:
    """The unknowns x of a trust region: those of the parameters, and initial states.

    Attributes:
        first: x at the point where it begins.
        limits: bounds of x, (2, size of x).
    """

    def __init__(self, task: Task, at: Point, conditions: Conditions) -> None:
        self.task, self.conditions = task, conditions
        self.layout, self.leaves = task.problem.layout, task.data.leaves
        self.size = self.layout.size
        s, along = task.data.segments, np.asarray(task.data.along, float)
        starts = np.concatenate([np.asarray(s.q0, float), np.asarray(s.v0, float)], axis=1)
        # the first radius of the trust region is the size of the unknowns
        offset = np.einsum("ski,sk->si", along, starts).ravel()
        free = np.full((2, offset.size), [[-np.inf], [np.inf]])
        self.limits = np.concatenate([self.layout.limits(self.leaves), free], axis=1)
        self.offset = np.concatenate([np.zeros(self.size), offset])
        self.first = np.clip(at.y + self.offset, *self.limits)

    def at(self, x: np.ndarray) -> Point:
        return evaluated(self.task, x - self.offset)


_REASONS = {
    2: "the loss fell by less than {0:g} of itself",
    3: "the unknowns changed by less than {0:g} of themselves",
    4: "the loss fell by less than {0:g} of itself",
}


def minimize(
    policy: TrustRegion, task: Task, at: Point, conditions: Conditions,
    record: Callable[[float], None], used: int = 0,
) -> End:  # fmt: skip
    """Minimize from a point, with `record` called with the loss of each accepted point.

    Of the evaluations that the policy allows so many are `used` already.
    """
    from scipy.optimize import least_squares  # slow to import, and seldom needed

    unknowns = Unknowns(task, at, conditions)
    x = unknowns.first
    # The last point, since scipy asks for its residuals and then for its Jacobian.
    last, rows = x, residual_rows(task, at, conditions)
    losses: list[float] = []

    def rows_at(x: np.ndarray) -> ResidualRows:
        nonlocal last, at, rows
        if not np.array_equal(last, x):
            last, at = x.copy(), unknowns.at(x)
            rows = residual_rows(task, at, conditions)
        return rows

    def values(x: np.ndarray) -> np.ndarray:
        return np.concatenate([rows_at(x).values, np.zeros(x.size)])

    def jacobian(x: np.ndarray) -> np.ndarray:
        rows = rows_at(x)
        if not losses or rows.loss < losses[-1]:
            losses.append(rows.loss)
            record(rows.loss)
        # A negligible multiple of the unit matrix keeps its rank full: otherwise scipy would take
        # all steps at their full length once an unknown is not determined, and converge slowly.
        sizes = np.linalg.norm(rows.jacobian, axis=0)
        return np.concatenate([rows.jacobian, np.diag(_RANK * np.where(sizes > _NONE, sizes, 1.0))])

    most, first = policy.evaluations or _PER_UNKNOWN * at.y.size, rows.loss
    left = budget = max(most - used, 1)
    converged = False
    at_bound: tuple[tuple[int, float], ...] = ()
    for _ in range(_TIMES):
        losses.clear()
        result = least_squares(
            values, x, jacobian, unknowns.limits, method="trf", x_scale="jac",
            ftol=policy.tolerance, xtol=policy.tolerance, gtol=None, max_nfev=budget,
        )  # fmt: skip
        gained, x = losses[0] - result.cost, result.x
        budget -= result.nfev
        if rows_at(x).finite:
            converged, at_bound = _settled(unknowns, rows, x, first)
        # a short step proves nothing: it also occurs next to parameters where the motion fails
        if converged or budget <= 0 or not gained > policy.tolerance * result.cost:
            break
    reason = _REASONS.get(result.status, f"the {most} evaluations are used up")
    return End(
        at, converged, reason.format(policy.tolerance), spent=result.status == 0,
        evaluations=left - budget, at_bound=at_bound,
    )  # fmt: skip


def _settled(
    unknowns: Unknowns, rows: ResidualRows, x: np.ndarray, first: float
) -> tuple[bool, tuple[tuple[int, float], ...]]:
    """Whether hardly a gain is left at x, and the bounds that hold the minimum off."""
    task, size = unknowns.task, unknowns.size
    slope = rows.jacobian.T @ rows.values
    low, high = np.full((2, slope.size), [[-np.inf], [np.inf]])
    low[:size], high[:size] = unknowns.limits[:, :size] - x[:size]
    # The loss that the linear model can remove. Twice the gain, in units of the remaining variance,
    # is the squared distance from the minimum in standard errors.
    gain, step = gain_within(rows, low, high)
    negligible = _NEAR**2 * rows.loss / max(int(task.seen.sum()) - slope.size, 1)
    stops = np.where(slope > 0, step <= low, step >= high)
    distance = np.where(slope > 0, -low, high)
    with np.errstate(invalid="ignore"):
        held = stops & (np.abs(slope) * distance <= negligible)
    units = unknowns.layout.units(unknowns.leaves)
    at_bound = tuple((int(k), float(-slope[k] / units[k])) for k in np.flatnonzero(held))
    return bool(gain <= negligible or rows.loss <= _ROUND_OFF * first), at_bound


def gain_within(rows: ResidualRows, low: np.ndarray, high: np.ndarray) -> tuple[float, np.ndarray]:
    """The loss that the linear model can remove by steps within limits, and the best of them."""
    sizes = np.linalg.norm(rows.jacobian, axis=0)
    scaled = rows.jacobian / np.where(sizes > 0, sizes, 1.0)
    step = np.linalg.lstsq(scaled, -rows.values, rcond=1e-10)[0]
    removed = scaled @ step
    gain, step = 0.5 * float(removed @ removed), step / np.where(sizes > 0, sizes, 1.0)
    if (low <= step).all() and (step <= high).all():
        return gain, step
    from scipy.optimize import lsq_linear  # slow to import, and seldom needed

    moving = sizes > 0
    limits = low[moving] * sizes[moving], high[moving] * sizes[moving]
    solution = lsq_linear(scaled[:, moving], -rows.values, limits, method="bvls")
    step = np.zeros_like(low)
    step[moving] = solution.x / sizes[moving]
    return 0.5 * float(rows.values @ rows.values) - float(solution.cost), np.clip(step, low, high)


_CONTINUOUS = 1e-9  # size of a jump, relative to the states, that counts as none
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
    eps = float(np.finfo(task.data.segments.ts.dtype).eps)
    continuous = max(_CONTINUOUS, _ROUNDED * eps)
    # the radius of the trust region, in units of the residuals, and the weight of the jumps
    first, radius, mu = here.rows.loss, _first_radius(unknowns, here), 0.0
    most = policy.evaluations or _PER_UNKNOWN * here.rows.jacobian.shape[1]
    count, phases, reason, best = used + 1, 0, "", here
    while not reason:
        step, loss = _step(unknowns, here, radius), here.rows.loss
        joined = here.largest <= continuous
        if joined and (step.gain <= _EXACT * policy.tolerance * loss or loss <= _ROUND_OFF * first):
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
            fall = step.share * here.jump
            if fall > 0:
                mu = max(mu, -step.gain / ((1 - _JUMPS) * fall))
            there = _iterate(unknowns, step.x, unknowns.at(step.x))
            count += 1
            promised = step.gain + mu * fall
            kept = here.rows.loss + mu * here.jump - there.rows.loss - mu * there.jump
            share = kept / promised if np.isfinite(kept) and promised > 0 else -1.0
            if share < _SMALLER:
                radius = _SMALLER * step.size
            elif share > _LARGER and step.size > 0.9 * radius:
                radius = 2 * radius
            if share > _ACCEPTED:
                here = there
                record(here.rows.loss)
            elif radius < _LEAST * np.linalg.norm(here.rows.values):
                apart = f"no step closes the jumps between segments, {here.largest:.1g} of the"
                reason = "no step lowers the loss" if joined else f"{apart} states"
        best = min(best, here, key=lambda iterate: iterate.misfit)
    if here.largest > continuous:  # closing the jumps may have led anywhere
        here = best
    settled, at_bound = _settled(unknowns, here.rows, here.x, first)
    converged = settled and here.largest <= continuous
    return End(here.at, converged, reason, count >= most, count - used, at_bound)


def _first_radius(unknowns: Unknowns, here: _Iterate) -> float:
    """The size of the parameters, as in scipy, and of the step that closes the jumps."""
    p = unknowns.size
    sizes = np.linalg.norm(here.rows.jacobian[:, :p], axis=0)
    closing = float(np.linalg.norm(here.rows.closing))
    return float(np.linalg.norm(sizes * here.x[:p])) + 2 * closing or np.inf


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
    sizes = column_sizes(rows.jacobian)
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


_ROUNDS = 30  # of fits and estimates of the noise
_SAME = 3e-3  # relative change of a weight that makes no difference to an interval
_FINER = 3  # times that a fit goes on with more steps
_MOST_ROWS = 2_000_000  # of the segments of a batch of starting points, to bound the memory


class Solved(NamedTuple):
    """The end of an optimization."""

    task: Task  # with the steps with which it ended
    at: Point
    conditions: Conditions  # of the last round
    history: tuple[float, ...]  # half the sum of squared residuals after each step
    end: End  # of the last round
    evaluations: int  # of the residuals and their derivatives
    noise: np.ndarray | None  # of the sensors (d,), where it is estimated for each
    integration_error: float  # relative to the motion


def solve(task: Task, at: Point, policy: TrustRegion, *, progress: bool = False) -> Solved:
    """Solve a task from a point, in rounds until the noise of the sensors remains the same.

    Where the steps were chosen, and are too coarse for the motion at its end, it goes on with more.
    """
    minimizer = minimize_continuous if task.hard else minimize
    # Whether weights follow from residuals, in turns with the fit.
    several = not task.weighted and task.data.segments.observed.shape[2] > 1
    weighs = several or task.loss is not None
    history: list[float] = []
    evaluations, finer = 0, 0
    with tqdm(disable=not progress, unit=" steps") as bar:

        def record(loss: float) -> None:
            # a trust region that goes on begins with its last point
            if history[-1:] != [loss]:
                history.append(loss)
            bar.set_postfix_str(f"loss {loss:.6g}")
            bar.update()

        while True:
            conditions, noise = task.conditions, None
            for _ in range(_ROUNDS if weighs else 1):
                end = minimizer(policy, task, at, conditions, record, evaluations)
                at, settled = end.at, True
                evaluations += end.evaluations
                if weighs:
                    changed, noise = estimated(task, at, conditions)
                    by_sensor = np.log(changed.sensor_weight / conditions.sensor_weight)
                    by_sample = changed.sample_weight - conditions.sample_weight
                    settled = max(np.abs(by_sensor).max(), np.abs(by_sample).max()) < _SAME
                if settled:
                    break
                conditions = changed
                end = end._replace(converged=False)  # until nothing changes any more
                if end.spent:
                    break
            error, steps = integration_error(task, at), task.problem.scheme.steps
            may_go_on = finer < _FINER and task.chooses_steps and not end.spent
            if not may_go_on or not is_too_coarse(task, at, error, converged=end.converged):
                break
            finer, per_save = finer + 1, needed_steps(task, at)
            if not isinstance(steps, FixedSteps) or per_save <= steps.count:
                break
            scheme = replace(task.problem.scheme, steps=replace(steps, per_save=per_save))
            task = replace(task, problem=replace(task.problem, scheme=scheme))
            at = evaluated(task, at.y)
    return Solved(task, at, conditions, tuple(history), end, evaluations, noise, error)


def starting_points(task: Task, y: np.ndarray, policy: MultiStart) -> list[np.ndarray]:
    """The best of many random starting points around y, the best first."""
    layout, leaves = task.problem.layout, task.data.leaves
    ys = np.tile(y, (policy.count, 1))
    ys[:, : layout.size] = layout.moved(y[: layout.size], policy.draws(layout.size), leaves)
    at_once = max(1, _MOST_ROWS // task.data.segments.ts.size)
    parts = [ys[k : k + at_once] for k in range(0, len(ys), at_once)]
    losses = np.concatenate(
        [half_squares(task.problem, part, task.data, task.conditions) for part in parts]
    )
    good = [k for k in np.argsort(losses)[: policy.refine] if np.isfinite(losses[k])]
    return [ys[k] for k in good]


# Of starting points across kinks, in turns: their spread, and whether they are around the start of
# the fit, since a parameter that has gone to its bound has no points around it.
_CLOUDS = ((0.5, True), (0.2, False), (0.05, False))
_TURNS = 9
_LESS = 1e-3  # share by which a loss must fall to be that of another minimum


def across_kinks(solved: Solved, policy: TrustRegion) -> Solved:
    """The best of further minima beside one whose residuals are not noise.

    The loss of a motion with impacts or dry friction has a kink wherever the order of its events
    changes, and ridges between minima that no step along a gradient crosses.
    """
    task, starts, evaluations, first = solved.task, 0, solved.evaluations, solved.history[-1]
    layout = task.problem.layout
    vain = turn = 0
    while turn < _TURNS and vain < len(_CLOUDS):
        task, at, (_, residuals) = solved.task, solved.at, standard_residuals(*solved[:3])
        if not misfit(task, at, residuals, correlated(task, at, residuals)):
            break
        spread, at_start = _CLOUDS[turn % len(_CLOUDS)]
        middle = solved.at.y.copy()
        if at_start:
            middle[: layout.size] = layout.first(task.data.leaves)
        around = MultiStart(spread=spread, refine=8, seed=turn)
        points = starting_points(task, middle, around)[0 if at_start else 1 :]
        ends = [solve(task, evaluated(task, y), policy) for y in points]
        starts, evaluations = starts + len(ends), evaluations + sum(x.evaluations for x in ends)
        best = min(ends, key=lambda end: end.history[-1], default=solved)
        vain = 0 if best.history[-1] < (1 - _LESS) * solved.history[-1] else vain + 1
        solved, turn = (best if not vain else solved), turn + 1
    if not starts:
        return solved
    text = f"{solved.end.reason}; with {starts} more starts across the kinks of contact, by which "
    text += f"the loss fell to {solved.history[-1] / first:.2g} of itself"
    end = solved.end._replace(reason=text)
    return solved._replace(end=end, evaluations=evaluations)
