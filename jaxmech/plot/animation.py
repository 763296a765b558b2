"""`Animation`: a mechanism in motion, to be drawn at a time, shown in a notebook, or saved."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, HTMLWriter, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from jaxmech.display.motions import Display, clock, extent
from jaxmech.plot.paths import dimension
from jaxmech.plot.scene import Scene, moving_dots, new_axes
from jaxmech.utils.checks import require_sequence

FINE = 4  # points of a trail for each frame
VIDEO = (".mp4", ".mov", ".webm", ".mkv", ".avi")
_EMBEDDED = 2000.0  # MB of an HTML page, above which matplotlib would drop frames


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
        writer = self._writer(path.suffix.lower())
        if not path.parent.is_dir():
            raise FileNotFoundError(
                f"Argument `path` must be in a folder that exists, but {path.parent} does not."
            )
        part = path.with_name(f".{path.stem}.part{path.suffix}")  # no partial file at the end
        frames = tqdm(
            range(len(self.ts)), path.name, unit="frame", disable=None if progress else True
        )
        self._settle()
        try:
            with writer.saving(self.figure, part, dpi):
                for k in frames:
                    self._frame(k)
                    writer.grab_frame()
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return path

    def _repr_html_(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            page = self.save(Path(folder) / "page.html", progress=False)
            return page.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"Animation: {extent(self.ts, self.fps, self.speed)}"

    def _frame(self, k: int) -> Axes:
        self.scene.show(k)
        title = clock(self.ts[k], self.speed) + self.label
        self.ax.set_title(title, loc="left", fontsize="medium")
        return self.ax

    def _settle(self) -> None:
        # Once, since arranging the figure for each frame takes as long as drawing it.
        self._frame(0)
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")

    def _writer(self, ending: str) -> AbstractMovieWriter:
        if ending == ".gif":
            return _gif_writer(self.fps)
        if ending in (".html", ".htm"):
            return HTMLWriter(fps=self.fps, embed_frames=True, embed_limit=_EMBEDDED)  # type: ignore[arg-type]
        if ending in VIDEO:
            if not FFMpegWriter.isAvailable():
                raise ValueError(
                    f"Argument `path` must end in .gif or .html here, since {ending} needs the "
                    "program ffmpeg, which is not installed; install it, or save a GIF."
                )
            return FFMpegWriter(fps=self.fps)  # type: ignore[arg-type]
        raise ValueError(
            f"Argument `path` must end in .gif, .html or one of {', '.join(VIDEO)}, but ends in "
            f"{ending!r}. For a picture use `draw(t)` and `figure.savefig`."
        )


def _gif_writer(fps: float) -> PillowWriter:
    # Frames of a GIF last whole hundredths of a second.
    hundredths = max(round(100 / fps), 2)
    if abs(100 / fps - hundredths) > 1e-3:
        near = " or ".join(
            f"{100 / k:.4g}" for k in (hundredths + 1, hundredths, hundredths - 1) if k > 1
        )
        raise ValueError(
            "Argument `fps` of a GIF must be 100 divided by an integer, at most 50, but is "
            f"{fps:g}; choose {near}."
        )
    return PillowWriter(fps=1000 / (10 * hundredths + 0.5))  # type: ignore[arg-type]  # it rounds down


def animation(
    display: Display, *, fps: float, trails: Sequence[str] | None, ax: Axes | None
) -> Animation:
    """Make the animation of a motion; see `jaxmech.animate`."""
    moments = display.moments(fps, FINE)
    shapes = display.shapes_at(moments)
    dots = moving_dots(shapes)
    chosen = _chosen(trails, dots)
    if ax is not None and (ax.name == "3d") != (dimension(shapes) == 3):
        raise ValueError(
            'Argument `ax` must be in space, made with projection="3d", for shapes in space, '
            "and in the plane for those in the plane."
        )
    ax = new_axes(shapes) if ax is None else ax
    scene = Scene(ax, shapes, chosen, FINE)
    return Animation(moments[::FINE], fps, display.speed, ax, display.label, scene)


def _chosen(trails: Sequence[str] | None, dots: Sequence[str]) -> Sequence[str]:
    if trails is None:
        return dots[-1:]
    require_sequence("trails", trails)
    unknown = [name for name in trails if name not in dots]
    if unknown:
        raise ValueError(
            f"Argument `trails` must name dots that move, but has "
            f"{', '.join(map(repr, unknown))}; there are {', '.join(dots) or 'none'}."
        )
    return trails
