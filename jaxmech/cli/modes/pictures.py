"""The pictures of a study of eigenvalues."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.analysis.equilibrium import Stability
from jaxmech.cli.modes.members import Members
from jaxmech.plot import panels
from jaxmech.plot.eigenvalues import poles
from jaxmech.plot.panels import BLUE, GREY, MOST_PANELS, ORANGE
from jaxmech.utils.trees import entry_names

_BINS = 40
_LABELS = {"coordinates": "guess of ", "velocities": "rate of "}


def draw_members(sample: Members, summary: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the eigenvalues, and who is unstable over each scattered number, into a folder."""
    return panels.save(
        ((name, _title(summary), figure) for name, figure in _figures(sample)), folder
    )


def _title(summary: dict[str, Any]) -> str:
    title = f"{summary['model']}: {summary['size']:,} members"
    if summary["judged"]:
        low, high = summary["interval"]
        title += f", unstable with probability {low:.3g} to {high:.3g}"
    return title


def _figures(sample: Members) -> Iterator[tuple[str, Figure]]:
    if sample.has_verdict.any():
        figure, ax = panels.single()
        poles(sample.eigenvalues, ax=ax)
        yield "poles", figure
    columns = list(_scattered(sample))[:MOST_PANELS]
    figure, axes = panels.grid(len(columns))
    for (name, values), ax in zip(columns, axes, strict=True):
        _verdicts(sample, name, values, ax)
    panels.legend_below(figure, axes[0], columns=3)
    yield "verdicts", figure


def _scattered(sample: Members) -> Iterator[tuple[str, np.ndarray]]:
    """(name, values) of every number that differs between members."""
    for variable in sample.variables:
        for index in np.ndindex(variable.values.shape[1:] if variable.varies else (0,)):
            values = variable.values[(slice(None), *index)]
            if values.min() < values.max():
                name = _LABELS.get(variable.section, "") + variable.name
                yield entry_names(name, [index])[0], values


def _verdicts(sample: Members, name: str, values: np.ndarray, ax: Axes) -> None:
    """A histogram of one number, stacked by verdict."""
    unstable = sample.stability == Stability.UNSTABLE
    groups = (
        (sample.has_verdict & ~unstable, BLUE, "not unstable"),
        (unstable, ORANGE, "unstable"),
        (~sample.has_verdict, GREY, "no verdict"),
    )
    layers = [
        (values[selected], color, label) for selected, color, label in groups if selected.any()
    ]
    numbers, colors, labels = zip(*layers, strict=True)
    ax.hist(numbers, _BINS, stacked=True, color=colors, label=labels)
    panels.labelled(ax, name, "members")
