"""All routes by name, where each is defined, and how it is judged."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from experiments.speed.cases import Case
from experiments.speed.routes import Prepared


@dataclass(frozen=True)
class Entry:
    """A route of the roster.

    Attributes:
        place: `module:function` in this folder; imported by the process that runs it.
        tolerance: how far its final states may be from the reference, relative to their size.
    """

    place: str
    tolerance: float = 1e-9


ROUTES: Mapping[str, Entry] = {
    # The projected motion differs by what RK4 alone drifts off the constraints.
    "jaxmech, default": Entry("jax_routes:default", 1e-5),
    "jaxmech, no audit": Entry("jax_routes:without_audit", 1e-5),
    "jaxmech, no projection": Entry("jax_routes:without_projection"),
    "jaxmech, bare kernel": Entry("jax_routes:bare_kernel"),
    "bare kernel, plain vmap": Entry("jax_routes:bare_kernel_by_vmap"),
    "straight-line C": Entry("straight_line:straight_line"),
    # Integrates other coordinates, and its loops are soft.
    "MuJoCo C rollout": Entry("mujoco_rollout:mujoco_rollout", tolerance=1e-5),
    "Cholesky": Entry("jax_routes:library_cholesky"),
    "diffrax": Entry("jax_routes:with_diffrax"),
    "pinv": Entry("jax_routes:pseudoinverse"),
}


def prepare(route: str, case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """Gets a route ready for a case.

    Raises:
        Unavailable: it cannot run here, or not this case.
    """
    module, _, function = ROUTES[route].place.partition(":")
    return getattr(import_module(f"experiments.speed.{module}"), function)(case, q0, v0)
