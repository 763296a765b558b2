"""Levenberg and Marquardt's method on the compressed residuals, by optimistix, step by step."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array

from jaxmech.identify.problem.least_squares import Conditions, dense, rows
from jaxmech.identify.problem.residuals import Data, FitProblem
from jaxmech.utils.checks import require_positive_integer
from jaxmech.utils.field_docs import doc

_NEAR = 0.1  # standard errors from the minimum: less is nothing
_ROUND_OFF = 1e-13  # of the loss at the start: less is that of perfect data
_LEVEL = 3  # steps in a row that gain less than the tolerance: the loss is level
_PATIENCE = 20  # rejected steps in a row, each a quarter of the one before: nothing is left


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Levenberg-Marquardt steps with the exact Jacobian, the default; a few dozen suffice.

    Args:
        iterations: steps at most.
        tolerance: relative change of the unknowns, or of the loss, at which they are enough.

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
    """Where an optimizer is.

    Attributes:
        y: the unknowns.
        loss: half the squared residuals there.
        done: whether it has ended.
        converged: whether it has ended because nothing is left to gain.
        state: all else that it needs to go on, a pytree of arrays.
    """

    y: Array
    loss: float
    done: bool
    converged: bool
    state: Any


def steps(
    policy: LevenbergMarquardt,
    problem: FitProblem,
    y: Array,
    data: Data,
    conditions: Conditions,
    state: Any = None,
) -> Iterator[Progress]:
    """Goes on until it has converged.

    Args:
        policy: tolerance and number of steps.
        problem: what is compared.
        y: the unknowns to begin with.
        data: the numbers of the problem.
        conditions: what else is asked.
        state: of an earlier `Progress`, to go on from there.

    Yields:
        Progress after each step.
    """
    shapes = jax.tree.map(lambda x: (x.shape, str(x.dtype)), (y, data, conditions))
    leaves, structure = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
    program = _program(problem, policy.tolerance, _Shapes(tuple(leaves), structure))
    state = program.begin(y, data, conditions) if state is None else state
    rejected, level, last, first = 0, 0, np.inf, None
    for _ in range(policy.iterations + 1):  # the first looks only at the start
        y, state, loss, accepted, done = program.step(y, state, data, conditions)
        rejected = 0 if accepted else rejected + 1
        if accepted:
            level = level + 1 if last - loss <= policy.tolerance * loss else 0
            last = float(loss)
        done = bool(done) or rejected >= _PATIENCE or level >= _LEVEL
        first = float(loss) if first is None else first
        settled = done and at_rest(problem, y, data, conditions, first)
        yield Progress(y, float(loss), done, settled, state)
        if done:
            return


def at_rest(
    problem: FitProblem, y: Array, data: Data, conditions: Conditions, first: float = 0.0
) -> bool:
    """Whether the linear model sees nothing to gain: steps also get short beside a failing motion.

    What it could gain is the part of the residuals in the range of their derivatives. Twice that,
    in units of the variance that the fit leaves over, is the square of the distance from the
    minimum in standard errors.

    Args:
        problem: what is compared.
        y: the unknowns.
        data: the numbers of the problem.
        conditions: what else is asked.
        first: half the squares where the fit began, beside which round-off is nothing.
    """
    values, J = (np.asarray(x) for x in dense(problem, y, data, conditions))
    if not (np.isfinite(values).all() and np.isfinite(J).all()):  # the last step went too far
        return False
    fitted = J @ np.linalg.lstsq(J, values, rcond=1e-10)[0]
    loss, gain = 0.5 * values @ values, 0.5 * fitted @ fitted
    degrees = max(int((np.asarray(data.segments.weights) > 0).sum()) - y.size, 1)
    return bool(gain <= _NEAR**2 * loss / degrees or loss <= _ROUND_OFF * first)


class _Shapes(NamedTuple):
    leaves: tuple[Any, ...]
    structure: Any


class _FitProgram(NamedTuple):
    begin: Any
    step: Any


@lru_cache(maxsize=32)
def _program(problem: FitProblem, tolerance: float, shapes: _Shapes) -> _FitProgram:
    """The compiled step; `shapes` only tells programs apart."""
    solver: Any = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
    options: dict[str, Any] = {}
    kept: dict[str, Any] = {}

    def residual(y: Array, args: tuple[Data, Conditions]) -> tuple[Array, None]:
        @jax.custom_jvp
        def value(y: Array) -> Array:
            return rows(problem, y, *args)[0]

        @value.defjvp
        def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
            found, apply = rows(problem, primals[0], *args)
            return found, apply(tangents[0])

        return value(y), None

    def begin(y: Array, data: Data, conditions: Conditions) -> Any:
        """The state at first: traced once, and later only given another place to begin at."""
        if not kept:
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

    return _FitProgram(begin, step)
