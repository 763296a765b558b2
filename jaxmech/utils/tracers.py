"""The concrete values behind tracers of `jax.vmap` and `jax.grad`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxmech.utils.checks import is_known
from jaxmech.utils.digests import is_key
from jaxmech.utils.jax_internals import Tracer, unsharded


def actual(tree: Any, limit: int) -> Any:
    """The values of up to `most` evenly spaced members of a batch, as numpy arrays with that axis.

    Typed random keys stay arrays of JAX.
    Without `jax.vmap` there is one member. The result is None under `jit`, `scan` and `checkpoint`,
    where values are unknown.
    """
    leaves, structure = jax.tree.flatten(tree)
    singles = [
        jax.lax.stop_gradient(x)[None]
        if isinstance(x, Tracer)
        else (x if is_key(x) else np.asarray(x))[None]
        for x in leaves
    ]
    values = _actual(singles, limit)
    return None if values is None else jax.tree.unflatten(structure, values)


def _actual(leaves: list[Any], limit: int) -> list[Any] | None:
    if is_known(leaves):
        rows = max((len(leaf) for leaf in leaves), default=1)
        sample = evenly_spaced(rows, limit)
        spread = [jnp.broadcast_to if is_key(x) else np.broadcast_to for x in leaves]
        shapes = [(rows, *np.shape(x)[1:]) for x in leaves]
        return [to(x, s)[sample] for to, x, s in zip(spread, leaves, shapes, strict=True)]
    columns: list[list[Any] | None] = []

    # The batching rule of a function that computes nothing has access to the batch of the tracers.
    @custom_vmap
    def look(*leaves: Any) -> Any:
        return jnp.zeros(())

    @look.def_vmap
    def rule(size: Any, in_batched: list[bool], *leaves: Any) -> tuple[Any, bool]:
        if not isinstance(size, int):  # a symbol of `jax.export`, of which no values are known
            return jnp.zeros(()), False
        sample = evenly_spaced(size, limit)

        def rows(leaf: Any, is_batched: bool) -> Any:
            shape = len(sample), *leaf.shape
            picked = unsharded(leaf)[sample] if is_batched else jnp.broadcast_to(leaf, shape)
            return picked.reshape(len(sample) * picked.shape[1], *picked.shape[2:])

        pairs = zip(leaves, in_batched, strict=True)
        columns.append(_actual([rows(leaf, is_batched) for leaf, is_batched in pairs], limit))
        return jnp.zeros(()), False

    rows = max(len(leaf) for leaf in leaves)
    look(*(jnp.broadcast_to(leaf, (rows, *leaf.shape[1:])) for leaf in leaves))
    return columns[0] if columns else None


def evenly_spaced(count: int, limit: int) -> np.ndarray:
    """The indices of at most `most` evenly spaced members, including both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(int))
