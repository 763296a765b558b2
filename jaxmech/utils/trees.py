"""Parameters and results in pytrees: names and numbers of their leaves, which of them are read."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxmech.utils.caller import warn_caller
from jaxmech.utils.checks import as_numbers, is_known
from jaxmech.utils.jax_internals import used_arguments
from jaxmech.utils.text import close_name, not_one_of

Value = TypeVar("Value")


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a pytree with readable names."""
    named = []
    for path, leaf in jax.tree.leaves_with_path(tree):
        name = ""
        for key in path:
            part = jax.tree_util.keystr((key,), simple=True)
            name += f"[{part}]" if isinstance(key, jax.tree_util.SequenceKey) else f".{part}"
        named.append((name.removeprefix(".") or "params", leaf))
    return named


def leaf_names(tree: Any) -> list[str]:
    """The names of the leaves of a pytree, in the order of `jax.tree.leaves`."""
    return [name for name, _ in named_leaves(tree)]


def is_within(name: str, branches: Iterable[str]) -> bool:
    """Whether a leaf is, or is inside, one of the named branches."""
    return any(name == b or name.startswith((f"{b}.", f"{b}[")) for b in branches)


def entry_names(name: str, entries: Iterable[tuple[int, ...]]) -> list[str]:
    """Name the elements of a leaf by their indices."""
    return [f"{name}[{','.join(map(str, entry))}]" if entry else name for entry in entries]


def number_names(tree: Any) -> tuple[str, ...]:
    """The names of all floating-point numbers of a pytree, in the order of `numbers_of`."""
    return tuple(
        name
        for leaf_name, leaf in named_leaves(tree)
        if _is_floating(leaf)
        for name in entry_names(leaf_name, np.ndindex(leaf.shape))
    )


def numbers_of(tree: Any) -> tuple[Array, Callable[[Array], Any]]:
    """Flatten the floating-point numbers of a pytree to one vector; also the inverse function."""
    leaves, structure = jax.tree.flatten(tree)
    floating = [k for k, x in enumerate(leaves) if _is_floating(x)]
    numbers, unravel = ravel_pytree([leaves[k] for k in floating])

    def with_numbers(numbers: Array) -> Any:
        merged_leaves = list(leaves)
        for k, leaf in zip(floating, unravel(numbers), strict=True):
            merged_leaves[k] = leaf
        return jax.tree.unflatten(structure, merged_leaves)

    return numbers, with_numbers


def _is_floating(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


class ByName(dict[str, Value]):
    """A dictionary of results, a pytree like any other, whose KeyError suggests a name."""

    def __missing__(self, name: object) -> Value:
        raise KeyError(f"`{name}` {not_one_of(str(name), self, 'among the names')}")


def _flat(results: ByName[Any]) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    names = tuple(sorted(results))
    return [(jax.tree_util.DictKey(name), results[name]) for name in names], names


def _built(names: Hashable, values: Iterable[Any]) -> ByName[Any]:
    assert isinstance(names, tuple)
    return ByName(zip(names, values, strict=True))


jax.tree_util.register_pytree_with_keys(ByName, _flat, _built)


def as_dtype(params: Any, dtype: Any) -> Any:
    """Convert every floating-point leaf of the parameters to an array of the given type."""

    def leaf(path: Any, x: Any) -> Any:
        x = as_numbers("params" + jax.tree_util.keystr(path), x, half=True)
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map_with_path(leaf, params)


Digests = dict[str, Any]  # uint32, by the name of the parameter
_WEIGHT = 2654435761  # odd, so that a change of a single word changes the sum


class ParameterWarning(UserWarning):
    """Parameters that are probably not the intended ones."""


def unread(fn: Callable[[Any], Any], params: Any) -> tuple[str, ...]:
    """The names of the parameters on which the results of fn(params) do not depend."""
    # Read from the jaxpr, so that values do not matter; a parameter whose effect cancels is used.
    leaves, structure = jax.tree.flatten(params)
    jaxpr = jax.make_jaxpr(lambda leaves: fn(jax.tree.unflatten(structure, leaves)))(leaves).jaxpr
    needed_inputs = used_arguments(jaxpr)
    pairs = zip(leaf_names(params), needed_inputs, strict=True)
    return tuple(name for name, is_used in pairs if not is_used)


def digests_of(params: Any) -> Digests:
    """A number for each leaf of some parameters, which differs for other values.

    Four bytes each, so that a batch of solutions can hold them. Known values are not traced.
    """
    return {name: _digest(leaf) for name, leaf in named_leaves(params)}


def _digest(x: Any) -> Any:
    has_value = is_known(x)
    if jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    x = np.asarray(x) if has_value else jax.lax.stop_gradient(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        words: Any
        if has_value:
            words = np.where(x == 0, x.dtype.type(0), x).reshape(-1).view(np.uint32)
        else:  # zeros alike, whatever their sign
            words = jnp.where(x == 0, 0.0, x)
            words = jax.lax.bitcast_convert_type(words, jnp.uint32).reshape(-1)
    else:
        words = x.astype(np.uint32).reshape(-1)
    odd = (2 * np.arange(words.size, dtype=np.uint64) + 1) * _WEIGHT
    weights = (odd & 0xFFFFFFFF).astype(np.uint32)
    return (words * weights).sum(dtype=np.uint32)


def differing(run: Digests, reference: Digests) -> tuple[str, ...]:
    """The parameters whose values differ from those of a run, or of one member of a batch."""
    common = [name for name in run if name in reference]
    return tuple(n for n in common if (np.ravel(run[n]) != np.ravel(reference[n])).any())


def warn_of_others(
    run: Digests, digests: Digests, read: Callable[[Any], Any], params: Any, consequence: str
) -> None:
    """Warn of parameters that read(params) reads and whose digests are not those of a run."""
    names = differing(run, digests)
    idle = unread(read, params) if names else ()
    if names := tuple(name for name in names if name not in idle):
        warn_caller(
            f"Argument `params` must be those of the simulation, but differ in {', '.join(names)}. "
            f"{consequence}; pass those, or `other_params=True` if that is what you want.",
            ParameterWarning,
        )


def warn_of_unread(params: Any, read: Callable[[Any], Any], declared: Collection[str]) -> None:
    """Warn of parameters of which read(params) reads nothing, and that are not declared."""
    if not isinstance(params, Mapping):
        return
    undeclared = [name for name in params if name not in declared]
    idle = unread(read, params) if undeclared else ()
    for name in undeclared:
        if all(leaf in idle for leaf in leaf_names({name: params[name]})):
            near = close_name(str(name), declared)
            remedy = f"if {near!r} is meant, correct the name" if near else "leave it out"
            warn_caller(
                f"Argument `params` holds {name!r}, which nothing reads; {remedy}. The parameters "
                f"are {', '.join(declared)}.",
                ParameterWarning,
            )
