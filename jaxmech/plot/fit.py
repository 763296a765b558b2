"""Plots of a fit: measured and fitted motion, residuals."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.identify import Fit, Recording
from jaxmech.plot.panels import (
    COLORS,
    GREY,
    Drawing,
    Panels,
    axes_or_new,
    grouped_by_unit,
    labelled,
    laid_out,
    unit_of,
)

_NAMES = 3  # of sensors in the label of an axis
_GAP = 4.0  # in usual steps
_SHOWN = 3  # recordings, and as many of the validation
_WIDTH, _HEIGHT = 4.5, 2.3  # of a panel [inches]
_MOST_MARKS = 200  # measurements drawn of one recording; more would merge into a line


def fit_over_data(
    fit: Fit, recording: int = 0, *, validation: bool = False, sensors: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw the measurements of a recording as dots and the fitted motion as lines.

    Sensors of other units, by names such as "angle [rad]", have axes of their own below, where the
    axes are part of a grid.

    Args:
        fit: the fit.
        recording: index of the recording.
        validation: whether `recording` is the index of a validation recording, simulated from its
            recorded initial state; the others are simulated from their fitted ones.
        sensors: names for the legend, in place of those of the recording.
        ax: axes to draw into; the topmost of several is returned.

    Raises:
        ValueError: if the recording does not exist.
    """
    ax = axes_or_new(ax)
    return _draw(fit, recording, validation, sensors, ax, is_misfit=False)


def residuals(
    fit: Fit, recording: int = 0, *, validation: bool = False, sensors: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw the residuals of a recording over time, predicted - measured: noise, if the model fits.

    All arguments are those of `fit_over_data`.
    """
    ax = axes_or_new(ax)
    return _draw(fit, recording, validation, sensors, ax, is_misfit=True)


def plot_fit(fit: Fit, sensors: Sequence[str], figure: Figure | None) -> Panels:
    """Draw the panels of `Fit.plot`, which explains the arguments.

    They are the first recordings of the fit and of the validation, each beside its residuals.
    """
    drawings: dict[str, Drawing] = {}
    heights = []
    for part, note in ((fit.train, ""), (fit.validation, ", validation")):
        for k, shown in enumerate(part.recordings[:_SHOWN]):
            which: Any = {"recording": k, "validation": bool(note), "sensors": sensors}
            title = f"{shown.name}{note}"
            title += f" ({k + 1})" if title in drawings else ""  # names need not differ
            drawings[title] = partial(fit_over_data, fit, **which)
            drawings[f"{title} residuals"] = partial(residuals, fit, **which)
            heights.append(_HEIGHT * (1 + len(grouped_by_unit(_names(shown, sensors)))) / 2)
    return laid_out(
        drawings, figure=figure, is_shown=True, columns=2, width=_WIDTH, heights=heights, legend=4
    )


def _draw(
    fit: Fit, recording: int, validation: bool, sensors: Sequence[str], ax: Axes, *,
    is_misfit: bool,
) -> Axes:  # fmt: skip
    """Draw a recording or its residuals, each unit of its sensors in axes of its own."""
    part = fit.validation if validation else fit.train
    count = len(part.recordings)
    if not 0 <= recording < count:
        raise ValueError(
            f"Argument `recording` must be a number from 0 to {count - 1}, but is {recording}."
            if count
            else "Argument `validation` must be False: the fit has no validation recordings."
        )
    samples, values = part.recordings[recording], part.values[recording]
    residual, measured = part.residuals[recording], np.isfinite(samples.observed)
    names = _names(samples, sensors)
    groups = grouped_by_unit(names)
    # NaN of a failed prediction is not left out.
    squares = [residual[:, group][measured[:, group]] ** 2 for group in groups]
    spread = ", ".join(f"{np.sqrt(x.mean()):.3g}" for x in squares)
    note = ", validation" if validation else ""
    ax.set_title(f"{samples.name}{note}: RMS {spread}", fontsize="small")
    axes = _divided(ax, len(groups))
    before, alone = "", "measured and fitted"
    if is_misfit:
        before, alone = "residual of\n", "predicted - measured"
    for ax, group in zip(axes, groups, strict=True):
        if is_misfit:
            ax.axhline(0, color=GREY, linewidth=0.6)
        for k in group:
            name, color = names[k], COLORS[k % len(COLORS)]
            if is_misfit:
                known = np.isfinite(residual[:, k])
                line = _interrupted(samples.ts[known], residual[known, k])
                ax.plot(*line, color=color, linewidth=0.9, label=name or None)
                continue
            seen = np.flatnonzero(measured[:, k])
            shown = seen[:: -(-seen.size // _MOST_MARKS) or 1]
            dots = samples.ts[shown], samples.observed[shown, k]
            label = f"{name} measured".strip()
            ax.plot(*dots, ".", color=color, markersize=3, alpha=0.45, label=label)
            motion = _interrupted(samples.ts, values[:, k])
            ax.plot(*motion, color=color, linewidth=1.2, label=f"{name} fit".strip())
        unit, named = unit_of(names[group[0]]), [names[k] for k in group]
        if len(named) > _NAMES:
            named = [named[0], "...", named[-1]]
        label = f"{alone} [{unit}]" if unit else alone
        if len(set(axes)) > 1:
            label = before + ", ".join(named)
        labelled(ax, "t [s]" if ax is axes[-1] else "", label)
    return axes[0]


def _names(recording: Recording, sensors: Sequence[str]) -> Sequence[str]:
    """The names of the sensors of a recording; empty for a single one without a name."""
    count = recording.observed.shape[1]
    unnamed = [""] if count == 1 else [f"sensor {k}" for k in range(count)]
    return sensors or recording.sensors or unnamed


def _divided(ax: Axes, count: int) -> list[Axes]:
    """Divide the area of axes in a figure among several with the same times, from the top."""
    slot, figure = ax.get_subplotspec(), ax.get_figure()
    if count == 1 or slot is None or figure is None:
        return [ax] * count  # axes that are not part of a grid cannot be divided
    rows = slot.subgridspec(count, 1, hspace=0.08)
    ax.set_subplotspec(rows[0])
    parts = [ax, *(figure.add_subplot(rows[k], sharex=ax) for k in range(1, count))]
    for part in parts[:-1]:
        part.tick_params(labelbottom=False)
    return parts


def _interrupted(ts: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples (T,) with an unknown one in each gap of their times, where a line is interrupted.

    A gap is several times as long as the usual step.
    """
    steps = np.diff(ts)
    gaps = np.flatnonzero(steps > _GAP * np.median(steps)) if steps.size else steps.astype(int)
    middles = (ts[gaps] + ts[gaps + 1]) / 2 if gaps.size else ts[:0]
    return np.insert(ts, gaps + 1, middles), np.insert(values, gaps + 1, np.nan)
