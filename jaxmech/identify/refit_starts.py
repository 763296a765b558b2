"""Errors of recordings with the parameters held and only their starts fitted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.identifiable import Identifiable, Settings
from jaxmech.identify.problem.parameters import parameters
from jaxmech.identify.problem.residuals import Data, FitProblem, linearized, runs
from jaxmech.identify.problem.setup import Task, prepare
from jaxmech.identify.result import Predicted
from jaxmech.system import Params
from jaxmech.utils.jit_cache import jit_of

STEPS = 50
ENOUGH = 1e-9  # relative change of the squares that ends it


def errors_with_fitted_starts(
    subject: Identifiable,
    params: Params,
    recordings: Sequence[Recording],
    settings: Settings = Settings(),
) -> np.ndarray:
    """How near the system can come to recordings if only the start of each is fitted.

    Recordings that were measured with a noise of about what the model leaves over do not tell
    models apart from their recorded start; this does, as long as they are long enough that a start
    cannot make up for a wrong model. Starts are held to `Recording.start_sd` where that and the
    weights are known.

    Args:
        subject: the system and its sensors.
        params: the parameters, which are not changed.
        recordings: any, with the same sensors.
        settings: method of integration, projection, formulation and step.

    Returns:
        Root mean square of each recording, shape (R,), in the unit of the sensors; NaN where the
        motion cannot be simulated.

    Example:
        >>> import jaxmech as jm
        >>> ts = np.linspace(0.0, 1.0, 21)
        >>> off = Recording(ts, np.cos(3 * ts), [0.99], [0.01])
        >>> spring = jm.System(
        ...     lambda q, v, t, p: (v @ v - p["k"] * q @ q) / 2, coordinates=("x",)
        ... )
        >>> subject = Identifiable(spring, {"k": 9.0})
        >>> bool(errors_with_fitted_starts(subject, {"k": 9.0}, [off])[0] < 1e-4)
        True
    """
    first = parameters(params).layout.names[0].partition("[")[0]
    recordings = [one if one.weights is not None else replace(one, start_sd=None)
                  for one in recordings]  # fmt: skip
    task = prepare(
        subject.system, recordings, params, observe=subject.observe, start=subject.start,
        free=(first,), bounds=None, prior=None, initial_states="free", horizon=None,
        step=settings.step, method=settings.method, projection=settings.projection,
        formulation=settings.formulation,
    )  # fmt: skip
    found = runs(task.problem, _fitted(task), task.data)
    return Predicted(task.origin.recordings, tuple(task.origin.gathered(found.predicted))).errors


def _fitted(task: Task) -> Array:
    """Levenberg-Marquardt for each piece by itself, all at once."""
    problem, data = task.problem, task.data
    size, pieces = problem.layout.size, len(data.segments.last)
    weights = np.asarray(task.conditions.start_weight)
    u, damping = np.zeros((pieces, data.free_starts)), np.full(pieces, 1e-3)
    value, slope = _rows(problem, _unknowns(size, u), data, weights)
    for _ in range(STEPS):
        A = np.einsum("sri,srj->sij", slope, slope)
        diagonal = np.einsum("sii->si", A)
        A = A + np.eye(u.shape[1]) * (damping[:, None] * diagonal + 1e-300)[:, :, None]
        step = np.linalg.solve(A, -np.einsum("sri,sr->si", slope, value)[..., None])[..., 0]
        new, new_slope = _rows(problem, _unknowns(size, u + step), data, weights)
        squares, before = (new**2).sum(1), (value**2).sum(1)
        better = squares < before  # never if it is NaN
        u = np.where(better[:, None], u + step, u)
        value = np.where(better[:, None], new, value)
        slope = np.where(better[:, None, None], new_slope, slope)
        damping = np.where(better, damping / 10, np.maximum(damping, 1e-12) * 10)
        gained = np.where(better, before - squares, np.where(damping > 1e3, 0.0, before))
        if (gained <= ENOUGH * before).all():
            break
    return _unknowns(size, u)


def _unknowns(size: int, u: np.ndarray) -> Array:
    return jnp.concatenate([jnp.zeros(size), jnp.asarray(u).ravel()])


def _rows(problem: FitProblem, y: Array, data: Data, weights: np.ndarray) -> Any:
    """Residuals (S, rows) and their slopes by the starts (S, rows, i), what holds them included."""
    value, slope = (np.asarray(x) for x in _measured(problem, y, data))
    along = np.concatenate(
        [
            np.pad(data.along_q, ((0, 0), (0, 0), (0, data.along_v.shape[2]))),
            np.pad(data.along_v, ((0, 0), (0, 0), (data.along_q.shape[2], 0))),
        ],
        axis=1,
    )
    held = weights[:, :, None] * along
    _, u = data.parts(y, problem.layout.size)
    moved = np.einsum("sri,si->sr", held, u)
    return np.concatenate([value, moved], axis=1), np.concatenate([slope, held], axis=1)


@jit_of("problem")
def _measured(problem: FitProblem, y: Array, data: Data) -> tuple[Array, Array]:
    values, slopes = linearized(problem, y, data)
    pieces, size = len(data.segments.last), problem.layout.size
    rows = values.residual.reshape(pieces, -1)
    by_start = slopes.residual[:, size:].reshape(pieces, data.free_starts, -1)
    return rows, by_start.swapaxes(1, 2)
