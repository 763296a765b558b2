"""Warnings at the user's line."""

import inspect
import warnings

USE_FLOAT64 = 'compute in float64 with jax.config.update("jax_enable_x64", True)'


class PrecisionWarning(UserWarning):
    """The precision of the arguments does not suffice for what was asked."""


def warn_caller(text: str, category: type[Warning]) -> None:
    """Warn at the first caller outside of the package."""
    level, frame = 1, inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").startswith(("jaxmech", "jax.")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
