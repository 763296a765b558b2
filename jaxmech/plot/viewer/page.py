"""`View`: a page for the browser with a motion in three dimensions, and a player."""

import html
import json
import sys
import tempfile
import webbrowser
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.plot.motions import digits, extent
from jaxmech.plot.style import ORANGE
from jaxmech.plot.viewer.stage import Box, Item, Stage

_HEIGHT = 480  # pixels of a view in a notebook
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, eq=False)
class View:
    """The result of `view`, which a notebook shows as a player.

    Attributes:
        ts: displayed times of the motion [s], one for each frame, shape (K,).
        fps: frames per second.
        speed: seconds of the motion per second of the player.
        stage: what is shown.
        title: the title of the page.
        label: text beside the time.
        force_scale: length of an arrow per force [m/N]; 0 without arrows.
        down: unit vector along which gravity pulls, (3,); None without gravity.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> from jaxmech.parts import gravity, ground, planar_body, revolute
        >>> bar = planar_body("bar", mass=1.0, inertia=0.1)
        >>> hinge = revolute("hinge", ground, (0, 0), bar, (-1, 0))
        >>> arm = jm.parts.Mechanism([bar], [hinge], [gravity(9.81)])
        >>> sol = jm.simulate(arm.system, [0.0], [0.0], jnp.linspace(0.0, 2.0, 41))
        >>> jm.view(arm, sol, show=False)
        View: t = 0 ... 2 s in real time, 61 frames in 2 s, forces of hinge
    """

    ts: np.ndarray
    fps: float
    speed: float
    stage: Stage
    title: str = "motion"
    label: str = ""
    force_scale: float = 0.0
    down: np.ndarray | None = None

    @property
    def box(self) -> Box:
        """The box around what moves."""
        return self.stage.box

    @property
    def items(self) -> tuple[Item, ...]:
        """What is shown."""
        return self.stage.items

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
        scene, stream = self.stage.packed()
        box = self.box
        scene |= {
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
