"""`view`: a mechanism in motion in the browser, in three dimensions, and as one HTML file."""

import html
import json
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.geometry import Geometry
from jaxmech.interop.mujoco import Robot
from jaxmech.models import Model
from jaxmech.parts import Mechanism
from jaxmech.plot.motions import digits, display_of, extent
from jaxmech.plot.panels import ORANGE
from jaxmech.plot.paths import trail_names
from jaxmech.plot.viewer.loads import arrows_of, facts_of, gravity_of
from jaxmech.plot.viewer.stage import Box, Item, box_around, framing, items_of, packed
from jaxmech.run import Solution
from jaxmech.utils.checks import require_positive

_HEIGHT = 480  # pixels of a view in a notebook
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, eq=False)
class View:
    """The result of `view`, which a notebook shows as a player.

    Attributes:
        ts: displayed times of the motion [s], one for each frame, shape (K,).
        fps: frames per second.
        speed: seconds of the motion per second of the player.
        items: what is shown.
        box: the box around what moves.
        facts: what is known of bodies, by their names.
        title: the title of the page.
        label: text beside the time.
        force_scale: length of an arrow per force [m/N]; 0 without arrows.
        down: unit vector along which gravity pulls, (3,); None without gravity.
    """

    ts: np.ndarray
    fps: float
    speed: float
    items: tuple[Item, ...]
    box: Box
    facts: Mapping[str, Mapping[str, Any]]
    title: str = "motion"
    label: str = ""
    force_scale: float = 0.0
    down: np.ndarray | None = None

    def save(self, path: str | Path) -> Path:
        """Write one HTML file, which needs neither a server nor the network.

        Args:
            path: the file, whose suffix must be .html.

        Raises:
            ValueError: if the suffix is a different one.
            FileNotFoundError: if the folder does not exist.
        """
        target = page_path("path", path)
        target.write_text(self.html(), encoding="utf-8")
        return target

    def open(self) -> Path:
        """Write a temporary file and open it in the browser."""
        with tempfile.NamedTemporaryFile(prefix="jaxmech-", suffix=".html", delete=False) as file:
            path = self.save(file.name)
        webbrowser.open(path.as_uri())
        return path

    def html(self) -> str:
        """The page."""
        box = self.box
        scene, stream = packed(self.items, box.size, self.facts)
        scene |= {
            "size": box.size,
            "times": [float(f"{t:.9g}") for t in self.ts],
            "fps": self.fps,
            "digits": digits(self.speed),
            "label": self.label.lstrip(", "),
            "box": {"low": box.low.tolist(), "high": box.high.tolist(), "planar": box.is_planar},
            "outermost": [[float(f"{x:.5g}") for x in point] for point in box.outermost],
            "down": None if self.down is None else self.down.tolist(),
            "legend": self._legend(),
        }
        text = json.dumps(scene, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
        scripts = _asset("renderer.js") + _asset("player.js").replace('"use strict";', "")
        values = {
            "title": html.escape(self.title), "style": _asset("style.css"), "scene": text,
            "numbers": stream.text(), "scripts": scripts,
        }  # fmt: skip
        page = _asset("page.html")
        for name, value in values.items():
            page = page.replace("{{ " + name + " }}", value, 1)
        return page

    def _legend(self) -> list[dict[str, str]]:
        if not self.force_scale:
            return []
        return [{"color": ORANGE, "text": f"forces of joints, {1 / self.force_scale:.3g} N per m"}]

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        style = "width:100%;border:1px solid #ddd"
        return f'<iframe srcdoc="{page}" height="{_HEIGHT}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        joints = [x.group.removeprefix("force of ") for x in self.items if x.kind == "arrow"]
        forces = f", forces of {', '.join(joints)}" if joints else ""
        return f"View: {extent(self.ts, self.fps, self.speed)}{forces}"


@cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def page_path(argument: str, path: str | Path) -> Path:
    """The path of a page that can be written."""
    target = Path(path)
    if target.suffix.lower() != ".html":
        raise ValueError(f"Argument `{argument}` must end in .html, but is {str(path)!r}.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"Argument `{argument}` must be in a folder that exists, but {target.parent} does not."
        )
    return target


def is_notebook() -> bool:
    """Whether this is a notebook, which shows a `View` by itself."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def view(
    subject: Model | Mechanism | Robot | Geometry,
    motion: Solution | tuple[Any, Any],
    params: Any = None,
    *,
    file: str | Path | None = None,
    show: bool | None = None,
    forces: bool = True,
    force_scale: float | None = None,
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
    if file is not None:
        page_path("file", file)
    if force_scale is not None:
        require_positive("force_scale", force_scale)
    title = getattr(subject, "name", "motion")
    subject = getattr(subject, "mechanism", subject)  # of a robot
    display = display_of(
        subject, motion, params, speed=speed, fps=fps, members=members, params_axes=params_axes,
        other_params=other_params,
    )  # fmt: skip
    ts = display.moments(fps)
    shapes = display.shapes_at(ts)
    box = box_around(shapes)
    names = trail_names(shapes, trails)
    items, scale, facts, down = [*items_of(shapes, display.members, box, names)], 0.0, {}, None
    if isinstance(subject, Mechanism):
        facts, down = facts_of(subject, display, ts), gravity_of(subject, display)
        if forces and isinstance(motion, Solution):
            arrows, scale = arrows_of(subject, motion, display, ts, box, force_scale, other_params)
            items += arrows
            box = framing(box, arrows)
    result = View(
        ts, fps, display.speed, tuple(items), box, facts, title, display.label, scale, down
    )
    if file is not None:
        result.save(file)
    if show or (show is None and file is None and not is_notebook()):
        result.open()
    return result
