"""`captures_of`: what the functions in a value read besides their arguments."""

import threading
from collections.abc import Hashable
from dataclasses import is_dataclass
from itertools import count
from typing import Any

from jaxmech.utils.captures.walk import ATOMS, STORED, field_values, is_of_library, whole_walk


class _Unchanging(threading.local):
    """A context in which what functions read does not change, other than by themselves.

    What they write, such as a count of their calls, is no input: keys are the same after it.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.call = 0  # a number of the outermost context
        self.compared: list[_Source] = []  # in this call

    def __enter__(self) -> None:
        if not self.depth:
            self.call = next(_CALLS)
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if not self.depth:
            for source in self.compared:
                source.take_as_written()
            self.compared = []


_CALLS = count(1)
UNCHANGING = _Unchanging()


def captures_of(value: Any) -> "Captures":
    """Find what the functions in a value read besides their arguments.

    Example:
        >>> spring, name = {"stiffness": 1.0}, "soft"
        >>> captures = captures_of(lambda x: -spring["stiffness"] * x)
        >>> before, name = captures.key(), "hard"
        >>> print(captures.key() == before)
        True
        >>> spring["stiffness"] = 4.0
        >>> print(captures.key() == before)
        False
    """
    kind = type(value)
    if kind in _FIXED:
        return _NOTHING
    if isinstance(value, tuple):
        parts = [part for part in value if type(part) not in _FIXED]
        return Captures(source for part in parts for source in captures_of(part))
    if is_dataclass(kind):
        return _captures_of_fields(value)
    if callable(value) or not is_of_library(kind):
        return Captures([_Source(value)])
    _FIXED.add(kind)
    return _NOTHING


def _captures_of_fields(value: Any) -> "Captures":
    attributes = getattr(value, "__dict__", {})
    captures: Captures | None = attributes.get(STORED)
    if captures is None:
        parts = field_values(value)
        if is_of_library(type(value)) and not any(map(callable, parts)):
            captures = captures_of(parts)
        else:
            captures = Captures([_Source(value)])
        attributes[STORED] = captures
    return captures


class Captures(tuple["_Source", ...]):
    """What functions read besides their arguments."""

    def __reduce__(self) -> Any:
        return type(None), ()  # found anew in another process

    def key(self) -> Hashable:
        """A key of the contents, which are equal if the keys are; None if nothing can change."""
        if not self:
            return None
        keys = [source.key() for source in self]
        return None if not any(keys) else tuple(keys)


_NOTHING = Captures()
_FIXED: set[type] = {*ATOMS}  # types of libraries whose objects read nothing


class _Source:
    """An object with functions, and the locations that they read."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.walk = whole_walk(root)
        self.call = 0  # in which the locations were last compared

    def key(self) -> Hashable:
        """Of the contents now, or when a call began that is not over."""
        if not UNCHANGING.depth or self.call != UNCHANGING.call:
            self._compare()
            if UNCHANGING.depth:
                self.call = UNCHANGING.call
                UNCHANGING.compared.append(self)
        return _WRITTEN.get(self.walk.key, self.walk.key)

    def take_as_written(self) -> None:
        """Give what has changed since the last comparison the key of before."""
        before = self.walk.key
        self._compare()
        if self.walk.key != before:
            _WRITTEN[self.walk.key] = _WRITTEN.get(before, before)
            if len(_WRITTEN) > _MOST_WRITTEN:
                del _WRITTEN[next(iter(_WRITTEN))]

    def _compare(self) -> None:
        if self.walk.is_outdated():
            self.walk = whole_walk(self.root)


_WRITTEN: dict[Hashable, Hashable] = {}  # keys of contents before functions changed them
_MOST_WRITTEN = 256
