"""Warnings that point at the line of the user's program that caused them."""

import inspect
import warnings

_INNER = {"jaxmech", "jax", "equinox", "contextlib", "functools", "beartype", "jaxtyping"}
_SHOWN: set[tuple[str, str, int]] = set()
USE_FLOAT64 = 'compute in float64 with jax.config.update("jax_enable_x64", True)'


class PrecisionWarning(UserWarning):
    """The precision of the arguments does not suffice for what was asked."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn once at the first caller outside of the package and of JAX."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INNER:
        level, frame = level + 1, frame.f_back
    location = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    # Python would show it again whenever its filters have changed, which JAX does.
    if (message, *location) not in _SHOWN:
        warnings.warn(message, category, stacklevel=level)
        _SHOWN.add((message, *location))


def forget_shown() -> None:
    """Show all warnings again."""
    _SHOWN.clear()
