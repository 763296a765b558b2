"""The pictures of a failure probability: its methods, its levels and what it depends on."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from jaxmech.ensemble import FailureEstimate, FailureProbability
from jaxmech.plot.panels import save, single
from jaxmech.plot.style import BLUE, GREY, legend_of

_MOST = 12  # variables that are shown


def draw_failure(result: FailureProbability, folder: Path) -> list[Path]:
    """Draw all pictures of a result into a folder."""
    title = f"probability of failure {result.probability:.3g}"
    return save([(name, title, figure) for name, figure in failure_figures(result)], folder)


def failure_figures(result: FailureProbability) -> Iterator[tuple[str, Figure]]:
    """The pictures of a result, by name."""
    yield "methods", _methods(result)
    if leveled := [x for x in result.estimates if len(x.levels) > 1]:
        yield "levels", _levels(leveled[-1])
    if result.design_points:
        yield "importance", _importance(result)


def _methods(result: FailureProbability) -> Figure:
    """The probability by every method, with its interval where there is one."""
    figure, ax = single()
    for k, estimate in enumerate(result.estimates):
        low, high = estimate.interval(result.confidence)
        if np.isfinite([low, high]).all():
            ax.plot([low, high], [k, k], color=GREY)
        ax.plot([estimate.probability], [k], "o", color=BLUE)
    ax.set_yticks(range(len(result.estimates)), [x.method for x in result.estimates])
    ax.set(xscale="log", xlabel="probability of failure")
    ax.margins(y=0.2)
    return figure


def _levels(estimate: FailureEstimate) -> Figure:
    """The probability that the margin is at most a threshold, level by level."""
    figure, ax = single()
    probabilities = np.cumprod([level.probability for level in estimate.levels])
    ax.plot([level.threshold for level in estimate.levels], probabilities, "o-")
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    ax.set(yscale="log", xlabel="margin at most", ylabel=f"probability ({estimate.method})")
    return figure


def _importance(result: FailureProbability) -> Figure:
    """The importance factors of the variables at each design point."""
    figure, ax = single()
    first = result.design_points[0].importance
    names = sorted(first, key=lambda name: first[name])[-_MOST:]
    count = len(result.design_points)
    for k, point in enumerate(result.design_points):
        heights = np.arange(len(names)) + (k - (count - 1) / 2) * 0.8 / count
        label = f"β = {point.index:.2f}"
        ax.barh(heights, [point.importance[name] for name in names], 0.8 / count, label=label)
    ax.set_yticks(range(len(names)), [name.partition(".")[2] for name in names])
    ax.set_xlabel("importance factor")
    legend_of(ax)
    return figure
