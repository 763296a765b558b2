"""The warnings of a fit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.inference.goodness_of_fit import held_starts, misfit, share
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.bounds import Interval
from jaxmech.identify.problem.least_squares import Task
from jaxmech.identify.problem.residuals import SegmentRun
from jaxmech.integrate import AbstractFixedStep
from jaxmech.sensitivity.growth import sensitivity_growth
from jaxmech.sensitivity.growth_report import Growth, growth_warning
from jaxmech.simulate import SimulationError
from jaxmech.system import Params

AT_BOUND = 10.0  # free number at which a parameter is exp(10), 22,000 times, nearer to its bound
_SAVES = 100  # save times at which the growth is evaluated


def remarks(
    task: Task, solved: Solved, made: SegmentRun, residuals: Sequence[np.ndarray], unknowns: int
) -> Iterator[str]:
    """The warnings of a fit with residuals (T, d) of each recording, but for its horizon."""
    if solved.stuck:
        fixed = isinstance(task.problem.method, AbstractFixedStep)
        better = "shorter steps (`step`)" if fixed else "smaller tolerances (`method`)"
        yield (
            f"Stuck after {len(solved.history)} steps: no step reduces the loss, although the "
            "linear model predicts it. The simulation fails nearby or is too sensitive; use "
            f"{better}, shorter segments (`horizon`), bounds, other initial parameters, or a "
            "smaller learning rate of a descent."
        )
    elif not solved.converged:
        yield (
            f"Not converged after {len(solved.history)} steps: allow more `iterations`, or start "
            "closer; a descent may need another learning rate. The intervals are not valid yet."
        )
    found = held_starts(task, solved, made), misfit(task, solved.y, made, residuals, unknowns)
    yield from filter(None, found)
    if stuck := _at_bounds(task, solved.y):
        yield (
            f"At the bound: {', '.join(stuck)}. The recordings fit better beyond the bounds; fix "
            "the parameter there, or reconsider the model. Its interval is not valid."
        )
    if solved.y.dtype == jnp.float32:
        yield "Computed in single precision: set jax_enable_x64 for a reliable fit."


def _at_bounds(task: Task, y: Array) -> list[str]:
    layout = task.problem.layout
    bounded = [way != Interval() for way in layout.transforms]
    far = np.abs(np.asarray(y[: layout.size])) > AT_BOUND
    far &= np.repeat(bounded, [len(entries) for entries in layout.entries])
    return [name for name, is_far in zip(layout.names, far, strict=True) if is_far]


def horizon_of(task: Task, made: SegmentRun, params: Params) -> tuple[Growth, str] | None:
    """The growth of changes along the longest segment, and a warning; None without a derivative."""
    s, n = task.data.segments, task.problem.system.n
    lasting = s.ts[jnp.arange(len(s.last)), s.last] - s.ts[:, 0]
    k = int(jnp.argmax(lasting))
    ts = np.asarray(s.ts[k])[: int(s.last[k]) + 1]
    stride = -(-(len(ts) - 1) // _SAVES)
    method = task.problem.method
    if isinstance(method, AbstractFixedStep):
        method = replace(method, substeps=method.count * stride)
    begin = made.begin[k]
    try:
        growth = sensitivity_growth(
            task.problem.system, begin[:n], begin[n:], ts[::stride], params, method=method,
            projection=task.problem.projection, formulation=task.problem.formulation,
        )  # fmt: skip
    except (SimulationError, ValueError):
        return None
    # a change matters from the size of the residuals on
    return growth, growth_warning(growth, change=float(np.clip(share(task, made), 1e-6, 0.1)))
