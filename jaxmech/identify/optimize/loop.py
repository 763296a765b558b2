"""Run an optimizer on a task: its rounds and its starting points."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from jaxmech.identify.optimize.condensed_steps import minimize_continuous
from jaxmech.identify.optimize.trust_region import End, MultiStart, TrustRegion, minimize
from jaxmech.identify.problem.least_squares import Conditions, half_squares
from jaxmech.identify.problem.rows import Point, Task, evaluated
from jaxmech.identify.problem.sensor_noise import SensorNoise, estimated, reweighted
from jaxmech.identify.problem.steps import integration_error, is_too_coarse, needed_steps
from jaxmech.integrate import FixedSteps

ROUNDS = 30  # of fits and estimates of the noise
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
    noise: SensorNoise | None  # where it is estimated for each sensor
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
            for _ in range(ROUNDS if weighs else 1):
                end = minimizer(policy, task, at, conditions, record, evaluations)
                at, settled = end.at, True
                evaluations += end.evaluations
                if weighs:
                    noise = estimated(task, at, conditions)
                    conditions, settled = reweighted(conditions, noise)
                if settled:
                    break
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


def across_kinks(solved: Solved, policy: TrustRegion, is_noise: Callable[[Solved], bool]) -> Solved:
    """The best of further minima beside one whose residuals are not noise.

    The loss of a motion with impacts or dry friction has a kink wherever the order of its events
    changes, and ridges between minima that no step along a gradient crosses.
    """
    task, starts, evaluations, first = solved.task, 0, solved.evaluations, solved.history[-1]
    layout = task.problem.layout
    vain = turn = 0
    while turn < _TURNS and vain < len(_CLOUDS) and not is_noise(solved):
        spread, at_start = _CLOUDS[turn % len(_CLOUDS)]
        middle = solved.at.y.copy()
        if at_start:
            middle[: layout.size] = layout.first(task.data.leaves)
        around = MultiStart(spread=spread, refine=8, seed=turn)
        points = starting_points(task, middle, around)[0 if at_start else 1 :]
        ends = [solve(task, evaluated(task, y), policy) for y in points]
        starts, evaluations = starts + len(ends), evaluations + sum(x.evaluations for x in ends)
        best = min(ends, key=lambda one: one.history[-1], default=solved)
        vain = 0 if best.history[-1] < (1 - _LESS) * solved.history[-1] else vain + 1
        solved, turn = (best if not vain else solved), turn + 1
    if not starts:
        return solved
    text = f"{solved.end.reason}; with {starts} more starts across the kinks of contact, by which "
    text += f"the loss fell to {solved.history[-1] / first:.2g} of itself"
    end = solved.end._replace(reason=text)
    return solved._replace(end=end, evaluations=evaluations)
