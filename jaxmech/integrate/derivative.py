"""How a rollout is differentiated, and where a batch of rollouts takes its own road.

Reverse mode recomputes every step in the backward pass, so that memory grows with the number of
save intervals plus the steps in one interval, not with their product. The forward run and the
backward run are each one function of a single trajectory; under `jax.vmap` both follow the rule of
`jaxmech.lanes.batched`.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate.rollout import Trajectory, rollout
from jaxmech.integrate.step import Scheme
from jaxmech.lanes import batched
from jaxmech.system import Params


@dataclass(frozen=True)
class AbstractDerivative(abc.ABC):
    """By which mode of automatic differentiation a trajectory can be differentiated."""

    @abc.abstractmethod
    def trajectory(
        self, scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params
    ) -> Trajectory:
        """The rollout, with its derivative rule."""


@dataclass(frozen=True)
class ReverseMode(AbstractDerivative):
    """`jax.grad`, `jax.vjp`, `jax.jacrev` to any number of parameters; the default.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> ts = jnp.linspace(0.0, 1.0, 101)
        >>> def height(params):
        ...     return jm.simulate(model.system, q0, v0, ts, params).q[-1, 1]
        >>> print(jax.grad(height)({"m": 1.0, "l": 1.0, "g": 9.81})["m"])
        0.0
    """

    def trajectory(
        self, scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params
    ) -> Trajectory:
        """The rollout with a backward pass that recomputes its steps."""
        remember = partial(jax.checkpoint, prevent_cse=False)
        inputs = (q0, v0, ts, params)
        run, closed_over = _hoisted(partial(rollout, scheme, remember=remember), *inputs)
        return _reversible(run)((closed_over, *inputs))


@dataclass(frozen=True)
class ForwardMode(AbstractDerivative):
    """`jax.jvp` and `jax.jacfwd` too: for few parameters, and for derivatives of derivatives.

    Reverse mode works as well but keeps every intermediate value of every step.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> ts = jnp.linspace(0.0, 1.0, 101)
        >>> def end(g):
        ...     params = {"m": 1.0, "l": 1.0, "g": g}
        ...     sol = jm.simulate(
        ...         model.system, q0, v0, ts, params, derivative=jm.ForwardMode()
        ...     )
        ...     return sol.q[-1]
        >>> jax.jacfwd(end)(9.81).shape
        (2,)
    """

    def trajectory(
        self, scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params
    ) -> Trajectory:
        """The rollout as plain JAX operations."""
        return rollout(scheme, q0, v0, ts, params)


def _any(tree: Any) -> Array:
    return jnp.stack([jnp.any(leaf) for leaf in jax.tree.leaves(tree)]).any()


def _hoisted(run: Callable[..., Trajectory], *inputs: Any) -> tuple[Callable[..., Trajectory], Any]:
    """run as run(closed_over, *inputs), and the traced values that the system closes over.

    They should be parameters; but a system made inside a differentiated or vectorized function is
    not wrong for it.
    """
    closure = eqx.filter_closure_convert(run, *inputs)
    traced, rest = eqx.partition(closure, lambda leaf: isinstance(leaf, jax.core.Tracer))
    return lambda traced, *inputs: eqx.combine(traced, rest)(*inputs), traced


def _reversible(run: Callable[..., Trajectory]) -> Callable[[tuple[Any, ...]], Trajectory]:
    """run(*inputs) as a function of the tuple of inputs, with its vector-Jacobian product."""

    def pull(varied: Any, rest: Any, cotangent: Any) -> Any:
        def floats(varied: Any) -> Any:
            return eqx.filter(run(*eqx.combine(varied, rest)), eqx.is_inexact_array)

        values, back = jax.vjp(floats, varied)
        asked = jax.tree.map(lambda ct: ct != 0, cotangent)
        unknown = jax.tree.map(lambda asked, value: asked & jnp.isnan(value), asked, values)
        # After a failure: NaN where a saved NaN has a say, and 0, not 0 times NaN, where none has.
        answer = jnp.where(_any(unknown), jnp.nan, 0.0)
        return jax.tree.map(
            lambda x: jnp.where(_any(asked) & ~_any(unknown), x, answer.astype(x.dtype)),
            back(cotangent)[0],
        )

    def forward(inputs: tuple[Any, ...]) -> tuple[Trajectory, tuple[Any, ...]]:
        return batched(run)(*inputs), inputs

    def backward(inputs: tuple[Any, ...], cotangent: Trajectory) -> tuple[Any]:
        varied, rest = eqx.partition(inputs, eqx.is_inexact_array)
        return (batched(pull)(varied, rest, eqx.filter(cotangent, eqx.is_inexact_array)),)

    differentiable = jax.custom_vjp(lambda inputs: batched(run)(*inputs))
    differentiable.defvjp(forward, backward)
    return differentiable
