"""Measured pendulums: free swings at 1 kHz, all samples of the training segments, as one fit.

The recordings are not part of the project (`experiments.measured_pendulum`). The friction laws are
those that cross-validation chooses there. Initial states are free, and begin at the recorded ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.fit_speed.problem import Bounds, Function, by_rk4
from experiments.measured_pendulum.pendulums import rig

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
NOISE = 1e-3  # [rad], stated for all angles


@dataclass(frozen=True, eq=False)
class MeasuredCase:
    """A measured pendulum with a friction law."""

    name: str
    file: Path
    pendulum: str
    law: str

    @cached_property
    def rig(self) -> Any:
        """The pendulum in its angles."""
        return rig(self.pendulum, self.law)

    @property
    def system(self) -> jm.System:
        """The system that jaxmech fits."""
        return self.rig.subject.system

    @property
    def observe(self) -> Function:
        """The readings of the encoders."""
        return self.rig.subject.observe

    @property
    def begin(self) -> Function:
        """The state for readings of the encoders and rates."""
        return self.rig.subject.start

    @property
    def known(self) -> dict[str, float]:
        """What a swing does not determine; rates play no part, so that their lag is none."""
        fitted = self.start()
        return {k: v for k, v in self.rig.subject.params.items() if k not in fitted}

    @property
    def bounds(self) -> dict[str, Bounds]:
        """Moments of inertia, lengths and friction are positive."""
        return dict(self.rig.subject.bounds)

    def start(self, factor: float = 1.0) -> dict[str, float]:
        """The published estimate, and a guess of the friction."""
        return {k: self.rig.subject.params[k] for k in self.rig.subject.free if k != "lag"}

    def scattered(self, count: int) -> list[dict[str, float]]:
        """No other starts."""
        return []

    @cached_property
    def recordings(self) -> list[jm.Recording]:
        """The training segments."""
        with np.load(self.file) as file:
            segments, dt = file["train"], float(file["dt"])
        arms = self.system.n
        made = []
        for segment in segments:
            rows = segment[np.isfinite(segment).all(axis=1)]
            q, v = rows[:, :arms], rows[:, arms:]
            made.append(jm.Recording(dt * np.arange(len(q)), q, q[0], v[0], weights=1 / NOISE))
        return made

    @property
    def states(self) -> np.ndarray:
        """The recorded first samples."""
        return np.concatenate([[*one.q0, *one.v0] for one in self.recordings])

    def residuals(self, x: Any) -> Any:
        """The residuals of all segments, (N,)."""
        return np.asarray(self._programs[0](*self._parts(x))).ravel()

    def jacobian(self, x: Any) -> Any:
        """Their derivatives; each segment depends on its own initial state only."""
        p = len(self.start())
        by_params, by_state = map(np.asarray, self._programs[1](*self._parts(x)))
        count, rows, width = by_state.shape
        J = np.zeros((count, rows, p + count * width))
        J[:, :, :p] = by_params
        for k in range(count):
            J[k, :, p + k * width : p + (k + 1) * width] = by_state[k]
        return J.reshape(count * rows, -1)

    def _parts(self, x: Any) -> tuple[Any, Any]:
        p = len(self.start())
        return jnp.asarray(x[:p]), jnp.asarray(x[p:]).reshape(len(self.recordings), -1)

    @cached_property
    def _programs(self) -> tuple[Function, Function]:
        names, known, arms = tuple(self.start()), self.known, self.system.n
        ts = jnp.asarray(self.recordings[0].ts)  # of all segments
        observed = jnp.stack([one.observed for one in self.recordings])

        def residuals(z: Any, s0: Any, observed: Any) -> Any:
            params = {**known, **dict(zip(names, z, strict=True))}

            def slope(s: Any, t: Any) -> Any:
                q, v = s[:arms], s[arms:]
                return jnp.concatenate([v, self.rig.acceleration(q, v, params)])

            q0, v0 = self.begin(s0[:arms], s0[arms:], params)
            states = by_rk4(slope, jnp.concatenate([q0, v0]), ts, 1)
            q, v = states[:, :arms], states[:, arms:]
            predicted = jax.vmap(lambda q, v, t: self.observe(q, v, t, params))(q, v, ts)
            return ((predicted - observed) / NOISE).ravel()

        axes = (None, 0, 0)
        values = jax.jit(jax.vmap(residuals, axes))
        slopes = jax.jit(jax.vmap(jax.jacfwd(residuals, (0, 1)), axes))
        return (lambda z, s: values(z, s, observed)), (lambda z, s: slopes(z, s, observed))


def measured_double() -> MeasuredCase:
    """The double pendulum with the law that cross-validation chooses."""
    file = DATA / "multiarm_double_pendulum.npz"
    return MeasuredCase("measured double pendulum", file, "double", "lifting+air+drag")


MEASURED: dict[str, Callable[[], MeasuredCase]] = {"measured_double": measured_double}
