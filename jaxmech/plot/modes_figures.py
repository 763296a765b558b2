"""The pictures of a study of eigenvalues."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.analysis.equilibrium import Stability
from jaxmech.ensemble import Results
from jaxmech.ensemble.layout import array_of
from jaxmech.plot import panels
from jaxmech.plot.eigenvalues import poles
from jaxmech.plot.panels import BLUE, GREY, MOST_PANELS, ORANGE
from jaxmech.utils.trees import entry_names

_BINS = 40
_LABELS = {"start": "", "coordinate": "guess of ", "velocity": "rate of ", "parameter": ""}


def modes_title(results: Results) -> str:
    """The title of all pictures of a run."""
    summary = results.summary
    title = f"{results.name}: {len(results.status):,} members"
    if summary.get("interval"):
        low, high = summary["interval"]
        title += f", unstable with probability {low:.3g} to {high:.3g}"
    return title


def modes_figures(results: Results) -> Iterator[tuple[str, Figure]]:
    """The eigenvalues, and who is unstable over each scattered number, by name."""
    if results.is_good.any():
        figure, ax = panels.single()
        poles(results.all_of("eigenvalues"), ax=ax)
        yield "poles", figure
    columns = list(_scattered(results))[:MOST_PANELS]
    figure, axes = panels.grid(len(columns))
    for (name, values), ax in zip(columns, axes, strict=True):
        _verdicts(results.all_of("stability"), name, values, ax)
    panels.legend_below(figure, axes[:1], columns=3)
    yield "verdicts", figure


def _scattered(results: Results) -> Iterator[tuple[str, np.ndarray]]:
    for array in results.group:
        section, _, variable = array.partition("_")
        if section not in _LABELS or array_of(results.group, array).shape[:1] != (results.size,):
            continue
        draws = results.all_of(array)
        for index in np.ndindex(draws.shape[1:]):
            values = draws[(slice(None), *index)]
            if values.min() < values.max():
                yield entry_names(_LABELS[section] + variable, [index])[0], values


def _verdicts(stability: np.ndarray, name: str, values: np.ndarray, ax: Axes) -> None:
    unstable, has_verdict = stability == Stability.UNSTABLE, stability != Stability.UNKNOWN
    groups = (
        (has_verdict & ~unstable, BLUE, "not unstable"),
        (unstable, ORANGE, "unstable"),
        (~has_verdict, GREY, "no verdict"),
    )
    bars = [(values[mask], color, label) for mask, color, label in groups if mask.any()]
    numbers, colors, labels = zip(*bars, strict=True)
    ax.hist(numbers, _BINS, stacked=True, color=colors, label=labels)
    panels.labelled(ax, name, "members")
