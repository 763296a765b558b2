"""Arithmetic of integer constants with the results of XLA, where numpy's are others or undefined.

Numbers wrap around. A quotient by zero is -1 (all bits set) and a remainder by zero the dividend;
both are truncated, not floored. A float that is converted saturates, and NaN becomes zero.
"""

from typing import Any

import numpy as np


def wrapped(value: int, dtype: np.dtype) -> Any:
    """An integer of any size, modulo the size of a type."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = value % 2 ** (8 * dtype.itemsize)
    return np.asarray(bits, unsigned).view(dtype)[()]


def quotient(x: Any, y: Any) -> Any:
    """x / y, rounded towards zero."""
    dividend, divisor = int(x), int(y)
    if divisor == 0:
        return wrapped(-1, x.dtype)
    size = abs(dividend) // abs(divisor)
    return wrapped(size if (dividend < 0) == (divisor < 0) else -size, x.dtype)


def remainder(x: Any, y: Any) -> Any:
    """The remainder of x / y, with the sign of x."""
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    dividend, divisor = int(x), int(y)
    if divisor == 0:
        return x
    size = abs(dividend) % abs(divisor)
    return wrapped(-size if dividend < 0 else size, x.dtype)


def converted(value: Any, dtype: np.dtype) -> Any:
    """A number as another type."""
    if value.dtype.kind != "f" or dtype.kind not in "iu":
        return value.astype(dtype)
    if np.isnan(value):
        return dtype.type(0)
    limits = np.iinfo(dtype)
    if value >= limits.max:
        return dtype.type(limits.max)
    return dtype.type(limits.min if value <= limits.min else int(value))
