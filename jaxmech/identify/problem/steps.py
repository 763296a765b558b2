"""The fixed steps of a fit: their number, which is chosen from the motion, and whether it will do.

The number is chosen where the fit begins. Where it ends the motion may need more steps, as it may
with a number that was given: the error of a trial with step doubling tells. An error d of the
predicted samples moves the estimates by (J^T J)^-1 J^T d, in units of the noise, that is by |d|
standard errors at most, and by as much where d lies in the span of J, as an error of a period does.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import Segments, ends_of_steps
from jaxmech.identify.problem.least_squares import FitProblem
from jaxmech.identify.problem.rows import Point, Task
from jaxmech.identify.problem.sensor_noise import EXACT, motion
from jaxmech.identify.problem.starts import InitialState
from jaxmech.integrate import MEMBERS, FixedSteps, members_error, members_need, target_error
from jaxmech.system import Params
from jaxmech.utils.tracers import evenly_spaced

_ROUND_OFF = 8.0  # distance of corners from the ends of a segment, in units of round-off
_LONGER = 1.5  # an interval longer than the usual one by this factor is divided
_SLACK = 1.25  # factor by which fewer steps may be made than the target needs
_COARSE = 16.0  # targets from which on an error may call for more steps
_SHIFT = 1.0  # standard errors by which an integration error may move the estimates


def with_chosen_steps(
    problem: FitProblem, params: Params, given: Sequence[Recording], s: Segments,
    states: Sequence[InitialState],
) -> tuple[FitProblem, float | None]:  # fmt: skip
    """The problem with the number of its steps, and the longest time for them [s], if any.

    Times between samples that are longer are divided.
    """
    policy = problem.scheme.steps
    jumps = any(signal.interpolation != "cubic" for signal in given[0].inputs.values())
    if jumps and not np.size(policy.times):
        # The times of a segment have the samples of its inputs among them.
        policy = replace(policy, times="saves")
        problem = replace(problem, scheme=replace(problem.scheme, steps=policy))
    if not isinstance(policy, FixedSteps):
        return problem, None
    per_save, longest = policy.per_save, np.inf
    if per_save is None:
        longest = _LONGER * _usual(s)
        starts = np.stack([np.concatenate([one.q, one.v]) for one in states])
        per_save = _needed(problem, params, s, starts)
    if policy.max_step is not None:
        longest = min(longest, float(policy.max_step) * per_save)
    policy = replace(policy, per_save=per_save, max_step=None)
    problem = replace(problem, scheme=replace(problem.scheme, steps=policy))
    return problem, longest if np.isfinite(longest) else None


def needed_steps(task: Task, at: Point) -> int:
    """The number of steps that the motion needs."""
    return _needed(task.problem, task.params(at), task.data.segments, np.asarray(at.run.begin))


def integration_error(task: Task, at: Point) -> float:
    """The largest integration error, of a few segments with fixed steps, by their motion."""
    scheme, s = task.problem.scheme, task.data.segments
    if not isinstance(scheme.steps, FixedSteps):
        return float(np.max(np.asarray(at.run.error)))
    largest, starts = 0.0, np.asarray(at.run.begin)
    params = task.params(at)
    for k in evenly_spaced(len(starts), MEMBERS):
        member = _member(task.problem, params, s, starts, k)
        error = members_error(scheme, *member, int(s.last[k]) * scheme.steps.count)
        largest = max(largest, error)
    return largest


def is_too_coarse(task: Task, at: Point, error: float, *, converged: bool) -> bool:
    """Whether an integration error may move the estimates, or has stopped the fit."""
    dtype = task.data.segments.ts.dtype
    if not error > _COARSE * target_error(task.problem.scheme.method, dtype):
        return False
    return not converged or largest_shift(task, at, error) > _SHIFT


def largest_shift(task: Task, at: Point, error: float) -> float:
    """The standard errors by which an integration error may move the estimates, at most."""
    s = task.data.segments
    weights, residual, seen = np.asarray(s.weights, float), at.run.residual, task.seen
    count = seen.sum((0, 1))
    unweighted = np.where(seen, residual, 0.0) / np.where(seen, weights, 1.0)
    noise = np.sqrt((unweighted**2).sum((0, 1)) / np.maximum(count, 1))
    share = noise / motion(weights, np.asarray(s.observed, float))
    # the steps that made the recordings, if they are a simulation, fit to round-off
    inexact = share > EXACT
    return float(error * np.sqrt((count[inexact] / share[inexact] ** 2).sum()))


def _needed(problem: FitProblem, params: Params, s: Segments, starts: np.ndarray) -> int:
    """The steps between samples that are accurate enough for a few segments from starts (S, nm).

    A power of two, so that fits to other recordings seldom compile other programs.
    """
    smallest, usual = np.inf, _usual(s)
    for k in evenly_spaced(len(starts), MEMBERS):
        q, v, ts, *others = _member(problem, params, s, starts, k)
        count = members_need(problem.scheme, q, v, ts, *others)
        smallest = min(smallest, float(ts[0, 1] - ts[0, 0]) / count)
    return 1 << max(0, math.ceil(math.log2(usual / smallest / _SLACK)))


def _usual(s: Segments) -> float:
    """The longest of nine in ten intervals between samples [s]; longer ones are divided instead."""
    rows = zip(np.asarray(s.ts), np.asarray(s.last), strict=True)
    intervals = np.concatenate([np.diff(ts[: last + 1]) for ts, last in rows])
    return float(np.quantile(intervals, 0.9))


def _member(
    problem: FitProblem, params: Params, s: Segments, starts: np.ndarray, k: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Params, np.ndarray]:
    """A segment as a batch of one: its start, its ends, its parameters and its corners."""
    ts = np.asarray(s.ts)[k, [0, int(s.last[k])]]
    q, v = np.split(starts[k].astype(ts.dtype), [problem.system.n])
    # The corners and jumps of the inputs; those at the ends count, since the last step is on the
    # side before a jump there.
    near = _ROUND_OFF * np.finfo(ts.dtype).eps * np.abs(np.asarray(s.ts)[k]).max()
    corners = ends_of_steps(s.inputs_of(k), ts[0] - near, ts[1] + near)[None].astype(ts.dtype)
    own = jax.tree.map(lambda x: np.asarray(x)[None], with_inputs(params, s.inputs_of(k)))
    return q[None], v[None], ts[None], own, corners
