"""Structural queries of functions, answered even while their arguments are being traced.

A property that holds at a generic point (fixed pseudo-random numbers in place of every array) holds
almost everywhere. So "is the mass matrix always singular?" or "is this affine?" can be answered
under `jit` and `vmap`, where no values are known. `actual` returns the values behind the tracers of
`vmap` and `grad`.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from jaxmech.utils.checks import is_known
from jaxmech.utils.digests import bits_of, is_key
from jaxmech.utils.jax_internals import Tracer, eval_context, unsharded, used_arguments
from jaxmech.utils.jit_cache import UNOPTIMIZED, kept_by

KEPT = 64  # cached answers of each query


def cached_by_shapes(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Cache fn(system, *state), which may depend on shapes, types and integers only."""

    @kept_by(KEPT)
    def answer(system: Any, structure: Any, kinds: tuple[Any, ...]) -> Any:
        with eval_context():
            leaves = [_example(*kind) for kind in kinds]
        return fn(system, *jax.tree.unflatten(structure, leaves))

    @wraps(fn)
    def cached(system: Any, *state: Any) -> Any:
        leaves, structure = jax.tree.flatten(state)
        return answer(system, structure, tuple(map(_kind, leaves)))

    return cached


def _kind(leaf: Any) -> tuple[tuple[int, ...], Any, bytes | None]:
    """The shape and type, and the content of integers, which generic states keep.

    The type of random keys is their implementation.
    """
    if is_key(leaf):
        has_value = not isinstance(leaf, Tracer)
        content = bits_of(leaf).tobytes() if has_value else None
        return leaf.shape, jax.random.key_impl(leaf), content
    dtype = jnp.result_type(leaf)
    fixed = not jnp.issubdtype(dtype, jnp.floating) and not isinstance(leaf, Tracer)
    return np.shape(leaf), dtype, np.asarray(leaf, dtype).tobytes() if fixed else None


def _example(shape: tuple[int, ...], dtype: Any, content: bytes | None) -> Array:
    if not isinstance(dtype, np.dtype):  # random keys
        keys = jax.random.split(jax.random.key(0, impl=dtype), shape)
        if content is None:
            return keys
        data = np.frombuffer(content, np.uint32).reshape(bits_of(keys).shape)
        return jax.random.wrap_key_data(jnp.asarray(data), impl=dtype)
    if content is None:
        return jnp.asarray(np.ones(shape, dtype))
    return jnp.asarray(np.frombuffer(content, dtype).reshape(shape))


def generic(tree: Any, seed: int) -> Any:
    """Replace all floating-point leaves of a pytree by random numbers in [0.5, 1.5)."""
    draw = np.random.default_rng(seed)

    def leaf(x: Any) -> Any:
        dtype = jnp.result_type(x)
        if jnp.issubdtype(dtype, jnp.floating):
            return jnp.asarray(draw.uniform(0.5, 1.5, np.shape(x)), dtype)
        countable = jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_
        # Known integers keep their value; a traced one would make all results traced.
        traced = isinstance(x, Tracer)
        return jnp.ones(np.shape(x), dtype) if traced and countable else x

    with jax.ensure_compile_time_eval():
        return jax.tree.map(leaf, tree)


def outside_traces(fn: Callable[..., Any], *args: Any) -> Any:
    """Evaluate a compiled function outside of any trace; None if it closes over tracers."""
    # Not by `ensure_compile_time_eval`, in which every constant in fn becomes a program of its own
    # while fn is traced, and no trace made elsewhere is reused.
    try:
        with eval_context():
            return fn(*args)
    except jax.errors.UnexpectedTracerError:
        return None


def wide(tree: Any, seed: int) -> Any:
    """Replace all leaves of a pytree but random keys by normally distributed numbers."""
    draw = np.random.default_rng(seed)

    def leaf(x: Any) -> Any:
        if is_key(x):
            return x
        return jnp.asarray(2 * draw.normal(size=np.shape(x)), jnp.result_type(x))

    with jax.ensure_compile_time_eval():
        return jax.tree.map(leaf, tree)


def concrete(fn: Callable[..., Any], *args: Any) -> np.ndarray | None:
    """Evaluate fn(*args) as a numpy array, even inside a trace; None if fn closes over tracers."""
    return next(concrete_at(fn, [args]))


def concrete_at(
    fn: Callable[..., Any], points: Iterable[tuple[Any, ...]]
) -> Iterator[np.ndarray | None]:
    """Evaluate fn at several points of equal shapes, compiling it once."""
    compiled = jax.jit(fn, compiler_options=UNOPTIMIZED)
    for args in points:
        value = outside_traces(compiled, *args)
        yield None if value is None else np.asarray(value)


def depends_on(fn: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether fn(*args) may depend on its first argument, according to its jaxpr."""
    jaxpr = jax.make_jaxpr(fn)(*args).jaxpr
    needed_inputs = used_arguments(jaxpr)
    return any(needed_inputs[: len(jax.tree.leaves(args[0]))])


def actual(tree: Any, limit: int) -> Any:
    """The values of up to `limit` evenly spaced members of a batch, as numpy arrays with that axis.

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
    """The indices of at most `limit` evenly spaced members, including both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(int))
