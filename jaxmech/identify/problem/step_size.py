"""The step of a fit, chosen before it from the motion with the parameters at its start."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.assemble import begin
from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import Shooting, segments
from jaxmech.identify.problem.parameters import Parameters
from jaxmech.identify.problem.residuals import FitProblem
from jaxmech.integrate.default_steps import members_need
from jaxmech.integrate.step_size import MEMBERS, Plan, rounded_up
from jaxmech.stabilization import Free
from jaxmech.system import as_dtype

_LONGER = 1.5  # an interval by this much longer than the usual one is divided


def with_chosen_steps(
    problem: FitProblem,
    found: Parameters,
    given: Sequence[Recording],
    horizon: Shooting | None,
    step: float | None,
) -> tuple[FitProblem, float | None]:
    """The problem with a method that has its substeps, and the largest step [s], if there is one.

    Nothing is chosen where substeps or a step are given. Else the substeps are for nine of ten
    intervals between samples, and longer ones are divided.
    """
    method = problem.method
    if method.substeps is not None:
        return problem, step
    if step is not None:
        return replace(problem, method=replace(method, substeps=1)), step
    largest = _largest_step(problem, found, given, horizon)
    usual = float(np.quantile(np.concatenate([np.diff(one.ts) for one in given]), 0.9))
    substeps = rounded_up(usual / largest)
    return replace(problem, method=replace(method, substeps=substeps)), _LONGER * usual / substeps


def _largest_step(
    problem: FitProblem, found: Parameters, given: Sequence[Recording], horizon: Shooting | None
) -> float:
    """The largest step that is fine enough for some of the pieces, at the start of the fit [s]."""
    pieces, _ = segments(given, horizon=horizon)
    params = found.layout.params(jnp.zeros(found.layout.size), found.leaves)
    stabilization = Free() if problem.projection is None else problem.projection
    plan = Plan(problem.system, problem.method, problem.formulation, stabilization)
    count = len(pieces.last)
    largest = np.inf
    for k in np.unique(np.linspace(0, count - 1, min(count, MEMBERS)).round().astype(int)):
        ts = pieces.ts[k, jnp.asarray([0, pieces.last[k]])]
        q, v = begin(problem.system, problem.start, pieces.q0[k], pieces.v0[k], ts[0], params)
        own = jax.tree.map(lambda x: np.asarray(x)[None], as_dtype(params, q.dtype))
        needed = members_need(plan, q[None], v[None], np.asarray(ts)[None], own)
        largest = min(largest, float(ts[1] - ts[0]) / (needed or 1))
    return largest
