"""`Density`: the posterior density of a fit as a function of its unknowns.

The unknowns y are free numbers of the parameters, without bounds: a parameter x with one bound is
its exponential, one with two bounds its logistic function; and behind them free numbers of the
initial states. The posterior density of the numbers that are fitted, with a flat prior within their
bounds unless one is given, is that of y divided by |det dx/dy|.

A noise sigma that is not stated has the prior 1 / sigma and is integrated out, which leaves
(sum r^2)^(-n/2) of the n residuals r of a sensor (Box and Tiao, "Bayesian inference in statistical
analysis", 1973, section 2.7). The scale of a robust loss is the estimate.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.least_squares import jumps, outer_rows, runs
from jaxmech.system import Params


class Density:
    """The unknowns of a fit and their posterior density: `Fit.density`.

    Attributes:
        names: names of the unknowns, Y in all.
        best: their values at the end of the fit, (Y,).
    """

    def __init__(self, solved: Solved) -> None:
        task = self._task = solved.task
        self._conditions = solved.conditions
        self.best = solved.at.y
        recordings = [task.origin.recordings[k].name for k in task.origin.recording]
        starts = [f"{name}, start {j}" for name in recordings for j in range(task.data.free_starts)]
        self.names = (*task.problem.layout.names, *starts)

    def params(self, y: Any) -> Params:
        """The parameters for unknowns (Y,), differentiable."""
        layout = self._task.problem.layout
        return layout.params(jnp.asarray(y)[: layout.size], self._task.data.leaves)

    def numbers(self, y: Any) -> Float[Array, " p"]:
        """The numbers that are fitted for unknowns (Y,), differentiable."""
        layout = self._task.problem.layout
        return layout.numbers(jnp.asarray(y)[: layout.size], self._task.data.leaves)

    def log_density(self, y: Float[Array, " Y"]) -> Float[Array, ""]:
        """The logarithm of the posterior density of the unknowns, but for a constant.

        With `jax.jit`, `jax.grad` and `jax.vmap`; -inf where the motion fails.
        """
        task, conditions = self._task, self._conditions
        by_y = jax.jacfwd(self.numbers)(y)[:, : task.problem.layout.size]
        made = runs(task.problem, y, task.data)
        outer = outer_rows(task.problem, task.data, conditions, y)
        left = conditions.jump_weight[None] * jumps(made.end, made.begin, task.data)
        squares = (outer**2).sum() + (left**2).sum()
        value = jnp.linalg.slogdet(by_y)[1] - 0.5 * squares - self._misfit(made.residual)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def _misfit(self, residual: Float[Array, "S T d"]) -> Float[Array, ""]:
        """Minus the logarithm of the likelihood of the residuals."""
        task = self._task
        seen = task.seen
        r = residual * np.asarray(self._conditions.sensor_weight)[None, None]
        r = jnp.where(seen, r, 0.0)
        if task.loss is not None:
            return task.loss.value(r).sum()
        squares = (r**2).sum((0, 1))
        if task.weighted:
            return 0.5 * squares.sum()
        return 0.5 * (seen.sum((0, 1)) * jnp.log(squares)).sum()
