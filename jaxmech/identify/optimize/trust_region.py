"""Least squares within bounds by the trust region of scipy, on residuals evaluated as native code.

scipy's `trf` (Branch, Coleman and Li 1999) needs the residuals and their Jacobian only. Both come
from one program, so that a first fit compiles one; a rejected trial point costs its Jacobian, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import ResidualRows, Task
from jaxmech.utils.checks import require_positive, require_positive_integer
from jaxmech.utils.text import setting


class Unknowns:
    """The unknowns x of a task, those y of the problem for them, and residuals by x.

    Attributes:
        limits: bounds of x, (2, size of x).
    """

    def __init__(self, task: Task, conditions: Conditions) -> None:
        self.task, self.conditions = task, conditions
        self.size = task.problem.layout.size
        s, along = task.data.segments, np.asarray(task.data.along, float)
        starts = np.concatenate([np.asarray(s.q0, float), np.asarray(s.v0, float)], axis=1)
        # the first radius of the trust region is the size of the unknowns
        self.offset = np.einsum("ski,sk->si", along, starts).ravel()
        free = np.full((2, self.offset.size), [[-np.inf], [np.inf]])
        self.limits = np.concatenate([task.problem.layout.limits(task.data.leaves), free], axis=1)

    def straight(self, y: np.ndarray) -> np.ndarray:
        """x for y."""
        z = self.task.problem.layout.straight(y[: self.size], self.task.data.leaves)
        x = np.concatenate([z, y[self.size :] + self.offset])
        return np.clip(x, *self.limits)

    def unknowns(self, x: np.ndarray) -> np.ndarray:
        """y for x."""
        z, _ = self.task.problem.layout.bent(x[: self.size], self.task.data.leaves)
        return np.concatenate([z, x[self.size :] - self.offset])

    def slopes(self, x: np.ndarray) -> np.ndarray:
        """The derivatives of the numbers z by x, (p,)."""
        return self.task.problem.layout.bent(x[: self.size], self.task.data.leaves)[1]

    def rows(self, x: np.ndarray) -> ResidualRows:
        """The rows with derivatives by x, or by what is independent of it."""
        rows = self.task.evaluator.rows(self.unknowns(x), self.conditions)
        others = np.ones(rows.jacobian.shape[1] - self.size)
        return rows._replace(jacobian=rows.jacobian * np.concatenate([self.slopes(x), others]))

    def moved(self, x: np.ndarray, w: np.ndarray, share: float) -> np.ndarray:
        """The change of x for a step (P,) in what is independent of it.

        It closes a share of the linearized jumps.
        """
        made, p = self.task.evaluator.condensed(self.unknowns(x)), self.size
        by_w = np.concatenate([self.slopes(x) * w[:p], w[p:]])
        starts = made.maps[:, p:] @ by_w + share * made.closing[:, p:]
        return np.concatenate([w[:p], starts.ravel()])


NEAR = 0.1  # distance from the minimum in standard errors at which a fit has converged
ROUND_OFF = 1e-13  # share of the first loss at which perfect data are fitted to round-off
PER_UNKNOWN = 100  # evaluations, by default, as in scipy's `least_squares`
_TIMES = 5  # the trust region begins anew, at most, if it ends away from the minimum
_AT_BOUND = 1e-4  # distance from a bound, relative to the first one, at which it may be active
_RANK = 1e-8  # share of each column, that keeps the rank of the Jacobian full
_NONE = 1e-100  # size of the effect of an unknown that counts as none: steps by it would overflow


@dataclass(frozen=True)
class TrustRegion:
    """The trust region of `scipy.optimize.least_squares` with exact Jacobians, the default.

    Args:
        evaluations: maximum total number of evaluations; by default 100 for each unknown.
        tolerance: relative change of the unknowns, or of the loss, below which it ends.

    Raises:
        ValueError: if a number is not positive.
    """

    evaluations: int | None = setting(
        None, "maximum number of evaluations in all; 100 for each unknown by default"
    )
    tolerance: float = setting(
        1e-8, "relative change of the parameters, or of the loss, at which it stops", positive=True
    )

    def __post_init__(self) -> None:
        if self.evaluations is not None:
            require_positive_integer("evaluations", self.evaluations, "give a number")
        require_positive("tolerance", self.tolerance)


class End(NamedTuple):
    """The end of an optimization."""

    y: np.ndarray
    converged: bool  # whether no gain is left
    reason: str  # why it ended
    spent: bool  # whether the budget is used up
    evaluations: int  # those of rejected points included
    at_bound: tuple[tuple[int, float], ...] = ()  # index of a number, and its multiplier


def minimize(
    policy: TrustRegion, task: Task, y: Any, conditions: Conditions,
    record: Callable[[float], None], used: int = 0,
) -> End:  # fmt: skip
    """Minimize from y, with `record` called with the loss of each accepted point.

    Of the evaluations that the policy allows so many are `used` already.
    """
    from scipy.optimize import least_squares  # slow to import, and seldom needed

    points = _Points(task, conditions, record)
    most = policy.evaluations or PER_UNKNOWN * y.size
    left = budget = max(most - used, 1)
    x, first = points.straight(np.asarray(y, float)), None
    for _ in range(_TIMES):
        result = least_squares(
            points.values, x, points.jacobian, points.limits, method="trf", x_scale="jac",
            ftol=policy.tolerance, xtol=policy.tolerance, gtol=None, max_nfev=budget,
        )  # fmt: skip
        gained = points.losses[0] - result.cost
        first = points.losses[0] if first is None else first
        budget -= result.nfev
        x = result.x
        y = points.unknowns(x)
        converged, at_bound = points.at_rest(x, first)
        # a short step proves nothing: it also occurs next to parameters where the motion fails
        if converged or budget <= 0 or not gained > policy.tolerance * result.cost:
            break
    reasons = {
        0: f"the {most} evaluations are used up",
        2: f"the loss fell by less than {policy.tolerance:g} of itself",
        3: f"the unknowns changed by less than {policy.tolerance:g} of themselves",
    }
    reasons[4] = reasons[2]
    return End(y, converged, reasons[result.status], result.status == 0, left - budget, at_bound)


class _Points(Unknowns):
    """The problem in the unknowns of the trust region, with a record of its points."""

    def __init__(self, task: Task, conditions: Conditions, record: Callable[[float], None]) -> None:
        super().__init__(task, conditions)
        self.record = record
        self.losses: list[float] = []

    def values(self, x: np.ndarray) -> np.ndarray:
        """The residuals, and a zero for each of the rows that `jacobian` appends."""
        return np.concatenate([self.rows(x).values, np.zeros(x.size)])

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """The Jacobian, whose rank a negligible multiple of the unit matrix keeps full."""
        # Without it scipy would take all steps at their full length once an unknown is not
        # determined, and converge slowly.
        rows = self.rows(x)
        if not self.losses or rows.loss < self.losses[-1]:
            self.losses.append(rows.loss)
            self.record(rows.loss)
        sizes = np.linalg.norm(rows.jacobian, axis=0)
        return np.concatenate([rows.jacobian, np.diag(_RANK * np.where(sizes > _NONE, sizes, 1.0))])

    def at_rest(self, x: np.ndarray, first: float) -> tuple[bool, tuple[tuple[int, float], ...]]:
        """Whether the linear model promises no gain, and the bounds that hold the minimum off."""
        rows = self.rows(x)
        if not rows.finite:
            return False, ()
        gain, at_bound = promise(self, rows, x)
        enough = negligible(self.task, rows.loss, x.size)
        return bool(gain <= enough or rows.loss <= ROUND_OFF * first), at_bound


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
    units = task.problem.layout.units(task.data.leaves)
    return gain, tuple((int(k), float(-slope[k] / units[k])) for k in np.flatnonzero(held))


def at_rest(task: Task, y: Any, conditions: Conditions) -> bool:
    """Whether the linear model promises no gain."""
    rows = task.evaluator.rows(y, conditions)
    return rows.finite and _gain(rows)[0] <= negligible(task, rows.loss, np.size(y))


def negligible(task: Task, loss: float, unknowns: int) -> float:
    """The gain at `NEAR` standard errors from the minimum."""
    # Twice the gain, in units of the remaining variance, is the squared distance from the minimum
    # in standard errors.
    degrees = max(int((np.asarray(task.data.segments.weights) > 0).sum()) - unknowns, 1)
    return NEAR**2 * loss / degrees


def gain_within(rows: ResidualRows, low: np.ndarray, high: np.ndarray) -> tuple[float, np.ndarray]:
    """The loss that the linear model can remove by steps within limits, and the best of them."""
    gain, step = _gain(rows)
    if (low <= step).all() and (step <= high).all():
        return gain, step
    from scipy.optimize import lsq_linear  # slow to import, and seldom needed

    sizes = np.linalg.norm(rows.jacobian, axis=0)
    moving = sizes > 0
    scaled = rows.jacobian[:, moving] / sizes[moving]
    limits = low[moving] * sizes[moving], high[moving] * sizes[moving]
    found = lsq_linear(scaled, -rows.values, limits, method="bvls")
    step = np.zeros_like(low)
    step[moving] = found.x / sizes[moving]
    return 0.5 * float(rows.values @ rows.values) - float(found.cost), np.clip(step, low, high)


def _gain(rows: ResidualRows) -> tuple[float, np.ndarray]:
    """The loss that the linear model can remove, and the step that removes it."""
    sizes = np.linalg.norm(rows.jacobian, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    scaled = rows.jacobian / sizes
    step = np.linalg.lstsq(scaled, -rows.values, rcond=1e-10)[0]
    removed = scaled @ step
    return 0.5 * float(removed @ removed), step / sizes
