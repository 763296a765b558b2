"""The least-squares problem: residuals of all pieces, continuity, prior, and their derivatives."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.identify.problem.compression import triangle
from jaxmech.identify.problem.residuals import Data, FitProblem, SegmentRun, linearized, runs
from jaxmech.utils.jit_cache import jit_of


class Conditions(eqx.Module):
    """What is asked of the unknowns beside the measurements; numbers only.

    Attributes:
        prior_mean: of the numbers that are fitted, (p,).
        prior_weight: 1 / standard deviation, 0 without a prior, (p,).
        start_weight: 1 / standard deviation of the start variables and rates, (S, 2 k).
        jump_weight: weight of the jumps between pieces, (2 n,).
        jump_shift: what is added to the weighted jumps, (S, 2 n): zero for a soft condition.
    """

    prior_mean: Float[Array, " p"]
    prior_weight: Float[Array, " p"]
    start_weight: Float[Array, "S k2"]
    jump_weight: Float[Array, " n2"]
    jump_shift: Float[Array, "S n2"]


def rows(problem: FitProblem, y: Array, data: Data, conditions: Conditions) -> tuple[Array, Any]:
    """All residuals, compressed piece by piece, and the linear map of their derivatives.

    Returns:
        Their values (K,), and a function from a change of the unknowns to that of the values.
    """
    size = problem.layout.size
    values, slopes = linearized(problem, y, data)
    pieces = len(values.residual)
    J = jnp.moveaxis(slopes.residual.reshape(pieces, slopes.residual.shape[1], -1), 1, 2)
    R = jax.vmap(triangle)(J, values.residual.reshape(pieces, -1))
    z, u = data.parts(y, size)
    outer = outer_rows(problem, data, conditions, z, u)

    def apply(change: Array) -> Array:
        dz, du = data.parts(change, size)
        each = jnp.concatenate([jnp.broadcast_to(dz, (pieces, size)), du], axis=1)
        fitted = jnp.einsum("sij,sj->si", R[:, :, :-1], each)
        ends, begins = (jnp.einsum("sjm,sj->sm", x, each) for x in (slopes.end, slopes.begin))
        _, other = jax.jvp(partial(outer_rows, problem, data, conditions), (z, u), (dz, du))
        jumped = _jumps(ends, begins, data, conditions)
        return jnp.concatenate([fitted.ravel(), jumped.ravel(), other])

    jumps = _jumps(values.end, values.begin, data, conditions)
    jumps = jnp.where(_goes_on(data), jumps + conditions.jump_shift, 0.0)
    return jnp.concatenate([R[:, :, -1].ravel(), jumps.ravel(), outer]), apply


@jit_of("problem")
def dense(problem: FitProblem, y: Array, data: Data, conditions: Conditions) -> tuple[Array, Array]:
    """The values of `rows` (K,) and their derivatives as a matrix, (K, size of y)."""
    values, apply = rows(problem, y, data, conditions)
    return values, jax.vmap(apply)(jnp.eye(y.size)).T


def half_square(problem: FitProblem, y: Array, data: Data, conditions: Conditions) -> Array:
    """Half the sum of all squared residuals, for gradients in reverse mode and for comparisons."""
    found = runs(problem, y, data)
    z, u = data.parts(y, problem.layout.size)
    jumps = jnp.where(
        _goes_on(data),
        _jumps(found.end, found.begin, data, conditions) + conditions.jump_shift,
        0.0,
    )
    other = outer_rows(problem, data, conditions, z, u)
    return 0.5 * ((found.residual**2).sum() + (jumps**2).sum() + (other**2).sum())


def jumps(found: SegmentRun, data: Data) -> Array:
    """The state at the end of each piece less that at the beginning of the next, (S, 2 n)."""
    return _difference(found.end, found.begin, data)


def _jumps(ends: Array, begins: Array, data: Data, conditions: Conditions) -> Array:
    return conditions.jump_weight[None] * _difference(ends, begins, data)


def _difference(ends: Array, begins: Array, data: Data) -> Array:
    return jnp.where(_goes_on(data), ends - begins[data.segments.following], 0.0)


def _goes_on(data: Data) -> Array:
    following = data.segments.following
    return (following != jnp.arange(len(following)))[:, None]


def outer_rows(
    problem: FitProblem, data: Data, conditions: Conditions, z: Array, u: Array
) -> Array:
    """What the measurements have no part in: priors of parameters, and of starts (p + S 2 k,)."""
    numbers = problem.layout.numbers(problem.layout.params(z, data.leaves))
    prior = conditions.prior_weight * (numbers - conditions.prior_mean)
    along = data.along_q.shape[2]
    moved_q = jnp.einsum("ski,si->sk", data.along_q, u[:, :along])
    moved_v = jnp.einsum("ski,si->sk", data.along_v, u[:, along:])
    moved = jnp.concatenate([moved_q, moved_v], axis=1)
    return jnp.concatenate([prior, (conditions.start_weight * moved).ravel()])
