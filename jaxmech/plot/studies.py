"""The pictures of studies, drawn from what is stored: trajectories, and each kind of statistic.

`distribution` draws a quantity over the members.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from jaxmech.ensemble import SERIES, Results
from jaxmech.plot.panels import BLUE, ORANGE, Drawing, Panels, axes_or_new, labelled, laid_out
from jaxmech.plot.trajectories import drift, energy_drift, quantile_bands
from jaxmech.status import succeeded
from jaxmech.utils.probing import evenly_spaced
from jaxmech.utils.units import with_unit

MOST_TRAJECTORIES = 4096  # suffices for all plotted quantiles
MOST_TIMES = 257  # more are indistinguishable in a panel
MOST_PANELS = 24
LOW, HIGH = 0.05, 0.95  # the probabilities between which most members lie


def plot_results(results: Results, names: Sequence[str], figure: Figure | None) -> Panels:
    """Draw the panels of `Results.plot`, which explains the arguments."""
    drawings: dict[str, Drawing] = {}
    if np.any(succeeded(results.status)):
        drawings = dict(_coordinates(results)) | dict(_observed(results))
    drawings |= dict(statistic_drawings(results))
    unknown = [name for name in names if name not in drawings]
    if unknown or not drawings:
        raise ValueError(
            "Argument `names` must be of coordinates or statistics that can be drawn, which are "
            f"{', '.join(drawings) or 'none'}; {', '.join(map(repr, unknown)) or 'store some'}."
        )
    chosen = {name: drawings[name] for name in names or [*drawings][:MOST_PANELS]}
    good, finished = int(np.sum(succeeded(results.status))), len(results.status)
    drawn = f", the first {MOST_TRAJECTORIES:,} drawn" if good > MOST_TRAJECTORIES else ""
    lost = f", {finished - good:,} failed and left out" if finished > good else ""
    part = f" of {results.size:,}" if finished < results.size else ""
    title = f"{results.name}: {finished:,}{part} trajectories{drawn}{lost}"
    return laid_out(chosen, title, figure=figure, is_shown=True)


def trajectory_figures(results: Results) -> Iterator[tuple[str, Figure]]:
    """The grids of stored trajectories, each with its name."""
    for name, drawings in (
        ("quantile_bands", _coordinates(results)), ("observed_bands", _observed(results))
    ):  # fmt: skip
        if chosen := dict(islice(drawings, MOST_PANELS)):
            yield name, laid_out(chosen).figure


def trust_drawings(results: Results) -> Iterator[tuple[str, Callable[..., Axes]]]:
    """How residuals and energies are drawn over time, where they are stored."""
    if (stored := _stored(results, "position_residual")) is not None:
        velocity = _stored(results, "velocity_residual")
        yield "drift", partial(drift, *stored, None if velocity is None else velocity[1])
    if (stored := _stored(results, "energy")) is not None:
        if np.isfinite(results.good("energy_drift")).any():
            yield "energy", partial(energy_drift, *stored)
        else:
            yield "energy", partial(quantile_bands, *stored, name="energy, not conserved [J]")


def _stored(results: Results, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The times that are drawn, and a series of good trajectories there, if it is stored."""
    if not results.has(name):
        return None
    times = evenly_spaced(len(results.ts), MOST_TIMES)
    return results.ts[times], np.asarray(results.good(name, times=times, limit=MOST_TRAJECTORIES))


def _coordinates(results: Results) -> Iterator[tuple[str, Drawing]]:
    """How the quantiles of the coordinates are drawn over time."""
    if (stored := _stored(results, "q")) is not None:
        for k, name in enumerate(results.coordinates):
            yield name, _bands(stored[0], stored[1][..., k], results.labels[k])


def _observed(results: Results) -> Iterator[tuple[str, Drawing]]:
    """How the observed quantities with a number at each of several times are drawn."""
    for name in results.config.get("observe", {}):
        is_series = results.has(name) and results.dims(name) == ("trajectory", "time")
        if is_series and len(results.ts) > 1:
            stored = _stored(results, name)
            assert stored is not None
            known = stored[1][np.isfinite(stored[1]).all(axis=1)]
            if len(known):
                yield name, _bands(stored[0], known, with_unit(name, results.unit_of(name)))


def _bands(ts: np.ndarray, values: np.ndarray, label: str) -> Drawing:
    return lambda ax: quantile_bands(ts, values, name=label, ax=ax)


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
