"""Gradient descent of any kind, by optax, with gradients in reverse mode."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxmech.identify.optimize.trust_region import End, MultiStart, at_rest
from jaxmech.identify.problem.least_squares import Conditions, Data, FitProblem, half_square
from jaxmech.identify.problem.rows import Point, Task, evaluated
from jaxmech.utils.checks import require_kind, require_positive_integer
from jaxmech.utils.jit_cache import kept_by


@dataclass(frozen=True)
class Descent:
    """Steps of an optax optimizer along the gradient of the mean squared residual.

    It ends after the number of steps at the best point, and has converged if that is within a tenth
    of a standard error of the minimum. Use it for thousands of parameters, where the trust region
    cannot be used.

    Args:
        optimizer: an optax transformation, such as optax.adam(1e-2). Parameters are scaled so that
            1 is a change by a factor of e, or by their own size.
        iterations: number of steps.
        starts: random starting points, of which the best are fitted.

    Raises:
        ValueError: if a number is not positive.
        TypeError: if `optimizer` is not an optax transformation.
    """

    optimizer: optax.GradientTransformation
    iterations: int = 1000
    starts: MultiStart | None = None

    def __post_init__(self) -> None:
        require_kind("optimizer", self.optimizer, optax.GradientTransformation, "optax.adam(1e-2)")
        require_positive_integer("iterations", self.iterations, "give a number")


def descend(
    policy: Descent, task: Task, at: Point, conditions: Conditions, record: Callable[[float], None]
) -> End:
    """Descend from a point, with `record` called with the loss before each step."""
    step, y = _program(task.problem, policy.optimizer), jnp.asarray(at.y)
    state, best, least = policy.optimizer.init(y), y, np.inf
    for number in range(policy.iterations + 1):  # the last one tells the loss of the last step
        value, new, state = step(y, state, task.data, conditions)
        loss = float(value)
        if not np.isfinite(loss):
            raise FloatingPointError(
                f"The loss is {loss} in step {number + 1}: the steps are too long for the "
                "motion; take a smaller learning rate."
            )
        if loss < least:
            best, least = y, loss
        if number < policy.iterations:
            record(loss)
        y = new
    at = evaluated(task, best)
    settled = at_rest(task, at, conditions)
    reason = f"the {policy.iterations} steps are used up"
    return End(at, settled, reason, spent=True, evaluations=policy.iterations)


@kept_by(32)
def _program(problem: FitProblem, optimizer: optax.GradientTransformation) -> Any:
    """A step along the gradient of half the mean square of the measurements."""

    def step(y: Array, state: Any, data: Data, conditions: Conditions) -> tuple[Array, Array, Any]:
        def loss(y: Array) -> Array:
            count = (data.segments.weights > 0).sum()
            return half_square(problem, y, data, conditions) / count

        value, slope = jax.value_and_grad(loss)(y)
        change, state = optimizer.update(slope, state, y)
        return value, optax.apply_updates(y, change), state

    return jax.jit(step)
