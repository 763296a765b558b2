"""Checks of actual values; what is still being traced passes, and shows up in a status later."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_known(tree: Any) -> bool:
    """Whether every leaf has an actual value, not one still being traced."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def require_function(argument: str, value: Any) -> None:
    """Raise a TypeError unless the value is a function that can be told from others by its hash.

    Example:
        >>> require_function("force", 0.0)
        Traceback (most recent call last):
        TypeError: Argument `force` must be a function, but is 0.0.
    """
    if not callable(value):
        raise TypeError(f"Argument `{argument}` must be a function, but is {value!r}.")
    try:
        hash(value)
    except TypeError as error:
        raise TypeError(
            f"Argument `{argument}` must be hashable, but a {type(value).__name__} is not "
            f"({error}); write a function and keep its arrays in `params`."
        ) from error


def require_kind(argument: str, value: Any, kind: type, example: str) -> None:
    """Raise a TypeError unless the value is an instance of the kind.

    Example:
        >>> require_kind("method", "rk4", int, "RK4()")
        Traceback (most recent call last):
        TypeError: Argument `method` must be an object such as RK4(), but is 'rk4'.
    """
    if not isinstance(value, kind):
        raise TypeError(
            f"Argument `{argument}` must be an object such as {example}, but is {value!r}."
        )


def require_positive_integer(argument: str, value: Any, remedy: str) -> None:
    """Raise a ValueError unless the value is a whole number from 1 on.

    Example:
        >>> require_positive_integer("substeps", 0.5, "count the steps")
        Traceback (most recent call last):
        ValueError: Argument `substeps` must be a positive integer, but is 0.5; count the steps.
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < 1:
        raise ValueError(
            f"Argument `{argument}` must be a positive integer, but is {value!r}; {remedy}."
        )


def require_finite(**arguments: Any) -> None:
    """Raise a ValueError that names the first argument, and its place, that is NaN or infinite.

    Example:
        >>> require_finite(q0=[1.0, 2.0])
        >>> require_finite(q0=[1.0, float("nan")])
        Traceback (most recent call last):
        ValueError: Argument `q0[1]` must be finite, but is nan.
    """
    for argument, tree in arguments.items():
        for path, leaf in jax.tree.leaves_with_path(tree):
            if not is_known(leaf) or not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
                continue
            for index in np.argwhere(~np.isfinite(np.asarray(leaf))):
                place = argument + jax.tree_util.keystr(path) + "".join(f"[{i}]" for i in index)
                value = np.asarray(leaf)[tuple(index)]
                raise ValueError(f"Argument `{place}` must be finite, but is {value}.")
