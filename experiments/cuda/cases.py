"""The compiled cases: every model of the catalogue, in five ways."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

import jaxmech as jm

# The range of start variables of a batch, from ... to, and the step [s]. The motions are regular:
# round-off does not grow on them.
GENTLE: Mapping[str, tuple[Mapping[str, Any], float]] = {
    "pendulum": ({"theta": (-1.2, 0.6), "omega": (0.0, 0.5)}, 5e-3),
    "double_pendulum": ({"theta1": (-0.5, 0.4), "theta2": (0.3, 0.6)}, 2e-3),
    "double_pendulum_angles": ({"theta1": (-0.5, 0.4), "theta2": (0.3, 0.6)}, 2e-3),
    "chain": ({"theta": ([0.1, 0.2, 0.3], [0.4, 0.3, -0.1])}, 2e-3),
    "bead_on_parabola": ({"x1": (0.2, 0.6), "v1": (0.0, 0.2)}, 2e-3),
    "bead_on_rod": ({"r": (0.2, 0.6), "r_rate": (-0.1, 0.2)}, 1e-3),
    "particle_on_curve": ({"x1": (1.3, 1.4)}, 2e-3),
    "rolling_wheel": ({"spin": (-3.0, 2.0), "turn": (0.3, 1.0)}, 2e-3),
    "chaplygin_sleigh": ({"speed": (-0.5, 0.5), "omega": (0.5, 1.1)}, 2e-3),
    "four_bars": ({"angle": (-1.2, -1.8), "omega": (-0.3, 0.3)}, 1e-3),  # hanging
    "free_body": ({"w": ([0.9, 0.0, 0.6], [0.2, 0.3, 0.9])}, 2e-3),
    "andrews": ({"beta": (-0.06, 0.02)}, 1e-6),
    "four_bar": ({"angle": (-1.2, -1.8), "omega": (-0.3, 0.3)}, 1e-3),
    "chain_10": ({"theta": (0.1, -0.2)}, 2e-3),
}
OPTIONS: Mapping[str, Mapping[str, Any]] = {"chain": {"links": 3}}
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


def made(name: str) -> jm.models.Model:
    """Make a model; `chain_10` is the chain of ten links, `four_bar` one loop instead of two."""
    if name == "four_bar":
        return jm.models.four_bars(bars=1)
    if name == "chain_10":
        return jm.models.chain(10)
    return jm.models.make(name, OPTIONS.get(name, {}))


def states(name: str, along: ArrayLike) -> tuple[Array, Array]:
    """Consistent q and v, shapes (size, n), at fractions of the range of the model, from 0 to 1."""
    model = made(name)

    def state(along: Array) -> tuple[Array, Array]:
        start = {
            key: (1 - along) * np.asarray(a) + along * np.asarray(b)
            for key, (a, b) in GENTLE[name][0].items()
        }
        whole = {key: jnp.broadcast_to(x, np.shape(model.start[key])) for key, x in start.items()}
        return model.initial(whole)

    return jax.jit(jax.vmap(state))(jnp.asarray(along))


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
        found = whole(q, v, params)
        return found.q[-1], found.v[-1]

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
