"""What functions read besides their arguments, as a part of the keys of compiled programs.

A program contains the numbers that its functions read when they were traced: attributes of an
object, variables of an enclosing function, global variables, arrays. Any of them can change, and
a method of a changed object still equals the method of before.

`Captures` finds the locations that such numbers are read from, once for each object, and compares
their contents in each call. The walk before it goes through all that functions can reach, except
for modules that are installed, and so taken as constant.
"""

import dis
import hashlib
import marshal
import operator
import sys
import sysconfig
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cached_property, lru_cache, partial
from itertools import count
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import jax
import numpy as np

from jaxmech.utils.digests import is_key
from jaxmech.utils.jax_internals import Tracer

_FOLDERS = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).parents[1]),
    "<frozen",
)


def is_of_library(x: Any) -> bool:
    """Whether a class or function is defined in a library."""
    return is_library(x.__module__)


@lru_cache(maxsize=4096)
def is_library(module: str) -> bool:
    """Whether a module is part of Python, of jaxmech or of an installed package."""
    if module == "__main__" or module in sys.builtin_module_names:
        return module != "__main__"
    package = module.partition(".")[0]  # where a compiled module has no file
    files = (getattr(sys.modules.get(name), "__file__", None) for name in (module, package))
    return any(file is not None and is_in_library(file) for file in files)


@lru_cache(maxsize=4096)
def is_in_library(file: str) -> bool:
    """Whether a file is part of a library."""
    return file.startswith(_FOLDERS)


ATOMS: tuple[type, ...] = (bool, bytes, complex, float, int, str, type(None))
STORED = "_captures"  # the attribute of an object in which its captures are stored
_WRAPPED = "__wrapped__"  # the function in that of `jax.jit` or `lru_cache`
_LARGEST = 4096  # numbers of an array on a device that are part of a key; else its identity is
_LONGEST = 4096  # bytes of an array that are part of a key; else their digest is
_ABSENT = object()
# A function that uses one of these names may read every attribute of an object.
_OPEN = {"__dict__", "attrgetter", "copy", "deepcopy", "eval", "exec", "getattr", "tree"}
_OPEN |= {"tree_flatten", "tree_leaves", "tree_map", "vars"}

Read = Callable[[], tuple[Any, ...]]


def whole_walk(root: Any) -> "Walk":
    """The walk that follows all names which the functions on its way use."""
    names: set[str] = set()
    while True:
        walk = Walk(root, names)
        if walk.names == names:
            return walk
        names = walk.names


class Walk:
    """The locations that functions read, and a key of their contents.

    Attributes:
        names: those of variables and attributes that the functions use.
        key: the contents; None if no location can change.
    """

    key: Hashable

    def __init__(self, root: Any, followed: set[str]) -> None:
        self.followed, self.names = followed, set(followed)
        self._locations: list[tuple[Read, tuple[Any, ...]]] = []
        self._arrays: list[tuple[np.ndarray, bytes]] = []
        parts: list[Hashable] = []
        numbers: dict[int, int] = {}
        kept: list[Any] = []  # so that no other object gets the same id
        stack = [root]
        while stack:
            value = stack.pop()
            if type(value) in ATOMS:
                parts.append(marshal.dumps(value, 2))  # differs for 1, 1.0 and True, 0.0 and -0.0
            elif id(value) in numbers:
                parts.append(numbers[id(value)])
            else:
                numbers[id(value)] = len(numbers)
                kept.append(value)
                label, inner = self._content(value)
                parts.append((label, len(inner)))
                stack.extend(reversed(inner))
        self.key = _Key(tuple(parts)) if self._locations or self._arrays else None

    def is_outdated(self) -> bool:
        """Whether a location has another content than at the time of the walk."""
        for read, old in self._locations:
            new = read()
            if len(new) != len(old) or not all(map(operator.is_, new, old)):
                return True
        return any(_bytes(array) != old for array, old in self._arrays)

    def _content(self, x: Any) -> tuple[Any, list[Any]]:
        """What is part of the key, and the values to go on with."""
        match x:
            case MethodType():
                return type(x), [x.__func__, x.__self__]
            case partial():
                return type(x), [x.func, x.args, x.keywords]
            case tuple():
                return type(x), list(x)
            case staticmethod() | classmethod():
                return type(x), [x.__func__]
            case property():
                return type(x), [x.fget]
            case cached_property():
                return type(x), [x.func]
            case list():
                return type(x), self._read(lambda: tuple(x))
            case dict():
                return type(x), self._read(lambda: (*x.keys(), *x.values()))
            case set() | frozenset():
                return type(x), self._read(lambda: tuple(sorted(x, key=repr)))
            case FunctionType():
                return _Same(x), self._variables(x)
            case np.ndarray() | np.generic() | jax.Array():
                return self._array(x), []
            case jax.tree_util.PyTreeDef():  # one for each `jax.tree.flatten`, equal by its content
                return x, []
            case ModuleType():
                return _Same(x), [] if is_library(x.__name__) else self._entries(vars(x))
            case type():
                return _Same(x), [y for kind in x.__mro__ for y in self._of_class(kind)]
        return self._object(x)

    def _variables(self, fn: FunctionType) -> list[Any]:
        """The defaults of a function, and the variables and globals that it names."""
        values, cells = [fn.__defaults__, fn.__kwdefaults__], fn.__closure__ or ()
        if is_in_library(fn.__code__.co_filename):
            return values + [x for cell in cells for x in _cell(cell)]
        names = set(_names(fn.__code__))
        self.names |= names
        values += [x for cell in cells for x in self._read(partial(_cell, cell))]
        return values + self._at(fn.__globals__, (n for n in fn.__globals__ if n in names))

    def _object(self, x: Any) -> tuple[Any, list[Any]]:
        kind = type(x)
        if is_dataclass(kind) and is_of_library(kind):
            return kind, list(field_values(x))
        if is_of_library(kind) and kind is not SimpleNamespace:
            return _Same(x), [inner] if (inner := getattr(x, _WRAPPED, None)) else []
        values = self._read(partial(_slots, x)) if _slots(x) else []
        if (attributes := getattr(x, "__dict__", None)) is not None:
            # The functions of a base class in a library read attributes of their own.
            is_open = is_dataclass(kind) or any(map(is_of_library, kind.__mro__[1:-1]))
            values += self._entries(attributes, attributes if is_open else ())
            # An attribute of the class may get a value of its own in the object.
            inherited = (n for n in self.followed if n not in attributes and hasattr(kind, n))
            values += self._at(attributes, sorted(inherited))
        return kind, [kind, *values]

    def _of_class(self, kind: type) -> list[Any]:
        if is_of_library(kind):
            return []
        special = [
            n for n, x in vars(kind).items() if n[:2] == "__" and isinstance(x, FunctionType)
        ]
        return self._entries(vars(kind), special)

    def _entries(self, mapping: Mapping[str, Any], more: Iterable[str] = ()) -> list[Any]:
        """The values of a namespace under the names that functions use, and under more names."""
        is_open, more = not _OPEN.isdisjoint(self.followed), set(more)
        return self._at(mapping, (n for n in mapping if is_open or n in self.followed or n in more))

    def _at(self, mapping: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
        def is_constant(value: Any) -> bool:
            return isinstance(value, ModuleType) and is_library(value.__name__)

        chosen = [n for n in names if n != STORED and not is_constant(mapping.get(n))]
        return self._read(partial(_values, mapping, chosen)) if chosen else []

    def _read(self, read: Read) -> list[Any]:
        content = read()
        self._locations.append((read, content))
        return list(content)

    def _array(self, x: Any) -> Hashable:
        if isinstance(x, jax.Array):
            if isinstance(x, Tracer) or is_key(x) or x.size > _LARGEST or x.is_deleted():
                return _Same(x)
            return type(x), str(x.dtype), x.shape, np.asarray(x).tobytes()
        content = _bytes(x)
        if isinstance(x, np.ndarray) and x.flags.writeable:
            self._arrays.append((x, content))
        return type(x), x.dtype.str, x.shape, content


class _Key:
    """The contents of all locations, which are hashed once."""

    __slots__ = ("hash", "parts")

    def __init__(self, parts: tuple[Hashable, ...]) -> None:
        self.parts, self.hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Key) and self.parts == other.parts)


class _Same:
    """An object that equals only itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


def field_values(x: Any) -> tuple[Any, ...]:
    """The values of the fields of a dataclass."""
    return tuple([getattr(x, name, None) for name in type(x).__dataclass_fields__])


def _bytes(x: Any) -> bytes:
    content: bytes = x.tobytes()
    return content if len(content) < _LONGEST else hashlib.sha256(content).digest()


def _values(mapping: Mapping[str, Any], names: list[str]) -> tuple[Any, ...]:
    return tuple([mapping.get(name, _ABSENT) for name in names])


def _cell(cell: Any) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # it is empty
        return ()


def _slots(x: Any) -> tuple[Any, ...]:
    kinds = (vars(kind).get("__slots__", ()) for kind in type(x).__mro__)
    names = (name for slots in kinds for name in ((slots,) if isinstance(slots, str) else slots))
    return tuple(getattr(x, name, _ABSENT) for name in names if not name.startswith("__"))


def _names(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes that a function and the functions within it read."""
    reads = (step for step in dis.get_instructions(code) if step.opcode in dis.hasname)
    yield from (step.argval for step in reads if not step.opname.startswith(("STORE", "DELETE")))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


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
    """Find what the functions in a value read besides their arguments."""
    kind = type(value)
    if kind in _FIXED:
        return _NOTHING
    if isinstance(value, tuple):
        inner = (part for part in value if type(part) not in _FIXED)
        return Captures(source for part in inner for source in captures_of(part))
    if is_dataclass(kind):
        attributes = getattr(value, "__dict__", {})
        captures: Captures | None = attributes.get(STORED)
        if captures is None:
            parts = field_values(value)
            is_plain = is_of_library(kind) and not any(map(callable, parts))
            captures = captures_of(parts) if is_plain else Captures([_Source(value)])
            attributes[STORED] = captures
        return captures
    if callable(value) or not is_of_library(kind):
        return Captures([_Source(value)])
    _FIXED.add(kind)
    return _NOTHING


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
