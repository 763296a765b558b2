"""Arrays of the shapes that arguments and the values of functions must have."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


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
