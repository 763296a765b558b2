"""The least-squares problem: residuals of all segments, continuity, prior, and their derivatives.

The residuals r (N,) of a segment and their derivatives J (N, P) are reduced to a triangle,
[J r] = Q [[R, c], [0, rho]] with orthonormal Q. Gauss-Newton and Levenberg-Marquardt depend on
J^T J = R^T R, J^T r = R^T c and r^T r = c^T c + rho^2 alone, so the P + 1 numbers (c, rho) with the
derivatives (R, 0) replace all N.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.identify.data.segments import SegmentOrigin
from jaxmech.identify.problem.residuals import Data, FitProblem, SegmentRun, linearized, runs
from jaxmech.utils.jit_cache import jit_of


class Conditions(eqx.Module):
    """Conditions on the unknowns besides the measurements; a weight is 1 / standard deviation."""

    prior_mean: Float[Array, " p"]
    prior_weight: Float[Array, " p"]  # 0 without a prior
    start_weight: Float[Array, "S k2"]  # of the start variables and their rates
    jump_weight: Float[Array, " n2"]  # of the jumps between segments
    jump_shift: Float[Array, "S n2"]  # added to the weighted jumps; zero for a soft condition

    def with_jumps(self, factor: float, shift: Array) -> "Conditions":
        """The conditions with jumps that weigh more by a factor."""
        weight = self.jump_weight * factor
        return replace(self, jump_weight=weight, jump_shift=shift / factor)


@dataclass(frozen=True, eq=False)
class Task:
    """A fit that is ready to be solved."""

    problem: FitProblem
    data: Data
    conditions: Conditions
    origin: SegmentOrigin
    y: Array  # the unknowns to begin with
    step: float | None  # largest step of integration [s]
    hard: bool  # whether jumps between segments must vanish
    weighted: bool  # whether residuals are in units of the stated standard deviation


def triangle(J: Float[Array, "N P"], r: Float[Array, " N"]) -> Float[Array, "P+1 P+1"]:
    """The triangle [[R, c], [0, rho]] of residuals and their derivatives.

    Example:
        >>> print(triangle(jnp.array([[3.0], [4.0]]), jnp.array([5.0, 0.0])))
        [[5. 3.]
         [0. 4.]]
    """
    # Gram-Schmidt in plain operations, since LAPACK in a batch can hang (docs/limits.md)
    columns = jnp.concatenate([J.T, r[None]])

    def clear(Q: Array, k: Array) -> tuple[Array, Array]:
        column = columns[k]
        first = Q @ column
        left = column - first @ Q
        second = Q @ left  # twice is enough (Giraud, Langou and Rozloznik 2005)
        left = left - second @ Q
        length = jnp.sqrt(left @ left)
        # a column that depends on those before it gets a zero on the diagonal
        kept = length > 1e-14 * jnp.sqrt(column @ column)
        Q = Q.at[k].set(jnp.where(kept, left / jnp.where(kept, length, 1.0), 0.0))
        return Q, (first + second).at[k].set(jnp.where(kept, length, 0.0))

    _, rows = jax.lax.scan(clear, jnp.zeros_like(columns), jnp.arange(len(columns)))
    return rows.T


def rows(problem: FitProblem, y: Array, data: Data, conditions: Conditions) -> tuple[Array, Any]:
    """All residuals (K,), reduced segment by segment, and their derivative as a linear function."""
    size, count = problem.layout.size, len(data.segments.last)
    values, slopes = linearized(problem, y, data)
    J = jnp.moveaxis(slopes.residual.reshape(count, slopes.residual.shape[1], -1), 1, 2)
    R = jax.vmap(triangle)(J, values.residual.reshape(count, -1))
    z, u = data.parts(y, size)
    outer = outer_rows(problem, data, conditions, z, u)

    def apply(change: Array) -> Array:
        dz, du = data.parts(change, size)
        each = jnp.concatenate([jnp.broadcast_to(dz, (count, size)), du], axis=1)
        fitted = jnp.einsum("sij,sj->si", R[:, :, :-1], each)
        ends, begins = (jnp.einsum("sjm,sj->sm", x, each) for x in (slopes.end, slopes.begin))
        _, other = jax.jvp(partial(outer_rows, problem, data, conditions), (z, u), (dz, du))
        jumped = conditions.jump_weight[None] * _difference(ends, begins, data)
        return jnp.concatenate([fitted.ravel(), jumped.ravel(), other])

    jumped = _shifted_jumps(values, data, conditions)
    return jnp.concatenate([R[:, :, -1].ravel(), jumped.ravel(), outer]), apply


@jit_of("problem")
def dense(problem: FitProblem, y: Array, data: Data, conditions: Conditions) -> tuple[Array, Array]:
    """The values of `rows` (K,) and their derivatives as a matrix, (K, size of y)."""
    values, apply = rows(problem, y, data, conditions)
    return values, jax.vmap(apply)(jnp.eye(y.size)).T


def half_square(problem: FitProblem, y: Array, data: Data, conditions: Conditions) -> Array:
    """Half the sum of all squared residuals, differentiable in reverse mode."""
    found = runs(problem, y, data)
    jumped = _shifted_jumps(found, data, conditions)
    other = outer_rows(problem, data, conditions, *data.parts(y, problem.layout.size))
    return 0.5 * ((found.residual**2).sum() + (jumped**2).sum() + (other**2).sum())


def jumps(found: SegmentRun, data: Data) -> Float[Array, "S n2"]:
    """The final state of each segment minus the initial state of the next one."""
    return _difference(found.end, found.begin, data)


def _difference(ends: Array, begins: Array, data: Data) -> Array:
    return jnp.where(_continues(data), ends - begins[data.segments.following], 0.0)


def _shifted_jumps(found: SegmentRun, data: Data, conditions: Conditions) -> Array:
    weighted = conditions.jump_weight[None] * jumps(found, data)
    return jnp.where(_continues(data), weighted + conditions.jump_shift, 0.0)


def _continues(data: Data) -> Array:
    following = data.segments.following
    return (following != jnp.arange(len(following)))[:, None]


def outer_rows(
    problem: FitProblem, data: Data, conditions: Conditions, z: Array, u: Array
) -> Array:
    """Residuals of the priors of parameters and initial states, (p + S 2 k,)."""
    numbers = problem.layout.numbers(problem.layout.params(z, data.leaves))
    prior = conditions.prior_weight * (numbers - conditions.prior_mean)
    return jnp.concatenate([prior, (conditions.start_weight * data.start_changes(u)).ravel()])
