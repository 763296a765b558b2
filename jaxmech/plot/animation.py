"""`Animation`: a mechanism in motion, to be drawn at a time, shown in a notebook, or saved."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from tqdm import tqdm

from jaxmech.plot.motions import Display, clock, extent
from jaxmech.plot.paths import dimension, trail_names
from jaxmech.plot.scene import Scene, new_axes
from jaxmech.plot.style import STYLE
from jaxmech.plot.writers import writer_of
from jaxmech.utils.checks import require_positive_integer

FINE = 4  # points of a trail for each frame


@dataclass(frozen=True, eq=False)
class Animation:
    """The result of `animate`, which a notebook shows as a player.

    Attributes:
        ts: displayed times of the motion [s], one for each frame, shape (K,).
        fps: frames per second.
        speed: seconds of the motion per second of the animation.
        ax: the axes with the picture.
        label: text beside the time.
        scene: the shapes in the axes.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model, ts = jm.models.pendulum(), jnp.linspace(0.0, 2.0, 41)
        >>> swing = jm.simulate(model.system, *model.initial(), ts, model.params)
        >>> animation = jm.animate(model, swing)
        >>> animation
        Animation: t = 0 ... 2 s in real time, 51 frames in 2 s
        >>> animation.draw(1.0).get_title(loc="left")
        't = 1.00 s'
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

    def save(self, path: str | Path, *, dpi: float = 100.0, progress: bool = True) -> Path:
        """Write the animation to a file: a GIF, a self-contained page (.html), or a video (.mp4).

        Args:
            path: the file, whose suffix determines the format; videos need the program ffmpeg.
            dpi: pixels per inch of the figure, which is about five inches wide.
            progress: whether to show a progress bar, in a terminal.

        Raises:
            ValueError: if the suffix is unknown, ffmpeg is needed and not installed, or a GIF
                cannot have this frame rate.
            FileNotFoundError: if the folder does not exist.
        """
        path = Path(path)
        write = writer_of(path.suffix.lower(), self.fps)
        if not path.parent.is_dir():
            raise FileNotFoundError(
                f"Argument `path` must be in a folder that exists, but {path.parent} does not."
            )
        part = path.with_name(f".{path.stem}.part{path.suffix}")  # no partial file at the end
        moments = tqdm(
            range(len(self.ts)), path.name, unit="frame", disable=None if progress else True
        )
        try:
            write(part, self._frames(moments, dpi))
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return path

    def strobe(self, count: int = 6, times: Sequence[float] | None = None) -> Figure:
        """Draw several moments into one picture, the earlier the fainter.

        Args:
            count: number of moments from first to last.
            times: the moments themselves [s].

        Returns:
            The figure, for `savefig`.
        """
        if times is None:
            require_positive_integer("count", count, "choose 2 or more")
            times = np.linspace(self.ts[0], self.ts[-1], count).tolist()
        moments = [int(np.argmin(np.abs(self.ts - t))) for t in times]
        self.scene.strobe(moments)
        self._title(f"t = {', '.join(f'{t:.3g}' for t in times)} s{self.label}")
        return self.figure

    def _frames(self, moments: Iterable[int], dpi: float) -> Iterator[np.ndarray]:
        """Pixels of frames (height, width, 4): what moves, drawn upon a picture of the rest."""
        self._settle()
        figure, before = self.figure, self.figure.dpi
        artists = [*self.scene.artists, self._title(self.ax.get_title("left"))]
        canvas: Any = FigureCanvasAgg(figure)
        figure.set_dpi(dpi)
        for artist in artists:
            artist.set_animated(True)
        try:
            canvas.draw()
            background = canvas.copy_from_bbox(figure.bbox)
            for k in moments:
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
        with tempfile.TemporaryDirectory() as folder:
            page = self.save(Path(folder) / "page.html", progress=False)
            return page.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"Animation: {extent(self.ts, self.fps, self.speed)}"

    def _frame(self, k: int) -> Axes:
        self.scene.show(k)
        self._title(clock(self.ts[k], self.speed) + self.label)
        return self.ax

    def _title(self, text: str) -> Text:
        return self.ax.set_title(text, loc="left", fontsize=STYLE["axes.titlesize"])

    def _settle(self) -> None:
        # Once, since arranging the figure for each frame takes as long as drawing it.
        self._frame(0)
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")


def animation(
    display: Display, *, fps: float, trails: Sequence[str] | None, ax: Axes | None
) -> Animation:
    """Make the animation of a motion; see `jaxmech.animate`."""
    moments = display.moments(fps, FINE)
    shapes = display.shapes_at(moments)
    chosen = trail_names(shapes, trails)
    if ax is not None and (ax.name == "3d") != (dimension(shapes) == 3):
        raise ValueError(
            'Argument `ax` must be in space, made with projection="3d", for shapes in space, '
            "and in the plane for those in the plane."
        )
    ax = new_axes(shapes) if ax is None else ax
    scene = Scene(ax, shapes, chosen, FINE)
    return Animation(moments[::FINE], fps, display.speed, ax, display.label, scene)
