"""The Gauss-Newton matrix at the end of a fit, with the initial states eliminated."""

import numpy as np

from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import Task

_DEPENDENT = 1e-9  # share of a column, beyond the others, below which it counts as dependent


def normal(task: Task, y: np.ndarray, conditions: Conditions) -> dict[str, np.ndarray]:
    """The second-order model of the sum of squares at y, as the fields of `Fit`."""
    size, evaluator = task.problem.layout.size, task.evaluator
    values, J, recording, _ = evaluator.rows(y, conditions)
    W = J[:, :size]
    if J.shape[1] > size:
        # W = J_z - J_u J_u^+ J_z: W^T W is the Schur complement of the Gauss-Newton matrix, without
        # the round-off of squaring first
        Q = basis(J[:, size:])
        W = W - Q @ (Q.T @ W)
    made = evaluator.at(y)
    W = _by_numbers(W, np.asarray(made.by_z, float))
    parts = [recording == k for k in range(len(task.origin.recordings))]
    prior = W[recording < 0]
    return {
        "values": np.asarray(made.numbers),
        "information": W.T @ W,
        "informations": np.stack([W[part].T @ W[part] for part in parts]),
        "prior": prior.T @ prior,
        "scores": np.stack([W[part].T @ values[part] for part in parts]),
    }


def _by_numbers(W: np.ndarray, by_z: np.ndarray) -> np.ndarray:
    """Derivatives by the numbers, from those by z; zero by numbers that z does not move."""
    # near a bound the columns by z are tiny, but not what they are of each other
    sizes = np.linalg.norm(by_z, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    scaled, right = (by_z / sizes).T, (W / sizes).T
    try:
        return np.linalg.solve(scaled, right).T
    except np.linalg.LinAlgError:  # the fit ended where a map of parameters loses rank
        return np.linalg.lstsq(scaled, right, rcond=None)[0].T


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
