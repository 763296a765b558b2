"""The pictures of a run folder, drawn from what is stored there and nothing else."""

from collections.abc import Iterator
from math import ceil
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.config.run_folder import FolderError
from jaxmech.ensemble import Results
from jaxmech.plot.trajectories import drift, energy_drift, phase_portrait, quantile_bands
from jaxmech.status import Status

MOST_TRAJECTORIES = 16_384  # enough for any quantile that is drawn
MOST_PANELS = 24


def draw_pictures(results: Results) -> list[Path]:
    """Draws everything that the stored arrays allow into the folder `pictures/` of the run.

    Args:
        results: the run, from `open_results`; it need not be finished.

    Returns:
        The files, none if no trajectory is good.

    Raises:
        FolderError: what is stored is damaged, or the pictures cannot be written.
    """
    if not np.any(results.status == Status.OK):
        return []
    folder = results.path / "pictures"
    files = []
    try:
        folder.mkdir(exist_ok=True)
        for name, figure in _figures(results):
            figure.suptitle(_title(results), fontsize="medium")
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=130)
    except OSError as error:
        for file in files[-1:]:  # half a picture
            file.unlink(missing_ok=True)
        raise FolderError(
            f"pictures cannot be written to {folder}: {error.strerror or error}; the results are "
            "whole, and `jaxmech plot` draws them later"
        ) from error
    return files


def _figures(results: Results) -> Iterator[tuple[str, Figure]]:
    ts, names = results.ts, results.coordinates[:MOST_PANELS]
    stored = {
        name: results.good(name, most=MOST_TRAJECTORIES)
        for name in ("q", "v", "energy", "position_residual", "velocity_residual")
        if results.has(name)
    }
    q, v, energy = (stored.get(name) for name in ("q", "v", "energy"))
    if q is not None:
        yield "quantile_bands", _all_bands(ts, q, names)
    if q is not None and v is not None:
        yield "phase_portrait", _all_portraits(q, v, names)
    if "position_residual" in stored:
        figure, ax = _single()
        drift(ts, stored["position_residual"], stored.get("velocity_residual"), ax=ax)
        yield "drift", figure
    if energy is not None:
        figure, ax = _single()
        if np.isfinite(results.good("energy_drift")).any():
            energy_drift(ts, energy, ax=ax)
        else:
            quantile_bands(ts, energy, name="energy, not conserved [J]", ax=ax)
            ax.legend(frameon=False, fontsize="small")
        yield "energy", figure


def _all_bands(ts: np.ndarray, q: np.ndarray, names: tuple[str, ...]) -> Figure:
    figure, panels = _panels(len(names))
    for k, ax in enumerate(panels):
        quantile_bands(ts, q[..., k], name=names[k], ax=ax)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _all_portraits(q: np.ndarray, v: np.ndarray, names: tuple[str, ...]) -> Figure:
    figure, panels = _panels(len(names))
    for k, ax in enumerate(panels):
        phase_portrait(q[..., k], v[..., k], name=names[k], ax=ax)
    return figure


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    """One small panel per coordinate."""
    columns = min(count, 2 if count <= 4 else 4)
    rows = ceil(count / columns)
    figure = Figure(figsize=(max(3.0 * columns, 5.0), 2.3 * rows + 0.6), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in panels[count:]:
        ax.axis("off")
    return figure, panels[:count]


def _single() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    return figure, figure.subplots()


def _title(results: Results) -> str:
    good, done = int(np.sum(results.status == Status.OK)), len(results.status)
    drawn = f", the first {MOST_TRAJECTORIES:,} drawn" if good > MOST_TRAJECTORIES else ""
    lost = f", {done - good:,} failed and left out" if done > good else ""
    part = f" of {results.size:,}" if done < results.size else ""
    return f"{results.name}: {done:,}{part} trajectories{drawn}{lost}"
