"""`jit_of`: `jax.jit` with a bounded cache of programs by static arguments.

`jax.jit` keeps the programs of every static argument. Here these are systems, so a process that
creates one system after another would keep the programs of all of them.
"""

import inspect
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any

import jax

KEPT = 32  # number of static arguments for which a function keeps its programs


def jit_of(*static: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`jax.jit` with named static arguments, which keeps the most recently used programs only.

    Example:
        >>> import jax.numpy as jnp
        >>> @jit_of("power")
        ... def raised(power, x):
        ...     return x**power
        >>> print(raised(3, jnp.asarray(2.0)))
        8.0
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(fn)

        @lru_cache(maxsize=KEPT)
        def program(values: tuple[Any, ...]) -> Callable[..., Any]:
            # JAX drops the programs of a function together with the function.
            return jax.jit(partial(fn, **dict(zip(static, values, strict=True))))

        @wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            values = tuple(given.pop(name) for name in static)
            return program(values)(**given)

        return run

    return decorate
