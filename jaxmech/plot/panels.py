"""Shared elements of all pictures: colours, axes, grids of panels, and writing to files.

The colours are those of Okabe and Ito ("Color universal design", 2008), which are distinguishable
to colour-blind readers.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#5A5A5A"
COLORS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
MOST_PANELS = 24
_DPI = 130
_GAP = 4.0  # in usual steps
_MOST_WRITTEN = 12  # rows and columns up to which numbers are written into cells
_DARK = 0.6  # number from which the text on its cell is white


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes, or new ones for None."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # slow to import; pictures of runs have figures of their own

    return plt.subplots(layout="constrained")[1]


def labelled(ax: Axes, x: str, y: str, *, legend: bool = False) -> Axes:
    """Label the axes in the style of all pictures, optionally with a legend."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.margins(x=0)
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        ax.legend(fontsize="small", framealpha=0.8, edgecolor="none")  # above what it covers
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
    cells = ax.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r", aspect=aspect)
    if max(values.shape) > _MOST_WRITTEN:
        ax.figure.colorbar(cells, ax=ax, shrink=0.8)
    rows = np.argwhere(np.isfinite(values)) if max(values.shape) <= _MOST_WRITTEN else ()
    for i, j in rows:
        color = "white" if abs(values[i, j]) > _DARK else "black"
        ax.text(j, i, texts[i][j], ha="center", va="center", fontsize="x-small", color=color)
    ax.set_xticks(range(len(columns)), columns, **ticks)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def single() -> tuple[Figure, Axes]:
    """Make a figure with a single panel."""
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    return figure, figure.subplots()


def columns_of(count: int) -> int:
    """The number of columns of a grid of `count` panels."""
    return min(count, 2 if count <= 4 else 4)


def grid(count: int) -> tuple[Figure, list[Axes]]:
    """Make a figure of `count` small panels, by row."""
    columns = columns_of(count)
    rows = ceil(count / columns)
    size = max(3.2 * columns, 6.0), 2.3 * rows + 0.6
    figure = Figure(figsize=size, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in panels[count:]:
        ax.axis("off")
    return figure, panels[:count]


def legend_below(figure: Figure, axes: Iterable[Axes], columns: int) -> None:
    """Add the legend of some panels below all of them."""
    pairs = [ax.get_legend_handles_labels() for ax in axes]
    handles = [handle for some, _ in pairs for handle in some]
    labels = [label for _, some in pairs for label in some]
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def save(figures: Iterable[tuple[str, str, Figure]], folder: Path) -> list[Path]:
    """Write figures, each with its name and title, into a folder, without partial files."""
    folder.mkdir(exist_ok=True)
    files: list[Path] = []
    try:
        for name, title, figure in figures:
            figure.suptitle(title, fontsize="medium")
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=_DPI)
    except OSError:
        for file in files[-1:]:
            file.unlink(missing_ok=True)
        raise
    return files
