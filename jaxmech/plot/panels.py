"""Shared elements of all pictures: their style, axes, grids of panels, and writing to files.

The style is read from `style.mplstyle`. Sensors that cannot share axes, of unlike units or sizes,
have axes below each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.identify import Predicted

STYLE: Any = mpl.rc_params_from_file(
    Path(__file__).with_name("style.mplstyle"), use_default_template=False
)
COLORS: tuple[str, ...] = tuple(STYLE["axes.prop_cycle"].by_key()["color"])
BLUE, ORANGE, GREEN = COLORS[:3]
GREY, INK = "#5A6772", STYLE["text.color"]
UNKNOWN = "#DDE2E6"  # behind cells without a number
# What ticks, which are made late, would take from the settings of that time.
_TICKS = {
    "color": "xtick.color",
    "labelcolor": "xtick.labelcolor",
    "labelsize": "xtick.labelsize",
    "length": "xtick.major.size",
    "grid_color": "grid.color",
    "grid_linewidth": "grid.linewidth",
}


def styled() -> Any:
    """The settings of matplotlib for what is made inside; also a decorator of functions."""
    return mpl.rc_context(STYLE)


def new_figure(width: float, height: float) -> Figure:
    """A figure in this style [inches], which pyplot does not know."""
    with styled():
        return Figure(figsize=(width, height))


def add_axes(figure: Figure, slot: Any = 111, **settings: Any) -> Axes:
    """Add axes in this style to a figure, at a slot that `add_subplot` takes."""
    slot = slot if isinstance(slot, tuple) else (slot,)
    with styled():
        return keep_style(figure.add_subplot(*slot, **settings))


def keep_style(ax: Axes) -> Axes:
    """Let axes, which were made in this style, keep it for their ticks."""
    kinds = {key: STYLE[name] for key, name in _TICKS.items()}
    ax.tick_params(**kinds)
    ax.tick_params(which="minor", length=0)
    return ax


def bare(ax: Axes) -> Axes:
    """Take the grid and the ticks from axes whose cells or bars are labelled."""
    ax.grid(False)
    ax.tick_params(length=0)
    return ax


def scale_beside(cells: Any, ax: Axes, label: str = "", shrink: float = 1.0) -> None:
    """Draw the scale of coloured cells beside their axes."""
    with styled():
        bar = ax.figure.colorbar(cells, ax=ax, label=label, shrink=shrink)
    keep_style(bar.ax).grid(False)
    bar.outline.set_visible(False)


def legend_of(ax: Axes, handles: Sequence[Any] | None = None, **slot: Any) -> Any:
    """The legend of axes, above what it covers."""
    settings = {key: STYLE[f"legend.{key}"] for key in ("fontsize", "framealpha", "edgecolor")}
    chosen = {} if handles is None else {"handles": handles}
    return ax.legend(**(settings | chosen | slot))


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
    """

    figure: Figure
    axes: Mapping[str, Axes]

    def save(self, path: str | Path, *, dpi: float = STYLE["savefig.dpi"]) -> Path:
        """Write the figure to a file, whose suffix determines the format."""
        self.figure.savefig(path, dpi=dpi)
        return Path(path)

    def __repr__(self) -> str:
        return f"Panels: {', '.join(self.axes)}"


Drawing = Callable[[Axes], object]


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


def laid_out(
    drawings: Mapping[str, Drawing], title: str = "", figure: Figure | None = None, *,
    is_shown: bool = False,
) -> Panels:  # fmt: skip
    """Draw panels in a grid, at most 24 of them, with the legend of the first below all."""
    chosen = [*drawings][:MOST_PANELS]
    columns = min(len(chosen), 2 if len(chosen) <= 4 else 4)
    rows = ceil(len(chosen) / columns)
    make = shown_figure if is_shown else new_figure
    figure = figure or make(max(3.2 * columns, 6.0), 2.3 * rows + 0.6)
    axes = {name: add_axes(figure, (rows, columns, k + 1)) for k, name in enumerate(chosen)}
    for name, ax in axes.items():
        drawings[name](ax)
    legend_below(figure, [ax for ax in axes.values() if not ax.get_legend()][:1], columns=3)
    return Panels(entitled(figure, title), axes)


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


_ALIKE = 10.0  # ratio of sizes up to which curves are drawn into the same axes
_NAMES = 3  # of sensors in the label of an axis


@dataclass(frozen=True)
class SensorAxes:
    """The axes of a recording, and the sensors that each of them shows."""

    axes: list[Axes]
    groups: list[list[int]]
    names: tuple[str, ...]

    @staticmethod
    def of(
        part: Predicted, recording: int, names: Sequence[str], sizes: np.ndarray, ax: Axes
    ) -> "SensorAxes":
        """The axes in the place of one, with the title of the recording."""
        count = len(sizes)
        titles = tuple(names) or (
            ("",) if count == 1 else tuple(f"sensor {k}" for k in range(count))
        )
        groups = sensor_groups(sizes.tolist(), titles)
        one, residual = part.recordings[recording], part.residuals[recording]
        measured = np.isfinite(one.observed)  # NaN of a failed prediction is not left out
        squares = [residual[:, group][measured[:, group]] ** 2 for group in groups]
        spread = ", ".join(f"{np.sqrt(x.mean()):.3g}" for x in squares)
        ax.set_title(f"{one.name}: RMS {spread}", fontsize="small")
        return SensorAxes(_divided(ax, len(groups)), groups, titles)

    def curves(self) -> Iterator[tuple[int, str, str, Axes]]:
        """The index, name, colour and axes of each sensor."""
        for ax, group in zip(self.axes, self.groups, strict=True):
            for k in group:
                yield k, self.names[k], COLORS[k % len(COLORS)], ax

    def labelled(self, alone: str, before: str) -> list[Axes]:
        """The axes with labels: of one `alone`, of several the names of their sensors."""
        for ax, group in zip(self.axes, self.groups, strict=True):
            names = _label([self.names[k] for k in group])
            unit = _unit(self.names[group[0]])
            one = f"{alone} [{unit}]" if unit else alone
            several = len(set(self.axes)) > 1
            labelled(ax, "t [s]" if ax is self.axes[-1] else "", before + names if several else one)
        return self.axes


def sensor_groups(sizes: Sequence[float], names: Sequence[str]) -> list[list[int]]:
    """The indices of the sensors that share axes, in the order of the first of each group.

    Those whose names end in the same unit in brackets; where a name has none, those of like size.
    """
    units = [_unit(name) for name in names]
    if all(units):
        return [[k for k, x in enumerate(units) if x == unit] for unit in dict.fromkeys(units)]
    groups: list[list[int]] = []
    largest = 0.0
    for k in np.argsort(-np.asarray(sizes, float), kind="stable").tolist():
        if not groups or sizes[k] * _ALIKE < largest:
            groups.append([])
            largest = sizes[k]
        groups[-1].append(k)
    return sorted(map(sorted, groups))


def _unit(name: str) -> str:
    """The unit in brackets at the end of a name; empty if it has none."""
    head, _, unit = name.rpartition("[")
    return unit.removesuffix("]") if head and unit.endswith("]") else ""


def _label(names: Sequence[str]) -> str:
    """The names of the sensors of an axis, as far as they have room."""
    shown = [name for name in names if name]
    if len(shown) > _NAMES:
        return f"{shown[0]}, ..., {shown[-1]}"
    return ", ".join(shown)


def _divided(ax: Axes, count: int) -> list[Axes]:
    """Divide the area of axes in a figure among several with the same times, from the top."""
    slot = ax.get_subplotspec()
    if count == 1 or slot is None:
        return [ax] * count  # axes that are not part of a grid cannot be divided
    rows = slot.subgridspec(count, 1, hspace=0.08)
    ax.set_subplotspec(rows[0])
    figure = ax.get_figure()
    assert figure is not None
    parts = [ax, *(figure.add_subplot(rows[k], sharex=ax) for k in range(1, count))]
    for part in parts[:-1]:
        part.tick_params(labelbottom=False)
    return parts


def root_mean_squares(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The root mean square of each sensor over all recordings, (d,)."""
    rows = np.concatenate(columns)
    known = np.isfinite(rows)
    squares = np.where(known, rows, 0.0) ** 2
    roots: np.ndarray = np.sqrt(squares.sum(0) / np.maximum(known.sum(0), 1))
    return roots
