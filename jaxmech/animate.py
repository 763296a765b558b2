"""`animate`: a mechanism in motion, as a GIF, a video, or a player in a notebook.

The drawing itself is in `jaxmech.plot`, imported at the first call, since matplotlib loads slowly.
"""

from collections.abc import Sequence
from math import floor, log10
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.analysis.equilibrium import Equilibrium
from jaxmech.geometry import Geometry
from jaxmech.models.model import Model
from jaxmech.parts.mechanism import Mechanism
from jaxmech.solution import Solution
from jaxmech.system import System, as_dtype
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.checks import require_positive
from jaxmech.utils.parameters import ParameterWarning, differing, digests_of, unread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from jaxmech.plot.animation import Animation
    from jaxmech.plot.paths import Track

_PERIOD = 2.0  # seconds for which a mode is shown
MOST = 16  # number of trajectories of a batch drawn by default
_SHORTEST, _LONGEST, _CHOSEN = 1.0, 30.0, 10.0  # seconds: limits of real time, else the longest


def animate(
    subject: Model | Mechanism | Geometry,
    motion: Solution | Equilibrium | tuple[Any, Any],
    params: Any = None,
    *,
    mode: int = 0,
    amplitude: float = 0.2,
    speed: float | None = None,
    fps: float = 25.0,
    trails: Sequence[str] | None = None,
    members: Sequence[int] | None = None,
    params_axes: Any = None,
    other_params: bool = False,
    ax: "Axes | None" = None,
) -> "Animation":
    """Animate a motion, in the plane or in space.

    Moving shapes fill the picture, at equal scales; those at rest are grey. Between saved states
    the motion is interpolated, so that it runs smoothly whatever the save times. A trajectory that
    failed disappears at that moment.

    Args:
        subject: a model, a mechanism, or a function `geometry(q, t, params)` that returns points
            [m] by name, shape (d,) for a dot and (k, d) for a line (`jaxmech.geometry`).
        motion: a `Solution`, or times (T,) and coordinates (T, n); with a leading batch axis for
            several trajectories in one picture. Or an `Equilibrium`, one mode of which is shown.
        params: parameters; by default those of the model or mechanism.
        mode: index of a mode of an equilibrium, in the order in which `modes` are printed.
            Oscillations are shown for one period, at constant amplitude even if damped or growing.
        amplitude: largest displacement of a point by a mode, relative to the size of the moving
            shapes; less where it is large, since states are moved onto the constraints.
        speed: seconds of the motion per second; by default real time, for a motion of 1 to 30 s,
            else the slow or quick motion that lasts up to ten seconds; a mode lasts two.
        fps: frames per second.
        trails: names of the dots that leave a trail; by default the last one that moves.
        members: indices of the drawn trajectories of a batch; by default the first 16.
        params_axes: axes of `params` with one entry for each trajectory, as `in_axes` of
            `jax.vmap`; by default none.
        other_params: whether `params` are meant to differ from those of the simulation; otherwise
            a `ParameterWarning` names those that change the shapes.
        ax: axes to draw into, with `projection="3d"` for a motion in space.

    Returns:
        An `Animation`: `save("swing.gif")` writes a GIF, `.html` a page with a player, `.mp4` a
        video; `draw(t)` draws one moment; a notebook shows it as a player.

    Raises:
        TypeError: `subject` or `motion` has another type.
        ValueError: the subject has no geometry, shapes or names do not fit, or no trajectory has
            two states to display.

    Example:
        >>> import jaxmech as jm
        >>> model, ts = jm.models.double_pendulum(), jnp.linspace(0.0, 3.0, 61)
        >>> swing = jm.simulate(model.system, *model.initial(), ts, model.params)
        >>> jm.animate(model, swing)
        Animation: t = 0 ... 3 s in real time, 76 frames in 3 s
        >>> squares = lambda q, t, p: {"path": jnp.stack([jnp.zeros(2), q]), "end": q}
        >>> jm.animate(squares, (swing.ts, swing.q[:, :2]), speed=0.5)
        Animation: t = 0 ... 3 s at 0.5 times real time, 151 frames in 6 s
    """
    from jaxmech.plot.animation import animation

    geometry, system = _geometry(subject)
    if params is None and isinstance(subject, Model | Mechanism):
        params = dict(subject.params)
    label = ""
    if isinstance(motion, Equilibrium):
        from jaxmech.plot.mode_track import mode_track

        if system is None:
            raise ValueError(
                "Argument `subject` must be a Model or a Mechanism to show a mode, since its "
                "states are moved onto the constraints; wrap the geometry and its system in a "
                "Model."
            )
        track, name = mode_track(geometry, system, motion, mode, amplitude, params)
        label = f",  {name}"
        first, last = track.span
        speed = (last - first) / _PERIOD if speed is None else speed
        trails, params_axes = trails or (), None
    else:
        arrays = _arrays(motion, system)
        if isinstance(motion, Solution) and not other_params:
            _warn_of_other_params(geometry, motion, params, params_axes, len(arrays[1]))
        track, params, label = _members(arrays, params, members, params_axes)
    for name, value in (("speed", speed), ("fps", fps)):
        if value is not None:
            require_positive(name, value)
    first, last = track.span
    speed = _speed(abs(last - first)) if speed is None else float(speed)
    label = label if isinstance(motion, Equilibrium) else _pace(speed) + label
    batched = params_axes is not None
    return animation(
        geometry, track, params,
        batched=batched, speed=speed, fps=fps, trails=trails, label=label, ax=ax,
    )  # fmt: skip


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
    """The times (N, T), coordinates and rates (N, T, n)."""
    if isinstance(motion, Solution):
        ts, q, v = (np.asarray(x, float) for x in (motion.ts, motion.q, motion.v))
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
) -> tuple["Track", Any, str]:  # fmt: skip
    """The drawn trajectories, their parameters, and a text with their number and the total."""
    from jaxmech.plot.paths import Track

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
    label = f", {len(chosen)} of {count}" if len(chosen) < count else ""
    return Track(ts[chosen], q[chosen], v[chosen]), params, label


def _warn_of_other_params(
    geometry: Geometry, motion: Solution, params: Any, axes: Any, count: int
) -> None:
    """Warn if shapes depend on parameters that are not those of the simulation."""
    params = as_dtype(params, motion.q.dtype)
    first, digests = params, digests_of(params)
    if axes is not None:
        each = _each(params, axes, count)
        first, digests = jax.tree.map(lambda x: x[0], each), jax.vmap(digests_of)(each)
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
    """Broadcast every entry of the parameters along a leading axis for the trajectories."""
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
