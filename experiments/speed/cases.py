"""The cases: mechanisms with random initial states whose motion is regular.

No case is chaotic or comes near a singular pose, so that all routes agree to round-off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm

# The ranges from which the start variables of each model are drawn.
_RANGES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "double_pendulum": {
        **dict.fromkeys(("theta1", "theta2"), (-0.6, 0.6)),
        **dict.fromkeys(("omega1", "omega2"), (-0.3, 0.3)),
    },
    "four_bar": {"angle": (-np.pi / 2 - 0.5, -np.pi / 2 + 0.5), "omega": (-0.5, 0.5)},
    "andrews": {"beta": (-0.1, 0.1), "beta_rate": (-20.0, 20.0)},
    "rolling_wheel": {"theta": (-3.0, 3.0), "spin": (-4.0, -2.0), "turn": (0.5, 1.5)},
    "chain": {"theta": (-0.2, 0.2), "omega": (-0.1, 0.1)},
}
_TITLES = {"four_bar": "four-bar linkage", "andrews": "Andrews' mechanism"}
NAMES = ("double_pendulum", "chain_10", "four_bar", "andrews", "rolling_wheel")


@dataclass(frozen=True)
class Case:
    """A batch of trajectories from t = 0 by RK4 with a fixed step, with default parameters."""

    name: str
    model: jm.models.Model
    batch: int  # number of trajectories
    steps: int  # per trajectory
    step_size: float  # [s]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name and the size, since functions of a model cannot be pickled."""
        return make, (self.name, self.batch, self.steps, self.step_size)

    @property
    def end(self) -> float:
        """The last time of the trajectories [s]."""
        return self.steps * self.step_size

    @property
    def equations(self) -> tuple[int, int]:
        """The numbers of coordinates n and of constraint equations m."""
        system, (q, v) = self.model.system, self.model.initial()
        return system.n, sum(system.dynamics.sizes(q, v, jnp.zeros(()), self.model.params))

    @property
    def title(self) -> str:
        """The name in tables and pictures."""
        kind, _, count = self.name.partition("_")
        if kind == "chain":
            return f"chain of {count} link{'' if count == '1' else 's'}"
        return _TITLES.get(self.name, self.name.replace("_", " "))


def is_name(name: str) -> bool:
    """Whether a name is that of a case."""
    kind, _, count = name.partition("_")
    return count.isdecimal() and int(count) > 0 if kind == "chain" else name in _RANGES


def make(name: str, batch: int, steps: int, step_size: float) -> Case:
    """Make a case by its name, such as `double_pendulum` or `chain_10`."""
    kind, _, count = name.partition("_")
    if kind == "chain":
        model = jm.models.chain(int(count))
    elif name == "four_bar":
        model = jm.models.four_bars(bars=1)
    else:
        model = jm.models.make(name)
    return Case(name, model, batch, steps, step_size)


def states(case: Case, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Consistent initial q0 and v0, both (batch, n), the same for every route."""
    rng = np.random.default_rng(seed)
    ranges = _RANGES.get(case.name) or _RANGES[case.name.partition("_")[0]]
    start = {
        name: rng.uniform(low, high, size=(case.batch, *np.shape(case.model.start[name])))
        for name, (low, high) in ranges.items()
    }
    q0, v0 = jax.jit(jax.vmap(case.model.initial))(start)
    return np.asarray(q0), np.asarray(v0)
