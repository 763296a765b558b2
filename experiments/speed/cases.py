"""The cases: mechanisms with random initial states whose motion is regular.

No case is chaotic or comes near a singular pose, so that all routes agree to round-off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

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
    "dense": {"q": (-0.2, 0.2), "v": (-0.2, 0.2)},
}
_SIZED = ("chain", "dense")  # named with a number, such as chain_10
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
        if kind == "dense":
            return f"dense system of {count} coordinates"
        if kind == "chain":
            return f"chain of {count} link{'' if count == '1' else 's'}"
        return _TITLES.get(self.name, self.name.replace("_", " "))


def is_name(name: str) -> bool:
    """Whether a name is that of a case."""
    kind, _, count = name.partition("_")
    return count.isdecimal() and int(count) > 0 if kind in _SIZED else name in _RANGES


def make(name: str, batch: int, steps: int, step_size: float) -> Case:
    """Make a case by its name, such as `double_pendulum` or `chain_10`."""
    kind, _, count = name.partition("_")
    if kind in _SIZED:
        model = {"chain": jm.models.chain, "dense": dense}[kind](int(count))
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


def dense(n: int) -> jm.models.Model:
    """A model of n coordinates with a full mass matrix that depends on all, and n/3 constraints.

        L = (u^T M0 u - q^T q) / 2,  u_i = v_i (1 + 0.1 sin(W q)_i),    B q = 0

    Nothing can be folded here except the second derivatives of the constraints, which are linear.
    """
    rng = np.random.default_rng(n)
    G = rng.normal(size=(n, n)) / np.sqrt(n)
    W, B = rng.normal(size=(n, n)) / n, rng.normal(size=(max(n // 3, 1), n))
    along = np.eye(n) - np.linalg.pinv(B) @ B

    def lagrangian(q: Array, v: Array, t: Array, p: Any) -> Array:
        u = v * (1 + 0.1 * jnp.sin(W @ q))
        return 0.5 * p["mass"] * (u @ (G @ G.T + np.eye(n)) @ u) - 0.5 * q @ q

    def state(start: Any, params: Any) -> tuple[Array, Array]:
        return along @ jnp.asarray(start["q"]), along @ jnp.asarray(start["v"])

    planes = jm.Holonomic(lambda q, t, p: B @ q, name="planes")
    system = jm.System(lagrangian, [planes], coordinates=tuple(f"q{i}" for i in range(n)))
    rest = {"q": np.zeros(n), "v": np.zeros(n)}
    return jm.models.Model(f"dense_{n}", dense.__name__, system, {"mass": 1.0}, rest, state)
