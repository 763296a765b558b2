"""`View`: a page for the browser with a motion in three dimensions, and a player."""

import contextlib
import html
import io
import sys
import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.display.motions import extent
from jaxmech.plot.viewer.nodes import AbstractNode, known
from jaxmech.plot.viewer.shapes import Box

_OPENING = np.deg2rad(40.0)  # of the camera
_SPACE = np.array([0.55, -0.75, 0.4])  # direction from the centre to the camera, in space
_ROOM, _AROUND = 1.35, 0.9  # height of the picture relative to the box, and to its diagonal
_SHAPE = 1.3  # smallest width of the picture relative to its height
_PALE, _LIGHT = (232, 232, 232), (205, 205, 205)  # of the lines of the grid
_HEIGHT = 480  # pixels of a view in a notebook


@dataclass(frozen=True, eq=False)
class View:
    """The result of `view`, which a notebook shows as a player.

    Attributes:
        ts: displayed times of the motion [s], one for each frame, shape (K,).
        fps: frames per second.
        speed: seconds of the motion per second of the player.
        nodes: what is shown.
        box: the box around what moves.
        force_scale: length of an arrow per force [m/N]; 0 without arrows.

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
    nodes: tuple[AbstractNode, ...]
    box: Box
    force_scale: float

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
        import viser

        with contextlib.redirect_stdout(io.StringIO()):  # viser tells its address
            server = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
            try:
                return self._recorded(server)
            finally:
                server.stop()

    def _recorded(self, server: Any) -> str:
        # A server that nobody is connected to records all messages of the frames.
        self._look(server)
        handles = [node.added(server.scene, known(node.points[0])) for node in self.nodes]
        recorder = server.get_scene_serializer()
        for k in range(len(self.ts)):
            if k:
                recorder.insert_sleep(1 / self.fps)
            for node, handle in zip(self.nodes, handles, strict=True):
                node.shown_at(handle, k)
        recorder.insert_sleep(1 / self.fps)
        return str(recorder.as_html())

    def _look(self, server: Any) -> None:
        box, size = self.box, self.box.size
        camera = server.initial_camera
        server.scene.set_up_direction("+y" if box.is_planar else "+z")
        toward = np.array([0.0, 0.0, 1.0]) if box.is_planar else _SPACE / np.linalg.norm(_SPACE)
        camera.fov = float(_OPENING)
        camera.near, camera.far = 1e-3 * size, 1e3 * size
        camera.look_at = box.center
        camera.position = box.center + toward * _reach(box) / np.tan(_OPENING / 2)
        target = box.center.copy()
        target[2] = box.low[2] - (0.05 * size if box.is_planar else 0.0)
        cell = 10.0 ** np.round(np.log10(size / 10))
        target[:2] = np.round(target[:2] / (10 * cell)) * 10 * cell
        server.scene.add_grid(
            "/grid", plane="xy", cell_size=cell, section_size=10 * cell, position=target,
            cell_color=_PALE, section_color=_LIGHT, infinite_grid=True, fade_distance=15 * size,
        )  # fmt: skip

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        style = "width:100%;border:1px solid #ddd"
        return f'<iframe srcdoc="{page}" height="{_HEIGHT}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        joints = [node.name.rpartition("/")[2] for node in self.nodes if "/forces/" in node.name]
        forces = f", forces of {', '.join(joints)}" if joints else ""
        return f"View: {extent(self.ts, self.fps, self.speed)}{forces}"


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


def _reach(box: Box) -> float:
    width, height, depth = box.high - box.low
    if box.is_planar:
        return float(_ROOM * max(height, width / _SHAPE) / 2) or 1.0
    return float(_AROUND * np.linalg.norm([width, height, depth]) / 2) or 1.0


def is_notebook() -> bool:
    """Whether this is a notebook, which shows a `View` by itself."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
