"""The gradient of a scalar of the final state by q0, v0 and the parameters, and the forward run."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.speed.cases import Case
from experiments.speed.jax_routes import one_simulation
from experiments.speed.routes import Prepared, compiled
from experiments.speed.workers import Arrays

FORWARD, INSIDE, OUTSIDE = "forward run", "vmap of grad", "grad of vmap"
_ARGUMENTS, _AXES = (0, 1, 2), (0, 0, None)


def prepare(form: str, case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """One of `FORMS` for a case; the parameters are shared by its trajectories."""
    params = jax.tree.map(jnp.asarray, dict(case.model.params))
    return compiled(FORMS[form](case), q0, v0, params)


def comparable(form: str, arrays: Arrays) -> Arrays:
    """The gradient of the mean over the batch; nothing for the forward run.

    Args:
        form: one of `FORMS`.
        arrays: what it gives; by q0 and v0 first, then by the parameters.
    """
    if form == FORWARD:
        return []
    if form == OUTSIDE:
        return arrays
    by_state, by_params = arrays[:2], arrays[2:]
    return [x / len(x) for x in by_state] + [x.mean(axis=0) for x in by_params]


def _scalar(case: Case) -> Callable[..., Array]:
    run = one_simulation(case, None)

    def scalar(q: Array, v: Array, params: Any) -> Array:
        q, v = run(q, v, params)
        return q @ q + v @ v

    return scalar


def _forward(case: Case) -> Callable[..., Array]:
    return jax.vmap(_scalar(case), _AXES)


def _vmap_of_grad(case: Case) -> Callable[..., Any]:
    return jax.vmap(jax.grad(_scalar(case), _ARGUMENTS), _AXES)


def _grad_of_vmap(case: Case) -> Callable[..., Any]:
    return jax.grad(lambda *args: jnp.mean(_forward(case)(*args)), _ARGUMENTS)


FORMS: Mapping[str, Callable[[Case], Callable[..., Any]]] = {
    FORWARD: _forward,
    INSIDE: _vmap_of_grad,
    OUTSIDE: _grad_of_vmap,
}
