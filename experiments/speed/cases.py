"""The cases: batches of the models of `experiments.cases`."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.cases import made, states

_TITLES = {"four_bar": "four-bar linkage", "andrews": "Andrews' mechanism"}


@dataclass(frozen=True)
class Case:
    """A batch of trajectories from t = 0 by RK4 with a fixed step, with default parameters."""

    name: str
    batch: int  # number of trajectories
    steps: int  # per trajectory
    step_size: float  # [s]

    @property
    def model(self) -> jm.models.Model:
        return made(self.name)

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

    def states(self) -> tuple[np.ndarray, np.ndarray]:
        """Consistent initial q0 and v0, both (batch, n), the same for every route."""
        q0, v0 = states(self.name, np.linspace(0.0, 1.0, self.batch))
        return np.asarray(q0), np.asarray(v0)
