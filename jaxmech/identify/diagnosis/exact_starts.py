"""Whether initial states that a fit holds fixed are exact."""

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.diagnosis.misfit import EXACT, probability, share
from jaxmech.identify.inference.normal_equations import basis
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.initial_states import free_directions, initial_states
from jaxmech.identify.problem.least_squares import Data, SegmentRun
from jaxmech.identify.problem.rows import Evaluator, ResidualRows, Task

_FALSE_ALARM = 1e-3  # probability with which exact initial states are suspected


def inexact_starts(task: Task, solved: Solved, made: SegmentRun) -> str:
    """A warning about fixed initial states, or an empty text if they agree with the recordings."""
    from scipy.special import chdtrc, fdtrc  # slow to import, and seldom needed

    # The score test: how much the sum of squares falls, to second order, if these are freed too.
    # Under noise alone the fall has a chi-square distribution in units of the stated noise, or an F
    # distribution where the noise is estimated (Seber and Wild, "Nonlinear regression", 5.3).
    first = task.origin.first
    if np.asarray(task.data.along)[first].any() or not share(task, made) > EXACT:
        return ""
    try:
        freed = _freed(task, solved)
    except ValueError as error:
        return f"Fixed initial states: not tested. {error}"
    now = task.evaluator.rows(solved.y, solved.conditions)
    held, whole = basis(now.jacobian), basis(freed.jacobian)
    fall = float(np.sum((whole.T @ freed.values) ** 2) - np.sum((held.T @ now.values) ** 2))
    before = 2 * now.loss
    gained = whole.shape[1] - held.shape[1]
    rest = sum(one.count for one in task.origin.recordings) - whole.shape[1]
    if not gained or rest <= 0:
        return ""
    if task.weighted:
        p, test = chdtrc(gained, fall), f"chi-square {fall:.3g}, {gained}"
    else:
        F = fall / gained / max((before - fall) / rest, EXACT * before)
        p, test = fdtrc(gained, rest, F), f"F {F:.3g}, {gained} and {rest}"
    if not p < _FALSE_ALARM:
        return ""
    return (
        "Fixed initial states: freeing them would lower the sum of squares by "
        f"{100 * min(fall / before, 1):.2g} %, far more than noise allows ({test} degrees of "
        f"freedom, p {probability(p)}). The recorded starts are not exact, and the intervals are "
        'wrong; fit with initial_states="free".'
    )


def _freed(task: Task, solved: Solved) -> ResidualRows:
    """All residuals, with derivatives by fixed initial states too."""
    problem, data, size = task.problem, task.data, task.problem.layout.size
    z, u = data.parts(solved.y, size)
    states = initial_states(problem, data.segments, problem.layout.known(z, data.leaves))
    along = free_directions(problem, data.segments, states, task.origin.first)
    if data.free_starts:  # of later segments, where they are as before
        along = np.where(task.origin.first[:, None, None], along, data.along)
    free = Data(data.segments, data.leaves, jnp.asarray(along))
    u = np.zeros((len(along), free.free_starts)) if not u.size else u
    evaluator = Evaluator(problem, free, task.origin.recording, hard=task.hard)
    return evaluator.rows(np.concatenate([z, u.ravel()]), solved.conditions)
