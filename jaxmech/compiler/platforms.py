"""Where lanes run: on a CPU, unless they are switched off."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_IS_ON = ContextVar("lanes", default=True)


@contextmanager
def off() -> Iterator[None]:
    """Within, functions run over a batch by `jax.vmap`, on a CPU too: to compare the two.

    What JAX has compiled is forgotten at both ends, or it would run again as it was compiled first.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxmech.compiler import batched
        >>> with off():
        ...     print(jax.vmap(batched(lambda x: 2 * x))(jnp.arange(3.0)))
        [0. 2. 4.]
    """
    token = _IS_ON.set(False)
    jax.clear_caches()
    try:
        yield
    finally:
        _IS_ON.reset(token)
        jax.clear_caches()


def why_not() -> str | None:
    """Why no lanes run here, None if they do.

    Example:
        >>> with off():
        ...     print(why_not())
        `compiler.off()`
    """
    if not _IS_ON.get():
        return "`compiler.off()`"
    platform = jax.default_backend()
    return (
        None if platform == "cpu" else f"the platform: lanes run on a CPU, and this is {platform}"
    )
