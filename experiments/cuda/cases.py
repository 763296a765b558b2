"""The compiled cases: every model of the catalogue, in five ways."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

import jaxmech as jm
from experiments.cases import GENTLE, made, states

WAYS = ("forward", "projection", "gradient", "sensitivities", "solution")
_AXES = (0, 0, None)


class Case(NamedTuple):
    """A function of a batch of states, and of parameters shared by all trajectories."""

    model: str
    way: str
    batched: Callable[[Array, Array, Any], Any]
    q0: Array
    v0: Array
    params: Any

    @property
    def args(self) -> tuple[Array, Array, Any]:
        return self.q0, self.v0, self.params


def case(name: str, way: str, size: int, steps: int, dtype: Any = np.float64) -> Case:
    """Make the case of a model in one of the `WAYS`, with a batch of trajectories and its steps."""
    model, end = made(name), steps * GENTLE[name][1]
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), dict(model.params))
    q0, v0 = (x.astype(dtype) for x in states(name, np.linspace(0.0, 1.0, size)))
    return Case(name, way, jax.vmap(_one(model, way, steps, end), _AXES), q0, v0, params)


def _one(model: jm.models.Model, way: str, steps: int, end: float) -> Callable[..., Any]:
    """Make the function of one trajectory."""
    projection = None if way == "forward" else jm.Projection()

    def times(q: Array, saves: int) -> Array:
        return jnp.linspace(0.0, end, saves, dtype=q.dtype)

    def whole(q: Array, v: Array, params: Any, saves: int = 2) -> jm.Solution:
        how = {"steps": jm.FixedSteps(steps // (saves - 1)), "projection": projection}
        return jm.simulate(model.system, q, v, times(q, saves), params, **how)

    def last(q: Array, v: Array, params: Any) -> tuple[Array, Array]:
        sol = whole(q, v, params)
        return sol.q[-1], sol.v[-1]

    def scalar(q: Array, v: Array, params: Any) -> Array:
        q, v = last(q, v, params)
        return q @ q + v @ v

    def slopes(q: Array, v: Array, params: Any) -> tuple[Array, Array]:
        numbers, unravel = ravel_pytree(params)

        def start(theta: Array) -> tuple[Array, Array, Any]:
            return q, v, unravel(jnp.concatenate([theta, numbers[2:]]))

        how = {"steps": jm.FixedSteps(steps), "projection": projection}
        found = jm.analysis.sensitivities(model.system, start, numbers[:2], times(q, 2), **how)
        return found.q[-1], found.v[-1]

    ways: dict[str, Callable[..., Any]] = {
        "forward": last,
        "projection": last,
        "gradient": jax.grad(scalar, (0, 1, 2)),
        "sensitivities": slopes,
        "solution": lambda q, v, params: whole(q, v, params, saves=5),
    }
    return ways[way]
