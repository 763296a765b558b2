"""What is computed: mechanisms with seeded starts whose motion is regular, so that routes agree."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.speed.dense import dense

Scatter = Mapping[str, tuple[float, float]]  # from where to where each start variable is drawn


@dataclass(frozen=True)
class Case:
    """A batch of trajectories, from t = 0, by RK4 with a fixed step and without projection.

    Attributes:
        name: one of `NAMES`, `chain_<links>` or `dense_<coordinates>`.
        model: the mechanism; every trajectory has its default parameters.
        batch: number of trajectories.
        steps: steps of each.
        step_size: of RK4 [s].
    """

    name: str
    model: jm.models.Model
    batch: int
    steps: int
    step_size: float

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process goes what makes the case, not the functions of its model."""
        return make, (self.name, self.batch, self.steps, self.step_size)

    @property
    def end(self) -> float:
        """When the trajectories end [s]."""
        return self.steps * self.step_size

    @property
    def equations(self) -> tuple[int, int]:
        """Number of coordinates n and of constraint equations m."""
        system, (q, v) = self.model.system, self.model.initial()
        return system.n, sum(system.sizes(q, v, jnp.zeros(()), self.model.params))

    @property
    def title(self) -> str:
        """The name for readers."""
        kind, _, count = self.name.partition("_")
        if kind == "dense":
            return f"dense system of {count} coordinates"
        return _TITLES.get(self.name) or f"chain of {count} link{'' if count == '1' else 's'}"


# Starts near a pose of rest or at a steady speed: nothing here is chaotic or becomes singular.
_SCATTER: Mapping[str, Scatter] = {
    "double_pendulum": {
        "theta1": (-0.6, 0.6),
        "theta2": (-0.6, 0.6),
        "omega1": (-0.3, 0.3),
        "omega2": (-0.3, 0.3),
    },
    "four_bar": {"angle": (-np.pi / 2 - 0.5, -np.pi / 2 + 0.5), "omega": (-0.5, 0.5)},
    "andrews": {"beta": (-0.1, 0.1), "beta_rate": (-20.0, 20.0)},
    "rolling_wheel": {"theta": (-3.0, 3.0), "spin": (-4.0, -2.0), "turn": (0.5, 1.5)},
}
_OF_ANY_SIZE: Mapping[str, Scatter] = {
    "chain": {"theta": (-0.2, 0.2), "omega": (-0.1, 0.1)},
    "dense": {"q": (-0.2, 0.2), "v": (-0.2, 0.2)},
}
_TITLES = {
    "double_pendulum": "double pendulum",
    "four_bar": "four-bar linkage",
    "andrews": "Andrews' mechanism",
    "rolling_wheel": "rolling wheel",
}
NAMES = ("double_pendulum", "chain_10", "four_bar", "andrews", "rolling_wheel")


def is_name(name: str) -> bool:
    """Whether `make` knows a case."""
    kind, _, count = name.partition("_")
    return name in _SCATTER or (kind in _OF_ANY_SIZE and count.isdecimal() and int(count) > 0)


def make(name: str, batch: int, steps: int, step_size: float) -> Case:
    """A case by its name, such as `double_pendulum` or `chain_10`."""
    if name.startswith("chain_"):
        model = jm.models.chain(int(name.removeprefix("chain_")))
    elif name.startswith("dense_"):
        model = dense(int(name.removeprefix("dense_")))
    elif name == "four_bar":
        model = jm.models.four_bars(bars=1)
    else:
        model = jm.models.make(name)
    return Case(name, model, batch, steps, step_size)


def states(case: Case, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Consistent starts: q0 and v0, both (batch, n), the same for every route."""
    rng = np.random.default_rng(seed)
    scatter = _SCATTER.get(case.name) or _OF_ANY_SIZE[case.name.partition("_")[0]]
    start = {
        name: rng.uniform(low, high, size=(case.batch, *np.shape(case.model.start[name])))
        for name, (low, high) in scatter.items()
    }
    q0, v0 = jax.jit(jax.vmap(case.model.initial))(start)
    return np.asarray(q0), np.asarray(v0)
