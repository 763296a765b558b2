"""Shared elements of all pictures: their style, axes, grids of panels, and writing to files.

The style is read from `style.mplstyle`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE: Any = mpl.rc_params_from_file(
    Path(__file__).with_name("style.mplstyle"), use_default_template=False
)
COLORS: tuple[str, ...] = tuple(STYLE["axes.prop_cycle"].by_key()["color"])
BLUE, ORANGE, GREEN = COLORS[:3]
GREY, INK = "#5A6772", STYLE["text.color"]
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


def legend_of(ax: Axes, **slot: Any) -> Any:
    """The legend of axes, above what it covers."""
    settings = {key: STYLE[f"legend.{key}"] for key in ("fontsize", "framealpha", "edgecolor")}
    return ax.legend(**(settings | slot))


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


Drawing = Callable[..., object]  # with the argument `ax`


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


def laid_out(
    drawings: Mapping[str, Drawing], title: str = "", figure: Figure | None = None, *,
    is_shown: bool = False, columns: int = 0, width: float = 3.2, heights: Sequence[float] = (),
    legend: int = 3,
) -> Panels:  # fmt: skip
    """Draw panels in a grid, with the legend of the first below all, in some columns.

    The width is that of a panel, the heights are those of rows [inches].
    """
    columns = columns or min(len(drawings), 2 if len(drawings) <= 4 else 4)
    heights = heights or [2.3] * ceil(len(drawings) / columns)
    make = shown_figure if is_shown else new_figure
    figure = figure or make(max(width * columns, 6.0), sum(heights) + 0.6)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    before, axes, keyed = len(figure.axes), dict[str, Axes](), list[Axes]()
    for k, (name, draw) in enumerate(drawings.items()):
        axes[name] = add_axes(figure, grid[k])
        draw(ax=axes[name])
        keyed = keyed or [ax for ax in figure.axes[before:] if not ax.get_legend()]
    if legend:
        legend_below(figure, keyed, columns=legend)
    return Panels(entitled(figure, title) if title else figure, axes)


def legend_below(figure: Figure, axes: Iterable[Axes], columns: int) -> None:
    """Move the legends of some panels below all of them, each label once."""
    handles: dict[str, Any] = {}
    for ax in axes:
        handles |= {label: x for x, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        if (legend := ax.get_legend()) is not None:
            legend.remove()
    if handles:
        with styled():
            settings: Any = {"loc": "outside lower center", "ncols": columns, "frameon": False}
            figure.legend([*handles.values()], [*handles], **settings)


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


def grouped_by_unit(names: Sequence[str]) -> list[list[int]]:
    """The indices of names with the same unit in brackets, in the order of the first of each."""
    units = [unit_of(name) for name in names]
    return [[k for k, x in enumerate(units) if x == unit] for unit in dict.fromkeys(units)]


def unit_of(name: str) -> str:
    """The unit in brackets at the end of a name; empty if it has none."""
    head, _, unit = name.rpartition("[")
    return unit.removesuffix("]") if head and unit.endswith("]") else ""
