"""`Density`: the posterior density of a fit as a function of its unknowns.

The unknowns y are numbers without bounds, zero at the end of the fit: the distance of a parameter
from its only bound is an exponential, a parameter with two bounds a logistic function; and behind
them the unknowns of the initial states. The posterior density of the numbers x that are fitted,
with a flat prior within their bounds unless one is given, is that of y divided by |det dx/dy|.

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
        self._size = size = task.problem.layout.size
        self._end = solved.at.y[:size]
        self.best = np.concatenate([np.zeros(size), solved.at.y[size:]])
        recordings = [task.origin.recordings[k].name for k in task.origin.recording]
        starts = [f"{name}, start {j}" for name in recordings for j in range(task.data.free_starts)]
        self.names = (*task.problem.layout.names, *starts)

    def params(self, y: Any) -> Params:
        """The parameters for unknowns (Y,), differentiable."""
        return self._task.problem.layout.params(self._unknowns(y), self._task.data.leaves)

    def numbers(self, y: Any) -> Float[Array, " p"]:
        """The numbers that are fitted for unknowns (Y,), differentiable."""
        return self._task.problem.layout.numbers(self._unknowns(y), self._task.data.leaves)

    def _unknowns(self, y: Any) -> Array:
        """The unknowns of the parameters in the fit, (p,)."""
        z = jnp.asarray(y)[: self._size]
        return jnp.asarray(self._task.problem.layout.moved(self._end, z, self._task.data.leaves))

    def log_density(self, y: Float[Array, " Y"]) -> Float[Array, ""]:
        """The logarithm of the posterior density of the unknowns, but for a constant.

        With `jax.jit`, `jax.grad` and `jax.vmap`; -inf where the motion fails.
        """
        task, conditions = self._task, self._conditions
        by_y = jax.jacfwd(self.numbers)(y)[:, : self._size]
        y = jnp.concatenate([self._unknowns(y), y[self._size :]])
        made = runs(task.problem, y, task.data)
        outer = outer_rows(task.problem, task.data, conditions, y)
        left = conditions.jump_weight[None] * jumps(made.end, made.begin, task.data)
        squares = (outer**2).sum() + (left**2).sum()
        r = made.residual * np.asarray(conditions.sensor_weight)[None, None]
        r = jnp.where(task.seen, r, 0.0)
        if task.loss is not None:
            misfit = task.loss.value(r).sum()
        elif task.weighted:
            misfit = 0.5 * (r**2).sum()
        else:
            misfit = 0.5 * (task.seen.sum((0, 1)) * jnp.log((r**2).sum((0, 1)))).sum()
        value = jnp.linalg.slogdet(by_y)[1] - 0.5 * squares - misfit
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)
