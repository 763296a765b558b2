"""The pictures of the benchmark: bars by case and route, curves over batch and chain length."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.speed.benchmarks import Measured
from experiments.speed.roster import ROUTES

# Okabe and Ito ("Color universal design", 2008), the yellow darkened for a white ground; jaxmech's
# own routes are one blue in four shades.
_PALETTE = (
    "#00406B", "#0072B2", "#3FA0DC", "#9BD0F2", "#009E73", "#5A5A5A",
    "#D55E00", "#E69F00", "#CC79A7", "#B8AE00",
)  # fmt: skip
COLORS = dict(zip(ROUTES, _PALETTE, strict=True))
MARKERS = dict(zip(ROUTES, "XdhoDs^vP*", strict=True))


def bars(table: Sequence[Measured], ax: Axes | None = None) -> Axes:
    """Trajectory-steps per second, one group of bars per case, logarithmic."""
    routes = _routes(table)
    ax = Figure(figsize=(11, 5.2), layout="constrained").subplots() if ax is None else ax
    width = 0.86 / len(routes)
    speeds = [speed for x in table for route in routes if (speed := x.speed(route))]
    ax.set_yscale("log")
    for k, route in enumerate(routes):
        known = [(place, x.speed(route)) for place, x in enumerate(table) if x.speed(route)]
        places = [place + (k - (len(routes) - 1) / 2) * width for place, _ in known]
        heights = [speed for _, speed in known]
        ax.bar(places, heights, 0.92 * width, label=route, color=COLORS[route])
        for place, height in zip(places, heights, strict=True):
            ax.annotate(
                _short(height),
                (place, height),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7,
                rotation=90,
            )
    ax.set_ylim(min(speeds, default=1.0) / 3, 6 * max(speeds, default=10.0))
    ax.set_xticks(range(len(table)), [_name(x) for x in table], fontsize="small")
    ax.tick_params(axis="x", length=0)
    ax.margins(x=0.01)
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    ax.set_ylabel("trajectory-steps per second")
    ax.spines[["top", "right"]].set_visible(False)
    ax.figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return ax


def scaling(batches: Sequence[Measured], lengths: Sequence[Measured]) -> Figure:
    """Speed over the batch, speed and compile seconds over the length of a chain."""
    figure = Figure(figsize=(11, 4.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _curves(left, batches, lambda x: x.case.batch, Measured.speed)
    left.set(xlabel="trajectories in the batch", ylabel="trajectory-steps per second")
    left.set_title(batches[0].case.title if batches else "", fontsize="medium")
    _curves(middle, lengths, _links, Measured.speed)
    _curves(right, lengths, _links, _compile_seconds)
    for ax, up in ((middle, "trajectory-steps per second"), (right, "compile seconds")):
        ax.set(xlabel="links of the chain", ylabel=up)
        title = f"chains, batch {lengths[0].case.batch:,}" if lengths else ""
        ax.set_title(title, fontsize="medium")
        ax.set_xticks([_links(x) for x in lengths], [f"{_links(x)}" for x in lengths])
        ax.set_xticks([], minor=True)
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    right.yaxis.set_minor_formatter(NullFormatter())
    shown = [ax.get_legend_handles_labels() for ax in (left, middle)]
    handles = {name: handle for pair in shown for handle, name in zip(*pair, strict=True)}
    place = {"loc": "outside lower center", "ncols": 4, "frameon": False}
    figure.legend(handles.values(), handles.keys(), **place)
    return figure


def _curves(
    ax: Axes,
    group: Sequence[Measured],
    across: Callable[[Measured], int],
    up: Callable[[Measured, str], float | None],
) -> None:
    for route in _routes(group):
        points = [(across(x), y) for x in group if (y := up(x, route)) is not None]
        if points:
            style = {"color": COLORS[route], "marker": MARKERS[route]}
            ax.plot(*zip(*points, strict=True), label=route, **style)
    ax.set(xscale="log", yscale="log")
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def _links(measured: Measured) -> int:
    return measured.case.equations[1]


def _compile_seconds(measured: Measured, route: str) -> float | None:
    return measured.outcomes[route].compile_seconds if route in measured.outcomes else None


def _routes(group: Sequence[Measured]) -> list[str]:
    return list(dict.fromkeys(route for measured in group for route in measured.outcomes))


def _name(measured: Measured) -> str:
    n, m = measured.case.equations
    return f"{measured.case.title}\nn = {n}, m = {m}\nbatch {measured.case.batch:,}"


def _short(speed: float) -> str:
    return f"{speed / 1e6:.3g} M" if speed >= 1e5 else f"{speed / 1e3:.3g} k"
