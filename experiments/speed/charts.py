"""The pictures: bars by case and route, curves over the batch and the length of a chain."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.speed.report import Row, figure, names, places
from experiments.speed.routes import ROUTES

# Okabe and Ito ("Color universal design", 2008), the yellow darkened for a white ground; jaxmech's
# own routes are one blue in four shades.
_PALETTE = (
    "#00406B", "#0072B2", "#3FA0DC", "#9BD0F2", "#009E73", "#5A5A5A",
    "#D55E00", "#E69F00", "#CC79A7", "#B8AE00",
)  # fmt: skip
COLORS = dict(zip(ROUTES, _PALETTE, strict=True))
MARKERS = dict(zip(ROUTES, "XdhoDs^vP*", strict=True))
_LEGEND = {"loc": "outside lower center", "ncols": 4, "frameon": False}
_SPEED, _COMPILE = "steps_per_second", "compile_seconds"


def bars(table: Sequence[Row]) -> Figure:
    """Plot trajectory-steps per second, logarithmic, with a group of bars for each case."""
    whole, routes = Figure(figsize=(11, 5.2), layout="constrained"), names(table)
    ax, width, speeds = whole.subplots(), 0.86 / len(routes), [1e6]
    ax.set_yscale("log")
    for k, route in enumerate(routes):
        middle = (k - (len(routes) - 1) / 2) * width
        known = {i + middle: y for i, row in enumerate(table) if (y := figure(row, route, _SPEED))}
        heights = list(known.values())
        shown = ax.bar(list(known), heights, 0.92 * width, label=route, color=COLORS[route])
        texts = [f"{y / 1e6:.3g} M" if y >= 1e5 else f"{y / 1e3:.3g} k" for y in heights]
        ax.bar_label(shown, texts, padding=2, fontsize=7, rotation=90)
        speeds += heights
    ax.set_ylim(min(speeds) / 3, 6 * max(speeds))
    titles = [f"{x['title']}\nn = {x['n']}, m = {x['m']}\nbatch {x['batch']:,}" for x in table]
    ax.set_xticks(range(len(table)), titles, fontsize="small")
    ax.tick_params(axis="x", length=0)
    ax.margins(x=0.01)
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    ax.set_ylabel("trajectory-steps per second")
    whole.legend(**_LEGEND)
    return whole


def scaling(group: Sequence[Row]) -> Figure:
    """Plot speed over the size of the batch of each case, speed and compile time over chains.

    Colours are routes; lines are solid in float64 and dashed in float32, on GPUs thicker.
    """
    by_case: dict[str, list[Row]] = {}
    for row in group:
        by_case.setdefault(row["title"], []).append(row)
    several = {k: v for k, v in by_case.items() if len({row["batch"] for row in v}) > 1}
    chains = [x for x in group if x["case"].startswith("chain_") and x["title"] not in several]
    whole, axes = panels(len(several) + 2 * bool(chains))
    for (title, rows), ax in zip(several.items(), axes, strict=False):
        _curves(ax, rows, "batch", _SPEED)
        over_batches(ax, title)
    for what, ax in zip((_SPEED, _COMPILE) if chains else (), axes[len(several) :], strict=False):
        _curves(ax, chains, "m", what)  # a link is a constraint
        over_batches(ax, f"chains, batch {chains[0]['batch']:,}")
        ax.set_xlabel("links of the chain")
        if what == _COMPILE:
            ax.set_ylabel("compile seconds")
        links = sorted({row["m"] for row in chains})
        ax.set_xticks(links, [f"{n}" for n in links])
        ax.set_xticks([], minor=True)
    add_legend(whole)
    return whole


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """Make a figure with `count` panels in rows of three."""
    rows = -(-count // 3)
    whole = Figure(figsize=(11, 0.6 + 3.4 * rows), layout="constrained")
    axes = list(whole.subplots(rows, min(count, 3), squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_axis_off()
    return whole, axes


def over_batches(ax: Axes, title: str) -> None:
    """Label a panel of speeds over the size of the batch."""
    ax.set(xscale="log", yscale="log", xlabel="trajectories in the batch")
    ax.set_ylabel("trajectory-steps per second")
    ax.set_title(title)


def add_legend(whole: Figure, **style: Any) -> None:
    """Add one legend below all panels."""
    shown = [ax.get_legend_handles_labels() for ax in whole.axes]
    handles = {name: handle for pair in shown for handle, name in zip(*pair, strict=True)}
    whole.legend(handles.values(), handles.keys(), **{**_LEGEND, **style})


def _curves(ax: Axes, group: Sequence[Row], across: str, up: str) -> None:
    several = len(places(group)) > 1
    for place, rows in places(group):
        line, width = "--" if "float32" in place else "-", 1.2 if place.startswith("cpu") else 2.4
        for route in names(rows):
            points = [(x[across], y) for x in rows if (y := figure(x, route, up)) is not None]
            if points:
                style = {"color": COLORS[route], "marker": MARKERS[route], "linewidth": width}
                label = f"{route}, {place}" if several else route
                ax.plot(*zip(*points, strict=True), line, label=label, **style)
