"""Shared elements of all pictures: axes, grids of panels, and writing to files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.plot.style import STYLE, add_axes, bare, legend_of, new_figure, scale_beside, styled

MOST_PANELS = 24
_GAP = 4.0  # in usual steps
_MOST_WRITTEN = 12  # rows and columns up to which numbers are written into cells
_PALE = 1.4  # ends of the colour scale, of which cells use the part that is not too dark
_DARK = 0.84  # number from which the text on its cell is white


@dataclass(frozen=True, eq=False)
class Panels:
    """Several panels in one figure: the result of `sol.plot()` and the like.

    Attributes:
        figure: the figure, which `matplotlib.pyplot.show` shows.
        axes: the panels by name, in order.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> sol = jm.simulate(model.system, q0, v0, jnp.linspace(0, 1, 11), model.params)
        >>> panels = sol.plot("x1")
        >>> print(*panels.axes)
        x1
    """

    figure: Figure
    axes: Mapping[str, Axes]

    def save(self, path: str | Path, *, dpi: float = STYLE["savefig.dpi"]) -> Path:
        """Write the figure to a file, whose suffix determines the format."""
        self.figure.savefig(path, dpi=dpi)
        return Path(path)

    def __repr__(self) -> str:
        return f"Panels: {', '.join(self.axes)}"


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes, or new ones for None."""
    return add_axes(shown_figure()) if ax is None else ax


def shown_figure(width: float | None = None, height: float | None = None) -> Figure:
    """A figure [inches] that pyplot shows; pictures of runs have figures of their own."""
    import matplotlib.pyplot as plt  # slow to import

    with styled():
        return plt.figure(figsize=None if width is None or height is None else (width, height))


def labelled(ax: Axes, x: str, y: str, *, legend: bool = False) -> Axes:
    """Label the axes in the style of all pictures, optionally with a legend."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.margins(x=0)
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        legend_of(ax)
    return ax


def interrupted(ts: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples (T,) with an unknown one in each gap of their times, where a line is interrupted.

    A gap is several times as long as the usual step.

    Example:
        >>> print(interrupted(np.array([0.0, 1.0, 2.0, 9.0]), np.zeros(4))[1])
        [ 0.  0.  0. nan  0.]
    """
    steps = np.diff(ts)
    gaps = np.flatnonzero(steps > _GAP * np.median(steps)) if steps.size else steps.astype(int)
    middles = (ts[gaps] + ts[gaps + 1]) / 2 if gaps.size else ts[:0]
    return np.insert(ts, gaps + 1, middles), np.insert(values, gaps + 1, np.nan)


def heat_map(
    ax: Axes, values: np.ndarray, texts: Sequence[Sequence[str]], names: Sequence[str],
    columns: Sequence[str], *, aspect: Any = "equal", **ticks: Any,
) -> Axes:  # fmt: skip
    """Draw numbers from -1 to 1 as coloured cells, with their texts or, if many, with a scale."""
    cells = ax.imshow(values, vmin=-_PALE, vmax=_PALE, cmap="RdBu_r", aspect=aspect)
    if max(values.shape) > _MOST_WRITTEN:
        scale_beside(cells, ax, shrink=0.8)
        cells.colorbar.ax.set_ylim(-1, 1)  # type: ignore[union-attr]
    rows = np.argwhere(np.isfinite(values)) if max(values.shape) <= _MOST_WRITTEN else ()
    for i, j in rows:
        color = "white" if abs(values[i, j]) > _DARK else "black"
        ax.text(j, i, texts[i][j], ha="center", va="center", fontsize="x-small", color=color)
    ax.set_xticks(range(len(columns)), columns, **ticks)
    ax.set_yticks(range(len(names)), names)
    ax.spines[:].set_visible(False)
    return bare(ax)


def single() -> tuple[Figure, Axes]:
    """Make a figure with a single panel."""
    figure = new_figure(*STYLE["figure.figsize"])
    return figure, add_axes(figure)


def columns_of(count: int) -> int:
    """The number of columns of a grid of `count` panels."""
    return min(count, 2 if count <= 4 else 4)


def grid(count: int) -> tuple[Figure, list[Axes]]:
    """Make a figure of `count` small panels, by row."""
    columns = columns_of(count)
    rows = ceil(count / columns)
    figure = new_figure(max(3.2 * columns, 6.0), 2.3 * rows + 0.6)
    return figure, [add_axes(figure, (rows, columns, k + 1)) for k in range(count)]


def legend_below(figure: Figure, axes: Iterable[Axes], columns: int) -> None:
    """Add the legend of some panels below all of them."""
    pairs = [ax.get_legend_handles_labels() for ax in axes]
    handles = [handle for some, _ in pairs for handle in some]
    labels = [label for _, some in pairs for label in some]
    if handles:
        with styled():
            settings: Any = {"loc": "outside lower center", "ncols": columns, "frameon": False}
            figure.legend(handles, labels, **settings)


def entitled(figure: Figure, title: str) -> Figure:
    """Write a title above all panels."""
    with styled():
        figure.suptitle(title)
    return figure


def legend_beside(ax: Axes) -> None:
    """Put the legend at the right of axes, if they have anything to name."""
    if ax.get_legend_handles_labels()[0]:
        legend_of(ax, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    elif ax.legend_ is not None:
        ax.legend_.remove()


def share_time(axes: Sequence[Axes]) -> None:
    """Give panels below each other the same times, which are labelled at the lowest."""
    for ax in axes[:-1]:
        ax.sharex(axes[-1])
        ax.tick_params(labelbottom=False)
        ax.set_xlabel("")
    if axes and axes[0].figure is not None:
        axes[0].figure.align_ylabels(axes)


def save(figures: Iterable[tuple[str, str, Figure]], folder: Path) -> list[Path]:
    """Write figures, each with its name and title, into a folder, without partial files."""
    folder.mkdir(exist_ok=True)
    files: list[Path] = []
    try:
        for name, title, figure in figures:
            entitled(figure, title)
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=STYLE["savefig.dpi"])
    except OSError:
        for file in files[-1:]:
            file.unlink(missing_ok=True)
        raise
    return files
