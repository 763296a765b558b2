"""The Levenberg-Marquardt method on the reduced residuals, by optimistix, step by step."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.problem.least_squares import Conditions, Data, FitProblem, Task, dense, rows
from jaxmech.utils.checks import require_positive, require_positive_integer
from jaxmech.utils.field_docs import setting

_NEAR = 0.1  # distance from the minimum in standard errors at which a fit has converged
_ROUND_OFF = 1e-13  # share of the first loss at which perfect data are fitted to round-off
_LEVEL = 3  # accepted steps in a row that gain less than the tolerance end it
_PER_UNKNOWN = 100  # steps, by default, as in scipy's `least_squares`
_PATIENCE = 20  # rejected steps in a row end it: each is a quarter of the one before


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Levenberg-Marquardt steps with the exact Jacobian, the default; a few dozen suffice.

    Args:
        iterations: maximum number of steps; 100 for each unknown by default.
        tolerance: relative change of the unknowns, or of the loss, at which it ends.

    Raises:
        ValueError: a number is not positive.

    Example:
        >>> LevenbergMarquardt(iterations=20)
        LevenbergMarquardt(iterations=20, tolerance=1e-08)
    """

    iterations: int | None = setting(
        None, "maximum number of steps; 100 for each unknown by default"
    )
    tolerance: float = setting(
        1e-8, "relative change of the parameters, or of the loss, at which it stops"
    )

    def __post_init__(self) -> None:
        if self.iterations is not None:
            require_positive_integer("iterations", self.iterations, "give a number of steps")
        require_positive("tolerance", self.tolerance)


class Progress(NamedTuple):
    """The state of an optimizer after a step."""

    y: Array  # the unknowns
    loss: float  # half the sum of squared residuals
    done: bool
    converged: bool  # whether no gain is left
    state: Any  # state of the optimizer, a pytree of arrays


def steps(
    policy: LevenbergMarquardt, task: Task, y: Array, conditions: Conditions, state: Any = None
) -> Iterator[Progress]:
    """The progress after each step from y, or from the `state` of an earlier progress."""
    leaves, structure = jax.tree.flatten((y, task.data, conditions))
    shapes = (structure, *((x.shape, str(x.dtype)) for x in leaves))
    begin, step = _program(task.problem, policy.tolerance, shapes)
    state = begin(y, task.data, conditions) if state is None else state
    rejected, level, last, first = 0, 0, np.inf, None
    most = policy.iterations or _PER_UNKNOWN * y.size
    for _ in range(most + 1):  # the first one only evaluates y
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
    """Whether the linear model promises no gain; `first` is the initial loss of the fit."""
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
    """Compile the step of a problem for arguments of given shapes; also its first state."""
    import optimistix as optx  # slow to import, and seldom needed

    # The public interface of a solver is `init`, `step` and `terminate`. Loss, acceptance and the
    # next trial point are read from its state, whose fields are not promised: pyproject.toml bounds
    # the version, and tests/identify/test_levenberg_marquardt.py checks what they mean.
    solver: Any = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
    options: dict[str, Any] = {}
    tags: frozenset[object] = frozenset()
    first_state: dict[str, Any] = {}

    def residual(y: Array, args: tuple[Data, Conditions]) -> tuple[Array, None]:
        # optimistix linearizes the residual; the rule hands it the derivatives of `rows`, which
        # are computed as a batch of trajectories, instead of one trajectory per unknown
        @jax.custom_jvp
        def value(y: Array) -> Array:
            return rows(problem, y, *args)[0]

        @value.defjvp
        def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
            values, apply = rows(problem, primals[0], *args)
            return values, apply(tangents[0])

        return value(y), None

    def begin(y: Array, data: Data, conditions: Conditions) -> Any:
        if not first_state:  # traced once; later ones differ in y alone
            args = (data, conditions)
            struct = jax.eval_shape(lambda y: residual(y, args)[0], y)
            state = solver.init(residual, y, args, options, struct, None, tags)
            first_state["arrays"], first_state["static"] = eqx.partition(state, eqx.is_array)
        return eqx.tree_at(lambda state: state.y_eval, first_state["arrays"], y)

    @jax.jit
    def step(y: Array, arrays: Any, data: Data, conditions: Conditions) -> Any:
        args = (data, conditions)
        old_state = eqx.combine(arrays, first_state["static"])
        y, new_state, _ = solver.step(residual, y, args, options, old_state, tags)
        loss = 0.5 * (new_state.f_info.residual**2).sum()
        accepted = new_state.num_accepted_steps > old_state.num_accepted_steps
        next_change = jnp.abs(new_state.y_eval - y).max()
        terminate, _ = solver.terminate(residual, y, args, options, new_state, tags)
        done = terminate | (next_change < tolerance)
        return y, eqx.filter(new_state, eqx.is_array), loss, accepted, done

    return begin, step
