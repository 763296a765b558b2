"""Names and numbers of the leaves of a pytree of parameters, and results by name."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxmech.utils.checks import as_numbers
from jaxmech.utils.text import not_one_of

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
