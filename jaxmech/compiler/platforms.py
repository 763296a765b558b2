"""Where native code runs: on a CPU, unless it is switched off."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

_IS_ON = ContextVar("lanes", default=True)


@contextmanager
def off() -> Iterator[None]:
    """Run batches through plain `jax.vmap` within this context, to compare it with native code.

    JAX' caches of compiled programs are cleared at both ends.

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
    """The reason why no native code runs here; None if it does.

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
