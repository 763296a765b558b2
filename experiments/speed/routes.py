"""The ways to the final states of a case: jaxmech's own and its rivals, by name."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from experiments.speed.cases import Case

States = tuple[np.ndarray, np.ndarray]  # q and v, (batch, n) each


@dataclass(frozen=True)
class Prepared:
    """A route that is ready to run a case.

    Attributes:
        compile_seconds: what it took to get ready.
        run: the final q and v; blocks until they are there.
    """

    compile_seconds: float
    run: Callable[[], States]


class Unavailable(Exception):  # noqa: N818
    """A route that cannot run here or cannot run this case; the text says why."""


Route = Callable[[Case, np.ndarray, np.ndarray], Prepared]


def compiled(fn: Callable[..., Any], *args: Any) -> Prepared:
    """A function of arrays, compiled ahead of its first run."""
    begun = time.perf_counter()
    program = jax.jit(fn).lower(*args).compile()
    seconds = time.perf_counter() - begun
    args = jax.block_until_ready(jax.device_put(args))
    return Prepared(seconds, lambda: jax.tree.map(np.asarray, program(*args)))
