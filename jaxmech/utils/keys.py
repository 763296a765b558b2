"""Typed random keys (`jax.random.key`): arrays of JAX for which numpy has no type."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_key(value: Any) -> bool:
    """Whether a value is an array of typed random keys.

    Example:
        >>> is_key(jax.random.key(0)), is_key(jax.random.PRNGKey(0)), is_key(1.0)
        (True, False, False)
    """
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def bits_of(keys: Any) -> np.ndarray:
    """The bits of keys whose values are known, also while something else is being traced."""
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.random.key_data(keys))
