"""What a solution knows of its own accuracy: the Gauss-Newton matrix without the initial states."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.objective import rows
from jaxmech.identify.prepare import Task
from jaxmech.identify.problem import Problem
from jaxmech.identify.solve import Solved, replace_weights

_HARD = 1e3  # how much more a hard condition weighs here than at the end of its rounds


@dataclass(frozen=True, eq=False)
class Normal:
    """Second order of the squares in the parameters, all else adapting to them.

    Attributes:
        information: J^T J by the numbers that are fitted, (p, p).
        scores: gradient of half the squares of each recording, (R, p).
        unseen: names of the numbers that no residual depends on.
    """

    information: np.ndarray
    scores: np.ndarray
    unseen: tuple[str, ...]


def normal(task: Task, solved: Solved) -> Normal:
    """Eliminates the starts: the rows of J less what a change of the starts can undo.

    W = J_z - J_u J_u^+ J_z has W^T W equal to the Schur complement of the Gauss-Newton matrix.

    Args:
        task: what was fitted.
        solved: where it ended.
    """
    conditions = solved.conditions
    if task.hard:
        conditions = replace_weights(conditions, _HARD, conditions.jump_shift * _HARD)
    problem, size = task.problem, task.problem.layout.size
    values, J = (np.asarray(x) for x in _rows(problem, solved.y, task.data, conditions))
    W = J[:, :size]
    unseen = tuple(
        name for name, column in zip(problem.layout.names, W.T, strict=True) if not column.any()
    )
    if J.shape[1] > size:
        starts = J[:, size:][:, J[:, size:].any(axis=0)]
        Q, _ = np.linalg.qr(starts) if starts.size else (np.zeros((len(J), 0)), None)
        W = W - Q @ (Q.T @ W)
    T = np.asarray(_slopes(problem, solved.y[:size], task.data.leaves))
    W = np.linalg.solve(T.T, W.T).T
    recording = _recording_of_rows(task)
    scores = np.stack(
        [W[recording == k].T @ values[recording == k] for k in range(len(task.origin.recordings))]
    )
    return Normal(W.T @ W, scores, unseen)


@partial(jax.jit, static_argnames="problem")
def _rows(problem: Problem, y: Array, data: Any, conditions: Any) -> tuple[Array, Array]:
    values, apply = rows(problem, y, data, conditions)
    return values, jax.vmap(apply)(jnp.eye(y.size)).T


@partial(jax.jit, static_argnames="problem")
def _slopes(problem: Problem, z: Array, leaves: Any) -> Array:
    """How the numbers that are fitted change with the free numbers, (p, p)."""
    layout = problem.layout
    return jax.jacfwd(lambda z: layout.numbers(layout.params(z, leaves)))(z)


def _recording_of_rows(task: Task) -> np.ndarray:
    """The recording that each row belongs to, in the order of `rows`; -1 for the prior."""
    pieces = task.origin.recording
    compressed = task.problem.layout.size + task.data.free_starts + 1
    states = 2 * task.problem.system.n
    starts = task.conditions.start_weight.shape[1]
    return np.concatenate(
        [
            np.repeat(pieces, compressed),
            np.repeat(pieces, states),
            np.full(task.problem.layout.size, -1),
            np.repeat(pieces, starts),
        ]
    )
