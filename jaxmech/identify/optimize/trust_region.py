"""Least squares within bounds by the trust region of scipy, on residuals evaluated as native code.

scipy's `trf` (Branch, Coleman and Li 1999) needs the residuals and their Jacobian only. Both come
from one program, so that a first fit compiles one; a rejected trial point costs its Jacobian, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import Point, ResidualRows, Task, evaluated, residual_rows
from jaxmech.utils.checks import require_positive, require_positive_integer, require_seed
from jaxmech.utils.text import setting

NEAR = 0.1  # distance from the minimum in standard errors at which a fit has converged
ROUND_OFF = 1e-13  # share of the first loss at which perfect data are fitted to round-off
PER_UNKNOWN = 100  # evaluations, by default, as in scipy's `least_squares`
_TIMES = 5  # the trust region begins anew, at most, if it ends away from the minimum
_AT_BOUND = 1e-4  # distance from a bound, relative to the first one, at which it may be active
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
        """The point of x."""
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

    most, first = policy.evaluations or PER_UNKNOWN * at.y.size, rows.loss
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
            gain, at_bound = promise(unknowns, rows, x)
            enough = negligible(task, rows.loss, x.size)
            converged = bool(gain <= enough or rows.loss <= ROUND_OFF * first)
        # a short step proves nothing: it also occurs next to parameters where the motion fails
        if converged or budget <= 0 or not gained > policy.tolerance * result.cost:
            break
    reason = _REASONS.get(result.status, f"the {most} evaluations are used up")
    return End(
        at, converged, reason.format(policy.tolerance), spent=result.status == 0,
        evaluations=left - budget, at_bound=at_bound,
    )  # fmt: skip


def promise(
    unknowns: Unknowns, rows: ResidualRows, x: np.ndarray
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The loss that the linear model can remove at x, and the bounds that hold the minimum off."""
    task, size = unknowns.task, unknowns.size
    slope = rows.jacobian.T @ rows.values
    low, high = np.full((2, slope.size), [[-np.inf], [np.inf]])
    low[:size], high[:size] = unknowns.limits[:, :size] - x[:size]
    gain, step = gain_within(rows, low, high)
    stops = np.where(slope > 0, step <= low, step >= high)
    distance = np.where(slope > 0, -low, high)
    with np.errstate(invalid="ignore"):
        held = stops & (np.abs(slope) * distance <= negligible(task, rows.loss, slope.size))
    units = unknowns.layout.units(unknowns.leaves)
    return gain, tuple((int(k), float(-slope[k] / units[k])) for k in np.flatnonzero(held))


def negligible(task: Task, loss: float, unknowns: int) -> float:
    """The gain at `NEAR` standard errors from the minimum."""
    # Twice the gain, in units of the remaining variance, is the squared distance from the minimum
    # in standard errors.
    degrees = max(int(task.seen.sum()) - unknowns, 1)
    return NEAR**2 * loss / degrees


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
    found = lsq_linear(scaled[:, moving], -rows.values, limits, method="bvls")
    step = np.zeros_like(low)
    step[moving] = found.x / sizes[moving]
    return 0.5 * float(rows.values @ rows.values) - float(found.cost), np.clip(step, low, high)
