"""`Density`: the residuals of a fit and its posterior density as functions of the unknowns.

The unknowns y are free numbers of the parameters, without bounds: a parameter x with one bound is
its exponential, one with two bounds its logistic function; and behind them free numbers of the
initial states. The posterior density of the numbers that are fitted, with a flat prior within their
bounds unless one is given, is that of y divided by |det dx/dy|.

A noise sigma that is not stated has the prior 1 / sigma and is integrated out, which leaves
(sum r^2)^(-n/2) of the n residuals r of a sensor (Box and Tiao, "Bayesian inference in statistical
analysis", 1973, section 2.7). Correlation times, and the scale of a robust loss, are the estimates.
"""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.least_squares import jumps, outer_rows, runs
from jaxmech.identify.problem.rows import ResidualRows, Task
from jaxmech.system import Params


class Density:
    """The unknowns of a fit, its residuals, and its posterior density.

    A part of a `Fit`, the result of `fit`: `Fit.density`.

    Attributes:
        names: names of the unknowns, Y in all.
        best: their values at the end of the fit, (Y,).
    """

    def __init__(self, task: Task, solved: Solved) -> None:
        self._task, self._conditions = task, solved.conditions
        self.best = np.asarray(solved.y, float)
        recordings = task.origin.recordings
        self.names = (
            *task.problem.layout.names,
            *(
                f"{recordings[k].name}, start {j}"
                for k in task.origin.recording
                for j in range(task.data.free_starts)
            ),
        )

    @property
    def hard(self) -> bool:
        """Whether segments must be continuous, so that there is no density."""
        return self._task.hard

    def params(self, y: Any) -> Params:
        """The parameters for unknowns (Y,), differentiable."""
        layout = self._task.problem.layout
        return layout.params(jnp.asarray(y)[: layout.size], self._task.data.leaves)

    def numbers(self, y: Any) -> Float[Array, " p"]:
        """The numbers that are fitted for unknowns (Y,), differentiable."""
        layout = self._task.problem.layout
        return layout.numbers(jnp.asarray(y)[: layout.size], self._task.data.leaves)

    def residuals(self, y: Any) -> np.ndarray:
        """All residuals (N,) in units of the noise, those of priors included, in NumPy.

        With `jacobian` for `scipy.optimize.least_squares` and the like: half the sum of their
        squares is what the fit has minimized. Both come from one program, which runs once for each
        point. They are the triangles of the recordings, which have the same squares.
        """
        return self._rows(y).values

    def jacobian(self, y: Any) -> np.ndarray:
        """The derivatives of all `residuals`, (N, Y)."""
        return self._rows(y).jacobian

    def _rows(self, y: Any) -> ResidualRows:
        if self.hard:
            raise ValueError(
                "Argument `y` has no free unknowns where segments must join; fit without "
                "`horizon`, or with Shooting(..., continuity=...)."
            )
        return self._task.evaluator.rows(np.asarray(y, float), self._conditions)

    def log_density(self, y: Float[Array, " Y"]) -> Float[Array, ""]:
        """The logarithm of the posterior density of the unknowns, but for a constant.

        With `jax.jit`, `jax.grad` and `jax.vmap`; -inf where the motion fails.
        """
        task, conditions = self._task, self._conditions
        by_y = jax.jacfwd(self.numbers)(y)[:, : task.problem.layout.size]
        made = runs(task.problem, y, task.data)
        outer = outer_rows(task.problem, task.data, conditions, y)
        left = conditions.jump_weight[None] * jumps(made.end, made.begin, task.data)
        outer = jnp.concatenate([outer, left.ravel()])
        value = jnp.linalg.slogdet(by_y)[1] - 0.5 * (outer**2).sum() - self._misfit(made.residual)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def _misfit(self, residual: Float[Array, "S T d"]) -> Float[Array, ""]:
        """Minus the logarithm of the likelihood of the residuals."""
        task, seen = self._task, self._seen
        r = residual * np.asarray(self._conditions.sensor_weight)[None, None]
        if task.noise is not None:
            before = jnp.take_along_axis(r, task.evaluator.neighbours.previous, axis=1)
            r = (r - self._correlation * before) / np.sqrt(1 - self._correlation**2)
        r = jnp.where(seen, r, 0.0)
        if task.loss is not None:
            return task.loss.value(r).sum()
        squares = (r**2).sum((0, 1))
        if task.weighted:
            return 0.5 * squares.sum()
        return 0.5 * (seen.sum((0, 1)) * jnp.log(squares)).sum()

    @cached_property
    def _seen(self) -> np.ndarray:
        return np.asarray(self._task.data.segments.weights) > 0

    @cached_property
    def _correlation(self) -> np.ndarray:
        times = np.asarray(self._conditions.correlation_time, float)
        return self._task.evaluator.neighbours.correlation(times)
