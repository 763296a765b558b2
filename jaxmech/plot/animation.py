"""`animate`: a mechanism in motion, to be drawn at a time, shown in a notebook, or saved."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from jaxmech.geometry import Geometry
from jaxmech.interop.mujoco import Robot
from jaxmech.models import Model
from jaxmech.parts import Mechanism
from jaxmech.plot.motions import digits, dimension, display_of, extent, file_path
from jaxmech.plot.panels import STYLE
from jaxmech.plot.scene import Scene
from jaxmech.run import Solution

_COLORS = 255  # of a GIF
_SAMPLES = 6  # frames from which its colours are chosen
_QUICKEST = 50.0  # frames per second of a GIF

FINE = 4  # points of a trail for each frame


@dataclass(frozen=True, eq=False)
class Animation:
    """The result of `animate`, which a notebook shows in motion.

    Attributes:
        ts: displayed times of the motion [s], one for each frame, shape (K,).
        fps: frames per second.
        speed: seconds of the motion per second of the animation.
        ax: the axes with the picture.
        label: text beside the time.
        scene: the shapes in the axes.
    """

    ts: np.ndarray
    fps: float
    speed: float
    ax: Axes
    label: str
    scene: Scene

    @property
    def figure(self) -> Figure:
        """The figure of the axes."""
        return self.ax.figure  # type: ignore[return-value]

    def draw(self, t: float) -> Axes:
        """Draw the frame nearest to a time of the motion [s], and return the axes."""
        return self._frame(int(np.argmin(np.abs(self.ts - t))))

    def save(self, path: str | Path, *, dpi: float = 100.0) -> Path:
        """Write the animation to a GIF.

        Args:
            path: the file, whose suffix must be .gif; `ffmpeg -i swing.gif swing.mp4` makes a
                video of it.
            dpi: pixels per inch of the figure, which is about five inches wide.

        Raises:
            ValueError: if the suffix is a different one, or there are more than 50 frames per
                second.
            FileNotFoundError: if the folder does not exist.
        """
        target = file_path("path", path, ".gif")
        target.write_bytes(self.gif(dpi))
        return target

    def gif(self, dpi: float = 100.0) -> bytes:
        """The bytes of a GIF."""
        if self.fps > _QUICKEST:
            raise ValueError(
                f"Argument `fps` of a GIF must be at most {_QUICKEST:g}, but is {self.fps:g}."
            )
        pictures = [Image.fromarray(frame[..., :3]) for frame in self._frames(dpi)]
        # One set of colours for all frames: quicker than one for each, and without flicker.
        some = pictures[:: -(-len(pictures) // _SAMPLES)]
        width, height = some[0].size
        sheet = Image.new("RGB", (width, height * len(some)))
        for k, picture in enumerate(some):
            sheet.paste(picture, (0, k * height))
        colors = sheet.quantize(_COLORS, dither=Image.Dither.NONE)
        reduced = [x.quantize(palette=colors, dither=Image.Dither.NONE) for x in pictures]
        # The background, the colour of a corner, has its exact value in all frames.
        index: Any = reduced[0].getpixel((0, 0))
        palette: Any = reduced[0].getpalette()
        palette[3 * index : 3 * index + 3] = pictures[0].getpixel((0, 0))
        for picture in reduced:
            picture.putpalette(palette)
        # A frame lasts some hundredths of a second, whose sum keeps to the rate.
        ends = (100 / self.fps * np.arange(len(reduced) + 1)).round()
        lasting = (10 * np.diff(ends)).astype(int).tolist()
        data, rest = io.BytesIO(), reduced[1:]
        reduced[0].save(
            data, "GIF", save_all=True, append_images=rest, duration=lasting, loop=0, optimize=False
        )
        return data.getvalue()

    def _frames(self, dpi: float) -> Iterator[np.ndarray]:
        """Pixels of frames (height, width, 4): what moves, drawn upon a picture of the rest."""
        figure = self.figure
        self._frame(0)
        # Arranged once, which takes as long as drawing.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        before = figure.dpi
        artists = [*self.scene.artists, self._title(self.ax.get_title("left"))]
        canvas: Any = FigureCanvasAgg(figure)
        figure.set_dpi(dpi)
        for artist in artists:
            artist.set_animated(True)
        try:
            canvas.draw()
            background = canvas.copy_from_bbox(figure.bbox)
            for k in range(len(self.ts)):
                canvas.restore_region(background)
                self._frame(k)
                for artist in artists:
                    if hasattr(artist, "do_3d_projection"):
                        artist.do_3d_projection()
                    self.ax.draw_artist(artist)
                yield np.array(canvas.buffer_rgba())
        finally:
            for artist in artists:
                artist.set_animated(False)
            figure.set_dpi(before)

    def _repr_html_(self) -> str:
        slow = replace(self, fps=min(self.fps, _QUICKEST))
        data = base64.b64encode(slow.gif()).decode()
        return f'<img src="data:image/gif;base64,{data}" alt="{self!r}">'

    def __repr__(self) -> str:
        return f"Animation: {extent(self.ts, self.fps, self.speed)}"

    def _frame(self, k: int) -> Axes:
        self.scene.show(k)
        self._title(f"t = {self.ts[k]:.{digits(self.speed)}f} s{self.label}")
        return self.ax

    def _title(self, text: str) -> Text:
        return self.ax.set_title(text, loc="left", fontsize=STYLE["axes.titlesize"])


def animate(
    subject: Model | Mechanism | Robot | Geometry,
    motion: Solution | tuple[Any, Any],
    params: Any = None,
    *,
    speed: float | None = None,
    fps: float = 25.0,
    trails: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Animation":
    """Animate a motion, in the plane or in space.

    Moving shapes fill the picture, at equal scales; those at rest are grey. Between saved states
    the motion is interpolated, so that it runs smoothly whatever the save times; where events
    change it, it is that of `Solution.at`. A trajectory that failed disappears at that moment.

    Args:
        subject: a model, a mechanism, a robot, or a function `geometry(q, t, params)` that returns
            points [m] by name, shape (d,) for a dot and (k, d) for a line (`jaxmech.geometry`).
        motion: a `Solution`, or times (T,) and coordinates (T, n); with a leading batch axis for
            several trajectories in one picture, of which the first 16 are drawn.
        params: parameters of all trajectories; by default those of the simulation, for each its
            own, and without one those of the model or mechanism.
        speed: seconds of the motion per second; by default real time, for a motion of 1 to 30 s,
            else the slow or quick motion that lasts up to ten seconds.
        fps: frames per second.
        trails: names of the dots that leave a trail; by default the last one that moves.
        ax: axes to draw into, with `projection="3d"` for a motion in space.

    Returns:
        An `Animation`: `save("swing.gif")` writes a GIF; `draw(t)` draws one moment; a notebook
        shows it in motion. `view` makes a page with a player.

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
    display = display_of(subject, motion, params, trails, speed=speed, fps=fps, fine=FINE)
    if ax is not None and (ax.name == "3d") != (dimension(display.shapes) == 3):
        raise ValueError(
            'Argument `ax` must be in space, made with projection="3d", for shapes in space, '
            "and in the plane for those in the plane."
        )
    scene = Scene(ax, display.shapes, display.trails, FINE)
    return Animation(display.times[::FINE], fps, display.speed, scene.ax, display.label, scene)
