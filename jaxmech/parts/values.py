"""Values of parts: a plain number, the name of a parameter, or a function of (t, params).

A plain number is built into the equations. A name is looked up in `params` whenever the equations
are evaluated, so that it can be swept and differentiated; a `Signal` there is evaluated at the
time. A function is for values that depend on time or on several parameters, such as
`lambda t, p: p["length"] / 2`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import is_known, naming_missing, require_function
from jaxmech.utils.text import capital

Value = Any  # a number, the name of a parameter, or a function of (t, params)
Vector = Any  # a sequence of values, or the name or function of a whole array


@dataclass(frozen=True)
class Reader:
    """Reads the values of a part at a time from parameters; `part` is its name in messages."""

    part: str
    t: AnyArray
    params: Any

    def number(self, value: Value) -> AnyArray:
        """Read a value as a scalar; a plain number becomes a numpy constant, which is folded."""
        if isinstance(value, float):
            return np.asarray(value, self.dtype)
        return self.array(value, ())

    def vector(self, values: Vector, size: int) -> AnyArray:
        """Read values as an array of shape (size,)."""
        if are_numbers(values):
            return np.asarray(values, self.dtype)
        if isinstance(values, tuple):
            return jnp.stack([self.number(value) for value in values])
        return self.array(values, (size,))

    def array(self, value: Any, *shapes: tuple[int, ...]) -> Array:
        """Read a value as an array of one of the given shapes."""
        with naming_missing(self.part, self.params):
            if callable(value):
                raw = value(self.t, self.params)
            else:
                raw = self.params[value] if isinstance(value, str) else value
                raw = raw(self.t) if callable(raw) else raw
        array = jnp.asarray(raw).astype(self.dtype)
        if array.shape not in shapes:
            expected = " or ".join(map(str, shapes))
            source = f"the value of {getattr(value, '__name__', value)!s}"
            source = f"the parameter {value!r}" if isinstance(value, str) else source
            raise ValueError(
                f"{capital(self.part)} needs {source} to have shape {expected}, but it has "
                f"{array.shape}; give every member of a batch its own with `jax.vmap`."
            )
        return array

    @property
    def dtype(self) -> Any:
        """The floating-point type of all values."""
        return jnp.result_type(self.t, float)


def number(part: str, argument: str, value: Value) -> Value:
    """Check a value of a part, and return a float, a name or a function."""
    if isinstance(value, str):
        return value
    if callable(value):
        require_function(argument, value)
        return value
    if isinstance(value, bool) or not is_known(value) or np.ndim(value) != 0:
        raise TypeError(_wrong(part, argument, "a number", value))
    try:
        plain = float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(_wrong(part, argument, "a number", value)) from error
    if not math.isfinite(plain):
        raise ValueError(
            f"{capital(part)} must have a finite `{argument}`, but it is {plain}; correct it."
        )
    return plain


def positive(part: str, argument: str, value: Value, *, zero: bool = False) -> Value:
    """Check a value as `number` does; a plain number must be positive, or zero if `zero`."""
    checked = number(part, argument, value)
    if isinstance(checked, float):
        require_sign(part, argument, checked, zero=zero)
    return checked


def non_negative(part: str, argument: str, value: Value) -> Value:
    """Check a value as `number` does; a plain number must not be negative."""
    return positive(part, argument, value, zero=True)


def require_sign(part: str, argument: str, value: Any, *, zero: bool = False) -> None:
    """Raise for known numbers that are not positive; they may be zero if `zero`."""
    if not is_known(value):
        return
    numbers = np.asarray(value)
    has_sign = numbers >= 0 if zero else numbers > 0
    if np.all(has_sign & np.isfinite(numbers)):
        return
    if numbers.ndim:
        kind = "zeros or positive numbers" if zero else "positive numbers"
    else:
        kind = "zero or a positive number" if zero else "a positive number"
    raise ValueError(
        f"{capital(part)} must have {kind} as `{argument}`, but has {numbers.tolist()}; correct it."
    )


def vector(part: str, argument: str, values: Vector, size: int) -> Vector:
    """Check a vector of a part, and return a tuple, or the name or function of a whole array."""
    if isinstance(values, str) or callable(values):
        return number(part, argument, values)
    if not is_known(values):
        raise TypeError(_wrong(part, argument, f"{size} numbers", values))
    if not isinstance(values, Sequence) and np.ndim(values) != 1:
        raise TypeError(_wrong(part, argument, f"{size} numbers", values))
    if len(values) != size:
        raise ValueError(
            f"{capital(part)} must have {size} numbers in `{argument}`, "
            f"but has {len(values)}: {values!r}; give one for each direction."
        )
    return tuple(number(part, argument, value) for value in values)


def direction(part: str, argument: str, values: Vector, size: int) -> Vector:
    """Check a direction of a part; normalize it if all components are numbers."""
    components = vector(part, argument, values, size)
    if not are_numbers(components):
        return components
    length = math.hypot(*components)
    if length == 0:
        example = (1.0, 0.0, 0.0, 0.0) if size == 4 else (0.0,) * (size - 1) + (1.0,)
        raise ValueError(
            f"{capital(part)} must have a direction in `{argument}`, but all its components are "
            f"zero; write for example {example}."
        )
    return tuple(component / length for component in components)


def are_numbers(values: Vector) -> bool:
    """Whether a checked vector consists of plain numbers only."""
    return isinstance(values, tuple) and all(isinstance(value, float) for value in values)


def unit(read: Reader, direction: Vector, size: int) -> AnyArray:
    """Read a checked direction as a unit vector."""
    values = read.vector(direction, size)
    return values if are_numbers(direction) else values / jnp.sqrt(values @ values)


def vector_with_rate(read: Reader, values: Vector, size: int) -> tuple[AnyArray, AnyArray]:
    """Read a checked vector, and its derivative with respect to time."""
    value = read.vector(values, size)
    if are_numbers(values):
        return value, np.zeros(size, read.dtype)
    t = 1.0 * read.t
    along = (jnp.ones_like(t),)
    return value, jax.jvp(lambda t: replace(read, t=t).vector(values, size), (t,), along)[1]


def _wrong(part: str, argument: str, plain: str, value: Any) -> str:
    if not is_known(value):
        return (
            f"{capital(part)} must not have a traced value as `{argument}`; write the name of a "
            "parameter there and pass the value in `params`."
        )
    return (
        f"{capital(part)} must have as `{argument}` {plain}, the name of a parameter or a "
        f"function of (t, params), but has {value!r}."
    )
