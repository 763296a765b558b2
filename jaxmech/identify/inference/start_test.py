"""Whether fixed initial states agree with the recordings: a test that needs no second fit."""

import jax.numpy as jnp
import numpy as np
from scipy.special import chdtrc, fdtrc

from jaxmech.identify.inference.goodness_of_fit import EXACT, chance, share
from jaxmech.identify.inference.normal_equations import HARD, basis
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.initial_states import free_directions, initial_states
from jaxmech.identify.problem.least_squares import Task, dense
from jaxmech.identify.problem.residuals import Data, SegmentRun

FALSE_ALARM = 1e-3  # probability with which exact initial states are suspected


def held_starts(task: Task, solved: Solved, made: SegmentRun) -> str:
    """A warning about fixed initial states, or an empty text if they agree with the recordings."""
    # The score test: how much the sum of squares falls, to second order, if these are freed too.
    # Under noise alone the fall has a chi-square distribution in units of the stated noise, or an F
    # distribution where the noise is estimated (Seber and Wild, "Nonlinear regression", 5.3).
    first = task.origin.first
    sides = (task.data.along_q, task.data.along_v)
    if any(np.asarray(side)[first].any() for side in sides) or not share(task, made) > EXACT:
        return ""
    try:
        values, J, gains = _freed(task, solved)
    except ValueError as error:
        return f"Held starts: not tested. {error}"
    held, whole = basis(J[:, ~gains]), basis(J)
    fall = float(np.sum((whole.T @ values) ** 2) - np.sum((held.T @ values) ** 2))
    before = float((made.residual**2).sum())
    gained = whole.shape[1] - held.shape[1]
    rest = sum(one.count for one in task.origin.recordings) - whole.shape[1]
    if not gained or rest <= 0:
        return ""
    if task.weighted:
        p, test = float(chdtrc(gained, fall)), f"chi-square {fall:.3g}, {gained} degrees of freedom"
    else:
        F = fall / gained / max((before - fall) / rest, EXACT * before)
        p, test = float(fdtrc(gained, rest, F)), f"F {F:.3g}, {gained} and {rest}"
        test += " degrees of freedom"
    if not p < FALSE_ALARM:
        return ""
    return (
        f"Held starts: freeing the initial states would lower the sum of squares by "
        f"{100 * min(fall / before, 1):.2g} %, far more than noise allows ({test}, p {chance(p)}). "
        "The recorded starts are not exact, and the intervals are wrong; fit with "
        'initial_states="free".'
    )


def _freed(task: Task, solved: Solved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All residuals, their derivatives, and which derivatives are by fixed initial states."""
    problem, data, size = task.problem, task.data, task.problem.layout.size
    z, u = data.parts(solved.y, size)
    states = initial_states(problem, data.segments, problem.layout.params(z, data.leaves))
    along = free_directions(problem, data.segments, states)
    if data.free_starts:  # of later segments, where they are as before
        here = task.origin.first[:, None, None]
        pairs = zip(along, (data.along_q, data.along_v), strict=True)
        along_q, along_v = (np.where(here, new, old) for new, old in pairs)
    else:
        along_q, along_v = along
    free = Data(data.segments, data.leaves, jnp.asarray(along_q), jnp.asarray(along_v))
    u = jnp.zeros((len(along_q), free.free_starts)) if not u.size else u
    conditions = task.conditions
    if task.hard:
        conditions = conditions.with_jumps(HARD, conditions.jump_shift)
    values, J = dense(problem, jnp.concatenate([z, u.ravel()]), free, conditions)
    gains = np.concatenate([np.zeros(size, bool), np.repeat(task.origin.first, free.free_starts)])
    return np.asarray(values), np.asarray(J), gains
