"""The pictures of an ensemble's run folder, drawn from its stored arrays and statistics alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.config.run_folder import FolderError
from jaxmech.ensemble import Results
from jaxmech.ensemble.checksums import add_to_seal
from jaxmech.plot.panels import MOST_PANELS, grid, labelled, legend_below, save, single
from jaxmech.plot.trajectories import drift, energy_drift, phase_portrait, quantile_bands
from jaxmech.status import succeeded
from jaxmech.utils.tracers import evenly_spaced
from jaxmech.utils.units import with_unit

Found = dict[str, np.ndarray]
MOST_TRAJECTORIES = 16_384  # suffices for all plotted quantiles
LEAST_TRAJECTORIES = 1024
MOST_TIMES = 257  # more are indistinguishable in a panel
MOST_NUMBERS = 2**22  # numbers of one array held in memory for drawing


def draw_pictures(results: Results) -> list[Path]:
    """Draw all pictures of the stored arrays into `pictures/`, unless no trajectory is good."""
    folder, figures = results.path / "pictures", list[tuple[str, str, Figure]]()
    if results.has_trajectories and np.any(succeeded(results.status)):
        title = _title(results)
        figures = [(name, title, figure) for name, figure in _figures(results)]
    figures += [(f"statistic_{k}", title, figure) for k, title, figure in _of_statistics(results)]
    try:
        files = save(figures, folder) if figures else []
        add_to_seal(results.path, files)
    except OSError as error:
        raise FolderError(
            f"pictures cannot be written to {folder}: {error.strerror or error}; the results are "
            "complete, and `jaxmech plot` draws them later"
        ) from error
    return files


def _figures(results: Results) -> Iterator[tuple[str, Figure]]:
    times = _times(results)
    ts, names = results.ts[times], results.coordinates[:MOST_PANELS]
    limit = _most(results)
    stored = {
        name: results.good(name, times=times, limit=limit)
        for name in ("q", "v", "energy", "position_residual", "velocity_residual")
        if results.has(name)
    }
    q, v, energy = (stored.get(name) for name in ("q", "v", "energy"))
    if q is not None:
        figure, panels = grid(len(names))
        for k, ax in enumerate(panels):
            quantile_bands(ts, q[..., k], name=results.labels[k], ax=ax)
        legend_below(figure, panels[:1], columns=3)
        yield "quantile_bands", figure
    if q is not None and v is not None and not results.velocities:  # but rates of q
        figure, panels = grid(len(names))
        for k, ax in enumerate(panels):
            unit = results.units.get(names[k], "")
            phase_portrait(q[..., k], v[..., k], name=names[k], unit=unit, ax=ax)
        yield "phase_portrait", figure
    if "position_residual" in stored:
        figure, ax = single()
        drift(ts, stored["position_residual"], stored.get("velocity_residual"), ax=ax)
        ax.legend().remove()  # six lines would cover the bands
        legend_below(figure, [ax], columns=2)
        yield "drift", figure
    if energy is not None:
        figure, ax = single()
        if np.isfinite(results.good("energy_drift")).any():
            energy_drift(ts, energy, ax=ax)
        else:
            quantile_bands(ts, energy, name="energy, not conserved [J]", ax=ax)
            ax.legend(frameon=False, fontsize="small")
        yield "energy", figure


def _most(results: Results) -> int:
    # Fewer, the more numbers each trajectory has.
    numbers = len(_times(results)) * len(results.coordinates)
    return min(MOST_TRAJECTORIES, max(MOST_NUMBERS // numbers, LEAST_TRAJECTORIES))


def _times(results: Results) -> np.ndarray:
    return evenly_spaced(len(results.ts), MOST_TIMES)


def _title(results: Results) -> str:
    good, finished = int(np.sum(succeeded(results.status))), len(results.status)
    limit = _most(results)
    drawn = f", the first {limit:,} drawn" if good > limit else ""
    lost = f", {finished - good:,} failed and left out" if finished > good else ""
    part = f" of {results.size:,}" if finished < results.size else ""
    return f"{results.name}: {finished:,}{part} trajectories{drawn}{lost}"


def _of_statistics(results: Results) -> Iterator[tuple[str, str, Figure]]:
    settings = results.config.get("statistics", {})
    for name, values in results.statistics.items():
        draw = _DRAWN.get(settings.get(name, {}).get("statistic"))
        times = _saves(results, settings.get(name, {}))
        if draw is None:
            continue
        figure, ax = single()
        label = with_unit(str(of := settings[name]["of"]), results.unit_of(str(of)))
        if draw(ax, values, settings[name] | {"label": label}, times) is not None:
            yield name, f"{results.name}: {name}", figure


def _saves(results: Results, settings: dict[str, Any]) -> np.ndarray:
    observed = results.config.get("observe", {}).get(str(settings.get("of")), {})
    times = results.config["times"]
    ts = np.linspace(times["start"], times["end"], times["saves"])
    return ts[:: observed.get("every", 1)]


def _quantiles(ax: Axes, values: Found, settings: dict[str, Any], ts: np.ndarray) -> Axes | None:
    bands = values["quantiles"]
    if bands.ndim != 2 or len(bands) != len(ts):
        return None
    for k, p in enumerate(values["at"]):
        ax.plot(ts, bands[:, k], label=f"{100 * p:g} %")
        ax.fill_between(ts, values["low"][:, k], values["high"][:, k], alpha=0.2, linewidth=0)
    return labelled(ax, "t [s]", f"quantiles of {settings['label']}", legend=True)


def _moments(ax: Axes, values: Found, settings: dict[str, Any], ts: np.ndarray) -> Axes | None:
    mean, sd = values["mean"], values["sd"]
    if mean.ndim != 1 or len(mean) != len(ts):
        return None
    ax.fill_between(ts, values["min"], values["max"], alpha=0.15, linewidth=0, label="range")
    ax.fill_between(ts, mean - sd, mean + sd, alpha=0.3, linewidth=0, label="mean ± sd")
    ax.plot(ts, mean, label="mean")
    return labelled(ax, "t [s]", settings["label"], legend=True)


def _histogram(ax: Axes, values: Found, settings: dict[str, Any], ts: np.ndarray) -> Axes | None:
    counts, edges = values["counts"], values["edges"]
    if counts.ndim != 1:
        return None
    total = counts.sum() + values["below"] + values["above"]
    ax.stairs(counts / np.diff(edges) / max(float(total), 1.0), edges, fill=True, alpha=0.6)
    return labelled(ax, settings["label"], "probability density")


def _first_passage(
    ax: Axes, values: Found, settings: dict[str, Any], ts: np.ndarray
) -> Axes | None:
    ax.fill_between(ts, values["low"], values["high"], step="post", alpha=0.3, linewidth=0)
    ax.step(ts, values["probability"], where="post")
    word = next((key for key in ("above", "below") if settings.get(key) is not None), None)
    condition = "has occurred" if word is None else f"was {word} {settings[word]:g}"
    ax.set_ylim(0, None)
    return labelled(ax, "t [s]", f"P({settings['of']} {condition})")


def _sobol(ax: Axes, values: Found, settings: dict[str, Any], ts: np.ndarray) -> Axes | None:
    place = np.arange(len(values["names"]))
    for k, order in enumerate(("first_order", "total")):
        value, low, high = (values[f"{order}{end}"] for end in ("", "_low", "_high"))
        error = np.maximum([value - low, high - value], 0)
        label = order.replace("_", " ")
        ax.bar(place + 0.4 * k - 0.2, value, 0.4, yerr=error, capsize=3, label=label)
    ax.set_xticks(place, [str(name).partition(".")[2] for name in values["names"]])
    return labelled(ax, "", f"Sobol index of {settings['of']}", legend=True)


_DRAWN: dict[Any, Callable[[Axes, Found, dict[str, Any], np.ndarray], Axes | None]] = {
    "quantiles": _quantiles,
    "moments": _moments,
    "histogram": _histogram,
    "first-passage": _first_passage,
    "sobol-indices": _sobol,
}
