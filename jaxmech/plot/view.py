"""`view`: a mechanism in motion in the browser, and as one HTML file.

The page is made by `jaxmech.plot.viewer`, imported at the first call, since matplotlib loads
slowly.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxmech.analysis import Equilibrium
from jaxmech.geometry import Geometry
from jaxmech.interop.mujoco import Robot
from jaxmech.models import Model
from jaxmech.parts import Mechanism
from jaxmech.plot.motions import display_of
from jaxmech.solution import Solution
from jaxmech.utils.checks import require_positive

if TYPE_CHECKING:
    from jaxmech.plot.viewer.page import View


def view(
    subject: Model | Mechanism | Robot | Geometry,
    motion: Solution | Equilibrium | tuple[Any, Any],
    params: Any = None,
    *,
    file: str | Path | None = None,
    show: bool | None = None,
    forces: bool = True,
    force_scale: float | None = None,
    mode: int = 0,
    amplitude: float = 0.2,
    speed: float | None = None,
    fps: float = 30.0,
    trails: Sequence[str] | None = None,
    members: Sequence[int] | None = None,
    params_axes: Any = None,
    other_params: bool = False,
) -> "View":
    """View a motion in three dimensions in the browser, with a player.

    The page has the shapes of `animate`. It can be turned, moved (with shift) and zoomed, and has a
    button to play and pause (or the space bar), a slider for the time and a choice of speeds. The
    first picture frames the whole motion. A click on a body shows its name, mass and coordinates;
    "follow" lets the camera move along, and "parts" hides single parts. Of several trajectories the
    first is shown in full and the others as ghosts. Arrows are the forces that the joints of a
    mechanism exert on their second bodies, in the first trajectory.

    The page is one file with everything in it, and needs neither a server nor the network.

    Args:
        subject: as for `animate`. Only a mechanism or a robot has forces.
        motion: as for `animate`.
        params: parameters; by default those of the model or mechanism.
        file: an .html file to write.
        show: whether to open the page in the browser; by default without a `file`, except in a
            notebook, which shows the returned object.
        forces: whether to show the forces of joints.
        force_scale: length of an arrow per force [m/N]; by default such that the longest are a
            third of the size of the mechanism.
        mode: index of a mode of an equilibrium.
        amplitude: largest displacement of a point by a mode, relative to the size.
        speed: seconds of the motion per second; by default as in `animate`.
        fps: frames per second.
        trails: names of the shapes that leave a trail; by default as for `animate`.
        members: indices of the trajectories of a batch, the first of them in full; by default the
            first 16.
        params_axes: axes of `params` with one entry for each trajectory, as `in_axes` of
            `jax.vmap`; by default none.
        other_params: whether `params` are meant to differ from those of the simulation.

    Returns:
        A `View`: `save("arm.html")` writes the page, `open()` opens it.

    Raises:
        TypeError, ValueError: as for `animate`, or if `file` does not end in .html.
        FileNotFoundError: if the folder of `file` does not exist.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model, ts = jm.models.double_pendulum(), jnp.linspace(0.0, 3.0, 61)
        >>> swing = jm.simulate(model.system, *model.initial(), ts, model.params)
        >>> jm.view(model, swing, show=False)
        View: t = 0 ... 3 s in real time, 91 frames in 3 s
    """
    from jaxmech.plot.paths import trail_names
    from jaxmech.plot.viewer.loads import arrows_of, down_of, facts_of
    from jaxmech.plot.viewer.page import View, is_notebook, page_path
    from jaxmech.plot.viewer.stage import Stage, box_around, framing, items_of

    if file is not None:
        page_path("file", file)
    if force_scale is not None:
        require_positive("force_scale", force_scale)
    title = getattr(subject, "name", "motion")
    subject = getattr(subject, "mechanism", subject)  # of a robot
    display = display_of(
        subject, motion, params, mode=mode, amplitude=amplitude, speed=speed, fps=fps,
        members=members, params_axes=params_axes, other_params=other_params,
    )  # fmt: skip
    is_mode = isinstance(motion, Equilibrium)
    ts = display.moments(fps)
    shapes = display.shapes_at(ts)
    box = box_around(shapes)
    names = trail_names(shapes, trails or () if is_mode else trails)
    items, scale, facts, down = [*items_of(shapes, display.members, box, names)], 0.0, {}, None
    if isinstance(subject, Mechanism):
        facts, down = facts_of(subject, display, ts), down_of(subject, display)
        if forces and isinstance(motion, Solution):
            arrows, scale = arrows_of(subject, motion, display, ts, box, force_scale, other_params)
            items += arrows
            box = framing(box, arrows)
    stage = Stage(tuple(items), box, facts)
    result = View(ts, fps, display.speed, stage, title, display.label, scale, down)
    if file is not None:
        result.save(file)
    if show or (show is None and file is None and not is_notebook()):
        result.open()
    return result
