"""The picture: bars by case and route."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.speed.report import Row, figure, names
from experiments.speed.routes import ROUTES

# Okabe and Ito ("Color universal design", 2008), the yellow darkened for a white ground; jaxmech's
# own routes are one blue in four shades.
_PALETTE = (
    "#00406B", "#0072B2", "#3FA0DC", "#9BD0F2", "#009E73", "#5A5A5A",
    "#D55E00", "#E69F00", "#CC79A7", "#B8AE00",
)  # fmt: skip
COLORS = dict(zip(ROUTES, _PALETTE, strict=True))
_SPEED = "steps_per_second"


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
    whole.legend(loc="outside lower center", ncols=4, frameon=False)
    return whole
