"""What one should know before believing a fit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.inference.goodness_of_fit import misfit, share
from jaxmech.identify.inference.start_test import held_starts
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.bounds import Anywhere
from jaxmech.identify.problem.residuals import SegmentRun
from jaxmech.identify.problem.setup import Task
from jaxmech.sensitivity.growth import sensitivity_growth
from jaxmech.sensitivity.growth_report import Growth, beyond
from jaxmech.simulate import SimulationError
from jaxmech.system import Params

AT_BOUND = 10.0  # a parameter that came nearer to its bound by exp(10), or 22,000 times
_SAVES = 100  # at which the growth is found


def remarks(
    task: Task, solved: Solved, made: SegmentRun, residuals: Sequence[np.ndarray], unknowns: int
) -> Iterator[str]:
    """The warnings of a fit, one after the other.

    Args:
        task: what was fitted.
        solved: where it ended.
        made: the pieces there.
        residuals: predicted less observed of each recording, (T, d).
        unknowns: their number, free starts included.

    Yields:
        A sentence with what to do about it.
    """
    if solved.stuck:
        yield (
            f"Stuck after {len(solved.history)} steps: what should make the fit better does not. "
            "The motion fails nearby or changes too wildly; take shorter steps (`step`), shorter "
            "pieces (`horizon`), bounds, another start, or a smaller learning rate of a descent."
        )
    elif not solved.converged:
        yield (
            f"Not converged after {len(solved.history)} steps: allow more `iterations`, or begin "
            "nearer; a descent may need another learning rate. The intervals mean nothing yet."
        )
    yield from filter(None, (held_starts(task, solved, made),))
    yield from filter(None, (misfit(task, solved.y, made, residuals, unknowns),))
    if stuck := _at_bounds(task, solved.y):
        yield (
            f"At the bound: {', '.join(stuck)}. The recordings ask for more than the bounds allow; "
            "fix it there, or think about the model. Its uncertainty means nothing."
        )
    if solved.y.dtype == jnp.float32:
        yield "Computed in single precision: set jax_enable_x64 for a fit that can be trusted."


def _at_bounds(task: Task, y: Array) -> list[str]:
    layout = task.problem.layout
    bounded = [
        not isinstance(way, Anywhere)
        for way, entries in zip(layout.transforms, layout.entries, strict=True)
        for _ in entries
    ]
    far = np.abs(np.asarray(y[: layout.size])) > AT_BOUND
    return [name for name, k in zip(layout.names, far & np.array(bounded), strict=True) if k]


def _change(task: Task, made: SegmentRun) -> float:
    """The change of a motion that matters, as a fraction of it: what the fit leaves over."""
    return float(np.clip(share(task, made), 1e-6, 0.1))


def horizon_of(task: Task, made: SegmentRun, params: Params) -> tuple[Growth, str] | None:
    """The growth of changes along the longest piece, and what to say about it.

    Args:
        task: what was fitted.
        made: the pieces at its end.
        params: the fitted parameters.

    Returns:
        None where the motion failed or has no derivative.
    """
    s, n = task.data.segments, task.problem.system.n
    lasting = s.ts[jnp.arange(len(s.last)), s.last] - s.ts[:, 0]
    piece = int(jnp.argmax(lasting))
    ts = np.asarray(s.ts[piece])[: int(s.last[piece]) + 1]
    stride = -(-(len(ts) - 1) // _SAVES)
    method = replace(task.problem.method, substeps=task.problem.method.count * stride)
    begin = made.begin[piece]
    try:
        growth = sensitivity_growth(
            task.problem.system, begin[:n], begin[n:], ts[::stride], params, method=method,
            projection=task.problem.projection, formulation=task.problem.formulation,
        )  # fmt: skip
    except (SimulationError, ValueError):
        return None
    return growth, beyond(growth, change=_change(task, made))
