"""The gradient of a scalar of the final state, in reverse and forward mode, and the forward run.

In reverse mode with respect to q0, v0 and all parameters; in forward mode with respect to the first
p parameters, which costs as much as the sensitivities of all of q and v.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

import jaxmech as jm
from experiments.speed.cases import Case
from experiments.speed.jax_routes import end_of_simulation
from experiments.speed.routes import Prepared, Unavailable, compiled

FORWARD, INSIDE, OUTSIDE = "forward run", "vmap of grad", "grad of vmap"
SENSITIVITIES = {f"sensitivities, p = {p}": p for p in (1, 2, 3, 5)}
FORMS = (FORWARD, INSIDE, OUTSIDE, *SENSITIVITIES)
TOLERANCE = 1e-9  # largest difference from the first form, relative to its size


def prepare(form: str, case: Case) -> Prepared:
    """Compile one of `FORMS` for a case; all trajectories share the parameters."""
    q0, v0 = case.states()
    jax.clear_caches()  # cached traces of the states would shorten the compile time
    params = jax.tree.map(jnp.asarray, dict(case.model.params))
    run, by = end_of_simulation(case, None), (0, 1, 2)

    def scalar(q: Array, v: Array, params: Any) -> Array:
        q, v = run(q, v, params)
        return q @ q + v @ v

    def over_batch(fn: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(fn, (0, 0, None))

    if form in SENSITIVITIES:
        fn = over_batch(_sensitivities(case, SENSITIVITIES[form]))
    elif form == OUTSIDE:
        fn = jax.grad(lambda *args: jnp.mean(over_batch(scalar)(*args)), by)
    else:
        fn = over_batch(jax.grad(scalar, by) if form == INSIDE else scalar)
    return replace(compiled(fn, q0, v0, params), compared=partial(_of_mean, form))


def _of_mean(form: str, found: Any) -> list[np.ndarray]:
    """The gradient of the mean over the batch, by each parameter, then by q0 and v0 if known."""
    if form == FORWARD:
        return []
    arrays = [np.asarray(x) for x in jax.tree.leaves(found)]
    if form in SENSITIVITIES:
        return list(arrays[0].mean(axis=0))
    by_state, by_params = arrays[:2], arrays[2:]
    if form == INSIDE:
        by_state = [x / len(x) for x in by_state]
        by_params = [x.mean(axis=0) for x in by_params]
    return [*np.concatenate([x.ravel() for x in by_params]), *by_state]


def _sensitivities(case: Case, count: int) -> Callable[..., Array]:
    """The derivatives of the same scalar by the first parameters, for one trajectory."""
    known = sum(np.size(x) for x in jax.tree.leaves(case.model.params))
    if known < count:
        raise Unavailable(f"its parameters are {known} numbers")
    ts, steps = jnp.array([0.0, case.end]), jm.FixedSteps(per_save=case.steps)

    def slopes(q: Array, v: Array, params: Any) -> Array:
        numbers, unravel = ravel_pytree(params)

        def start(theta: Array) -> tuple[Array, Array, Any]:
            return q, v, unravel(jnp.concatenate([theta, numbers[count:]]))

        found = jm.analysis.sensitivities(
            case.model.system, start, numbers[:count], ts, steps=steps, projection=None
        )
        end = found.solution
        return 2 * (end.q[-1] @ found.q[-1] + end.v[-1] @ found.v[-1])

    return slopes
