"""The style of all pictures, read from `style.mplstyle`: its colours, and axes that have it."""

from collections.abc import Sequence
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
