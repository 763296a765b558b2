"""`batched`: the one place where a function of a single trajectory becomes one of many."""

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_batching import custom_vmap


def batched(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that behaves as `fn`, and under `jax.vmap` follows the rule below.

    The rule is `jax.vmap` of `fn` itself; a faster kernel for a batch belongs here and nowhere
    else. It is not differentiable on its own: use it inside a `jax.custom_vjp`, forward and
    backward function each wrapped.

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
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(in_batched))
        out = jax.vmap(fn, axes, axis_size=axis_size)(*args)
        return out, jax.tree.map(lambda _: True, out)

    return wrapped
