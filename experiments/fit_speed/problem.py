"""A problem of identification, as both sides get it: recordings, residuals, bounds and start.

A problem has a name, a `system` with parameters that are `known`, `observe`, `initial_states`,
`recordings`, `bounds`, the independent `states` at which a fit begins behind the parameters of
`start()`, and for scipy `residuals(x)` and `jacobian(x)` of parameters and states.

`slope(s, t, p)` is what a person would write by hand for scipy: the state s has independent
variables, so that no constraint is left.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm

Function = Callable[..., Any]
Bounds = tuple[float | None, float | None]


def by_rk4(slope: Function, s0: Any, ts: Any, substeps: int) -> Any:
    """The states (T, k) at the times by the classical method of Runge and Kutta."""

    def step(s: Any, ends: Any) -> Any:
        h = (ends[1] - ends[0]) / substeps

        def substep(k: Any, s: Any) -> Any:
            t = ends[0] + k * h
            a = slope(s, t)
            b = slope(s + h / 2 * a, t + h / 2)
            c = slope(s + h / 2 * b, t + h / 2)
            d = slope(s + h * c, t + h)
            return s + h / 6 * (a + 2 * b + 2 * c + d)

        s = jax.lax.fori_loop(0, substeps, substep, s)
        return s, s

    _, states = jax.lax.scan(step, s0, (ts[:-1], ts[1:]))
    return jnp.concatenate([s0[None], states])


class Synthetic:
    """A problem whose recording is computed; all its parameters are fitted, and positive.

    Attributes:
        duration: length of the recording [s].
        samples: number of its times.
    """

    truth: dict[str, float]
    duration: float
    samples: int
    recordings: Any  # one, with its noise
    _residuals: Function  # for samples, and parameters and independent states, (N,)

    @property
    def bounds(self) -> dict[str, Bounds]:
        """Every parameter is positive."""
        return dict.fromkeys(self.truth, (0.0, None))

    @property
    def ts(self) -> np.ndarray:
        """The times of the samples [s]."""
        return np.linspace(0.0, self.duration, self.samples)

    def start(self, factor: float = 1.5) -> dict[str, float]:
        """Parameters off by a factor, up and down in turns."""
        return {
            name: value * factor ** (-1) ** k for k, (name, value) in enumerate(self.truth.items())
        }

    @cached_property
    def residuals(self) -> Function:
        """residuals(x), (N,)."""
        return jax.jit(partial(self._residuals, self.recordings[0].observed))

    @cached_property
    def jacobian(self) -> Function:
        """jacobian(x), (N, size of x)."""
        return jax.jit(jax.jacfwd(partial(self._residuals, self.recordings[0].observed)))


@dataclass(frozen=True, eq=False)
class Case(Synthetic):
    """A problem with a synthetic recording."""

    name: str
    system: jm.System
    slope: Function  # slope(s, t, p) of the independent state s
    expand: Function  # expand(s, p) gives q and v of the system
    observe: Function  # observe(q, v, t, p), (d,)
    truth: dict[str, float]
    state: tuple[float, ...]  # the independent state at the start
    noise: tuple[float, ...]  # of each sensor
    duration: float
    samples: int
    substeps: int  # of the method written by hand, between samples
    known: dict[str, float] = field(default_factory=dict)  # parameters that are not fitted
    initial_states = "free"

    @cached_property
    def recordings(self) -> list[jm.Recording]:
        """One recording, made with finer steps than either side takes."""
        q0, v0 = self.expand(jnp.asarray(self.state), {**self.known, **self.truth})
        weights = 1 / np.array(self.noise)
        return [jm.Recording(self.ts, self._observed(), q0, v0, weights=weights)]

    @property
    def states(self) -> np.ndarray:
        """The independent state."""
        return np.array(self.state)

    def _residuals(self, observed: Any, x: Any) -> Any:
        p = len(self.truth)
        params = dict(zip(self.truth, x[:p], strict=True))
        predicted = self._predicted(x[p:], params, jnp.asarray(self.ts))
        return ((predicted - observed) / jnp.array(self.noise)).ravel()

    def _predicted(self, s0: Any, params: Any, ts: Any) -> Any:
        p = {**self.known, **params}
        states = by_rk4(lambda s, t: self.slope(s, t, p), s0, ts, self.substeps)
        return jax.vmap(lambda s, t: self.observe(*self.expand(s, p), t, p))(states, ts)

    def _observed(self, seed: int = 0, finer: int = 20) -> np.ndarray:
        ts = jnp.linspace(0.0, self.duration, finer * (self.samples - 1) + 1)
        predicted = self._predicted(jnp.asarray(self.state), self.truth, ts)
        clean = np.asarray(predicted[::finer])
        return clean + np.random.default_rng(seed).normal(0.0, self.noise, clean.shape)
