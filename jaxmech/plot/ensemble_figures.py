"""The pictures of studies, drawn from what is stored."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from jaxmech.ensemble import Results, array_of
from jaxmech.plot.panels import Drawing, Panels, laid_out, legend_below, legend_of, single
from jaxmech.plot.statistics import statistic_drawings
from jaxmech.plot.trajectories import drift, energy_drift, quantile_bands
from jaxmech.status import succeeded
from jaxmech.utils.tracers import evenly_spaced
from jaxmech.utils.units import with_unit

MOST_TRAJECTORIES = 16_384  # suffices for all plotted quantiles
LEAST_TRAJECTORIES = 1024
MOST_TIMES = 257  # more are indistinguishable in a panel
MOST_NUMBERS = 2**22  # numbers of one array held in memory for drawing


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
    chosen = {name: drawings[name] for name in names or drawings}
    return laid_out(chosen, _title(results), figure=figure, is_shown=True)


def trajectory_figures(results: Results) -> Iterator[tuple[str, Figure]]:
    """The pictures of stored trajectories, each with its name."""
    for name, drawings in (
        ("quantile_bands", dict(_coordinates(results))),
        ("observed_bands", dict(_observed(results))),
    ):
        if drawings:
            yield name, laid_out(drawings).figure
    if (stored := _stored(results, "position_residual")) is not None:
        figure, ax = single()
        velocity = _stored(results, "velocity_residual")
        drift(*stored, None if velocity is None else velocity[1], ax=ax)
        ax.legend().remove()  # six lines would cover the bands
        legend_below(figure, [ax], columns=2)
        yield "drift", figure
    if (stored := _stored(results, "energy")) is not None:
        figure, ax = single()
        if np.isfinite(results.good("energy_drift")).any():
            energy_drift(*stored, ax=ax)
        else:
            quantile_bands(*stored, name="energy, not conserved [J]", ax=ax)
            legend_of(ax)
        yield "energy", figure


def _stored(results: Results, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The times that are drawn, and a series of good trajectories there, if it is stored."""
    if not results.has(name):
        return None
    times = evenly_spaced(len(results.ts), MOST_TIMES)
    return results.ts[times], np.asarray(results.good(name, times=times, limit=_most(results)))


def _coordinates(results: Results) -> Iterator[tuple[str, Drawing]]:
    """How the quantiles of the coordinates are drawn over time."""
    if (stored := _stored(results, "q")) is not None:
        for k, name in enumerate(results.coordinates):
            yield name, _bands(stored[0], stored[1][..., k], results.labels[k])


def _observed(results: Results) -> Iterator[tuple[str, Drawing]]:
    """How the observed quantities with a number at each of several times are drawn."""
    for name in results.config.get("observe", {}):
        shape = array_of(results.group, name).shape if results.has(name) else ()
        if len(shape) == 2 and 1 < shape[1] == len(results.ts):
            stored = _stored(results, name)
            assert stored is not None
            known = stored[1][np.isfinite(stored[1]).all(axis=1)]
            if len(known):
                yield name, _bands(stored[0], known, with_unit(name, results.unit_of(name)))


def _bands(ts: np.ndarray, values: np.ndarray, label: str) -> Drawing:
    return lambda ax: quantile_bands(ts, values, name=label, ax=ax)


def _most(results: Results) -> int:
    # Fewer, the more numbers each trajectory has.
    numbers = min(len(results.ts), MOST_TIMES) * len(results.coordinates)
    return min(MOST_TRAJECTORIES, max(MOST_NUMBERS // numbers, LEAST_TRAJECTORIES))


def _title(results: Results) -> str:
    good, finished = int(np.sum(succeeded(results.status))), len(results.status)
    limit = _most(results)
    drawn = f", the first {limit:,} drawn" if good > limit else ""
    lost = f", {finished - good:,} failed and left out" if finished > good else ""
    part = f" of {results.size:,}" if finished < results.size else ""
    return f"{results.name}: {finished:,}{part} trajectories{drawn}{lost}"
