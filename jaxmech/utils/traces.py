"""Functions that are traced once, or late.

`repeated` is one trace for all parts of a kind, such as the links of a chain, `first_equal` one
function in place of all that are defined again by the same code, and a `DelayedJaxpr` a function
that is traced when its operations are needed.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import cached_property, lru_cache, wraps
from types import FunctionType
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np

from jaxmech.utils.jax_internals import ClosedJaxpr, Tracer, without_unused

MOST_KEPT = 128  # traces of each function
Kind = tuple[Any, ...]  # the content of a plain pattern, or the type of anything else


def repeated(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a function once for all arguments of the same types and patterns, as a call.

    A mechanism has many bodies and joints of few kinds. Their equations are then traced,
    differentiated and batched once for each kind. Patterns are plain arrays of 0, 1 and -1, such as
    axes, with which fewer operations are traced; other plain numbers become arguments. Where all
    numbers are plain, or have a value, the function is called as it is. It must read nothing but
    its arguments; results that are plain, because they depend on patterns alone, stay plain.
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


_ATOMS = (bool, float, int, str, type(None))
_FIRST = WeakValueDictionary[Hashable, FunctionType]()


def first_equal(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The first living function that always computes the same as fn, or fn itself.

    A `lambda` in the arguments of a call is another function each time, and programs are kept by
    their functions. Two functions are the same for ever if they have the same code, and read the
    same variables of the enclosing functions and of the module, not just equal ones.
    """
    # A function at the level of a module is one object, by whose name pickle finds it.
    if type(fn) is not FunctionType or fn.__dict__ or "<" not in fn.__qualname__:
        return fn
    defaults = (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
    # Identities are those of living objects, since the function holds them.
    key = (
        fn.__code__, fn.__name__, fn.__qualname__, fn.__doc__, id(fn.__globals__),
        *map(id, fn.__closure__ or ()),
        # by their texts, which tell 0.0 from -0.0
        *((type(x), repr(x)) if type(x) in _ATOMS else id(x) for x in defaults),
    )  # fmt: skip
    return _FIRST.setdefault(key, fn)


class DelayedJaxpr:
    """A jaxpr whose shapes are known before it is traced.

    In reverse mode, JAX asks for the tangents of an operation only to transpose them; their
    program, a third of the time to trace a gradient, is then never needed.

    Args:
        in_avals: shapes and types of the arguments.
        out_avals: shapes and types of the results.
        effects: JAX's effects of the operations.
        trace: returns the jaxpr.
    """

    def __init__(
        self, in_avals: Sequence[Any], out_avals: Sequence[Any], effects: Collection[Any],
        trace: Callable[[], ClosedJaxpr],
    ) -> None:  # fmt: skip
        self.in_avals, self.out_avals = list(in_avals), list(out_avals)
        self.effects, self._trace = effects, trace

    @classmethod
    def of(cls, closed: ClosedJaxpr) -> "DelayedJaxpr":
        """A jaxpr that has been traced."""
        return cls(closed.in_avals, closed.out_avals, closed.effects, lambda: closed)

    @cached_property
    def closed(self) -> ClosedJaxpr:
        """The jaxpr."""
        return self._trace()

    def narrowed(self, used_outs: Sequence[bool]) -> "DelayedJaxpr":
        """The jaxpr of the used results."""
        outs = [x for x, is_used in zip(self.out_avals, used_outs, strict=True) if is_used]
        trace = lambda: without_unused(self.closed, used_outs)  # noqa: E731
        return DelayedJaxpr(self.in_avals, outs, self.effects, trace)
