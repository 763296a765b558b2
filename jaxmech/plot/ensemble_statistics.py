"""The pictures of the statistics of a study, drawn from the stored results."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.ensemble import Results
from jaxmech.plot.panels import labelled, single

Found = dict[str, np.ndarray]


def of_statistics(results: Results) -> Iterator[tuple[str, str, Figure]]:
    """Yield name, title and picture of each statistic that can be drawn."""
    settings = results.config.get("statistics", {})
    for name, found in results.statistics.items():
        draw = _DRAWN.get(settings.get(name, {}).get("statistic"))
        times = _times(results, settings.get(name, {}))
        if draw is None:
            continue
        figure, ax = single()
        if draw(ax, found, settings[name], times) is not None:
            yield name, f"{results.name}: {name}", figure


def _times(results: Results, settings: dict[str, Any]) -> np.ndarray:
    """The saved times of the quantity of a statistic."""
    observed = results.config.get("observe", {}).get(str(settings.get("of")), {})
    times = results.config["times"]
    ts = np.linspace(times["start"], times["end"], times["saves"])
    return ts[:: observed.get("every", 1)]


def _quantiles(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> Axes | None:
    """Draw bands of quantiles over time."""
    bands = found["quantiles"]
    if bands.ndim != 2 or len(bands) != len(ts):
        return None
    for k, p in enumerate(found["at"]):
        ax.plot(ts, bands[:, k], label=f"{100 * p:g} %")
        ax.fill_between(ts, found["low"][:, k], found["high"][:, k], alpha=0.2, linewidth=0)
    return labelled(ax, "t [s]", f"quantiles of {settings['of']}", legend=True)


def _moments(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> Axes | None:
    """Draw mean, standard deviation and range over time."""
    mean, sd = found["mean"], found["sd"]
    if mean.ndim != 1 or len(mean) != len(ts):
        return None
    ax.fill_between(ts, found["min"], found["max"], alpha=0.15, linewidth=0, label="range")
    ax.fill_between(ts, mean - sd, mean + sd, alpha=0.3, linewidth=0, label="mean ± sd")
    ax.plot(ts, mean, label="mean")
    return labelled(ax, "t [s]", settings["of"], legend=True)


def _histogram(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> Axes | None:
    """Draw the density in each bin."""
    counts, edges = found["counts"], found["edges"]
    if counts.ndim != 1:
        return None
    total = counts.sum() + found["below"] + found["above"]
    ax.stairs(counts / np.diff(edges) / max(float(total), 1.0), edges, fill=True, alpha=0.6)
    return labelled(ax, settings["of"], "probability density")


def _first_passage(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> Axes | None:
    """Draw the probability of having passed over time."""
    ax.fill_between(ts, found["low"], found["high"], step="post", alpha=0.3, linewidth=0)
    ax.step(ts, found["probability"], where="post")
    word = next((key for key in ("above", "below") if settings.get(key) is not None), None)
    what = "has occurred" if word is None else f"was {word} {settings[word]:g}"
    ax.set_ylim(0, None)
    return labelled(ax, "t [s]", f"P({settings['of']} {what})")


def _sobol(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> Axes | None:
    """Draw first-order and total indices with intervals."""
    place = np.arange(len(found["names"]))
    for k, what in enumerate(("first_order", "total")):
        value, low, high = (found[f"{what}{end}"] for end in ("", "_low", "_high"))
        error = np.maximum([value - low, high - value], 0)
        label = what.replace("_", " ")
        ax.bar(place + 0.4 * k - 0.2, value, 0.4, yerr=error, capsize=3, label=label)
    ax.set_xticks(place, [str(name).partition(".")[2] for name in found["names"]])
    return labelled(ax, "", f"Sobol index of {settings['of']}", legend=True)


_DRAWN: dict[Any, Callable[[Axes, Found, dict[str, Any], np.ndarray], Axes | None]] = {
    "quantiles": _quantiles,
    "moments": _moments,
    "histogram": _histogram,
    "first-passage": _first_passage,
    "sobol-indices": _sobol,
}
