"""The picture of `jaxmech audit`: gaps of soft loops, and how far bodies are off."""

from pathlib import Path

import numpy as np

from jaxmech.cli.audit.deviation import Deviation
from jaxmech.plot.panels import grid, labelled, save
from jaxmech.plot.style import COLORS

MOST_LINES = len(COLORS)


def draw(comparison: Deviation, title: str, folder: Path) -> Path:
    """Write loops.png into a folder."""
    figure, axes = grid(2)
    pairs = (
        (axes[0], comparison.gaps, "gap of the loop [m, rad]"),
        (axes[1], comparison.distances, "body off by [m]"),
    )
    for ax, values, label in pairs:
        largest = sorted(values, key=lambda name: -values[name].max())[:MOST_LINES]
        for name, color in zip(largest, COLORS, strict=False):
            positive = np.where(values[name] > 0, values[name], np.nan)
            ax.semilogy(comparison.ts, positive, color=color, linewidth=1.2, label=name)
        labelled(ax, "t [s]", label, legend=True)
    folder.mkdir(parents=True, exist_ok=True)
    return save([("loops", f"{title}: MuJoCo's soft loops against rigid ones", figure)], folder)[0]
