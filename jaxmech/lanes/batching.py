"""`batched`: the one place where a function of a single trajectory becomes one of many.

What goes in must be an argument: `hoisted` makes arguments of what a function closes over.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from jaxmech.lanes.explanation import Explanation
from jaxmech.lanes.switch import why_not
from jaxmech.lanes.vectorize import run


def batched(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that behaves as `fn`, and under `jax.vmap` follows the rule below.

    On a CPU the batch runs as lanes (`lanes.vectorize`), elsewhere through `jax.vmap`. The answers
    agree to round-off. The result is not differentiable on its own: use it inside a
    `jax.custom_vjp`, forward and backward function each wrapped.

    Args:
        fn: a function of arrays and pytrees of arrays.

    Example:
        >>> import jax.numpy as jnp
        >>> print(jax.vmap(batched(lambda x, y: x * y), (0, None))(jnp.arange(3.0), 2.0))
        [0. 2. 4.]
    """
    wrapped = custom_vmap(fn)

    @wrapped.def_vmap
    def rule(axis_size: int, in_batched: list[Any], *args: Any) -> tuple[Any, Any]:
        flags = tuple(in_batched)
        if why_not() is None:
            out = run(fn, flags, args, Explanation())
        else:
            axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, flags)
            out = jax.vmap(fn, axes, axis_size=axis_size)(*args)
        return out, jax.tree.map(lambda _: True, out)

    return wrapped


def hoisted(fn: Callable[..., Any], *inputs: Any) -> tuple[Callable[..., Any], list[Array]]:
    """fn as fn(traced, *inputs), and the traced values that it closes over.

    Args:
        fn: a function that may close over values of the transformations around it.
        *inputs: arguments for it, of the shapes and types in question.
    """
    closure = eqx.filter_closure_convert(fn, *inputs)
    leaves, structure = jax.tree.flatten(closure)
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]

    def with_traced(traced: list[Array], *inputs: Any) -> Any:
        whole = list(leaves)
        for k, x in zip(places, traced, strict=True):
            whole[k] = x
        return jax.tree.unflatten(structure, whole)(*inputs)

    return with_traced, [leaves[k] for k in places]
