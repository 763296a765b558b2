"""The unknowns in which a trust region moves: `straight` numbers and initial states."""

import numpy as np

from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import ResidualRows, Task


class Unknowns:
    """The unknowns x of a task, those y of the problem for them, and residuals by x.

    Attributes:
        limits: bounds of x, (2, size of x).
    """

    def __init__(self, task: Task, conditions: Conditions) -> None:
        self.task, self.conditions = task, conditions
        self.size = task.problem.layout.size
        s, along = task.data.segments, np.asarray(task.data.along, float)
        starts = np.concatenate([np.asarray(s.q0, float), np.asarray(s.v0, float)], axis=1)
        # the first radius of the trust region is the size of the unknowns
        self.offset = np.einsum("ski,sk->si", along, starts).ravel()
        free = np.full((2, self.offset.size), [[-np.inf], [np.inf]])
        self.limits = np.concatenate([task.problem.layout.limits(task.data.leaves), free], axis=1)

    def straight(self, y: np.ndarray) -> np.ndarray:
        """x for y."""
        z = self.task.problem.layout.straight(y[: self.size], self.task.data.leaves)
        x = np.concatenate([z, y[self.size :] + self.offset])
        return np.clip(x, *self.limits)

    def unknowns(self, x: np.ndarray) -> np.ndarray:
        """y for x."""
        z, _ = self.task.problem.layout.bent(x[: self.size], self.task.data.leaves)
        return np.concatenate([z, x[self.size :] - self.offset])

    def slopes(self, x: np.ndarray) -> np.ndarray:
        """The derivatives of the numbers z by x, (p,)."""
        return self.task.problem.layout.bent(x[: self.size], self.task.data.leaves)[1]

    def rows(self, x: np.ndarray) -> ResidualRows:
        """The rows with derivatives by x, or by what is independent of it."""
        rows = self.task.evaluator.rows(self.unknowns(x), self.conditions)
        others = np.ones(rows.jacobian.shape[1] - self.size)
        return rows._replace(jacobian=rows.jacobian * np.concatenate([self.slopes(x), others]))

    def moved(self, x: np.ndarray, w: np.ndarray, share: float) -> np.ndarray:
        """The change of x for a step (P,) in what is independent of it.

        It closes a share of the linearized jumps.
        """
        made, p = self.task.evaluator.condensed(self.unknowns(x)), self.size
        by_w = np.concatenate([self.slopes(x) * w[:p], w[p:]])
        starts = made.maps[:, p:] @ by_w + share * made.closing[:, p:]
        return np.concatenate([w[:p], starts.ravel()])
