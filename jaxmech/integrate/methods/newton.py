"""Newton's method for a balance of momenta with constraint forces, and its derivative.

The unknowns are x (n,) and multipliers lambda (m,) of

    balance(x) - rows^T lambda = 0,    level(x) = 0.

The derivative is that of the implicit function: another solve with the Jacobians at the root, so
that no iteration is differentiated.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.compiler import hoisted
from jaxmech.linalg import SaddlePoint, matvec, saddle_point, singular_weights
from jaxmech.system import SingularMass


class Residual(NamedTuple):
    """The equations at a point x."""

    balance: Array  # momentum that the constraint forces have to balance, (n,)
    rows: Array  # directions of the constraint forces, (m, n); independent of x
    level: Array  # residual of the constraints, (m,)


class Root(eqx.Module):
    """The solution of the equations."""

    x: Float[Array, " n"]
    multipliers: Float[Array, " m"]  # zero for rows that do not count
    converged: Bool[Array, ""]  # whether x is right to round-off after the last correction


Equations = Callable[[Array, Any], Residual]


class NewtonSettings(NamedTuple):
    """The static settings of a program."""

    iterations: int  # most corrections
    singular: SingularMass  # rows that make up for a singular Jacobian of the balance


def newton(
    equations: Equations,
    settings: NewtonSettings,
    guess: Array,
    data: Any,
    independent: Array,
    size: Array,
) -> Root:
    """Solve equations(x, data), `independent` rows alone; `size` is the scale of round-off of x."""
    hoisted_equations, traced = hoisted(equations, guess, data)

    def with_traced(x: Array, data: Any) -> Residual:
        values, traced = data
        return hoisted_equations(traced, x, values) if traced else equations(x, values)

    return Root(*_root(with_traced, settings, guess, (data, traced), independent, size))


def linear_step(
    equations: Equations, settings: NewtonSettings, x: Array, data: Any, independent: Array
) -> Root:
    """The solution of linear equations, by one correction of any x."""
    return Root(*_corrected(equations, settings, x, data, independent))


def _jacobians(
    equations: Equations, settings: NewtonSettings, x: Array, data: Any, independent: Array
) -> SaddlePoint:
    def unknown(x: Array) -> tuple[Array, Array]:
        residual = equations(x, data)
        return residual.balance, residual.level

    K, J = jax.jacfwd(unknown)(x)
    B = equations(x, data).rows
    return saddle_point(K, B, J, independent, singular_weights(K, B, settings.singular))


def _corrected(
    equations: Equations, settings: NewtonSettings, x: Array, data: Any, independent: Array
) -> tuple[Array, Array, Array]:
    """x after a correction, all multipliers, and whether the Jacobians could be factorized."""
    residual = equations(x, data)
    jacobians = _jacobians(equations, settings, x, data, independent)
    change, multipliers = jacobians.solve(-residual.balance, -residual.level)
    return x + change, multipliers, jacobians.regular


def _solve(
    equations: Equations,
    settings: NewtonSettings,
    guess: Array,
    data: Any,
    independent: Array,
    size: Array,
) -> tuple[Array, Array, Array]:
    # Convergence is quadratic: after a correction below sqrt(eps) only round-off is left.
    eps = jnp.finfo(guess.dtype).eps

    def correct(state: Root) -> Root:
        x, multipliers, regular = _corrected(equations, settings, state.x, data, independent)
        # Also no smaller than round-off of x, which for a short step is that of positions over h.
        enough = jnp.sqrt(eps) * (1 + jnp.max(jnp.abs(x))) + size
        small = jnp.max(jnp.abs(x - state.x)) <= enough
        return Root(x, multipliers, small & regular)

    def correct_or_rest(_: Array, state: Root) -> Root:
        return jax.lax.cond(state.converged, lambda: state, lambda: correct(state))

    start = Root(guess, jnp.zeros(independent.shape, guess.dtype), jnp.asarray(False))
    end = jax.lax.fori_loop(0, settings.iterations, correct_or_rest, start)
    return end.x, end.multipliers, end.converged


_root = jax.custom_jvp(_solve, nondiff_argnums=(0, 1))


@_root.defjvp
def _root_jvp(
    equations: Equations,
    settings: NewtonSettings,
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
) -> tuple[Any, Any]:
    x, multipliers, _ = root = _root(equations, settings, *primals)
    _, data, independent, _ = primals

    def residual(data: Any) -> tuple[Array, Array]:
        at_root = equations(x, data)
        return at_root.balance - matvec(at_root.rows.T, multipliers), at_root.level

    _, (force, level) = jax.jvp(residual, (data,), (tangents[1],))
    dx, dmultipliers = _jacobians(equations, settings, x, data, independent).solve(-force, -level)
    return root, (dx, dmultipliers, np.zeros((), jax.dtypes.float0))
