"""The horizon of a fit: how far its gradients mean something along the motion."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.diagnosis.misfit import share
from jaxmech.identify.problem.least_squares import Linearized, SegmentRun
from jaxmech.identify.problem.rows import Task
from jaxmech.integrate import FixedSteps
from jaxmech.sensitivity.growth import Growth, growth_warning, sensitivity_growth
from jaxmech.simulate import SimulationError
from jaxmech.system import Params
from jaxmech.velocities.rates import in_rates

_PEAK = 2.0  # growth along a motion, relative to that at its end
_ACCURACY = 1e-3  # to which round-off may grow, as in `growth_warning`
_SAVES = 100  # save times at which the growth is evaluated


def horizon_of(task: Task, made: SegmentRun, params: Params) -> tuple[Growth, str] | None:
    """The growth of changes along the longest segment, and a warning; None without a derivative."""
    s, system, policies = task.data.segments, task.problem.system, task.problem.scheme.policies
    k = _longest(s)
    params = with_inputs(params, s.inputs_of(k))
    ts = np.asarray(s.ts)[k, : int(np.asarray(s.last)[k]) + 1]
    # All of them where they have the samples of inputs.
    stride = 1 if s.inputs else -(-(len(ts) - 1) // _SAVES)
    if isinstance(steps := task.problem.scheme.steps, FixedSteps):
        policies["steps"] = replace(steps, per_save=steps.count * stride)
    q0, v0 = (jnp.asarray(x) for x in np.split(made.begin[k], [system.n]))
    v0 = system.speeds(q0, v0, jnp.asarray(ts[0]), params)
    try:
        system = in_rates(system, params)
        growth = sensitivity_growth(system, q0, v0, ts[::stride], params, **policies)
    except (SimulationError, ValueError):
        return None
    return growth, growth_warning(growth, change=_change(task, made))


def may_grow(task: Task, made: Linearized) -> bool:
    """Whether `horizon_of` may warn, by the growth of the free initial state to the end alone.

    It is known from the Jacobian, while `horizon_of` compiles programs of its own.
    """
    p, k = task.problem.layout.size, _longest(task.data.segments)
    begin, end = (np.asarray(x, float)[k, p:].T for x in (made.slopes.begin, made.slopes.end))
    if not begin.any() or not np.isfinite(end).all():
        return True
    n = task.problem.system.n
    transition = end @ np.linalg.pinv(begin)
    # the rate that makes coordinates comparable with velocities, as in `sensitivity_growth`
    stiffness, inertia = np.sum(transition[n:, :n] ** 2), np.sum(transition[:n, n:] ** 2)
    rate = (stiffness / inertia) ** 0.25 if stiffness > 0 and inertia > 0 else 1.0
    scale = np.repeat([rate, 1.0], [n, len(begin) - n])
    factor = np.linalg.norm(scale[:, None] * transition / scale, 2)
    eps = float(np.finfo(task.data.segments.ts.dtype).eps)
    return bool(_PEAK * factor * max(_change(task, made.run), eps / _ACCURACY) >= 1)


def _longest(s: Segments) -> int:
    """The index of the segment that lasts longest."""
    ts, last = np.asarray(s.ts), np.asarray(s.last)
    return int(np.argmax(ts[np.arange(len(last)), last] - ts[:, 0]))


def _change(task: Task, made: SegmentRun) -> float:
    """The size of a change that matters, relative to the motion: that of the residuals."""
    return float(np.clip(share(task, made), 1e-6, 0.1))
