"""The optimizers of a fit, step by step: Levenberg-Marquardt by optimistix, descent by optax."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxmech.identify.problem.residuals import (
    Conditions,
    Data,
    FitProblem,
    Task,
    dense,
    half_square,
    rows,
    runs,
)
from jaxmech.utils.checks import require_kind, require_positive_integer, require_seed
from jaxmech.utils.field_docs import doc

_NEAR = 0.1  # distance from the minimum in standard errors at which a fit has converged
_ROUND_OFF = 1e-13  # share of the first loss at which perfect data are fitted to round-off
_LEVEL = 3  # accepted steps in a row that gain less than the tolerance end it
_PATIENCE = 20  # rejected steps in a row end it: each is a quarter of the one before
_GAINED = 0.99  # the validation loss must fall to this share of the first one


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Levenberg-Marquardt steps with the exact Jacobian, the default; a few dozen suffice.

    Args:
        iterations: maximum number of steps.
        tolerance: relative change of the unknowns, or of the loss, at which it ends.

    Raises:
        ValueError: a number is not positive.

    Example:
        >>> LevenbergMarquardt(iterations=20)
        LevenbergMarquardt(iterations=20, tolerance=1e-08)
    """

    iterations: int = field(default=50, metadata=doc("steps at most"))
    tolerance: float = field(
        default=1e-8,
        metadata=doc("relative change of the parameters, or of the loss, at which it stops"),
    )

    def __post_init__(self) -> None:
        require_positive_integer("iterations", self.iterations, "count the steps")
        if not self.tolerance > 0:
            raise ValueError(f"Argument `tolerance` must be positive, but is {self.tolerance}.")


class Progress(NamedTuple):
    """The state of an optimizer after a step."""

    y: Array  # the unknowns
    loss: float  # half the sum of squared residuals
    done: bool
    converged: bool  # whether it is done because nothing is left to gain
    state: Any  # what it needs to continue, a pytree of arrays


def steps(
    policy: LevenbergMarquardt, task: Task, y: Array, conditions: Conditions, state: Any = None
) -> Iterator[Progress]:
    """The progress after each step from y, or from the `state` of an earlier progress."""
    leaves, structure = jax.tree.flatten((y, task.data, conditions))
    shapes = (structure, *((x.shape, str(x.dtype)) for x in leaves))
    begin, step = _program(task.problem, policy.tolerance, shapes)
    state = begin(y, task.data, conditions) if state is None else state
    rejected, level, last, first = 0, 0, np.inf, None
    for _ in range(policy.iterations + 1):  # the first one only evaluates y
        y, state, loss, accepted, done = step(y, state, task.data, conditions)
        loss = float(loss)
        rejected = 0 if accepted else rejected + 1
        if accepted:
            level = level + 1 if last - loss <= policy.tolerance * loss else 0
            last = loss
        done = bool(done) or rejected >= _PATIENCE or level >= _LEVEL
        first = loss if first is None else first
        # short steps alone prove nothing: they also occur next to parameters where the motion fails
        settled = done and at_rest(task, y, conditions, first)
        yield Progress(y, loss, done, settled, state)
        if done:
            return


def at_rest(task: Task, y: Array, conditions: Conditions, first: float = 0.0) -> bool:
    """Whether the linear model has nothing to gain; `first` is the loss that the fit began at."""
    values, J = (np.asarray(x) for x in dense(task.problem, y, task.data, conditions))
    if not (np.isfinite(values).all() and np.isfinite(J).all()):  # the last step went too far
        return False
    # The part of the residuals in the range of J can be removed. Twice that loss, in units of the
    # remaining variance, is the squared distance from the minimum in standard errors.
    fitted = J @ np.linalg.lstsq(J, values, rcond=1e-10)[0]
    loss, gain = 0.5 * values @ values, 0.5 * fitted @ fitted
    degrees = max(int((np.asarray(task.data.segments.weights) > 0).sum()) - y.size, 1)
    return bool(gain <= _NEAR**2 * loss / degrees or loss <= _ROUND_OFF * first)


@lru_cache(maxsize=32)
def _program(problem: FitProblem, tolerance: float, shapes: Any) -> tuple[Any, Any]:
    """The first state of a problem and its compiled step, for arguments of given shapes."""
    import optimistix as optx  # slow to import, and seldom needed

    solver: Any = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
    options: dict[str, Any] = {}
    kept: dict[str, Any] = {}

    def residual(y: Array, args: tuple[Data, Conditions]) -> tuple[Array, None]:
        # optimistix linearizes the residual; the rule hands it the derivatives of `rows`, which
        # are computed as a batch of trajectories, instead of one trajectory per unknown
        @jax.custom_jvp
        def value(y: Array) -> Array:
            return rows(problem, y, *args)[0]

        @value.defjvp
        def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
            found, apply = rows(problem, primals[0], *args)
            return found, apply(tangents[0])

        return value(y), None

    def begin(y: Array, data: Data, conditions: Conditions) -> Any:
        if not kept:  # the initial state is traced once; later ones differ in y alone
            args = data, conditions
            struct = jax.eval_shape(lambda y: residual(y, args)[0], y)
            whole = solver.init(residual, y, args, options, struct, None, frozenset())
            kept["arrays"], kept["static"] = eqx.partition(whole, eqx.is_array)
        return eqx.tree_at(lambda state: state.y_eval, kept["arrays"], y)

    @jax.jit
    def step(y: Array, state: Any, data: Data, conditions: Conditions) -> Any:
        whole = eqx.combine(state, kept["static"])
        before = whole.num_accepted_steps
        y, whole, _ = solver.step(residual, y, (data, conditions), options, whole, frozenset())
        loss = 0.5 * (whole.f_info.residual**2).sum()
        accepted = whole.num_accepted_steps > before
        ahead = jnp.abs(whole.y_eval - y).max()  # of the step that is tried next
        done = whole.terminate | (ahead < tolerance)
        return y, eqx.filter(whole, eqx.is_array), loss, accepted, done

    return begin, step


@dataclass(frozen=True)
class Descent:
    """Steps of an optax optimizer along the gradient of the mean squared residual.

    It ends when its steps are used up, and has converged if the parameters are then within a tenth
    of their standard errors of the minimum. For what Levenberg-Marquardt cannot do: thousands of
    parameters, more recordings than can be evaluated in every step, or early stopping.

    Args:
        optimizer: an optax transformation, such as optax.adam(1e-2); the parameters move on a
            scale on which 1 is a change by a factor of e, or by their own size.
        iterations: maximum number of steps.
        batch: number of recordings drawn for each step; all of them by default.
        patience: steps without a better loss on the validation recordings after which it stops, for
            early stopping; the best parameters are the result, and have converged if the validation
            loss fell. Their intervals are those of a minimum all the same. With None the validation
            recordings play no part.
        seed: of the draws.

    Raises:
        ValueError: a number is not positive.
        TypeError: `optimizer` is not an optax transformation.

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


class _DescentState(NamedTuple):
    optimizer: Any
    best: Array
    best_loss: Array
    since: Array
    step: Array
    first_loss: Array  # of the recordings that decide


def descend(
    policy: Descent, task: Task, y: Array, conditions: Conditions, validation: Data | None,
    state: Any = None,
) -> Iterator[Progress]:  # fmt: skip
    """The progress after each step from y, or from an earlier `state`; the last holds the best."""
    problem, data = task.problem, task.data
    gradient, loss_of, update = _descent_program(problem, policy.optimizer)
    size = problem.layout.size
    watched = policy.patience is not None and validation is not None
    if state is None:
        zero, none = jnp.zeros((), int), jnp.asarray(jnp.inf)
        state = _DescentState(policy.optimizer.init(y), y, none, zero, zero, none)
    for count in range(int(state.step), policy.iterations):
        chosen = _drawn(policy, len(data.segments.last), count)
        loss, slope = gradient(y, data, conditions, chosen)
        if not np.isfinite(float(loss)):
            raise FloatingPointError(
                f"The loss is {float(loss)} in step {count + 1}: the steps are too long for the "
                "motion; take a smaller learning rate."
            )
        new, kept = update(slope, state.optimizer, y)
        judged = loss_of(y[:size], validation) if watched and validation else loss
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
        settled = at_rest(task, best, conditions)
        settled |= ended and float(least) < _GAINED * float(first)
        yield Progress(best, float(loss), ended, settled, state)
        return


def _drawn(policy: Descent, segments: int, count: int) -> Array:
    """The segments of one step."""
    if policy.batch is None or policy.batch >= segments:
        return jnp.arange(segments)
    # seeded with the number of the step, so that a continued fit draws the same
    draw = np.random.default_rng([policy.seed, count])
    return jnp.asarray(np.sort(draw.choice(segments, policy.batch, replace=False)))


@lru_cache(maxsize=32)
def _descent_program(problem: FitProblem, optimizer: optax.GradientTransformation) -> Sequence[Any]:
    def loss(y: Array, data: Data, conditions: Conditions, chosen: Array) -> Array:
        """Half the mean square of the measurements in the chosen segments."""
        size = problem.layout.size
        z, u = data.parts(y, size)
        taken = jnp.concatenate([z, u[chosen].ravel()])
        part = _chosen(data, conditions, chosen)
        return half_square(problem, taken, *part) / (part[0].segments.weights > 0).sum()

    def alone(z: Array, data: Data) -> Array:
        """Half the mean square of the measurements, without conditions."""
        return (
            0.5 * (runs(problem, z, data).residual ** 2).sum() / (data.segments.weights > 0).sum()
        )

    def update(slope: Array, state: Any, y: Array) -> tuple[Array, Any]:
        change, state = optimizer.update(slope, state, y)
        moved: Array = optax.apply_updates(y, change)
        return moved, state

    return jax.jit(jax.value_and_grad(loss)), jax.jit(alone), jax.jit(update)


def _chosen(data: Data, conditions: Conditions, chosen: Array) -> tuple[Data, Conditions]:
    """The data and conditions of some segments, which are not continued by others."""
    count = len(data.segments.last)
    if len(chosen) == count:
        return data, conditions
    segments = jax.tree.map(lambda x: x[chosen], data.segments)
    alone = replace(segments, following=jnp.arange(len(chosen)))
    some = Data(alone, data.leaves, data.along_q[chosen], data.along_v[chosen])
    asked = replace(
        conditions,
        prior_weight=conditions.prior_weight * (len(chosen) / count) ** 0.5,
        start_weight=conditions.start_weight[chosen],
        jump_shift=conditions.jump_shift[chosen],
    )
    return some, asked
