"""`uncollected`: run a function without garbage collections in between."""

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def uncollected(fn: Callable[P, R]) -> Callable[P, R]:
    """Put off garbage collection to the end of a function that allocates many lasting objects.

    Python searches all objects of a process for cycles whenever a quarter more have been allocated,
    which takes a seventh of the time of tracing and reading a program.

    Example:
        >>> uncollected(gc.isenabled)(), gc.isenabled()
        (False, True)
    """

    @wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return fn(*args, **kwargs)
        finally:
            if was_enabled:
                gc.enable()

    return run
