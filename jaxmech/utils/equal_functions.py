"""`first_equal`: one function in place of all that are defined again by the same code."""

from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any
from weakref import WeakValueDictionary

_ATOMS = (bool, float, int, str, type(None))
_FIRST = WeakValueDictionary[Hashable, FunctionType]()


def first_equal(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The first living function that always computes the same as fn, or fn itself.

    A `lambda` in the arguments of a call is another function each time, and programs are kept by
    their functions. Two functions are the same for ever if they have the same code, and read the
    same variables of the enclosing functions and of the module, not just equal ones.

    Example:
        >>> def square():
        ...     return lambda x: x * x
        >>> first = first_equal(square())
        >>> first_equal(square()) is first
        True
        >>> def multiple(k):
        ...     return lambda x: k * x
        >>> double = first_equal(multiple(2))
        >>> first_equal(multiple(2)) is double
        False
    """
    # A function at the level of a module is one object, by whose name pickle finds it.
    if type(fn) is not FunctionType or fn.__dict__ or "<" not in fn.__qualname__:
        return fn
    defaults = (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
    # Identities are those of living objects, since the function holds them.
    key = (
        fn.__code__, fn.__name__, fn.__qualname__, fn.__doc__, id(fn.__globals__),
        *map(id, fn.__closure__ or ()), *map(_default_key, defaults),
    )  # fmt: skip
    return _FIRST.setdefault(key, fn)


def _default_key(value: Any) -> Hashable:
    # by their texts, which tell 0.0 from -0.0
    return (type(value), repr(value)) if type(value) in _ATOMS else id(value)
