"""The warnings of a fit.

That about its horizon, how far its gradients mean something along the motion, needs a simulation,
and is left until it is asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.inference.misfit import (
    correlated,
    misfit,
    outliers,
    share,
)
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.rows import Point, Task
from jaxmech.identify.problem.sensor_noise import EXACT
from jaxmech.identify.problem.steps import is_too_coarse, largest_shift, needed_steps
from jaxmech.integrate import FixedSteps, ForwardMode
from jaxmech.run import consistent_change, simulate
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.text import percent

_PEAK = 2.0  # growth along a motion, relative to that at its end
_ACCURACY = 1e-3  # to which round-off may grow
_OVERFLOW = 1e18  # a change that may have overflowed at the next save time, in single precision
_SAVES = 100  # save times at which the growth is evaluated


def horizon_warning(task: Task, at: Point) -> str:
    """A warning if the longest segment is too long for its gradient, or an empty text."""
    if not _may_grow(task, at):
        return ""
    s, system, policies = task.data.segments, task.problem.system, task.problem.scheme.policies
    k = _longest(s)
    params = with_inputs(task.params(at), s.inputs_of(k))
    ts = np.asarray(s.ts)[k, : int(np.asarray(s.last)[k]) + 1]
    # All of them where they have the samples of inputs.
    stride = 1 if s.inputs else -(-(len(ts) - 1) // _SAVES)
    if isinstance(steps := task.problem.scheme.steps, FixedSteps):
        policies["steps"] = replace(steps, per_save=steps.count * stride)
    q0, v0 = (jnp.asarray(x) for x in np.split(at.run.begin[k], [system.n]))
    times = jnp.asarray(ts[::stride], q0.dtype)
    change = consistent_change(system, q0, v0, times[0], params)
    if change is None:
        return ""
    ways = tuple((policies | {"derivative": ForwardMode(), "throw": False}).items())
    changes = _changes(system, ways, (q0, v0), times, change, params)
    dq, dv = (np.linalg.norm(np.asarray(x, float), axis=1) for x in changes)
    eps = float(jnp.finfo(q0.dtype).eps)
    since = np.abs(np.asarray(times, float) - float(times[0]))
    return too_long(since, _logarithms(dq, dv, float(since[-1])), eps, _change(task, at))


@jit_of("system", "ways")
def _changes(
    system: System, ways: tuple[Any, ...], state: Any, ts: Any, change: Any, params: Params
) -> tuple[Array, Array]:
    """A change of the initial state, carried along the motion: (T, n) and (T, k)."""

    def run(q: Array, v: Array) -> tuple[Array, Array]:
        solution = simulate(system, q, v, ts, params, **dict(ways))
        return solution.q, solution.v

    changes: tuple[Array, Array] = jax.jvp(run, state, change)[1]
    return changes


def _logarithms(dq: np.ndarray, dv: np.ndarray, span: float) -> np.ndarray:
    """The logarithm of the growth of a change with these sizes at each time, 0 at the first."""
    finite = np.isfinite(dq) & np.isfinite(dv)
    largest = float(np.concatenate([dq[finite], dv[finite]]).max(initial=0.0))
    if not finite.all() and largest < _OVERFLOW:
        return np.zeros(dq.size)  # a function without a derivative
    # The rate at which a change moves between coordinates and velocities: of an oscillator its
    # frequency.
    by_q, by_v = (float(np.linalg.norm(x[finite] / largest)) for x in (dq, dv))
    ratio = by_v / max(by_q, 1e-30)
    sizes = np.hypot(max(ratio, 1 / span) * dq, dv)
    return np.log(np.where(finite, sizes, np.inf) / sizes[0])


def too_long(since: np.ndarray, logarithms: np.ndarray, eps: float, change: float) -> str:
    """A warning if changes grow too much in a motion for its gradient, or an empty text."""

    def until(level: float) -> float:
        beyond = np.flatnonzero(logarithms >= level)
        if not beyond.size or level <= 0:
            return float("inf") if level > 0 else 0.0
        k = beyond[0]
        return float(np.interp(level, logarithms[k - 1 : k + 1], since[k - 1 : k + 1]))

    # A gradient predicts changes in proportion. When a change of the size that matters has grown to
    # the motion itself, the true change stays bounded while the predicted one goes on growing: the
    # loss has many minima. When round-off has grown to the accuracy that is wanted, the motion
    # depends on the order of the operations.
    predicted, computed = until(-float(np.log(change))), until(float(np.log(_ACCURACY / eps)))
    first = min(predicted, computed)
    if np.isinf(first):
        return ""
    if predicted <= computed:
        part = f"{change:.1g} of the motion"
        reason = f"a change of the initial state by {part} has grown as large as the motion"
    else:
        reason = f"round-off has grown to {_ACCURACY:.1g} of the motion"
    length = min(until(float(np.log(10.0))), 0.5 * first)
    known = np.isfinite(logarithms)
    last, rate = logarithms[known][-1], logarithms[known][-1] / since[known][-1]
    return (
        f"Gradients through this motion are meaningful only for the first {first:.3g} of its "
        f"{since[-1]:.3g} s: then {reason} (changes grow by a factor of 10^"
        f"{last / np.log(10):.0f}, doubling every {np.log(2) / rate:.2g} s). Use shorter segments, "
        f"such as `initial_states=Shooting(length={length:.2g})`."
    )


def _may_grow(task: Task, at: Point) -> bool:
    """Whether `horizon_warning` may warn, by the growth of the free initial state to the end alone.

    It is known from the Jacobian, while `horizon_warning` compiles programs of its own.
    """
    p, k = task.problem.layout.size, _longest(task.data.segments)
    begin, end = (np.asarray(x, float)[k, p:].T for x in (at.slopes.begin, at.slopes.end))
    if not begin.any() or not np.isfinite(end).all():
        return True
    n = task.problem.system.n
    transition = end @ np.linalg.pinv(begin)
    # the rate that makes coordinates comparable with velocities
    stiffness, inertia = np.sum(transition[n:, :n] ** 2), np.sum(transition[:n, n:] ** 2)
    rate = (stiffness / inertia) ** 0.25 if stiffness > 0 and inertia > 0 else 1.0
    scale = np.repeat([rate, 1.0], [n, len(begin) - n])
    factor = np.linalg.norm(scale[:, None] * transition / scale, 2)
    eps = float(np.finfo(task.data.segments.ts.dtype).eps)
    return bool(_PEAK * factor * max(_change(task, at), eps / _ACCURACY) >= 1)


def _longest(s: Segments) -> int:
    """The index of the segment that lasts longest."""
    ts, last = np.asarray(s.ts), np.asarray(s.last)
    return int(np.argmax(ts[np.arange(len(last)), last] - ts[:, 0]))


def _change(task: Task, at: Point) -> float:
    """The size of a change that matters, relative to the motion: that of the residuals."""
    return float(np.clip(share(task, at), 1e-6, 0.1))


def remarks(solved: Solved, residuals: Sequence[np.ndarray], unknowns: int) -> Iterator[str]:
    """The warnings of a fit, but for its horizon.

    Args:
        solved: the end of the fit.
        residuals: independent residuals of each recording, in units of a stated noise, (T, d).
        unknowns: the number of unknowns.
    """
    task, at, error = solved.task, solved.at, solved.integration_error
    if not solved.end.converged:
        yield (
            f"Not converged, since {solved.end.reason}: allow more, start closer, or fit the "
            "beginning of the recordings first; where no step reduces the loss, take shorter steps "
            "or segments, or a smaller learning rate. The intervals are not valid yet."
        )
    steps, remedy = task.problem.scheme.steps, ""
    if is_too_coarse(task, at, error, converged=True):
        remedy = "give smaller tolerances, such as `steps=Adaptive(rtol=1e-9)`"
        if isinstance(steps, FixedSteps):
            number = needed_steps(task, at)
            remedy = f"give `steps=FixedSteps(per_save={number})`" if number > steps.count else ""
    if remedy:
        yield (
            f"Steps too coarse: the integration error, {percent(error)} of the motion, may move "
            f"the estimates by {largest_shift(task, at, error):.2g} standard errors; {remedy}."
        )
    if text := misfit(task, at, residuals, unknowns):
        yield text
    # A robust loss expects outliers, and where residuals are correlated they are not outliers.
    far = outliers(residuals, task.origin.recordings)
    is_robust = task.loss is not None
    if len(far) and share(task, at) > EXACT and not (is_robust or correlated(task, at, residuals)):
        worst = far.samples[0]
        yield (
            f"Outliers: {len(far)} of {far.count:,} samples, the largest {abs(worst.sigmas):.3g} "
            f"standard deviations off in {worst.recording} at {worst.time:.6g} s. Correct or leave "
            "out what is wrong, or fit with loss=Huber()."
        )
    if solved.end.at_bound:
        names = task.problem.layout.names
        held = ", ".join(
            f"{names[k]} ({slope:.3g} of the loss for a change by one)"
            for k, slope in solved.end.at_bound
        )
        yield (
            f"At the bound: {held}. The recordings fit better beyond the bounds; fix the parameter "
            "there, or reconsider the model. Its interval is not valid."
        )
