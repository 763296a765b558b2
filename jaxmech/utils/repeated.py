"""`repeated`: one trace of a function for all parts of a kind, such as the links of a chain."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import jax
import numpy as np

from jaxmech.utils.jax_internals import Tracer

MOST_KEPT = 128  # traces of each function
Kind = tuple[Any, ...]  # the content of a plain pattern, or the type of anything else


def repeated(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a function once for all arguments of the same types and patterns, as a call.

    A mechanism has many bodies and joints of few kinds. Their equations are then traced,
    differentiated and batched once for each kind. Patterns are plain arrays of 0, 1 and -1, such as
    axes, with which fewer operations are traced; other plain numbers become arguments. Where all
    numbers are plain, or have a value, the function is called as it is. It must read nothing but
    its arguments; results that are plain, because they depend on patterns alone, stay plain.

    Example:
        >>> import jax.numpy as jnp
        >>> @repeated
        ... def moment(arm, force):
        ...     print("traced")
        ...     return arm * force, 2 * arm
        >>> def total(x):
        ...     arms = 2 * np.ones(3), 3 * np.ones(3), np.ones(3)
        ...     parts = [moment(arm, x) for arm in arms]
        ...     return sum(part[0].sum() for part in parts) + parts[0][1].sum()
        >>> print(jax.jit(total)(jnp.ones(3)))
        traced
        traced
        30.0
    """

    @lru_cache(maxsize=MOST_KEPT)
    def trace(structure: Any, kinds: tuple[Kind, ...]) -> _Trace:
        return _Trace(fn, structure, kinds)

    @wraps(fn)
    def run(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        if not any(isinstance(leaf, Tracer) for leaf in leaves):
            return fn(*args)
        return trace(structure, tuple(map(_kind, leaves)))(leaves)

    return run


class _Trace:
    """A function of the arguments that are no patterns."""

    def __init__(self, fn: Callable[..., Any], structure: Any, kinds: tuple[Kind, ...]) -> None:
        self.fn, self.structure = fn, structure
        self.plain = [_plain(kind) for kind in kinds]
        self.outs: tuple[Any, list[Any]] = (None, [])  # structure and plain arrays of the results
        self.program = jax.jit(self._traced)

    def __call__(self, leaves: list[Any]) -> Any:
        traced = self.program(*(x for x, y in zip(leaves, self.plain, strict=True) if y is None))
        structure, plain = self.outs
        return jax.tree.unflatten(structure, _merged(plain, traced))

    def _traced(self, *traced: Any) -> list[Any]:
        args = jax.tree.unflatten(self.structure, _merged(self.plain, traced))
        leaves, structure = jax.tree.flatten(self.fn(*args))
        self.outs = structure, [x if _is_plain(x) else None for x in leaves]
        return [x for x in leaves if not _is_plain(x)]


def _merged(plain: list[Any], traced: Any) -> list[Any]:
    remaining = iter(traced)
    return [next(remaining) if x is None else x for x in plain]


def _is_plain(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic)


def _kind(x: Any) -> Kind:
    if _is_plain(x) and ((x == 0) | (abs(x) == 1)).all():
        return x.dtype, x.shape, x.tobytes()
    return (jax.typeof(x),)


def _plain(kind: Kind) -> np.ndarray | None:
    if len(kind) == 1:
        return None
    dtype, shape, content = kind
    return np.frombuffer(content, dtype).reshape(shape)
