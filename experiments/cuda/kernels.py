"""The kernels of a program, and programs whose kernels run elsewhere.

JAX lowers a batch to calls of kernels. Here these calls are replaced while a program is lowered.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmech.compiler.backends import primitive
from jaxmech.compiler.frontend.build import Kernel


class Called(NamedTuple):
    """A kernel, and the indices of its arguments that differ in the batch."""

    kernel: Kernel
    batched: frozenset[int]


Runner = Callable[[list[np.ndarray], int], list[np.ndarray]]  # of arguments and size of the batch


def kernels(fn: Callable[..., Any], *args: Any) -> list[Called]:
    """The kernels of a batched function, in the order in which it calls them."""
    found: list[Called] = []

    def noted(called: Called, args: tuple[Array, ...], size: int) -> list[Array]:
        found.append(called)
        return [jnp.zeros(x.shape, x.dtype) for x in _shapes(called.kernel, size)]

    jax.jit(fn).lower(*args)  # finds properties of the system, by kernels that are not of the batch
    with _calling(noted):
        jax.jit(fn).lower(*args)
    return found


@contextmanager
def running(made: Callable[[Called], Runner]) -> Iterator[list[Called]]:
    """Run the kernels of programs compiled within this context with `made`.

    Yields a list to which these kernels are added.
    """
    runners: list[Called] = []

    def called_back(called: Called, args: tuple[Array, ...], size: int) -> list[Array]:
        runners.append(called)
        run = made(called)

        def on_host(*args: Any) -> list[np.ndarray]:
            return run([np.asarray(x) for x in args], size)

        shapes = _shapes(called.kernel, size)
        return jax.pure_callback(on_host, shapes, *args)

    with _calling(called_back):
        yield runners


def _shapes(kernel: Kernel, size: int) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct((size, *x.shape), x.dtype) for x in kernel.out_avals]


@contextmanager
def _calling(call: Callable[[Called, tuple[Array, ...], int], list[Array]]) -> Iterator[None]:
    """Replace the call of a kernel, and keep programs from before and after apart."""

    def called(*args: Array, kernel: Kernel, batched: frozenset[int], size: int) -> list[Array]:
        return call(Called(kernel, batched), args, size)

    jax.clear_caches()
    with patch.dict(primitive._CALLS, dict.fromkeys(primitive._CALLS, called)):
        yield
    jax.clear_caches()
