"""The pictures of an ensemble's run folder, drawn from the stored results alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from jaxmech.config.run_folder import FolderError
from jaxmech.ensemble import Results
from jaxmech.plot.ensemble_statistics import of_statistics
from jaxmech.plot.panels import MOST_PANELS, grid, legend_below, save, single
from jaxmech.plot.trajectories import drift, energy_drift, phase_portrait, quantile_bands
from jaxmech.status import succeeded
from jaxmech.utils.tracers import evenly_spaced

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
    figures += [(f"statistic_{k}", title, figure) for k, title, figure in of_statistics(results)]
    try:
        return save(figures, folder) if figures else []
    except OSError as error:
        raise FolderError(
            f"pictures cannot be written to {folder}: {error.strerror or error}; the results are "
            "complete, and `jaxmech plot` draws them later"
        ) from error


def _figures(results: Results) -> Iterator[tuple[str, Figure]]:
    shown = _times(results)
    ts, names = results.ts[shown], results.coordinates[:MOST_PANELS]
    most = _most(results)
    stored = {
        name: results.good(name, times=shown, most=most)
        for name in ("q", "v", "energy", "position_residual", "velocity_residual")
        if results.has(name)
    }
    q, v, energy = (stored.get(name) for name in ("q", "v", "energy"))
    if q is not None:
        figure, panels = grid(len(names))
        for k, ax in enumerate(panels):
            quantile_bands(ts, q[..., k], name=names[k], ax=ax)
        legend_below(figure, panels[0], columns=3)
        yield "quantile_bands", figure
    if q is not None and v is not None:
        figure, panels = grid(len(names))
        for k, ax in enumerate(panels):
            phase_portrait(q[..., k], v[..., k], name=names[k], ax=ax)
        yield "phase_portrait", figure
    if "position_residual" in stored:
        figure, ax = single()
        drift(ts, stored["position_residual"], stored.get("velocity_residual"), ax=ax)
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
    """The number of trajectories drawn: fewer, the more numbers each has."""
    numbers = len(_times(results)) * len(results.coordinates)
    return min(MOST_TRAJECTORIES, max(MOST_NUMBERS // numbers, LEAST_TRAJECTORIES))


def _times(results: Results) -> np.ndarray:
    """The indices of the saved times that are drawn, including the first and the last one."""
    return evenly_spaced(len(results.ts), MOST_TIMES)


def _title(results: Results) -> str:
    good, done = int(np.sum(succeeded(results.status))), len(results.status)
    most = _most(results)
    drawn = f", the first {most:,} drawn" if good > most else ""
    lost = f", {done - good:,} failed and left out" if done > good else ""
    part = f" of {results.size:,}" if done < results.size else ""
    return f"{results.name}: {done:,}{part} trajectories{drawn}{lost}"
