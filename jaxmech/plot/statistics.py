"""How the statistics of a study are drawn, each kind in its way.

`distribution` draws a quantity over the members.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from jaxmech.ensemble import SERIES, Results
from jaxmech.plot.panels import BLUE, ORANGE, Drawing, axes_or_new, labelled
from jaxmech.utils.units import with_unit

LOW, HIGH = 0.05, 0.95  # the probabilities between which most members lie
Values = Mapping[str, Any]  # the results of a statistic
Settings = Mapping[str, Any]  # its table in the configuration


def distribution(
    counts: ArrayLike, edges: ArrayLike, *, name: str = "", quantiles: Sequence[float] = (),
    limits: Sequence[float] = (), ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw the density of a quantity over all members, from how many lie in each bin.

    Args:
        counts: members in each bin, shape (k,).
        edges: of the bins, shape (k + 1,).
        name: label of the horizontal axis, with the unit.
        quantiles: the quantiles of 5, 50 and 95 %, drawn as a band and a line.
        limits: values whose probability was asked for.
        ax: axes to draw into.
    """
    ax, number, ends = axes_or_new(ax), np.asarray(counts, float), np.asarray(edges, float)
    heights = number / np.where(np.diff(ends) > 0, np.diff(ends), 1.0) / max(number.sum(), 1.0)
    ax.stairs(heights, ends, fill=True, color=BLUE, alpha=0.35)
    if len(quantiles):
        low, middle, high = quantiles
        span = f"{100 * LOW:g} to {100 * HIGH:g} %"
        ax.axvspan(low, high, color=BLUE, alpha=0.12, linewidth=0, label=span)
        ax.axvline(middle, color=BLUE, linewidth=1.4, label="median")
    for k, limit in enumerate(limits):
        label = "limit" if k == 0 else None
        ax.axvline(limit, color=ORANGE, linestyle="--", linewidth=1.2, label=label)
    ax.set_ylim(0, 1.1 * heights.max() or 1.0)
    return labelled(ax, name, "probability density", legend=bool(len(quantiles) or len(limits)))


def is_series(results: Results, name: Any) -> bool:
    """Whether a quantity has a value at each saved time."""
    observed = results.config.get("observe", {}).get(str(name))
    if observed is not None:
        return bool(observed.get("keep", "all") == "all")
    return str(name) in results.coordinates or str(name) in SERIES


def statistic_drawings(results: Results) -> Iterator[tuple[str, Drawing]]:
    """The statistics that can be drawn, of a number at each time or of one number, and how."""
    for name, values in results.statistics.items():
        settings = results.config.get("statistics", {}).get(name, {})
        if settings.get("statistic") not in _PICTURES:
            continue
        draw, result, axes, of_series = _PICTURES[settings["statistic"]]
        of = settings.get("of")
        if result and np.ndim(values[result]) != axes:
            continue
        if of_series not in (None, is_series(results, of)):
            continue
        label = with_unit(str(of), results.unit_of(str(of)))
        yield name, partial(draw, values, {**settings, "label": label}, results.ts)


def _quantiles(values: Values, settings: Settings, ts: np.ndarray, ax: Axes) -> Axes:
    for k, p in enumerate(values["at"]):
        ax.plot(ts, values["quantiles"][:, k], label=f"{100 * p:g} %")
        ax.fill_between(ts, values["low"][:, k], values["high"][:, k], alpha=0.2, linewidth=0)
    return labelled(ax, "t [s]", f"quantiles of {settings['label']}", legend=True)


def _moments(values: Values, settings: Settings, ts: np.ndarray, ax: Axes) -> Axes:
    mean, sd = values["mean"], values["sd"]
    ax.fill_between(ts, values["min"], values["max"], alpha=0.15, linewidth=0, label="range")
    ax.fill_between(ts, mean - sd, mean + sd, alpha=0.3, linewidth=0, label="mean ± sd")
    ax.plot(ts, mean, label="mean")
    return labelled(ax, "t [s]", settings["label"], legend=True)


def _histogram(values: Values, settings: Settings, ts: np.ndarray, ax: Axes) -> Axes:
    return distribution(values["counts"], values["edges"], name=settings["label"], ax=ax)


def _first_passage(values: Values, settings: Settings, ts: np.ndarray, ax: Axes) -> Axes:
    ax.fill_between(ts, values["low"], values["high"], step="post", alpha=0.3, linewidth=0)
    ax.step(ts, values["probability"], where="post")
    ax.set_ylim(0, None)
    return labelled(ax, "t [s]", f"P({settings['of']} has occurred)")


# How kinds of statistics are drawn, a result that must have a number of axes for it, and whether
# they are drawn of quantities over time, or of those without; None for both.
_PICTURES: dict[str, tuple[Callable[..., Axes], str, int, bool | None]] = {
    "moments": (_moments, "mean", 1, True),
    "first-passage": (_first_passage, "", 0, None),
    "quantiles": (_quantiles, "quantiles", 2, True),
    "histogram": (_histogram, "counts", 1, False),
}
