"""Pictures of one trajectory of a study: coordinates, residuals, energy, and an animation."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from jaxmech.ensemble import ReplayedTrajectory
from jaxmech.plot.animate import animate
from jaxmech.plot.panels import MOST_PANELS, grid, labelled, save, single
from jaxmech.plot.style import BLUE, ORANGE
from jaxmech.status import succeeded

_SECONDS, _FPS = 5.0, 12.5  # of an animation, for very short or long motions


def draw_replay(trajectory: ReplayedTrajectory, folder: Path) -> list[Path]:
    """Draw a trajectory into a new folder, and animate it if its model has a geometry."""
    figures = [(name, _title(trajectory), figure) for name, figure in _figures(trajectory)]
    return [*save(figures, folder), *_animated(trajectory, folder)]


def _title(trajectory: ReplayedTrajectory) -> str:
    title = f"{trajectory.results.name}: trajectory {trajectory.index:,}"
    if succeeded(trajectory.status):
        return title
    return f"{title}, {trajectory.status.name} at t = {float(trajectory.values['t_failed']):.4g} s"


def _figures(trajectory: ReplayedTrajectory) -> Iterator[tuple[str, Figure]]:
    ts, values = trajectory.ts, trajectory.values
    names = trajectory.results.labels[:MOST_PANELS]
    figure, panels = grid(len(names))
    for k, ax in enumerate(panels):
        ax.plot(ts, values["q"][:, k], color=BLUE, linewidth=1.2)
        labelled(ax, "t [s]", names[k])
    yield "coordinates", figure
    figure, ax = single()
    smallest = np.finfo(float).tiny
    for name, color in (("position_residual", BLUE), ("velocity_residual", ORANGE)):
        size = np.maximum(values[name], smallest)
        ax.semilogy(ts, size, color=color, label=name.replace("_", " "))
    labelled(ax, "t [s]", "constraint residual", legend=True)
    yield "residuals", figure
    figure, ax = single()
    ax.plot(ts, values["energy"], color=BLUE)
    labelled(ax, "t [s]", "energy [J]")
    yield "energy", figure


def _animated(trajectory: ReplayedTrajectory, folder: Path) -> list[Path]:
    model = trajectory.subject.model
    if model is None or model.geometry is None or trajectory.last_good < 1:
        return []
    motion, span = (
        (trajectory.ts, trajectory.values["q"]),
        float(trajectory.ts[-1] - trajectory.ts[0]),
    )
    speed = 1.0 if 1.0 <= span <= _SECONDS else span / _SECONDS
    animation = animate(model, motion, trajectory.params, speed=speed, fps=_FPS)
    return [animation.save(folder / "motion.gif", progress=False)]
