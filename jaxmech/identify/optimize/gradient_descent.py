"""Gradient descent of any kind, by optax, with gradients in reverse mode."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxmech.identify.optimize.trust_region import End, MultiStart, at_rest
from jaxmech.identify.problem.least_squares import (
    Conditions,
    Data,
    FitProblem,
    half_square,
    mean_square,
)
from jaxmech.identify.problem.rows import Point, Task, evaluated, residual_rows
from jaxmech.utils.checks import require_kind, require_positive_integer, require_seed
from jaxmech.utils.jit_cache import kept_by

_GAINED = 0.99  # the validation loss must fall to this share of the first one


@dataclass(frozen=True)
class Descent:
    """Steps of an optax optimizer along the gradient of the mean squared residual.

    It ends after the maximum number of steps, and has converged if the parameters are then within a
    tenth of their standard errors of the minimum. Use it where the trust region cannot be used: for
    thousands of parameters, more recordings than can be evaluated in every step, or early stopping.

    Args:
        optimizer: an optax transformation, such as optax.adam(1e-2). Parameters are scaled so that
            1 is a change by a factor of e, or by their own size.
        iterations: maximum number of steps.
        batch: number of recordings drawn for each step; all of them by default.
        patience: for early stopping, the number of steps without a better loss on the validation
            recordings after which it stops. The result is the best parameters, and has converged if
            the validation loss decreased; its intervals are computed as if it were a minimum. With
            None the validation recordings are not used.
        seed: seed of the draws.
        starts: random starting points, of which the best are fitted.

    Raises:
        ValueError: if a number is not positive.
        TypeError: if `optimizer` is not an optax transformation.
    """

    optimizer: optax.GradientTransformation
    iterations: int = 1000
    batch: int | None = None
    patience: int | None = None
    seed: int = 0
    starts: MultiStart | None = None

    def __post_init__(self) -> None:
        require_kind("optimizer", self.optimizer, optax.GradientTransformation, "optax.adam(1e-2)")
        for name in ("iterations", "batch", "patience"):
            if getattr(self, name) is not None or name == "iterations":
                require_positive_integer(name, getattr(self, name), "give a number")
        require_seed(self.seed)


def descend(
    policy: Descent, validation: Data | None, task: Task, at: Point, conditions: Conditions,
    record: Callable[[float], None],
) -> End:  # fmt: skip
    """Descend from a point, with `record` called with the loss before each step."""
    problem, data, count = task.problem, task.data, len(task.origin.recording)
    step, y = _program(problem, policy.optimizer), jnp.asarray(at.y)
    state, best, least, since = policy.optimizer.init(y), y, np.inf, 0
    scores: list[float] = []
    reason, ended = f"the {policy.iterations} steps are used up", False
    for number in range(policy.iterations):
        draw = np.random.default_rng([policy.seed, number])
        size = min(policy.batch or count, count)
        chosen = jnp.asarray(np.sort(draw.choice(count, size, replace=False)))
        loss, new, state = step(y, state, data, conditions, chosen)
        if not np.isfinite(float(loss)):
            raise FloatingPointError(
                f"The loss is {float(loss)} in step {number + 1}: the steps are too long for the "
                "motion; take a smaller learning rate."
            )
        scores.append(float(loss if validation is None else mean_square(problem, y, validation)))
        best, least, since = (y, scores[-1], 0) if scores[-1] < least else (best, least, since + 1)
        y = new
        record(float(loss))
        if policy.patience is not None and since >= policy.patience:
            reason, ended = f"{policy.patience} steps without a better validation loss", True
            break
    at = evaluated(task, best)
    if validation is None:  # the last step may be better, and losses are those of batches
        last = evaluated(task, y)
        losses = [residual_rows(task, one, conditions).loss for one in (at, last)]
        at = at if losses[0] < losses[1] and not policy.batch else last
    settled = at_rest(task, at, conditions) or (ended and least < _GAINED * scores[0])
    return End(at, bool(settled), reason, not ended, len(scores))


@kept_by(32)
def _program(problem: FitProblem, optimizer: optax.GradientTransformation) -> Any:
    """A step along the gradient of half the mean square of the measurements in some segments."""

    def loss(y: Array, data: Data, conditions: Conditions, chosen: Array) -> Array:
        z, u = data.parts(y, problem.layout.size)
        count = len(data.segments.last)
        if len(chosen) < count:  # of which none continues another
            s = jax.tree.map(lambda x: x[chosen], data.segments)
            s = replace(s, following=jnp.arange(len(chosen)))
            data, u = Data(s, data.leaves, data.along[chosen]), u[chosen]
            conditions = replace(
                conditions,
                prior_weight=conditions.prior_weight * (len(chosen) / count) ** 0.5,
                start_weight=conditions.start_weight[chosen],
            )
        squares = half_square(problem, jnp.concatenate([z, u.ravel()]), data, conditions)
        return squares / (data.segments.weights > 0).sum()

    def step(y: Array, state: Any, *args: Any) -> tuple[Array, Array, Any]:
        value, slope = jax.value_and_grad(loss)(y, *args)
        change, state = optimizer.update(slope, state, y)
        return value, optax.apply_updates(y, change), state

    return jax.jit(step)
