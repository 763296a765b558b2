"""Whether what a fit leaves over is the noise that was stated, or noise at all."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.problem.least_squares import outer_rows
from jaxmech.identify.problem.residuals import SegmentRun
from jaxmech.identify.problem.setup import Task

RARE = 1e-4  # a probability that is taken for none
FACTOR = 1.1  # by which the stated noise may be off, and all intervals with it
ALIKE = 0.2  # correlation of neighbours from which intervals are too short by a fifth
SURE = 4.0  # standard errors of that correlation
EXACT = 1e-6  # part of the motion below which residuals are those of the computation

Numbers = NDArray[np.float64]


def misfit(
    task: Task, y: Array, made: SegmentRun, residuals: Sequence[Numbers], unknowns: int
) -> str:
    """What to say about the residuals of a fit, nothing if they are what noise leaves.

    The sum of their squares, in units of the stated noise, has a chi-square distribution. Where no
    noise is stated, neighbours in time must be independent of one another.

    Args:
        task: what was fitted.
        y: the unknowns at its end.
        made: the pieces there.
        residuals: predicted less observed of each recording, (T, d).
        unknowns: their number, free starts included.
    """
    alike = similarity(residuals, task.origin.recordings)
    if task.weighted:
        squares, count = _squares(task, y, made)
        return _beside_the_stated(squares, count - unknowns, alike)
    left = share(task, made)
    if not alike or not left > EXACT:
        return ""
    return (
        f"Misfit: what the fit leaves over, {_percent(left)} of the motion, is no noise: "
        f"neighbours in time are alike (correlation {alike:.2f}). The model lacks something, or "
        "the times, a unit or a column are wrong. The intervals as if all residuals were "
        "independent are too short."
    )


def share(task: Task, made: SegmentRun) -> float:
    """What the fit leaves over, as a part of the motion that was recorded (root mean squares)."""
    weights, observed = task.data.segments.weights, task.data.segments.observed
    seen = weights > 0
    mean = jnp.where(seen, observed, 0).sum((0, 1)) / jnp.maximum(seen.sum((0, 1)), 1)
    signal = jnp.where(seen, weights * (observed - mean[None, None]), 0.0)
    return float(jnp.sqrt((made.residual**2).sum() / (signal**2).sum()))


def similarity(residuals: Sequence[Numbers], recordings: Sequence[Recording]) -> float:
    """The correlation of residuals with their neighbours in time, 0 if it may be chance.

    Args:
        residuals: of each recording, (T, d).
        recordings: as many.

    Example:
        >>> ts = np.linspace(0.0, 1.0, 50)
        >>> one = Recording(ts, np.zeros(50), [0.0], [0.0])
        >>> wave, noise = np.sin(6 * ts), np.random.default_rng(0).normal(size=50)
        >>> [round(similarity([left[:, None]], [one]), 2) for left in (wave, noise)]
        [0.99, 0.0]
    """
    products, squares, count = 0.0, 0.0, 0
    for left, one in zip(residuals, recordings, strict=True):
        seen = np.where(one.measured, left, np.nan)
        pairs = seen[1:] * seen[:-1]
        products += float(np.nansum(pairs))
        squares += float(np.nansum(seen**2))
        count += int(np.isfinite(pairs).sum())
    found = products / squares if squares > 0 else 0.0
    return found if found > max(ALIKE, SURE / np.sqrt(max(count, 1))) else 0.0


def _beside_the_stated(squares: float, degrees: int, alike: float) -> str:
    """A chi-square test, on both sides."""
    if degrees <= 0:
        return ""
    factor = float(np.sqrt(squares / degrees))
    over, under = float(chdtrc(degrees, squares)), float(chdtr(degrees, squares))
    measured = f"chi-square is {squares:.4g} with {degrees} degrees of freedom"
    if over < RARE and factor > FACTOR:
        cause = (
            f"Neighbours in time are alike (correlation {alike:.2f}), so that it is no noise: the "
            "model lacks something, or the times, a unit or a column are wrong."
            if alike
            else "It looks like noise: more of it than `weights` say."
        )
        return (
            f"Misfit: what the fit leaves over is {factor:.3g} times the stated noise ({measured}, "
            f"p {chance(over)}). {cause} The intervals are too short by that factor at least."
        )
    if under < RARE and factor < 1 / FACTOR:
        return (
            f"The stated noise is too large: what the fit leaves over is {factor:.3g} times it "
            f"({measured}, p {chance(under)}). The intervals are too wide."
        )
    return ""


def _squares(task: Task, y: Array, made: SegmentRun) -> tuple[float, int]:
    """The squares of all that was measured or is held to what is known, and their number."""
    conditions, size = task.conditions, task.problem.layout.size
    outer = np.asarray(outer_rows(task.problem, task.data, conditions, *task.data.parts(y, size)))
    weights = np.asarray(conditions.start_weight)
    along_q, along_v = (np.asarray(x) for x in (task.data.along_q, task.data.along_v))
    k = along_q.shape[1]
    held = [
        np.linalg.matrix_rank(w[:, None] * a) if a.size else np.zeros(len(w), int)
        for w, a in ((weights[:, :k], along_q), (weights[:, k:], along_v))
    ]
    count = sum(one.count for one in task.origin.recordings)
    count += int((np.asarray(conditions.prior_weight) > 0).sum()) + int(np.sum(held))
    return float((made.residual**2).sum() + (outer**2).sum()), count


def chance(p: float) -> str:
    """A probability beside its sign."""
    return f"= {p:.1g}" if p > 1e-15 else "< 1e-15"


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %"
