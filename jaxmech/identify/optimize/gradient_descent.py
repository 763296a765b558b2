"""Gradient descent of any kind, by optax, with gradients in reverse mode."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxmech.identify.optimize.levenberg_marquardt import Progress, at_rest
from jaxmech.identify.problem.least_squares import Conditions, half_square
from jaxmech.identify.problem.residuals import Data, FitProblem
from jaxmech.utils.checks import require_kind, require_positive_integer, require_seed


@dataclass(frozen=True)
class Descent:
    """Steps of an optax optimizer along the gradient of the mean squared residual.

    It ends when its steps are used up, and has converged if the parameters are then within a tenth
    of their standard errors of the minimum.

    For what Levenberg-Marquardt cannot do: thousands of parameters, recordings too many to look at
    in every step, or stopping by recordings that are not fitted.

    Args:
        optimizer: an optax transformation, such as optax.adam(1e-2); the parameters move on a
            scale on which 1 is a change by a factor of e, or by their own size.
        iterations: steps at most.
        batch: recordings, drawn anew for each step; all of them by default.
        patience: steps without a better loss on the validation recordings after which it stops;
            the best parameters are the result, and have converged if the validation recordings
            gained by them; their intervals are those of a minimum all the same. None does not look
            at the recordings.
        seed: of the draws.

    Raises:
        ValueError: a number is not positive.
        TypeError: the optimizer is none of optax.

    Example:
        >>> import optax
        >>> Descent(optax.adam(1e-2), iterations=200).iterations
        200
    """

    optimizer: optax.GradientTransformation
    iterations: int = 1000
    batch: int | None = None
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        kind, example = optax.GradientTransformation, "optax.adam(1e-2)"
        require_kind("optimizer", self.optimizer, kind, example)
        for name in ("iterations", "batch", "patience"):
            if getattr(self, name) is not None or name == "iterations":
                require_positive_integer(name, getattr(self, name), "count them")
        require_seed(self.seed)


class Validation(NamedTuple):
    """Recordings that tell when to stop: their data, from their recorded starts."""

    data: Data
    conditions: Conditions


_GAINED = 0.99  # part of the first loss on the validation recordings: more is no gain


class _DescentState(NamedTuple):
    optimizer: Any
    best: Array
    best_loss: Array
    since: Array
    step: Array
    first_loss: Array  # as it is judged


def descend(
    policy: Descent,
    problem: FitProblem,
    y: Array,
    data: Data,
    conditions: Conditions,
    validation: Validation | None,
    state: Any = None,
) -> Iterator[Progress]:
    """Goes on until its steps or its patience are used up; the last progress holds the best.

    It has converged if nothing is left to gain there, or where `patience` ended it after the
    validation recordings had gained. That its steps are used up says nothing.

    Args:
        policy: optimizer and number of steps.
        problem: what is compared.
        y: the unknowns to begin with.
        data: the numbers of the problem.
        conditions: what else is asked.
        validation: recordings for `patience`.
        state: of an earlier `Progress`, to go on from there.

    Yields:
        Progress after each step.
    """
    gradient, loss_of, update = _program(problem, policy.optimizer)
    pieces, size = len(data.segments.last), problem.layout.size
    watched = policy.patience is not None and validation is not None
    if state is None:
        zero = jnp.zeros((), int)
        none = jnp.asarray(jnp.inf)
        state = _DescentState(policy.optimizer.init(y), y, none, zero, zero, none)
    for count in range(int(state.step), policy.iterations):
        chosen = _drawn(policy, pieces, count)
        loss, slope = gradient(y, data, conditions, chosen)
        if not np.isfinite(float(loss)):
            raise FloatingPointError(
                f"The loss is {float(loss)} in step {count + 1}: the steps are too long for the "
                "motion; take a smaller learning rate."
            )
        new, kept = update(slope, state.optimizer, y)
        judged = loss_of(y[:size], *validation) if watched and validation else loss
        better = judged < state.best_loss
        best = jnp.where(better, y, state.best) if watched else new
        since = jnp.where(better, 0, state.since + 1)
        least = jnp.minimum(judged, state.best_loss)
        first = jnp.where(count == 0, judged, state.first_loss)
        state = _DescentState(kept, best, least, since, jnp.asarray(count + 1), first)
        y = new
        ended = bool(watched) and int(since) >= (policy.patience or 0)
        if not ended and count + 1 < policy.iterations:
            yield Progress(y, float(loss), False, False, state)
            continue
        settled = at_rest(problem, best, data, conditions)
        settled |= ended and float(least) < _GAINED * float(first)
        yield Progress(best, float(loss), ended, settled, state)
        return


def _drawn(policy: Descent, pieces: int, count: int) -> Array:
    """The pieces of one step: the draw depends on the seed and the number of the step alone."""
    if policy.batch is None or policy.batch >= pieces:
        return jnp.arange(pieces)
    draw = np.random.default_rng([policy.seed, count])
    return jnp.asarray(np.sort(draw.choice(pieces, policy.batch, replace=False)))


@lru_cache(maxsize=32)
def _program(problem: FitProblem, optimizer: optax.GradientTransformation) -> Sequence[Any]:
    def loss(y: Array, data: Data, conditions: Conditions, chosen: Array) -> Array:
        """Half the mean square of the measurements in the chosen pieces."""
        size = problem.layout.size
        z, u = data.parts(y, size)
        taken = jnp.concatenate([z, u[chosen].ravel()])
        part = _chosen(data, conditions, chosen)
        return half_square(problem, taken, *part) / (part[0].segments.weights > 0).sum()

    def whole(z: Array, data: Data, conditions: Conditions) -> Array:
        return loss(z, data, conditions, jnp.arange(len(data.segments.last)))

    def update(slope: Array, state: Any, y: Array) -> tuple[Array, Any]:
        change, state = optimizer.update(slope, state, y)
        moved: Array = optax.apply_updates(y, change)
        return moved, state

    return jax.jit(jax.value_and_grad(loss)), jax.jit(whole), jax.jit(update)


def _chosen(data: Data, conditions: Conditions, chosen: Array) -> tuple[Data, Conditions]:
    """The data of some pieces. Those that follow one another stay whole: all are chosen then."""
    pieces = len(data.segments.last)
    if len(chosen) == pieces:
        return data, conditions
    segment = jax.tree.map(lambda x: x[chosen], data.segments)
    alone = type(segment)(
        segment.ts, segment.observed, segment.weights, segment.q0, segment.v0, segment.last,
        jnp.arange(len(chosen)),
    )  # fmt: skip
    some = Data(alone, data.leaves, data.along_q[chosen], data.along_v[chosen])
    share = len(chosen) / pieces
    asked = Conditions(
        conditions.prior_mean,
        conditions.prior_weight * share**0.5,
        conditions.start_weight[chosen],
        conditions.jump_weight,
        conditions.jump_shift[chosen],
    )
    return some, asked
