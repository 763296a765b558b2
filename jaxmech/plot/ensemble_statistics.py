"""The pictures of the statistics of a study, drawn from the stored results."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.ensemble import Results
from jaxmech.plot.panels import single

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
        if draw(ax, found, settings[name], times):
            yield name, f"{results.name}: {name}", figure


def _times(results: Results, settings: dict[str, Any]) -> np.ndarray:
    """The saved times of the quantity of a statistic."""
    observed = results.config.get("observe", {}).get(str(settings.get("of")), {})
    times = results.config["times"]
    ts = np.linspace(times["start"], times["end"], times["saves"])
    return ts[:: observed.get("every", 1)]


def _quantiles(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> bool:
    """Draw bands of quantiles over time."""
    bands = found["quantiles"]
    if bands.ndim != 2 or len(bands) != len(ts):
        return False
    for k, p in enumerate(found["at"]):
        ax.plot(ts, bands[:, k], label=f"{100 * p:g} %")
        ax.fill_between(ts, found["low"][:, k], found["high"][:, k], alpha=0.2, linewidth=0)
    ax.set(xlabel="t [s]", ylabel=f"quantiles of {settings['of']}")
    ax.legend(frameon=False, fontsize="small")
    return True


def _moments(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> bool:
    """Draw mean, standard deviation and range over time."""
    mean, sd = found["mean"], found["sd"]
    if mean.ndim != 1 or len(mean) != len(ts):
        return False
    ax.fill_between(ts, found["min"], found["max"], alpha=0.15, linewidth=0, label="range")
    ax.fill_between(ts, mean - sd, mean + sd, alpha=0.3, linewidth=0, label="mean ± sd")
    ax.plot(ts, mean, label="mean")
    ax.set(xlabel="t [s]", ylabel=settings["of"])
    ax.legend(frameon=False, fontsize="small")
    return True


def _histogram(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> bool:
    """Draw the density in each bin."""
    counts, edges = found["counts"], found["edges"]
    if counts.ndim != 1:
        return False
    total = counts.sum() + found["below"] + found["above"]
    ax.stairs(counts / np.diff(edges) / max(float(total), 1.0), edges, fill=True, alpha=0.6)
    ax.set(xlabel=settings["of"], ylabel="probability density")
    return True


def _first_passage(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> bool:
    """Draw the probability of having passed over time."""
    ax.fill_between(ts, found["low"], found["high"], step="post", alpha=0.3, linewidth=0)
    ax.step(ts, found["probability"], where="post")
    word = next((key for key in ("above", "below") if settings.get(key) is not None), None)
    what = "has occurred" if word is None else f"was {word} {settings[word]:g}"
    text = f"P({settings['of']} {what})"
    ax.set(xlabel="t [s]", ylabel=text, ylim=(0, None))
    return True


def _sobol(ax: Axes, found: Found, settings: dict[str, Any], ts: np.ndarray) -> bool:
    """Draw first-order and total indices with intervals."""
    place = np.arange(len(found["names"]))
    for k, what in enumerate(("first_order", "total")):
        value, low, high = (found[f"{what}{end}"] for end in ("", "_low", "_high"))
        error = np.maximum([value - low, high - value], 0)
        label = what.replace("_", " ")
        ax.bar(place + 0.4 * k - 0.2, value, 0.4, yerr=error, capsize=3, label=label)
    ax.set_xticks(place, [str(name).partition(".")[2] for name in found["names"]])
    ax.set(ylabel=f"Sobol index of {settings['of']}")
    ax.legend(frameon=False, fontsize="small")
    return True


_DRAWN: dict[Any, Callable[[Axes, Found, dict[str, Any], np.ndarray], bool]] = {
    "quantiles": _quantiles,
    "moments": _moments,
    "histogram": _histogram,
    "first-passage": _first_passage,
    "sobol-indices": _sobol,
}
