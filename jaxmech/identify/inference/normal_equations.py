"""What a solution knows of its own accuracy: the Gauss-Newton matrix without the initial states."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array
from scipy.linalg import qr

from jaxmech.identify.optimize.loop import replace_weights
from jaxmech.identify.problem.least_squares import Conditions, dense
from jaxmech.identify.problem.residuals import FitProblem
from jaxmech.identify.problem.setup import Task
from jaxmech.utils.jit_cache import jit_of

_DEPENDENT = 1e-9  # part of a column that the others leave, below which it says nothing new
HARD = 1e3  # how much more a hard condition weighs here than at the end of its rounds


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Second order of the squares in the parameters, all else adapting to them.

    Attributes:
        values: the numbers that are fitted, (p,).
        information: J^T J by them, the prior's with it, (p, p).
        informations: of each recording, (R, p, p).
        prior: of the prior alone, (p, p).
        scores: gradient of half the squares of each recording, (R, p).
    """

    values: np.ndarray
    information: np.ndarray
    informations: np.ndarray
    prior: np.ndarray
    scores: np.ndarray


def normal(task: Task, y: Array, conditions: Conditions) -> NormalEquations:
    """Eliminates the starts: the rows of J less what a change of the starts can undo.

    W = J_z - J_u J_u^+ J_z has W^T W equal to the Schur complement of the Gauss-Newton matrix.

    Args:
        task: what was fitted.
        y: the unknowns.
        conditions: of the last round.
    """
    if task.hard:
        conditions = replace_weights(conditions, HARD, conditions.jump_shift * HARD)
    problem, size = task.problem, task.problem.layout.size
    values, J = (np.asarray(x) for x in dense(problem, y, task.data, conditions))
    W = J[:, :size]
    if J.shape[1] > size:
        Q = basis(J[:, size:])
        W = W - Q @ (Q.T @ W)
    T = np.asarray(_slopes(problem, y[:size], task.data.leaves))
    W = np.linalg.solve(T.T, W.T).T
    recording = _recording_of_rows(task)
    parts = [recording == k for k in range(len(task.origin.recordings))]
    prior = W[recording < 0]
    return NormalEquations(
        values=np.asarray(_numbers(problem, y[:size], task.data.leaves)),
        information=W.T @ W,
        informations=np.stack([W[part].T @ W[part] for part in parts]),
        prior=prior.T @ prior,
        scores=np.stack([W[part].T @ values[part] for part in parts]),
    )


def basis(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what columns span, whatever their sizes, (K, rank)."""
    sizes = np.linalg.norm(columns, axis=0)
    scaled = columns[:, sizes > 0] / sizes[sizes > 0]
    if not scaled.size:
        return np.zeros((len(columns), 0))
    Q, R, _ = qr(scaled, mode="economic", pivoting=True)
    found: np.ndarray = Q[:, : int((np.abs(np.diag(R)) > _DEPENDENT).sum())]
    return found


@jit_of("problem")
def _slopes(problem: FitProblem, z: Array, leaves: Any) -> Array:
    """How the numbers that are fitted change with the free numbers, (p, p)."""
    return jax.jacfwd(lambda z: _numbers(problem, z, leaves))(z)


@jit_of("problem")
def _numbers(problem: FitProblem, z: Array, leaves: Any) -> Array:
    return problem.layout.numbers(problem.layout.params(z, leaves))


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
