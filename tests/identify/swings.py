"""A pendulum with friction, in its angle and in Cartesian coordinates, and recordings of it."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech import FixedSteps, Holonomic, System, simulate
from jaxmech.identify import Fit, Predicted, Recording, fit
from jaxmech.identify.result import Noise, Optimization
from jaxmech.identify.uncertainty import uncertainty

TRUTH = {"l": 0.5, "g": 9.81, "c": 0.1}
BEGIN = {"l": 0.4, "g": 9.81, "c": 0.2}
FREE = ("l", "c")
TIMES = np.arange(61) / 50
NOISE = 1e-3


def _lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * p["l"] ** 2 * v[0] ** 2 + p["g"] * p["l"] * jnp.cos(q[0])


def _friction(q: Any, v: Any, t: Any, p: Any) -> Any:
    return -p["c"] * v


SWING = System(_lagrangian, force=_friction, coordinates=("theta",))


def _hanging(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - p["g"] * q[1]


def _drag(q: Any, v: Any, t: Any, p: Any) -> Any:
    spin = (q[0] * v[1] - q[1] * v[0]) / p["l"] ** 2
    return -p["c"] * spin / p["l"] ** 2 * jnp.stack([-q[1], q[0]])


def _rod(q: Any, t: Any, p: Any) -> Any:
    return (q @ q - p["l"] ** 2) / 2


CARTESIAN = System(_hanging, [Holonomic(_rod, name="rod")], _drag, coordinates=("x", "y"))


def angle(q: Any, v: Any, t: Any, p: Any) -> Any:
    """The angle from the downward vertical."""
    return jnp.arctan2(q[0], -q[1])[None]


def on_the_rod(theta: float, omega: float, length: float) -> tuple[np.ndarray, np.ndarray]:
    """The Cartesian state of an angle and its rate."""
    sine, cosine = np.sin(theta), np.cos(theta)
    return length * np.array([sine, -cosine]), length * omega * np.array([cosine, sine])


_swung = jax.jit(partial(simulate, steps=FixedSteps(1)), static_argnums=0)


def swings(
    angles: tuple[float, ...] = (0.8, -1.2), *, params: Any = None, ts: Any = TIMES, **fields: Any
) -> list[Recording]:
    """Recordings without noise, of releases at rest, by the steps that a fit takes."""
    p = TRUTH | (params or {})
    found = []
    for theta in angles:
        sol = _swung(SWING, jnp.array([theta]), jnp.zeros(1), ts, p)
        found.append(Recording(ts, sol.q, [theta], [0.0], **{"weights": 1 / NOISE, **fields}))
    return found


def noisy(recording: Recording, rng: np.random.Generator, **fields: Any) -> Recording:
    """The same recordings with noise on the observations."""
    observed = recording.observed + rng.normal(0.0, NOISE, recording.observed.shape)
    kept = {"weights": recording.weights, **fields}
    return Recording(recording.ts, observed, recording.q0, recording.v0, **kept)


def fitted(recordings: Any, **options: Any) -> Fit:
    """The fit of a swing to recordings, with one step between samples."""
    return fit(SWING, recordings, BEGIN, **{"free": FREE, "steps": FixedSteps(1), **options})


def made_up() -> Fit:
    """A small fit with made-up numbers, for pages and files."""
    recording = Recording([0.0, 0.1, 0.2], [1.0, 0.96, 0.83], [1.0], [0.0], name="swing")
    predicted = Predicted((recording,), (np.array([[1.0], [0.955], [0.825]]),))
    return Fit(
        params={"k": np.array(9.0)}, names=("k",), values=np.array([9.0]),
        train=predicted, validation=Predicted((), ()),
        initial_states=((recording.q0, recording.v0),),
        optimization=Optimization(True, "", (0.1, 0.01), 2, {}),
        uncertainty=uncertainty(
            ["k"], [9.0], np.ones((1, 1)), np.zeros(1), np.zeros(1), noise=0.1, degrees=2
        ),
        information=np.eye(1),
        noise=Noise(0.1, np.array([0.1]), stated=False), count=3, unknowns=1,
        bounds=np.array([[-np.inf, np.inf]]), priors=np.array([[0.0, np.inf]]),
    )  # fmt: skip


def autoregressive(rng: np.random.Generator, rho: float, count: int) -> np.ndarray:
    """Noise of unit size, correlated by rho with its neighbour."""
    noise = rng.normal(size=count)
    for k in range(1, count):
        noise[k] = rho * noise[k - 1] + np.sqrt(1 - rho**2) * noise[k]
    return noise
