"""`animate`: a mechanism in motion, as a GIF, a video, or a player in a notebook.

The drawing itself is in `jaxmech.plot`, imported at the first call, since matplotlib loads slowly.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxmech.analysis import Equilibrium
from jaxmech.geometry import Geometry
from jaxmech.interop.mujoco import Robot
from jaxmech.models import Model
from jaxmech.parts import Mechanism
from jaxmech.plot.motions import display_of
from jaxmech.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from jaxmech.plot.animation import Animation


def animate(
    subject: Model | Mechanism | Robot | Geometry,
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
        subject: a model, a mechanism, a robot, or a function `geometry(q, t, params)` that returns
            points [m] by name, shape (d,) for a dot and (k, d) for a line (`jaxmech.geometry`).
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
        TypeError: if `subject` or `motion` has the wrong type.
        ValueError: if the subject has no geometry, shapes or names do not fit, or no trajectory has
            two states to display.

    Example:
        >>> import jax.numpy as jnp
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

    subject = getattr(subject, "mechanism", subject)  # of a robot
    display = display_of(
        subject, motion, params, mode=mode, amplitude=amplitude, speed=speed, fps=fps,
        members=members, params_axes=params_axes, other_params=other_params,
    )  # fmt: skip
    is_mode = isinstance(motion, Equilibrium)
    return animation(display, fps=fps, trails=trails or () if is_mode else trails, ax=ax)
