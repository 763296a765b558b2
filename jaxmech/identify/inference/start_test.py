"""Whether starts that are held agree with the recordings: a test that needs no second fit."""

import jax.numpy as jnp
import numpy as np
from scipy.special import chdtrc, fdtrc

from jaxmech.identify.inference.goodness_of_fit import EXACT, chance, share
from jaxmech.identify.inference.normal_equations import HARD, basis
from jaxmech.identify.optimize.loop import Solved, replace_weights
from jaxmech.identify.problem.least_squares import dense
from jaxmech.identify.problem.residuals import Data, SegmentRun
from jaxmech.identify.problem.setup import Task, directions_of_starts

FALSE_ALARM = 1e-3  # how often starts that are exact are suspected


def held_starts(task: Task, solved: Solved, made: SegmentRun) -> str:
    """What to say about starts that were held, nothing if they agree with the recordings.

    The score test: how much the sum of squares falls, to second order, if the starts are freed too.
    Noise alone lets it fall by a chi-square number for the freedoms gained, in units of the stated
    noise, or makes an F number of both where the noise is estimated (Seber and Wild, "Nonlinear
    regression", section 5.3).

    Args:
        task: what was fitted.
        solved: where it ended.
        made: the pieces there.
    """
    if _are_free(task) or not share(task, made) > EXACT:
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
        p, test = (
            float(fdtrc(gained, rest, F)),
            f"F {F:.3g}, {gained} and {rest} degrees of freedom",
        )
    if not p < FALSE_ALARM:
        return ""
    return (
        f"Held starts: freeing the initial states would lower the sum of squares by "
        f"{100 * min(fall / before, 1):.2g} %, far more than noise allows ({test}, p {chance(p)}). "
        "The recorded starts are not exact, and the intervals are wrong; fit with "
        'initial_states="free".'
    )


def _firsts(task: Task) -> np.ndarray:
    """Which pieces begin a recording, (S,)."""
    return np.diff(task.origin.recording, prepend=-1) != 0


def _are_free(task: Task) -> bool:
    sides = (task.data.along_q, task.data.along_v)
    return any(bool(np.asarray(side)[_firsts(task)].any()) for side in sides)


def _freed(task: Task, solved: Solved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All residuals, their derivatives, and which of these are by starts that were held."""
    problem, data, size, first = task.problem, task.data, task.problem.layout.size, _firsts(task)
    z, u = data.parts(solved.y, size)
    params = problem.layout.params(z, data.leaves)
    along_q, along_v = directions_of_starts(problem, data.segments, params)
    if data.free_starts:  # of later pieces
        here = first[:, None, None]
        along_q = np.where(here, along_q, data.along_q)
        along_v = np.where(here, along_v, data.along_v)
    free = Data(data.segments, data.leaves, jnp.asarray(along_q), jnp.asarray(along_v))
    u = jnp.zeros((len(first), free.free_starts)) if not u.size else u
    conditions = task.conditions
    if task.hard:
        conditions = replace_weights(conditions, HARD, conditions.jump_shift)
    values, J = dense(problem, jnp.concatenate([z, u.ravel()]), free, conditions)
    gains = np.concatenate([np.zeros(size, bool), np.repeat(first, free.free_starts)])
    return np.asarray(values), np.asarray(J), gains
