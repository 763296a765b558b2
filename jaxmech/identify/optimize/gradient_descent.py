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
    problem, data = task.problem, task.data
    step, y = _program(problem, policy.optimizer), jnp.asarray(at.y)
    state, best, least, first, since, ended = policy.optimizer.init(y), y, np.inf, np.inf, 0, False
    for count in range(policy.iterations):
        chosen = _drawn(policy, len(data.segments.last), count)
        loss, new, state = step(y, state, data, conditions, chosen)
        if not np.isfinite(float(loss)):
            raise FloatingPointError(
                f"The loss is {float(loss)} in step {count + 1}: the steps are too long for the "
                "motion; take a smaller learning rate."
            )
        score = float(loss if validation is None else mean_square(problem, y, validation))
        first = score if count == 0 else first
        best, least, since = (y, score, 0) if score < least else (best, least, since + 1)
        y = new
        record(float(loss))
        ended = policy.patience is not None and since >= policy.patience
        if ended:
            break
    at = evaluated(task, best)
    if validation is None:  # the last step may be better, and losses are those of batches
        last = evaluated(task, y)
        losses = [residual_rows(task, one, conditions).loss for one in (at, last)]
        at = at if losses[0] < losses[1] and not policy.batch else last
    settled = at_rest(task, at, conditions) or (ended and least < _GAINED * first)
    reason = f"the {policy.iterations} steps are used up"
    if ended:
        reason = f"{policy.patience} steps without a better validation loss"
    return End(at, bool(settled), reason, not ended, count + 1)


def _drawn(policy: Descent, segments: int, count: int) -> Array:
    draw = np.random.default_rng([policy.seed, count])
    size = min(policy.batch or segments, segments)
    return jnp.asarray(np.sort(draw.choice(segments, size, replace=False)))


@kept_by(32)
def _program(problem: FitProblem, optimizer: optax.GradientTransformation) -> Any:
    def loss(y: Array, data: Data, conditions: Conditions, chosen: Array) -> Array:
        """Half the mean square of the measurements in the chosen segments."""
        z, u = data.parts(y, problem.layout.size)
        unknowns = jnp.concatenate([z, u[chosen].ravel()])
        data, conditions = _chosen(data, conditions, chosen)
        return half_square(problem, unknowns, data, conditions) / (data.segments.weights > 0).sum()

    def step(y: Array, state: Any, *args: Any) -> tuple[Array, Array, Any]:
        value, slope = jax.value_and_grad(loss)(y, *args)
        change, state = optimizer.update(slope, state, y)
        return value, optax.apply_updates(y, change), state

    return jax.jit(step)


def _chosen(data: Data, conditions: Conditions, chosen: Array) -> tuple[Data, Conditions]:
    """Select the data and conditions of some segments, none of which continues another."""
    count = len(data.segments.last)
    if len(chosen) == count:
        return data, conditions
    segments = jax.tree.map(lambda x: x[chosen], data.segments)
    alone = replace(segments, following=jnp.arange(len(chosen)))
    return Data(alone, data.leaves, data.along[chosen]), replace(
        conditions,
        prior_weight=conditions.prior_weight * (len(chosen) / count) ** 0.5,
        start_weight=conditions.start_weight[chosen],
    )
