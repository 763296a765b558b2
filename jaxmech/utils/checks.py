"""Checks of arguments and of the values of functions: their kinds, shapes, numbers and indices.

Numbers are checked where they are known: traced ones pass, and are reported in a status.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.utils.jax_internals import ClosedJaxpr, Jaxpr, Literal, Tracer
from jaxmech.utils.text import capital, close_name
from jaxmech.utils.units import Names, UnknownNameError

Fn = TypeVar("Fn", bound=Callable[..., Any])
_MOST_SHOWN = 300  # characters of a value in a message


def is_known(tree: Any) -> bool:
    """Whether no leaf is a tracer."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def has_finite_numbers(tree: Any) -> bool:
    """Whether no known number is NaN or infinite."""
    numbers = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    return all(np.isfinite(np.asarray(x)).all() for x in numbers)


def require_function(argument: str, value: Any, takes: str = "") -> None:
    """Raise a TypeError unless the value is a hashable function, of these arguments if given."""
    if not callable(value):
        raise TypeError(f"Argument `{argument}` must be a function, but is {value!r}.")
    try:
        hash(value)
    except TypeError as error:
        raise TypeError(
            f"Argument `{argument}` must be hashable, but a {type(value).__name__} is not "
            f"({error}); write a function and keep its arrays in `params`."
        ) from error
    if not takes:
        return
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return  # of compiled functions
    try:
        signature.bind(*takes.split(", "))
    except TypeError as error:
        raise TypeError(
            f"Argument `{argument}` must be a function of ({takes}), but takes {signature}; it is "
            "called with all of these, whether it uses them or not."
        ) from error


def argument_count(fn: Callable[..., Any]) -> int:
    """The number of arguments that a function of q, v, t and params, or of more, must be given."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some builtins have none
        return 4
    return sum(p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD for p in parameters)


def require_kind(argument: str, value: Any, kind: Any, example: str) -> None:
    """Raise a TypeError unless the value is an instance of the kind."""
    if not isinstance(value, kind):
        text = repr(value)
        shown = (
            text if len(text) <= _MOST_SHOWN and "\n" not in text else f"a {type(value).__name__}"
        )
        raise TypeError(
            f"Argument `{argument}` must be an object such as {example}, but is {shown}."
        )


def require_positive_integer(argument: str, value: Any, remedy: str) -> None:
    """Raise a ValueError unless the value is a positive integer."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise ValueError(
            f"Argument `{argument}` must be a positive integer, but is {value!r}; {remedy}."
        )


def require_positive(argument: str, value: Any) -> None:
    """Raise a ValueError unless the number is positive and finite."""
    is_number = np.ndim(value) == 0 and not isinstance(value, str | bool)
    if not (is_number and 0 < float(value) < float("inf")):
        raise ValueError(f"Argument `{argument}` must be positive and finite, but is {value!r}.")


def require_sequence(argument: str, names: Any) -> None:
    """Raise a TypeError for a single name in the place of a sequence of names."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(
            f"Argument `{argument}` must be a sequence of names, but is {names!r}; "
            f"write ({names!r},) for a single one."
        )


def coordinate_indices(
    argument: str, names: Iterable[str], coordinates: Sequence[str], hint: str = ""
) -> list[int]:
    """The indices of named coordinates, or an error for what is not the name of one."""
    require_sequence(argument, names)
    for name in names:
        if name not in coordinates:
            raise ValueError(
                f"Argument `{argument}` must hold names of coordinates, but holds {name!r}; the "
                f"coordinates are {', '.join(coordinates)}.{hint}"
            )
    return [list(coordinates).index(name) for name in names]


def require_seed(value: Any) -> None:
    """Raise a ValueError unless the value is a non-negative integer."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < 0:
        raise ValueError(f"Argument `seed` must be zero or a positive integer, but is {value!r}.")


def require_finite(**arguments: Any) -> None:
    """Raise a ValueError that names the first element that is NaN or infinite."""
    for argument, tree in arguments.items():
        for path, leaf in jax.tree.leaves_with_path(tree):
            if not is_known(leaf) or not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
                continue
            for index in np.argwhere(~np.isfinite(np.asarray(leaf))):
                entry = argument + jax.tree_util.keystr(path) + "".join(f"[{i}]" for i in index)
                value = np.asarray(leaf)[tuple(index)]
                raise ValueError(f"Argument `{entry}` must be finite, but is {value}.")


def as_numbers(argument: str, value: Any, *, half: bool = False) -> jax.Array:
    """Convert to an array of real numbers in native byte order; float16 only if `half`."""
    if is_known(value) and not isinstance(value, jax.Array):
        need = f"Argument `{argument}` must hold real numbers"
        if value is None:
            raise TypeError(f"{need}, but is None.")
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise TypeError(f"{need}, but its rows have different lengths.") from error
        if array.dtype == object:
            raise TypeError(f"{need}, but holds Python objects; write `np.asarray(..., float)`.")
        if not any(jnp.issubdtype(array.dtype, kind) for kind in (np.number, np.bool_)):
            raise TypeError(f"{need}, but is {value!r}.")
        if not isinstance(value, bool | int):  # which remain weakly typed
            value = array.astype(array.dtype.newbyteorder("="))
    x = jnp.asarray(value)
    if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4 and not half:
        raise TypeError(
            f"Argument `{argument}` must be in float32 or float64, but is in {x.dtype}, which is "
            f"too coarse for mechanics; write `{argument}.astype(jnp.float32)`."
        )
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise TypeError(f"Argument `{argument}` must hold real numbers, but is in {x.dtype}.")
    return x


class MissingParameterError(ValueError):
    """A function of a system reads a parameter that is missing.

    Attributes:
        name: name of the parameter.
        read_by: the function of the system that reads it.
        similar: a parameter that is probably this one, misspelt; None if there is none.
    """

    def __init__(self, name: Any, read_by: str, params: Iterable[Any]) -> None:
        params = [str(x) for x in params]
        similar = close_name(str(name), params)
        hint = f" Correct the name {similar!r} if it is meant." if similar else ""
        holds = ", ".join(params) or "nothing"
        super().__init__(
            f"Argument `params` must hold {name!r}, which {read_by} reads, but holds {holds}.{hint}"
        )
        self.name, self.read_by, self.similar = name, read_by, similar


def as_times(ts: Any, dtype: Any) -> Array:
    """Convert to save times, or raise an error unless they are in order."""
    ts = as_numbers("ts", ts, half=True).astype(dtype)
    if ts.ndim != 1 or ts.size < 2:
        raise ValueError(
            f"Argument `ts` must have shape (T,) with T >= 2 save times, but has shape {ts.shape}."
        )
    if is_known(ts) and np.isfinite(ts).all():
        steps = np.diff(np.asarray(ts))
        if not (np.all(steps > 0) or np.all(steps < 0)):
            raise ValueError(
                "Argument `ts` must be strictly increasing or strictly decreasing, but is not; "
                "sort it and drop repeated times."
            )
    return ts


@contextmanager
def naming_missing(reader: str, params: Any) -> Iterator[None]:
    """Name a function in errors on missing parameters, and on what JAX cannot trace."""
    try:
        yield
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise TypeError(
            f"{capital(reader)} must consist of JAX operations, since it is traced, but "
            f"needs the value of an array ({type(error).__name__}). Write `jnp.sin` instead of "
            "`np.sin` or `math.sin`, and `jnp.where` instead of `if`; the line is above."
        ) from error
    except UnknownNameError:
        raise
    except KeyError as error:
        name = error.args[0] if error.args else None
        if not isinstance(params, Mapping) or name in params:
            raise
        raise MissingParameterError(name, reader, params) from error
    except TypeError as error:
        if params is not None or "'NoneType' object is not subscriptable" not in str(error):
            raise
        raise ValueError(
            f"Argument `params` must hold the parameters that {reader} reads, but is None."
        ) from error


def with_standard_promotion(fn: Fn) -> Fn:
    """Let a function mix integers and floating-point numbers under any setting of JAX."""

    @wraps(fn)
    def promoting(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return fn(*args, **kwargs)

    return promoting  # type: ignore[return-value]


def distinct_names(argument: str, names: Names) -> tuple[str, ...]:
    """The names as a tuple, or an error."""
    require_sequence(argument, names)
    require_distinct(argument, tuple(names))
    return tuple(names)


def require_both(remedy: str, first: tuple[str, bool], second: tuple[str, bool]) -> None:
    """Raise a ValueError if one argument is given without the other; pairs tell which are."""
    if first[1] != second[1]:
        (stated, _), (missing, _) = (first, second) if first[1] else (second, first)
        raise ValueError(
            f"Argument `{stated}` must come with `{missing}`, which is missing; {remedy}."
        )


def require_distinct(argument: str, names: tuple[str, ...]) -> None:
    """Raise a ValueError unless all names are different, and none is empty."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"Argument `{argument}` must have non-empty names, but has {name!r}.")
        if names.count(name) > 1:
            raise ValueError(
                f"Argument `{argument}` must have distinct names, but {name!r} is given twice."
            )


# The operations between a constant index and the slice that it makes.
_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "lt": np.less,
    "select_n": lambda which, *cases: cases[int(which)],
    "convert_element_type": np.asarray,
}


def stacked(values: list[Array], dtype: Any) -> Array:
    """Join vectors, of which there may be none."""
    return jnp.concatenate([jnp.zeros((0,), dtype), *values])


VMAP = "; for a batch use `jax.vmap`"


def with_shape(
    what: str, value: Any, shape: tuple[int, ...], if_larger: str = "",
    need: str = "one number per coordinate",
) -> Array:  # fmt: skip
    """Convert the value of an argument or a function to an array of the shape that it must have.

    `need` says what its numbers are, `if_larger` what to do about further dimensions.
    """
    if value is None:
        raise ValueError(f"{what} must have shape {shape}, but is None; add a `return`.")
    if isinstance(value, list | tuple):
        value = jnp.asarray(value)
    if np.shape(value) != shape:
        need = need if shape else "a scalar"
        raise ValueError(
            f"{what} must have shape {shape} ({need}), but has shape {np.shape(value)}"
            f"{if_larger if np.ndim(value) > len(shape) else ''}."
        )
    return jnp.asarray(value)


def require_in_range(source: str, fn: Callable[..., Any], *args: Any) -> None:
    """Raise an IndexError if a function takes an entry that an array does not have.

    Only indices that are constants are known, and lists of indices are not examined. What the
    function itself raises is left to its next call.
    """
    outside: list[tuple[int, int]] = []
    with suppress(Exception):
        closed = jax.make_jaxpr(fn)(*args)
        outside += _reads(closed.jaxpr, closed.consts, ())
    if outside:
        start, size = outside[0]
        entry = start if start >= 0 else start - size
        raise IndexError(
            f"{source} must read entries that exist, but reads index {entry} of an axis of {size}; "
            "correct the index, for which JAX would silently read the nearest entry."
        )


def _reads(jaxpr: Jaxpr, consts: Sequence[Any], known: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """The first entry and the size of the axis of each slice that is out of range."""
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= {v: x for v, x in zip(jaxpr.invars, known, strict=False) if x is not None}
    for eqn in jaxpr.eqns:
        inputs = [x.val if isinstance(x, Literal) else values.get(x) for x in eqn.invars]
        name = eqn.primitive.name
        if name == "dynamic_slice":
            operand: Any = eqn.invars[0]
            sizes = eqn.params["slice_sizes"]
            for axis, size, start in zip(operand.aval.shape, sizes, inputs[1:], strict=True):
                if start is not None and not 0 <= int(start) <= axis - size:
                    yield int(start), axis
        elif name in _FOLDED and all(x is not None and np.ndim(x) == 0 for x in inputs):
            values[eqn.outvars[0]] = _FOLDED[name](*inputs)
        elif isinstance(inner := eqn.params.get("jaxpr"), ClosedJaxpr):
            same = len(inner.jaxpr.invars) == len(inputs) and name == "jit"
            yield from _reads(inner.jaxpr, inner.consts, inputs if same else ())
