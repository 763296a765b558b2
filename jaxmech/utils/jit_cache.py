"""`jax.jit` of functions of systems, whose programs are dropped again.

`jax.jit` keeps the programs of every static argument. Here these are systems, so a process that
creates one system after another would keep the programs of all of them. `jit_of` keeps those of the
systems used last; `traced_once` keeps those of a method with its object. `kept_by` keeps results.

A program contains the numbers that its functions read besides their arguments when they were
traced: attributes of an object, variables of an enclosing function, global variables, arrays. Any
of them can change, and a method of a changed object still equals the method of before. `Captures`
finds the locations that such numbers are read from, once for each object, and compares their
contents in each call; they are a part of the keys. The walk before it goes through all that
functions can reach, except for modules that are installed, and so taken as constant.
"""

import dis
import gc
import hashlib
import inspect
import marshal
import operator
import sys
import sysconfig
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import is_dataclass
from functools import cache, cached_property, lru_cache, partial, wraps
from itertools import count
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.utils.checks import has_finite_numbers, is_known
from jaxmech.utils.digests import is_key
from jaxmech.utils.jax_internals import HAS_OLDER_EMITTERS, Tracer, eval_context

P = ParamSpec("P")
R = TypeVar("R")


def uncollected(fn: Callable[P, R]) -> Callable[P, R]:
    """Put off garbage collection to the end of a function that allocates many lasting objects.

    Python searches all objects of a process for cycles whenever a quarter more have been allocated,
    which takes a seventh of the time of tracing and reading a program.
    """

    @wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return fn(*args, **kwargs)
        finally:
            if was_enabled:
                gc.enable()

    return run


# The attribute of an object that names another one whose methods compute the same.
TRACED_AS = "_traced_as"
KEPT = 32  # number of static arguments for which a function keeps its programs

# Whether the known arguments of the program being lowered are neither NaN nor infinite.
FINITE_ARGUMENTS = ContextVar("finite_arguments", default=False)


def jit_of(
    *static: str, is_frame: bool = False, is_finite: bool = False, is_brief: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`jax.jit` with named static arguments, which keeps the most recently used programs only.

    Args:
        static: names of the static arguments.
        is_frame: whether the function leaves its work to native code. XLA then compiles the rest
            without optimization, unless it is long or holds a loop, or the call is part of another
            program.
        is_finite: whether the arguments of a frame are finite as a rule where they are known. In
            its native code a product with zero is folded where they alone could make it NaN: at
            rest these are most products of velocities. A call with NaN or infinity compiles a
            program of its own.
        is_brief: whether a frame computes so briefly that XLA need never optimize it: algebra of
            known matrices, once or a few times.
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(fn)

        def program(*values: Any) -> Callable[..., Any]:
            # JAX drops the programs of a function together with the function.
            specialized = partial(fn, **dict(zip(static, values, strict=True)))
            return _Frame(specialized, is_finite, is_brief) if is_frame else jax.jit(specialized)

        programs = _kept(program, KEPT)

        @wraps(fn)
        @uncollected
        def run(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            values = tuple(arguments.pop(name) for name in static)
            with UNCHANGING:
                return programs(values)(**arguments)

        return run

    return decorate


def kept_by(size: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Keep the last results of a function, by its arguments and by what functions in them read."""

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        results = _kept(fn, size)

        @wraps(fn)
        def run(*args: Any) -> Any:
            with UNCHANGING:
                return results(args)

        return run

    return decorate


def _kept(fn: Callable[..., Any], size: int) -> Callable[[tuple[Any, ...]], Any]:
    """The results of a function for the arguments used last; the caller is in `UNCHANGING`."""

    @lru_cache(maxsize=size)
    def slot(args: tuple[Any, ...], read: Hashable) -> list[Any]:
        return []

    def result(args: tuple[Any, ...]) -> Any:
        results = slot(args, captures_of(args).key())
        if not results:
            results.append(fn(*args))
        return results[0]

    return result


def traced_once(method: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a method once for all its uses and their derivatives, by `jax.jit` of it.

    Its jaxpr appears as a call, so that a program that uses the method many times is traced,
    differentiated and batched in a fraction of the time. The object must not change, but what its
    functions read may. The programs are kept with the object, or with its `TRACED_AS`.
    """
    name = f"_traced_{method.__name__}"

    @wraps(method)
    def run(self: Any, *args: Any) -> Any:
        with UNCHANGING:
            kept_by = self.__dict__.get(TRACED_AS, self)
            key = captures_of(kept_by).key()
            kept_key, program = kept_by.__dict__.get(name, (None, None))
            if program is None or key != kept_key:
                program = jax.jit(partial(method, kept_by))
                kept_by.__dict__[name] = key, program
            return program(*args)

    return run


_BRIEF: dict[str, Any] = {"xla_backend_optimization_level": 0}  # a sixth of the time of compiling
if HAS_OLDER_EMITTERS:
    _BRIEF["xla_cpu_use_fusion_emitters"] = False
# Fused operations compute an intermediate number once for each of its uses. Without optimization
# the product in a * b + c is rounded for one use and not for another, so that the largest of
# several numbers equals none of them, and its gradient is NaN. Without fusion, but with the
# algebraic simplifier, the compiler of jaxlib 0.9 takes the transposed factor of a product of
# matrices for the factor itself.
UNOPTIMIZED = {**_BRIEF, "xla_disable_hlo_passes": "fusion,algsimp"}

_LONGEST_FRAME = 500  # lines of a program
_FRAMES = WeakSet["_Frame"]()


class _Frame:
    """`jax.jit` of a function that passes its arguments to native code and arranges the results."""

    def __init__(self, fn: Callable[..., Any], is_finite: bool, is_brief: bool) -> None:
        self.is_finite, self.is_brief = is_finite, is_brief
        # Another object, since JAX lowers a function once for all its uses.
        self.of_any = _Frame(partial(fn), False, is_brief) if is_finite else None
        self.optimized = jax.jit(fn)
        self.unoptimized = jax.jit(fn, compiler_options=_BRIEF if is_brief else UNOPTIMIZED)
        self.chosen: dict[Any, Callable[..., Any]] = {}  # by the kinds of the arguments
        _FRAMES.add(self)

    def __call__(self, **arguments: Any) -> Any:
        # JAX accepts options of compilation for the outermost program only.
        if not is_known(arguments) or is_inside_a_program():
            return self.optimized(**arguments)
        if self.of_any is not None and not has_finite_numbers(arguments):
            return self.of_any(**arguments)
        token = FINITE_ARGUMENTS.set(self.is_finite)
        try:
            leaves, structure = jax.tree.flatten(arguments)
            kinds = structure, *map(jax.typeof, leaves)
            if kinds not in self.chosen:
                self.chosen[kinds] = self._choice(arguments)
            return self.chosen[kinds](**arguments)
        finally:
            FINITE_ARGUMENTS.reset(token)

    def _choice(self, arguments: dict[str, Any]) -> Callable[..., Any]:
        """Optimized if it is long, or has a loop or constants that are traced, else not."""
        if jax.default_backend() != "cpu":
            return self.optimized
        if self.is_brief:
            return self.unoptimized
        if not is_known(jax.make_jaxpr(self.optimized)(**arguments).consts):
            return self.optimized
        text = self.unoptimized.lower(**arguments).as_text()  # used by the call that follows
        is_long = "stablehlo.while" in text or text.count("\n") >= _LONGEST_FRAME
        return self.optimized if is_long else self.unoptimized


def is_inside_a_program() -> bool:
    """Whether operations are traced here, even those of known values."""
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return True
    return isinstance(jax.device_put(_number()), Tracer)


@cache
def _number() -> jax.Array:
    # On the device: transferring a number compiles nothing, converting it does.
    with eval_context():
        return jnp.asarray(np.zeros(()))


def forget_frames() -> None:
    """Decide again which programs are compiled without optimization."""
    for frame in _FRAMES:
        frame.chosen.clear()


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
