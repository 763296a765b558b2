"""The step of a fit, chosen from the motion with the parameters that the fit begins with."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.problem.initial_states import InitialState
from jaxmech.identify.problem.residuals import FitProblem
from jaxmech.integrate.default_steps import members_need
from jaxmech.integrate.step_size import MEMBERS, Plan, rounded_up
from jaxmech.stabilization import Free
from jaxmech.system import Params, as_dtype

_LONGER = 1.5  # an interval longer than the usual one by this factor is divided


def with_chosen_steps(
    problem: FitProblem, params: Params, given: Sequence[Recording], s: Segments,
    states: Sequence[InitialState], step: float | None,
) -> tuple[FitProblem, float | None]:  # fmt: skip
    """The problem with the substeps of its method, and the largest step [s], if there is one."""
    method = problem.method
    if method.substeps is not None:
        return problem, step
    if step is not None:
        return replace(problem, method=replace(method, substeps=1)), step
    largest = _largest_step(problem, params, s, states)
    # substeps are for nine of ten intervals between samples; the longer ones are divided instead
    usual = float(np.quantile(np.concatenate([np.diff(one.ts) for one in given]), 0.9))
    substeps = rounded_up(usual / largest)
    return replace(problem, method=replace(method, substeps=substeps)), _LONGER * usual / substeps


def _largest_step(
    problem: FitProblem, params: Params, s: Segments, states: Sequence[InitialState]
) -> float:
    """The largest step that is accurate enough for a few of the segments [s]."""
    stabilization = Free() if problem.projection is None else problem.projection
    plan = Plan(problem.system, problem.method, problem.formulation, stabilization)
    count, largest = len(states), np.inf
    for k in np.unique(np.linspace(0, count - 1, min(count, MEMBERS)).round().astype(int)):
        ts = np.asarray(s.ts[k, jnp.asarray([0, s.last[k]])])
        q, v = states[k].q, states[k].v
        own = jax.tree.map(lambda x: np.asarray(x)[None], as_dtype(params, q.dtype))
        needed = members_need(plan, q[None], v[None], ts[None], own)
        largest = min(largest, float(ts[1] - ts[0]) / (needed or 1))
    return largest
