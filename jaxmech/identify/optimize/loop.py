"""Run an optimizer on a task: its rounds and its starting points."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from jaxmech.identify.optimize.condensed_steps import minimize_continuous
from jaxmech.identify.optimize.gradient_descent import Descent, descend
from jaxmech.identify.optimize.trust_region import End, TrustRegion, minimize
from jaxmech.identify.problem.least_squares import Conditions, Data, half_squares
from jaxmech.identify.problem.rows import Task
from jaxmech.identify.problem.sensor_noise import SensorNoise, estimated, reweighted
from jaxmech.identify.problem.steps import (
    integration_error,
    is_too_coarse,
    needed_steps,
    with_steps,
)
from jaxmech.integrate import FixedSteps
from jaxmech.utils.checks import require_positive, require_positive_integer, require_seed
from jaxmech.utils.text import setting

ROUNDS = 30  # of fits and estimates of the noise
_FINER = 3  # times that a fit goes on with more steps
_MOST_ROWS = 2_000_000  # of the segments of a batch of starting points, to bound the memory


class Solved(NamedTuple):
    """The end of an optimization."""

    y: np.ndarray  # the unknowns
    conditions: Conditions  # of the last round
    history: tuple[float, ...]  # half the sum of squared residuals after each step
    end: End  # of the last round
    evaluations: int  # of the residuals and their derivatives
    stuck: bool  # whether it ended although there was a gain
    noise: SensorNoise | None  # where it is estimated for each sensor
    per_save: int | None  # steps between samples with which it ended; None if they are adaptive
    integration_error: float  # there, relative to the motion


def solve(
    task: Task, policy: TrustRegion | Descent, validation: Data | None = None,
    progress: bool = False,
) -> Solved:  # fmt: skip
    """Solve a task, in rounds until the noise of the sensors remains the same.

    Where the steps were chosen, and are too coarse for the motion at its end, it goes on with more.
    """
    solved = _solved(policy, task, validation, progress, None)
    for _ in range(_FINER):
        y, end = solved.y, solved.end
        if (
            end.spent
            or not task.chooses_steps
            or not is_too_coarse(task, y, solved.integration_error, converged=end.converged)
        ):
            break
        per_save = needed_steps(task, y)
        if solved.per_save is None or per_save <= solved.per_save:
            break
        task = replace(with_steps(task, per_save), y=y)
        solved = _solved(policy, task, validation, progress, solved)
    return solved


def _solved(
    policy: TrustRegion | Descent, task: Task, validation: Data | None, progress: bool,
    before: Solved | None,
) -> Solved:  # fmt: skip
    """Solve a task with its steps, after what was solved `before`."""
    conditions, y = task.conditions, task.y
    history = [] if before is None else list(before.history)
    weighs = task.estimates_noise and not isinstance(policy, Descent)
    noise, evaluations = None, 0 if before is None else before.evaluations
    with tqdm(disable=not progress, unit=" steps", initial=len(history)) as bar:

        def record(loss: float) -> None:
            # a trust region that goes on begins with its last point
            if isinstance(policy, Descent) or history[-1:] != [loss]:
                history.append(loss)
            bar.set_postfix_str(f"loss {loss:.6g}")
            bar.update()

        for _ in range(ROUNDS if weighs else 1):
            if isinstance(policy, Descent):
                end = descend(policy, validation, task, y, conditions, record)
            else:
                minimizer = minimize_continuous if task.hard else minimize
                end = minimizer(policy, task, y, conditions, record, evaluations)
            y, settled = end.y, True
            evaluations += end.evaluations
            stuck = not end.converged and not end.spent
            if weighs:
                noise = estimated(task, y, conditions)
                conditions, settled = reweighted(conditions, noise)
            if settled:
                break
            end = end._replace(converged=False)  # until nothing changes any more
            if end.spent:
                break
    steps, error = task.problem.scheme.steps, integration_error(task, y)
    per_save = steps.count if isinstance(steps, FixedSteps) else None
    return Solved(y, conditions, tuple(history), end, evaluations, stuck, noise, per_save, error)


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


def starting_points(task: Task, policy: MultiStart) -> list[Task]:
    """The best of many random starting points, each as a task of its own, the best first."""
    size = task.problem.layout.size
    ys = np.tile(task.y, (policy.count, 1))
    ys[:, :size] += policy.draws(size)
    at_once = max(1, _MOST_ROWS // task.data.segments.ts.size)
    parts = [ys[k : k + at_once] for k in range(0, len(ys), at_once)]
    losses = [half_squares(task.problem, part, task.data, task.conditions) for part in parts]
    all_losses = np.concatenate(losses)
    good = [k for k in np.argsort(all_losses)[: policy.refine] if np.isfinite(all_losses[k])]
    return [replace(task, y=ys[k]) for k in good]


_SPREADS = (0.2, 0.05)  # of starting points across kinks, in turns
_TURNS = 6
_LESS = 1e-3  # share by which a loss must fall to be that of another minimum


def across_kinks(
    task: Task, solved: Solved, policy: TrustRegion, is_noise: Callable[[Task, Solved], bool]
) -> Solved:
    """The best of further minima around one whose residuals are not noise.

    The loss of a motion with impacts or dry friction has a kink wherever the order of its events
    changes, and ridges between minima that no step along a gradient crosses.
    """
    starts, evaluations, vain, first, turn = 0, solved.evaluations, 0, solved.history[-1], 0
    while turn < _TURNS and vain < len(_SPREADS) and not is_noise(task, solved):
        around = MultiStart(spread=_SPREADS[turn % len(_SPREADS)], refine=8, seed=turn)
        ends = [
            solve(one, policy) for one in starting_points(replace(task, y=solved.y), around)[1:]
        ]
        starts, evaluations = starts + len(ends), evaluations + sum(x.evaluations for x in ends)
        best = min(ends, key=lambda one: one.history[-1], default=solved)
        vain = 0 if best.history[-1] < (1 - _LESS) * solved.history[-1] else vain + 1
        solved, turn = (best if not vain else solved), turn + 1
    if not starts:
        return solved
    said = f"{solved.end.reason}; with {starts} more starts across the kinks of contact, by which "
    said += f"the loss fell to {solved.history[-1] / first:.2g} of itself"
    end = solved.end._replace(reason=said)
    return solved._replace(end=end, evaluations=evaluations)
