"""The Gauss-Newton matrix at the end of a fit, with the initial states eliminated."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from jaxmech.identify.problem.least_squares import Conditions, FitProblem, Task, dense
from jaxmech.utils.jit_cache import jit_of

_DEPENDENT = 1e-9  # share of a column, beyond the others, below which it counts as dependent
HARD = 1e3  # factor on the weight of a hard condition, which here has to be met exactly


def normal(task: Task, y: Array, conditions: Conditions) -> dict[str, np.ndarray]:
    """The second-order model of the sum of squares at y, as the fields of `Fit`."""
    if task.hard:
        conditions = conditions.with_jumps(HARD, conditions.jump_shift)
    problem, size = task.problem, task.problem.layout.size
    values, J = (np.asarray(x) for x in dense(problem, y, task.data, conditions))
    W = J[:, :size]
    if J.shape[1] > size:
        # W = J_z - J_u J_u^+ J_z: W^T W is the Schur complement of the Gauss-Newton matrix, without
        # the round-off of squaring first
        Q = basis(J[:, size:])
        W = W - Q @ (Q.T @ W)
    numbers, slopes = (np.asarray(x) for x in _numbers(problem, y[:size], task.data.leaves))
    W = np.linalg.solve(slopes.T, W.T).T
    recording = _recording_of_rows(task)
    parts = [recording == k for k in range(len(task.origin.recordings))]
    prior = W[recording < 0]
    return {
        "values": numbers,
        "information": W.T @ W,
        "informations": np.stack([W[part].T @ W[part] for part in parts]),
        "prior": prior.T @ prior,
        "scores": np.stack([W[part].T @ values[part] for part in parts]),
    }


def basis(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of columns of any sizes, (K, rank)."""
    sizes = np.linalg.norm(columns, axis=0)
    scaled = columns[:, sizes > 0] / sizes[sizes > 0]
    if not scaled.size:
        return np.zeros((len(columns), 0))
    from scipy.linalg import qr  # slow to import, and seldom needed

    Q, R, _ = qr(scaled, mode="economic", pivoting=True)
    orthonormal: np.ndarray = Q[:, : int((np.abs(np.diag(R)) > _DEPENDENT).sum())]
    return orthonormal


@jit_of("problem")
def _numbers(problem: FitProblem, z: Array, leaves: Any) -> tuple[Array, Array]:
    """The numbers that are fitted, (p,), and their derivatives by the free numbers, (p, p)."""
    numbers = problem.layout.numbers
    return numbers(z, leaves), jax.jacfwd(numbers)(z, leaves)


def _recording_of_rows(task: Task) -> np.ndarray:
    """The recording that each of the `rows` belongs to; -1 for the prior."""
    recording, p = task.origin.recording, task.problem.layout.size
    reduced = np.repeat(recording, p + task.data.free_starts + 1)
    jumped = np.repeat(recording, task.conditions.jump_shift.shape[1])
    starts = np.repeat(recording, task.conditions.start_weight.shape[1])
    return np.concatenate([reduced, jumped, np.full(p, -1), starts])
