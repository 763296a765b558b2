"""`given_motion`: a constraint that prescribes a motion as a function of time.

A program constraint e(q, t, p) = f(q, p) - target(t, p) = 0 can be enforced in two ways: as a
`Holonomic` constraint, which the initial state must satisfy and projection maintains, or as an
`Acceleration` constraint

    e'' + 2 alpha e' + beta^2 e = 0,

which any initial state may violate and which drives the error to zero (Udwadia and Kalaba,
"Analytical Dynamics", 1996, on trajectory tracking; Baumgarte 1972). Both act along their own
gradient, A^T lambda, with the smallest force in the metric of M^-1 (Gauss). The inputs of a motor,
which acts in one direction only, are those of `inverse_dynamics`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.state import Baumgarte
from jaxmech.system import Acceleration, Holonomic, Params, rate
from jaxmech.utils.checks import require_function, require_kind


def given_motion(
    fn: Callable[..., Any],
    target: Callable[..., Any],
    *,
    name: str = "given_motion",
    approach: Baumgarte | None = None,
) -> Holonomic | Acceleration:
    """Constrain a function of the coordinates to follow a given function of time.

    Its reaction in `observe` is the generalized force that enforces it. Its multiplier is the force
    on the constrained quantity: a generalized force for a coordinate, a force for a point.

    Args:
        fn: `fn(q, params)`, the constrained quantity, such as a coordinate or a point, () or (k,).
        target: `target(t, params)`, its prescribed value, twice differentiable; of the same shape.
        name: name of the constraint.
        approach: None for a `Holonomic` constraint; `Baumgarte(alpha, beta)` [1/s] for an
            `Acceleration` constraint, whose error e obeys e'' + 2 alpha e' + beta^2 e = 0;
            alpha = beta > 0 is critical damping.

    Returns:
        The constraint. Equal arguments result in equal constraints.

    Raises:
        TypeError: if `fn` or `target` is not a function, or `approach` not a `Baumgarte`.
    """
    require_function("fn", fn)
    require_function("target", target)
    if approach is None:
        return Holonomic(_Error(fn, target), name)
    require_kind("approach", approach, Baumgarte, "Baumgarte(alpha, beta) or None")
    return Acceleration(_Approach(_Error(fn, target), approach), name)


@dataclass(frozen=True)
class _Error:
    """The error e, as a class whose equal instances `jax.jit` treats as one function."""

    fn: Callable[..., Any]
    target: Callable[..., Any]

    def __call__(self, q: Array, t: Array, params: Params) -> Array:
        value = jnp.asarray(self.fn(q, params))
        target = jnp.asarray(self.target(t, params), value.dtype)
        if value.shape != target.shape:
            raise ValueError(
                f"Argument `target` must return the shape {value.shape} of what `fn` returns, but "
                f"returned shape {target.shape}; give every followed quantity one target."
            )
        return value - target


@dataclass(frozen=True)
class _Approach:
    """The stabilized error equation e'' + 2 alpha e' + beta^2 e."""

    error: _Error
    rates: Baumgarte

    def __call__(self, q: Array, v: Array, a: Array, t: Array, params: Params) -> Array:
        def error(q: Array, t: Array) -> Array:
            return self.error(q, t, params)

        def speed(q: Array, v: Array, t: Array) -> Array:
            return rate(error, q, v, t)

        velocity, acceleration = jax.jvp(speed, (q, v, t), (v, a, jnp.ones_like(t)))
        alpha, beta = self.rates.alpha, self.rates.beta
        return acceleration + 2 * alpha * velocity + beta**2 * error(q, t)
