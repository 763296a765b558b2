"""The pictures: bars by case and route, curves over the batch and the length of a chain."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.speed.benchmarks import Measured, names, places
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


def bars(table: Sequence[Measured]) -> Figure:
    """Trajectory-steps per second, logarithmic, with a group of bars for each case."""
    figure, routes = Figure(figsize=(11, 5.2), layout="constrained"), names(table)
    ax, width = figure.subplots(), 0.86 / len(routes)
    speeds = [speed for x in table for route in routes if (speed := x.speed(route))]
    ax.set_yscale("log")
    for k, route in enumerate(routes):
        middle = (k - (len(routes) - 1) / 2) * width
        known = [(i + middle, speed) for i, x in enumerate(table) if (speed := x.speed(route))]
        places, heights = [place for place, _ in known], [height for _, height in known]
        shown = ax.bar(places, heights, 0.92 * width, label=route, color=COLORS[route])
        ax.bar_label(shown, [_short(x) for x in heights], padding=2, fontsize=7, rotation=90)
    ax.set_ylim(min(speeds, default=1.0) / 3, 6 * max(speeds, default=10.0))
    ax.set_xticks(range(len(table)), [_name(x) for x in table], fontsize="small")
    ax.tick_params(axis="x", length=0)
    ax.margins(x=0.01)
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    ax.set_ylabel("trajectory-steps per second")
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(**_LEGEND)
    return figure


def scaling(group: Sequence[Measured]) -> Figure:
    """Speed over the size of the batch of each case, speed and compile time over chain lengths.

    Colours are routes; lines are solid in float64 and dashed in float32, on GPUs thicker.
    """
    by_case: dict[str, list[Measured]] = {}
    for x in group:
        by_case.setdefault(x.case.title, []).append(x)
    several = {k: v for k, v in by_case.items() if len({x.case.batch for x in v}) > 1}
    chains = [x for x in group if x.case.name.startswith("chain_") and x.case.title not in several]
    figure, axes = panels(len(several) + 2 * bool(chains))
    for (title, cases), ax in zip(several.items(), axes, strict=False):
        _curves(ax, cases, lambda x: x.case.batch, Measured.speed)
        over_batches(ax, title)
    for up, ax in zip((Measured.speed, Measured.compile_seconds) if chains else (),
                      axes[len(several) :], strict=False):  # fmt: skip
        _curves(ax, chains, _links, up)
        over_batches(ax, f"chains, batch {chains[0].case.batch:,}")
        ax.set_xlabel("links of the chain")
        if up is not Measured.speed:
            ax.set_ylabel("compile seconds")
        links = sorted({_links(x) for x in chains})
        ax.set_xticks(links, [f"{n}" for n in links])
        ax.set_xticks([], minor=True)
    add_legend(figure)
    return figure


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels in rows of three."""
    rows = -(-count // 3)
    figure = Figure(figsize=(11, 0.6 + 3.4 * rows), layout="constrained")
    axes = list(figure.subplots(rows, min(count, 3), squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes


def over_batches(ax: Axes, title: str) -> None:
    """Label a panel of speeds over the size of the batch."""
    ax.set(xscale="log", yscale="log", xlabel="trajectories in the batch")
    ax.set_ylabel("trajectory-steps per second")
    ax.set_title(title, fontsize="medium")
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def add_legend(figure: Figure, **style: Any) -> None:
    """One legend below all panels."""
    shown = [ax.get_legend_handles_labels() for ax in figure.axes]
    handles = {name: handle for pair in shown for handle, name in zip(*pair, strict=True)}
    figure.legend(handles.values(), handles.keys(), **{**_LEGEND, **style})


def _curves(
    ax: Axes, group: Sequence[Measured], across: Callable[[Measured], int],
    up: Callable[[Measured, str], float | None],
) -> None:  # fmt: skip
    several = len(places(group)) > 1
    for place, there in places(group):
        single, width = "float32" in place, 1.2 if place.startswith("cpu") else 2.4
        for route in names(there):
            points = [(across(x), y) for x in there if (y := up(x, route)) is not None]
            if points:
                style = {"color": COLORS[route], "marker": MARKERS[route], "linewidth": width}
                label = f"{route}, {place}" if several else route
                ax.plot(*zip(*points, strict=True), "--" if single else "-", label=label, **style)


def _links(measured: Measured) -> int:
    return measured.case.equations[1]


def _name(measured: Measured) -> str:
    n, m = measured.case.equations
    return f"{measured.case.title}\nn = {n}, m = {m}\nbatch {measured.case.batch:,}"


def _short(speed: float) -> str:
    return f"{speed / 1e6:.3g} M" if speed >= 1e5 else f"{speed / 1e3:.3g} k"
