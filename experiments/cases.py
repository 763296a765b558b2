"""Models of the catalogue, and the starts of regular motions, on which round-off does not grow."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

import jaxmech as jm

# The range of start variables of a batch, from ... to, and the step [s].
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


def is_name(name: str) -> bool:
    """Whether there is a model of this name; a chain may have any number of links."""
    kind, _, links = name.partition("_")
    return links.isdecimal() and int(links) > 0 if kind == "chain" and links else name in GENTLE


@cache
def made(name: str) -> jm.models.Model:
    """Make a model; `chain_10` is the chain of ten links, `four_bar` one loop instead of two."""
    if name == "four_bar":
        return jm.models.four_bars(bars=1)
    if name.startswith("chain"):
        return jm.models.chain(int(name.partition("_")[2] or 3))
    return jm.models.make(name)


def states(name: str, along: ArrayLike) -> tuple[Array, Array]:
    """Consistent q and v, shapes (size, n), at fractions of the range of the model, from 0 to 1."""
    model = made(name)
    ranges, _ = GENTLE["chain_10" if name.startswith("chain_") else name]

    def state(along: Array) -> tuple[Array, Array]:
        start = {
            key: (1 - along) * np.asarray(a) + along * np.asarray(b)
            for key, (a, b) in ranges.items()
        }
        whole = {key: jnp.broadcast_to(x, np.shape(model.start[key])) for key, x in start.items()}
        return model.initial(whole)

    return jax.jit(jax.vmap(state))(jnp.asarray(along))
