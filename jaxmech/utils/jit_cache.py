"""`jax.jit` of functions of systems, whose programs are dropped again.

`jax.jit` keeps the programs of every static argument. Here these are systems, so a process that
creates one system after another would keep the programs of all of them. `jit_of` keeps those of the
systems used last; `traced_once` keeps those of a method with its object.
"""

import inspect
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any

import jax

from jaxmech.utils.collection import uncollected

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
        @uncollected
        def run(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            values = tuple(given.pop(name) for name in static)
            return program(values)(**given)

        return run

    return decorate


def traced_once(method: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a method once for all its uses and their derivatives, by `jax.jit` of it.

    The object must not change. Its jaxpr appears as a call, so that a program that uses the method
    many times is traced, differentiated and batched in a fraction of the time.

    Example:
        >>> import jax.numpy as jnp
        >>> class Spring:
        ...     @traced_once
        ...     def force(self, x):
        ...         print("traced")
        ...         return -2.0 * x
        >>> spring = Spring()
        >>> print(spring.force(jnp.asarray(1.0)) + spring.force(jnp.asarray(2.0)))
        traced
        -6.0
    """
    name = f"_traced_{method.__name__}"

    @wraps(method)
    def run(self: Any, *args: Any) -> Any:
        program = self.__dict__.get(name)
        if program is None:
            program = self.__dict__[name] = jax.jit(partial(method, self))
        return program(*args)

    return run
