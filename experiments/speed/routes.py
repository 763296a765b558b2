"""The ways to the final states of a case, by name: those of jaxmech and those of others.

A route is a function of a case and its initial states that compiles what it needs and returns a
`Prepared`. Its module is imported only by the process that runs it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax
import numpy as np

from experiments.speed.cases import Case

States = tuple[np.ndarray, np.ndarray]  # q and v, (batch, n) each


@dataclass(frozen=True)
class Prepared:
    """A compiled route: the seconds that it took, and a function that returns the final q and v."""

    compile_seconds: float
    run: Callable[[], States]


class Unavailable(Exception):  # noqa: N818
    """A route cannot run here, or cannot run this case; the text says why."""


@dataclass(frozen=True)
class Route:
    """Where a route is defined, as `module:function`, and how exact it is.

    The final states may differ from the reference by `tolerance`, relative to their size.
    """

    place: str
    tolerance: float = 1e-9


ROUTES: Mapping[str, Route] = {
    # Projected motion differs from the reference by the drift of RK4 off the constraints.
    "jaxmech, default": Route("jax_routes:default", 1e-5),
    "jaxmech, no audit": Route("jax_routes:without_audit", 1e-5),
    "jaxmech, no projection": Route("jax_routes:without_projection"),
    "jaxmech, bare kernel": Route("jax_routes:bare_kernel"),
    "bare kernel, plain vmap": Route("jax_routes:bare_kernel_by_vmap"),
    "straight-line C": Route("straight_line:straight_line"),
    # MuJoCo integrates other coordinates, and its closed loops are soft.
    "MuJoCo C rollout": Route("mujoco_rollout:mujoco_rollout", 1e-5),
    "Cholesky": Route("jax_routes:library_cholesky"),
    "diffrax": Route("jax_routes:with_diffrax"),
    "pinv": Route("jax_routes:pseudoinverse"),
}


def prepare(route: str, case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """Compile a route for a case."""
    module, _, function = ROUTES[route].place.partition(":")
    return getattr(import_module(f"experiments.speed.{module}"), function)(case, q0, v0)


def compiled(fn: Callable[..., Any], *args: Any) -> Prepared:
    """A function of arrays, compiled ahead of its first run."""
    begun = time.perf_counter()
    program = jax.jit(fn).lower(*args).compile()
    seconds = time.perf_counter() - begun
    args = jax.block_until_ready(jax.device_put(args))
    return Prepared(seconds, lambda: jax.tree.map(np.asarray, program(*args)))
