"""How each statistic of a study is shown: the columns of its table, and its picture.

`SHOWN` says both for each kind, and which of its results have a value at each saved time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from jaxmech.ensemble import SERIES, Results
from jaxmech.plot.panels import Drawing, labelled
from jaxmech.utils.units import with_unit

Values = Mapping[str, Any]  # the results of a statistic
Settings = Mapping[str, Any]  # its table in the configuration


class Column(NamedTuple):
    """A column of the table of a statistic: one number, or one for each of its rows."""

    title: str
    value: Any
    ends: Sequence[Any] = ()  # of its interval


class Shown(NamedTuple):
    """How a kind of statistic is shown.

    Attributes:
        columns: the results that are listed, with the ends of their intervals.
        over_time: the results that have a value at each saved time, of a quantity that has.
        draw: the picture, from axes, results, settings and times.
        caption: of the table.
        is_of_times: whether its results are over time for any quantity.
    """

    columns: Mapping[str, tuple[str, ...]]
    over_time: tuple[str, ...] = ()
    draw: Callable[[Axes, Values, Settings, np.ndarray], Axes] | None = None
    caption: str = ""
    is_of_times: bool = False


def is_series(results: Results, name: Any) -> bool:
    """Whether a quantity has a value at each saved time."""
    observed = results.config.get("observe", {}).get(str(name))
    if observed is not None:
        return bool(observed.get("keep", "all") == "all")
    return str(name) in results.coordinates or str(name) in SERIES


def saved_times(results: Results, quantity: Any) -> np.ndarray:
    """The saved times of a quantity [s], which may be every so many of all."""
    observed = results.config.get("observe", {}).get(str(quantity), {})
    return results.ts[:: observed.get("every", 1)]


class ShownStatistic:
    """A statistic of a run, of one over time the results at the last time.

    Attributes:
        settings: its table in the configuration; empty for one that is none of the user's.
        values: its results.
        at: a remark on the time of the results.
        caption: of its table.
    """

    def __init__(self, results: Results, name: str) -> None:
        self.settings: Settings = results.config.get("statistics", {}).get(name, {})
        self.kind, of = self.settings.get("statistic", ""), self.settings.get("of")
        self.values, self.at, self.caption = results.statistics[name], "", ""
        self._units, shown = results.statistic_units(name), SHOWN.get(self.kind)
        if shown is None:
            own = (key for key, x in self.values.items() if np.asarray(x).dtype.kind in "fiu")
            self._listed: Mapping[str, tuple[str, ...]] = dict.fromkeys(own, ())
            return
        self._listed = shown.columns
        if shown.is_of_times or (shown.over_time and is_series(results, of)):
            over_time = [*shown.over_time]
            # Bins without ends of their own follow the values.
            over_time += ["edges"] if self.settings.get("low") is None else []
            self.values = {k: x[-1] if k in over_time else x for k, x in self.values.items()}
            self.at = f" at t = {saved_times(results, of)[-1]:g} s"
        if shown.caption:
            self.caption = with_unit(shown.caption, self._units.get(shown.caption, ""))

    def columns(self) -> Iterator[Column]:
        """The columns of its table; of a user's own all its numbers."""
        for key, ends in self._listed.items():
            if key not in self.values:  # such as the times of a passage, of an event alone
                continue
            value, *limits = (np.asarray(self.values[x]) for x in (key, *ends))
            if self.kind == "quantiles":
                for k, p in enumerate(self.values["at"]):
                    yield Column(f"{100 * p:g} %", value[..., k], [x[..., k] for x in limits])
            elif key == "correlation":
                for k, other in enumerate(self.values["names"]):
                    yield Column(str(other), value[:, k], [x[:, k] for x in limits])
            else:
                title = with_unit(key.replace("_", " "), self._units.get(key, ""))
                yield Column(title, value, limits)


def statistic_drawings(results: Results) -> Iterator[tuple[str, Drawing]]:
    """The statistics that can be drawn, of a number at each time or of one number, and how."""
    for name, values in results.statistics.items():
        settings = results.config.get("statistics", {}).get(name, {})
        shown, of = SHOWN.get(settings.get("statistic", "")), settings.get("of")
        if shown is None or shown.draw is None:
            continue
        if (axes := _AXES.get(settings["statistic"])) is not None:
            key, count, is_over_time = axes
            if is_over_time != is_series(results, of) or np.ndim(values[key]) != count:
                continue
        label = with_unit(str(of), results.unit_of(str(of)))
        ts = saved_times(results, of)
        yield name, partial(_drawn, shown.draw, values, {**settings, "label": label}, ts)


def _drawn(draw: Any, values: Values, settings: Settings, ts: np.ndarray, ax: Axes) -> Axes:
    return draw(ax, values, settings, ts)


def _quantiles(ax: Axes, values: Values, settings: Settings, ts: np.ndarray) -> Axes:
    for k, p in enumerate(values["at"]):
        ax.plot(ts, values["quantiles"][:, k], label=f"{100 * p:g} %")
        ax.fill_between(ts, values["low"][:, k], values["high"][:, k], alpha=0.2, linewidth=0)
    return labelled(ax, "t [s]", f"quantiles of {settings['label']}", legend=True)


def _moments(ax: Axes, values: Values, settings: Settings, ts: np.ndarray) -> Axes:
    mean, sd = values["mean"], values["sd"]
    ax.fill_between(ts, values["min"], values["max"], alpha=0.15, linewidth=0, label="range")
    ax.fill_between(ts, mean - sd, mean + sd, alpha=0.3, linewidth=0, label="mean ± sd")
    ax.plot(ts, mean, label="mean")
    return labelled(ax, "t [s]", settings["label"], legend=True)


def _histogram(ax: Axes, values: Values, settings: Settings, ts: np.ndarray) -> Axes:
    counts, edges = values["counts"], values["edges"]
    total = counts.sum() + values["below"] + values["above"]
    ax.stairs(counts / np.diff(edges) / max(float(total), 1.0), edges, fill=True, alpha=0.6)
    return labelled(ax, settings["label"], "probability density")


def _first_passage(ax: Axes, values: Values, settings: Settings, ts: np.ndarray) -> Axes:
    ax.fill_between(ts, values["low"], values["high"], step="post", alpha=0.3, linewidth=0)
    ax.step(ts, values["probability"], where="post")
    word = next((key for key in ("above", "below") if settings.get(key) is not None), None)
    condition = "has occurred" if word is None else f"was {word} {settings[word]:g}"
    ax.set_ylim(0, None)
    return labelled(ax, "t [s]", f"P({settings['of']} {condition})")


def _sobol(ax: Axes, values: Values, settings: Settings, ts: np.ndarray) -> Axes:
    index = np.arange(len(values["names"]))
    for k, order in enumerate(("first_order", "total")):
        value, low, high = (values[f"{order}{end}"] for end in ("", "_low", "_high"))
        error = np.maximum([value - low, high - value], 0)
        label = order.replace("_", " ")
        ax.bar(index + 0.4 * k - 0.2, value, 0.4, yerr=error, capsize=3, label=label)
    ax.set_xticks(index, [str(name).partition(".")[2] for name in values["names"]])
    return labelled(ax, "", f"Sobol index of {settings['of']}", legend=True)


# The result of a kind that is drawn, the axes it has for one number, and whether over time.
_AXES = {"quantiles": ("quantiles", 2, True), "moments": ("mean", 1, True),
         "histogram": ("counts", 1, False)}  # fmt: skip
_MEAN = ("mean", "mean_low", "mean_high")
SHOWN: dict[str, Shown] = {
    "moments": Shown(
        {"mean": ("mean_low", "mean_high"), "sd": (), "min": (), "max": (), "count": ()},
        (*_MEAN, "sd", "min", "max", "count", "effective_count", "min_index", "max_index"),
        _moments,
    ),
    "probability": Shown(
        {"probability": ("low", "high"), "hits": (), "count": (), "left_out": ()}
    ),
    "first-passage": Shown(
        {"probability": ("low", "high"), "mean": (), "sd": (), "earliest": (), "latest": (),
         "never": (), "count": ()},
        ("probability", "low", "high"), _first_passage, is_of_times=True,
    ),
    "quantiles": Shown(
        {"quantiles": ("low", "high")}, ("quantiles", "low", "high", "error", "count"),
        _quantiles, "quantiles",
    ),
    "histogram": Shown(
        {"below": (), "above": ()}, ("counts", "below", "above"), _histogram
    ),
    "covariance": Shown({"correlation": ("correlation_low", "correlation_high"), "count": ()},
                        caption="correlation"),
    "sobol-indices": Shown(
        {name: (f"{name}_low", f"{name}_high") for name in ("first_order", "total")}, (), _sobol
    ),
    "worst": Shown({"index": (), "value": ()}),
}  # fmt: skip
