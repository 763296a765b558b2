"""What `animate` and `view` display: the shapes of a subject along a motion of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.geometry import Geometry
from jaxmech.models import Model
from jaxmech.parts import Mechanism
from jaxmech.plot.links import links_of
from jaxmech.plot.paths import Shapes, Track, shapes_at
from jaxmech.run import Solution
from jaxmech.system import System
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.checks import require_positive
from jaxmech.utils.parameters import ParameterWarning, differing, digests_of, unread
from jaxmech.utils.trees import as_dtype

MOST = 16  # number of trajectories of a batch drawn by default
_SHORTEST, _LONGEST, _CHOSEN = 1.0, 30.0, 10.0  # seconds: limits of real time, else the longest


@dataclass(frozen=True, eq=False)
class Display:
    """The shapes and the motion of one or several trajectories, and how fast it is shown.

    Attributes:
        geometry: the shapes, as a function of coordinates, time and parameters.
        track: the coordinates over time.
        params: parameters, with one entry for each trajectory if they are batched.
        batched: whether they are.
        members: the indices of the trajectories in their batch.
        speed: seconds of the motion per second.
        label: text beside the time.
    """

    geometry: Geometry
    track: Track
    params: Any
    batched: bool
    members: tuple[int, ...]
    speed: float
    label: str

    @property
    def first_params(self) -> Any:
        """The parameters of the first trajectory."""
        return jax.tree.map(lambda x: x[0], self.params) if self.batched else self.params

    def moments(self, fps: float, fine: int = 1) -> np.ndarray:
        """The times of the motion that are shown, `fine` for each frame, from first to last."""
        first, last = self.track.span
        count = max(int(np.ceil(abs(last - first) / self.speed * fps - 1e-6)), 1)
        return first + (last - first) * np.linspace(0, 1, fine * count + 1)

    def shapes_at(self, times: np.ndarray) -> Shapes:
        """The shapes of all trajectories at times (K,)."""
        return links_of(
            shapes_at(self.geometry, self.track, times, self.params, batched=self.batched)
        )


def display_of(
    subject: Any,
    motion: Any,
    params: Any,
    *,
    speed: float | None,
    fps: float,
    members: Sequence[int] | None,
    params_axes: Any,
    other_params: bool,
) -> Display:
    """Check the arguments of `animate` or `view`, which explains them."""
    geometry, system = _geometry(subject)
    if params is None and system is not None:
        params = dict(subject.params)
    for name, value in (("speed", speed), ("fps", fps)):
        if value is not None:
            require_positive(name, value)
    arrays = _arrays(motion, system)
    if isinstance(motion, Solution) and not other_params:
        _warn_of_other_params(geometry, motion, params, params_axes, len(arrays[1]))
    track, params, chosen = _members(arrays, params, members, params_axes)
    is_kept = isinstance(motion, Solution) and motion.run is not None
    if is_kept and motion.run.event_set.has_transitions:
        count, axes = motion.status.size, motion.status.ndim
        flat = jax.tree.map(lambda x: jnp.reshape(x, (count, *x.shape[axes:])), motion)
        track = replace(track, dense=jax.tree.map(lambda x: x[np.array(chosen)], flat))
    first, last = track.span
    speed = _speed(abs(last - first)) if speed is None else float(speed)
    count = len(arrays[1])
    label = _pace(speed) + (f", {len(chosen)} of {count}" if len(chosen) < count else "")
    return Display(geometry, track, params, params_axes is not None, chosen, speed, label)


def clock(t: float, speed: float) -> str:
    """The time of a frame, with the digits that change."""
    return f"t = {t:.{digits(speed)}f} s"


def digits(speed: float) -> int:
    """The number of decimals of a time that change."""
    return int(np.clip(2 - np.floor(np.log10(speed)), 0, 12))


def extent(ts: np.ndarray, fps: float, speed: float) -> str:
    """The span, the pace and the number of frames of a motion."""
    pace = "in real time" if speed == 1 else f"at {speed:g} times real time"
    frames = f"{len(ts)} frames in {(len(ts) - 1) / fps:.3g} s"
    return f"t = {ts[0]:g} ... {ts[-1]:g} s {pace}, {frames}"


def _geometry(subject: Any) -> tuple[Geometry, System | None]:
    if isinstance(subject, Model):
        if subject.geometry is None:
            raise ValueError(
                f"Argument `subject` must have a geometry, but the model {subject.name!r} has "
                "none; give it `geometry=`, or pass a function (q, t, params) that returns points."
            )
        return subject.geometry, subject.system
    if isinstance(subject, Mechanism):
        return subject.geometry, subject.system
    if not callable(subject):
        raise TypeError(
            "Argument `subject` must be a Model, a Mechanism or a function (q, t, params) that "
            f"returns points by name, but is {type(subject).__name__}."
        )
    return subject, None


def _arrays(motion: Any, system: System | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if isinstance(motion, Solution):
        ts, q = (np.asarray(x, float) for x in (motion.ts, motion.q))
        are_rates = motion.velocities[0] == motion.coordinates[0]  # unlike quasi-velocities
        v = np.asarray(motion.v, float) if are_rates else None
    elif isinstance(motion, tuple) and len(motion) == 2:
        ts, q = (np.asarray(x, float) for x in motion)
        v = None
    else:
        raise TypeError(
            "Argument `motion` must be a Solution, or a tuple of times and coordinates, but is "
            f"{type(motion).__name__}."
        )
    if q.ndim < 2 or q.shape[-2] < 2 or ts.shape[-1:] != q.shape[-2:-1]:
        raise ValueError(
            "Argument `motion` must have times (T,) and coordinates (T, n) with at least two "
            f"times, but they have the shapes {ts.shape} and {q.shape}."
        )
    if system is not None and q.shape[-1] != system.n:
        raise ValueError(
            f"Argument `motion` must have the {system.n} coordinates of the subject, "
            f"{', '.join(system.coordinates)}, but has {q.shape[-1]}."
        )
    ts = np.broadcast_to(ts, q.shape[:-1]).reshape(-1, q.shape[-2])
    steps = np.diff(ts, axis=1)
    if not ((steps > 0).all() or (steps < 0).all()):
        raise ValueError("Argument `motion` must have times that increase, or decrease, steadily.")
    q = q.reshape(-1, *q.shape[-2:])
    if v is None:
        return ts, q, np.stack([np.gradient(x, t, axis=0) for x, t in zip(q, ts, strict=True)])
    return ts, q, v.reshape(q.shape)


def _members(
    motion: tuple[np.ndarray, np.ndarray, np.ndarray], params: Any,
    members: Sequence[int] | None, params_axes: Any,
) -> tuple[Track, Any, tuple[int, ...]]:  # fmt: skip
    ts, q, v = motion
    count = len(q)
    chosen = np.arange(min(count, MOST)) if members is None else np.ravel(members)
    inside = (chosen >= 0) & (chosen < count)
    if chosen.dtype.kind not in "iu" or not chosen.size or not inside.all():
        raise ValueError(
            f"Argument `members` must hold numbers from 0 to {count - 1}, but is {members!r}."
        )
    if params_axes is not None:
        params = jax.tree.map(lambda x: x[chosen], _each(params, params_axes, count))
    if np.isfinite(q[chosen]).all(axis=2).sum(axis=1).max(initial=0) < 2:
        raise ValueError(
            "Argument `motion` must have a trajectory with at least two finite states, but all of "
            "them failed earlier; look at `status` and `t_failed`."
        )
    return Track(ts[chosen], q[chosen], v[chosen]), params, tuple(chosen.tolist())


def _warn_of_other_params(
    geometry: Geometry, motion: Solution, params: Any, axes: Any, count: int
) -> None:
    params = as_dtype(params, motion.q.dtype)
    first, digests = params, digests_of(params)
    if axes is not None:
        members = _each(params, axes, count)
        first, digests = jax.tree.map(lambda x: x[0], members), jax.vmap(digests_of)(members)
    names = differing(motion.digests or {}, digests)
    if not names:
        return
    q, t = (jnp.ravel(x)[: np.shape(x)[-1]] for x in (motion.q, motion.ts))
    idle = unread(lambda p: geometry(q, t[0], p), first)
    names = tuple(name for name in names if name not in idle)
    if names:
        warn_caller(
            "Argument `params`, by default that of the model or mechanism, must be that of the "
            f"simulation, but differs in {', '.join(names)}: the shapes are not those that moved. "
            "Pass the parameters of the simulation, or `other_params=True` if that is what you "
            "want.",
            ParameterWarning,
        )


def _each(params: Any, axes: Any, count: int) -> Any:
    try:
        return jax.vmap(lambda _, p: p, in_axes=(0, axes), out_axes=0)(jnp.arange(count), params)
    except ValueError as error:
        raise ValueError(
            f"Argument `params_axes` must fit `params` and {count} trajectories, but: {error}"
        ) from error


def _speed(seconds: float) -> float:
    """Real time for a usual duration, else 1, 2 or 5 times a power of ten."""
    if _SHORTEST <= seconds <= _LONGEST:
        return 1.0
    least = seconds / _CHOSEN
    power = 10.0 ** floor(log10(least))
    return next(float(f"{k * power:.3g}") for k in (1, 2, 5, 10) if k * power >= 0.999 * least)


def _pace(speed: float) -> str:
    if speed == 1:
        return ""
    return f",  {1 / speed:.3g} times slower" if speed < 1 else f",  {speed:.3g} times faster"
