"""The fields `max_step` and `times` of the policies of steps."""

from math import isfinite
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.utils.checks import as_numbers, is_known

MAX_STEP = "longest step [s]"
TIMES = "times at which a step ends [s], such as kinks, jumps and pulses of a force"


def require_max_step(value: Any) -> None:
    """Raise a ValueError unless the value is None or a positive time."""
    if value is None or isinstance(value, jax.core.Tracer):
        return
    is_number = isinstance(value, int | float | np.number) or np.ndim(value) == 0
    if isinstance(value, bool) or not (is_number and float(value) > 0 and isfinite(value)):
        raise ValueError(
            f"Argument `max_step` must be a positive time, but is {value!r}; leave it out for "
            "steps of any length."
        )


def as_step_times(value: Any) -> Any:
    """The times as a tuple of numbers, or as an array (K,) if they are traced."""
    if isinstance(value, tuple) and all(type(x) is float and isfinite(x) for x in value):
        return value
    leaves = jax.tree.leaves(value)
    if not is_known(leaves):
        is_sequence = isinstance(value, tuple | list)
        return jnp.stack(list(map(jnp.asarray, value))) if is_sequence else jnp.asarray(value)
    found = np.asarray(as_numbers("times", value if np.size(value) else np.zeros(0), half=True))
    if found.ndim != 1 or not np.isfinite(found).all():
        raise ValueError(
            "Argument `times` must be a sequence of finite times at which a step ends, but is "
            f"{value!r}; write (1.0,) for a single one."
        )
    return tuple(found.astype(float).tolist())


def time_array(times: Any, dtype: Any) -> Array | None:
    """The times as an array (K,); None if there are none."""
    if not np.size(times):
        return None
    # By numpy, which compiles no program for the conversion of numbers.
    is_tuple = isinstance(times, tuple)
    return jnp.asarray(np.asarray(times, dtype)) if is_tuple else times.astype(dtype)
