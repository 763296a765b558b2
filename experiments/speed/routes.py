"""The routes to the final states of a case, by name: those of jaxmech and those of others.

A route is a function of a case and its initial states that compiles what it needs and returns a
`Prepared`. Its module is imported only by the process that runs it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.measuring import timed
from experiments.speed.cases import Case

States = tuple[np.ndarray, np.ndarray]  # q and v, (batch, n) each
COMPARED = 16_384  # number of trajectories whose final states are compared


@dataclass(frozen=True)
class Prepared:
    """A compiled route.

    Attributes:
        compile_seconds: time of compilation.
        run: computes, and returns when the result is ready.
        compared: maps the result to the arrays that are compared, the final q and v.
    """

    compile_seconds: float
    run: Callable[[], Any]
    compared: Callable[[Any], Any] = lambda result: result


class Unavailable(Exception):  # noqa: N818
    """A route cannot run here, or not for this case; the text states the reason."""


@dataclass(frozen=True)
class Route:
    """The definition of a route as `module:function`, with its options and its accuracy.

    The final states may differ from the reference by `tolerance`, relative to their size.
    """

    place: str
    tolerance: float = 1e-9
    options: Mapping[str, Any] = field(default_factory=dict)


def _simulated(tolerance: float, **options: Any) -> Route:
    return Route("jax_routes:simulated", tolerance, options)


ROUTES: Mapping[str, Route] = {
    # Projected motion differs from the reference by the drift of RK4 off the constraints.
    "jaxmech, default": _simulated(1e-5, projection=jm.Projection(), audit=True),
    "jaxmech, no audit": _simulated(1e-5, projection=jm.Projection()),
    "jaxmech, no projection": _simulated(1e-9, projection=None, audit=True),
    "jaxmech, bare kernel": _simulated(1e-9, projection=None),
    "bare kernel, plain vmap": _simulated(1e-9, projection=None, lanes=False),
    "straight-line C": Route("straight_line:straight_line"),
    # MuJoCo integrates other coordinates, and its closed loops are soft.
    "MuJoCo C rollout": Route("mujoco_rollout:mujoco_rollout", 1e-5),
    "Cholesky": Route("jax_routes:library_cholesky"),
    "diffrax": Route("jax_routes:with_diffrax"),
    "pinv": Route("jax_routes:pseudoinverse"),
}


def runs_on(route: str, platform: str) -> bool:
    """Whether a route can run on a platform: those in JAX run everywhere."""
    return ROUTES[route].place.startswith("jax_") or platform == "cpu"


def prepare(route: str, case: Case) -> Prepared:
    """Compile a route for a case, whose first trajectories are compared."""
    module, _, function = ROUTES[route].place.partition(":")
    begin = getattr(import_module(f"experiments.speed.{module}"), function)
    start = case.states()
    jax.clear_caches()  # cached traces of the states would shorten the compile time
    made = begin(case, *start, **ROUTES[route].options)
    return replace(made, compared=lambda result: [x[:COMPARED] for x in made.compared(result)])


def compiled(fn: Callable[..., Any], *args: Any) -> Prepared:
    """Compile a function of arrays ahead of its first run."""
    args = jax.block_until_ready(jax.tree.map(jnp.asarray, args))
    made = timed(lambda: jax.jit(fn).lower(*args).compile(), 0, time.perf_counter)
    return Prepared(made.first, lambda: jax.block_until_ready(made.result(*args)))
