"""Whether a fit follows nothing but noise.

A motion of which the recordings show nothing is still fitted: some frequency of the noise is larger
than others. The sum of squares falls by about two log(N) of its variance then, for N samples, which
the test below allows for. The information that such a motion contains depends on the size that the
noise gave it, unlike that of a small motion that is known, or of a rest whose place is measured.
"""

from collections.abc import Iterator

import numpy as np

from jaxmech.identify.inference.information import Numbers
from jaxmech.identify.inference.normal_equations import normal
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.least_squares import SegmentRun
from jaxmech.identify.problem.rows import Task

_FALSE_ALARM = 1e-3  # probability with which noise passes for a motion
_DRAWS = 16  # unknowns that agree with the recordings as well
_SPREAD = 0.35  # of the logarithm of the information at them, from which it is no information
_RANK = 1e-12  # eigenvalue, relative to the largest, that counts as zero


def lost_in_noise(task: Task, solved: Solved, made: SegmentRun, unknowns: int) -> Iterator[str]:
    """A warning that names the parameters whose information is the noise of the recordings."""
    if task.hard or _is_motion(task, solved, made, unknowns):
        return
    spread = _spread(task, solved, unknowns)
    lost = [name for name, x in zip(task.problem.layout.names, spread, strict=True) if x > _SPREAD]
    if lost:
        yield (
            "Lost in noise: the fitted motion agrees with the recordings hardly better than their "
            f"mean values do, and what it says of {', '.join(lost)} follows from the noise. The "
            "intervals are not valid; record a larger motion, or see whether the sensors work."
        )


def _is_motion(task: Task, solved: Solved, made: SegmentRun, unknowns: int) -> bool:
    """Whether the sum of squares is smaller than that of constants by more than noise explains."""
    from scipy.special import chdtrc  # slow to import, and seldom needed

    s = task.data.segments
    weights, conditions = np.asarray(s.weights, float), solved.conditions
    scale = np.asarray(conditions.sensor_weight) * np.asarray(conditions.sample_weight)
    constant = np.zeros(weights.shape)
    for k in range(len(task.origin.recordings)):
        mine = task.origin.recording == k
        squares = (scale * weights)[mine] ** 2
        total = (squares * np.asarray(s.observed)[mine]).sum((0, 1))
        mean = total / np.maximum(squares.sum((0, 1)), np.finfo(float).tiny)
        constant[mine] = (
            scale[mine if len(scale) > 1 else ...]
            * weights[mine]
            * (mean - np.asarray(s.observed)[mine])
        )
    fitted, constant = (
        (x**2).sum()
        for x in (_white(task, solved, scale * made.residual), _white(task, solved, constant))
    )
    count = int((weights > 0).sum())
    variance = 1.0 if task.weighted else fitted / max(count - unknowns, 1)
    if not variance > 0:
        return True
    fall = (constant - fitted) / variance
    return bool(fall > 0 and count * chdtrc(unknowns, fall) < _FALSE_ALARM)


def _white(task: Task, solved: Solved, values: np.ndarray) -> np.ndarray:
    times = np.asarray(solved.conditions.correlation_time, float)
    if not times.any():
        return values
    neighbours = task.evaluator.neighbours
    return neighbours.whitened(values, neighbours.correlation(times))


def _spread(task: Task, solved: Solved, unknowns: int) -> Numbers:
    """The spread of the information about each number, where unknowns are as likely, (p,)."""
    rows = task.evaluator.rows(solved.y, solved.conditions)
    sizes = np.linalg.norm(rows.jacobian, axis=0)
    sizes = np.where(sizes > 0, sizes, np.inf)
    squares, vectors = np.linalg.eigh((rows.jacobian / sizes).T @ (rows.jacobian / sizes))
    kept = squares > _RANK * squares.max(initial=0.0)
    count = int((np.asarray(task.data.segments.weights) > 0).sum())
    noise = 1.0 if task.weighted else np.sqrt(2 * rows.loss / max(count - unknowns, 1))
    draws = np.random.default_rng(0).normal(0.0, noise, (_DRAWS, int(kept.sum())))
    changes = (draws / np.sqrt(squares[kept])) @ vectors[:, kept].T / sizes
    logs = []
    for change in changes:
        y = solved.y + change
        if not task.evaluator.rows(y, solved.conditions).finite:
            continue
        information = normal(task, y, solved.conditions)["information"]
        with np.errstate(divide="ignore"):
            logs.append(np.log(np.diag(information)))
    # Where motions fail as soon as that, nothing is known.
    few = len(logs) < _DRAWS // 2
    return np.full(task.problem.layout.size, np.inf) if few else np.std(logs, axis=0)
