"""Plots of a fit: measured and fitted motion, residuals, loss.

Fitted parameters are drawn with their intervals, beside their bounds and priors.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmech.identify import Fit
from jaxmech.plot.panels import (
    BLUE,
    COLORS,
    GREY,
    ORANGE,
    Panels,
    add_axes,
    axes_or_new,
    labelled,
    legend_below,
    new_figure,
    sensor_groups,
    shown_figure,
    unit_of,
)

_PRIOR = "#DDE2E6"
_NAMES = 3  # of sensors in the label of an axis
_GAP = 4.0  # in usual steps
_MOST_PARAMETERS = 24
_INTERVALS_WIDTH, _ROW = 7.0, 0.62  # inches
_NEAR = 3.0  # lengths of what is drawn within which a bound is drawn too
_NORMAL = 1.96  # of a prior, so that it compares with an interval of 95 %


def parameter_intervals(fit: Fit) -> Figure:
    """Draw each fitted number in a row of its own scale.

    A dot with a bar is the value with its interval of 95 %, the one to rely on. The light bar
    behind it is the interval of the prior, and the orange side is beyond a bound. A number that
    the recordings do not determine is an empty dot.

    Args:
        fit: the fit, of which the first 24 numbers are drawn.
    """
    count = min(len(fit.names), _MOST_PARAMETERS)
    figure = new_figure(_INTERVALS_WIDTH, _ROW * count + 0.5)
    intervals = fit.uncertainty.reliable_interval()
    for k in range(count):
        ax, value = add_axes(figure, (count, 1, k + 1)), float(fit.values[k])
        mean, sd = fit.priors[k]
        drawn = [value]
        if fit.uncertainty.determined[k]:
            drawn += [*intervals[k]]
        if np.isfinite(sd):
            drawn += [mean - _NORMAL * sd, mean + _NORMAL * sd]
            ax.barh(0, 2 * _NORMAL * sd, 0.8, mean - _NORMAL * sd, color=_PRIOR, label="prior")
        if fit.uncertainty.determined[k]:
            label, error = "value and its interval", np.abs(intervals[k] - value)[:, None]
            ax.errorbar([value], [0], xerr=error, fmt="o", color=BLUE, capsize=4, label=label)
        else:
            ax.plot([value], [0], "o", color=GREY, markerfacecolor="none", label="not determined")
        # The axis has what is drawn, bounds near it, and some room.
        low, high = min(drawn), max(drawn)
        span = (high - low) or abs(value) or 1.0
        bounds = fit.bounds[k]
        near = [x for x in bounds if low - _NEAR * span <= x <= high + _NEAR * span]
        low, high = min([low, *near]), max([high, *near])
        room = 0.12 * ((high - low) or span)
        ax.set_xlim(low - room, high + room)
        for bound, end in zip(bounds, ax.get_xlim(), strict=True):
            if bound in near:
                ends, label = sorted((bound, end)), "beyond a bound"
                ax.axvspan(*ends, color=ORANGE, alpha=0.25, linewidth=0, label=label)
        ax.set_ylim(-0.8, 0.8)
        ax.set_yticks([])
        ax.set_ylabel(fit.names[k], rotation=0, ha="right", va="center")
        ax.spines["left"].set_visible(False)
        ax.xaxis.set_major_locator(MaxNLocator(6))
        if fit.names[k] in fit.optimization.at_bound:
            ax.set_title("at its bound", fontsize="small", color=ORANGE)
    legend_below(figure, figure.axes, columns=4)
    return figure


_SHOWN = 3  # recordings, and as many of the validation
_WIDTH, _HEIGHT = 9.0, 2.3  # inches
_MOST_MARKS = 200  # measurements drawn of one recording; more would merge into a line


def fit_over_data(
    fit: Fit, recording: int = 0, *, validation: bool = False, sensors: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw the measurements of a recording as dots and the fitted motion as lines.

    Sensors of other units, by names such as "angle [rad]", or else of another size have axes of
    their own below, where the axes are part of a grid.

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
    return _axes_of(fit, recording, validation, sensors, ax, is_misfit=False)[0]


def residuals(
    fit: Fit, recording: int = 0, *, validation: bool = False, sensors: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw the residuals of a recording over time, predicted - measured: noise, if the model fits.

    All arguments are those of `fit_over_data`.
    """
    ax = axes_or_new(ax)
    return _axes_of(fit, recording, validation, sensors, ax, is_misfit=True)[0]


def loss(fit: Fit, *, ax: Axes | None = None) -> Axes:
    """Draw half the sum of squared residuals after each step, logarithmic.

    Args:
        fit: the fit.
        ax: axes to draw into.
    """
    ax = axes_or_new(ax)
    mark = "o" if len(fit.optimization.history) <= _MOST_MARKS else ""
    steps = np.arange(len(fit.optimization.history))
    ax.plot(steps, fit.optimization.history, color=BLUE, linewidth=1.2, marker=mark, markersize=3)
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    labelled(ax, "step", "loss")
    ax.margins(x=0.02)
    return ax


def plot_fit(fit: Fit, sensors: Sequence[str], figure: Figure | None) -> Panels:
    """Draw the panels of `Fit.plot`, which explains the arguments.

    They are the first recordings of the fit and of the validation, each beside its residuals.
    """
    shown = [
        (one.name, k, is_validation)
        for is_validation, part in ((False, fit.train), (True, fit.validation))
        for k, one in enumerate(part.recordings[:_SHOWN])
    ]
    is_own = figure is None
    figure = figure or shown_figure(_WIDTH, _HEIGHT * len(shown) + 0.6)
    axes: dict[str, Axes] = {}
    stacks: list[list[Axes]] = []
    for row, (name, k, is_validation) in enumerate(shown):
        for is_misfit, label in enumerate(("", " residuals")):
            ax = add_axes(figure, (len(shown), 2, 2 * row + is_misfit + 1))
            stacks.append(_axes_of(fit, k, is_validation, sensors, ax, is_misfit=bool(is_misfit)))
            if is_validation:
                ax.set_title(f"{ax.get_title()}, validation", fontsize="small")
            key = f"{name}{', validation' if is_validation else ''}{label}"
            axes |= {f"{key} {j}" if j else key: ax for j, ax in enumerate(stacks[-1])}
            stacks[-1][-1].set_xlabel("t [s]" if row == len(shown) - 1 else "")
    if is_own:
        most_axes = max(map(len, stacks))
        figure.set_size_inches(_WIDTH, figure.get_figheight() * (1 + most_axes) / 2)
    legend_below(figure, stacks[0], columns=4)
    return Panels(figure, axes)


def _axes_of(
    fit: Fit, recording: int, validation: bool, sensors: Sequence[str], ax: Axes, *,
    is_misfit: bool,
) -> list[Axes]:  # fmt: skip
    """The axes in the place of one with a recording or its residuals, for each kind of sensor."""
    part = fit.validation if validation else fit.train
    count = len(part.recordings)
    if not 0 <= recording < count:
        raise ValueError(
            f"Argument `recording` must be a number from 0 to {count - 1}, but is {recording}."
            if count
            else "Argument `validation` must be False: the fit has no validation recordings."
        )
    one, values = part.recordings[recording], part.values[recording]
    residual, measured = part.residuals[recording], np.isfinite(one.observed)
    observed = [x.observed for x in part.recordings]
    samples = part.residuals if is_misfit else [x - _mean(x) for x in observed]
    sizes = np.sqrt(_mean(np.concatenate(samples) ** 2))  # by which sensors share axes
    unnamed = ("",) if len(sizes) == 1 else tuple(f"sensor {k}" for k in range(len(sizes)))
    names = tuple(sensors or one.sensors) or unnamed
    groups = sensor_groups(sizes.tolist(), names)
    # NaN of a failed prediction is not left out.
    squares = [residual[:, group][measured[:, group]] ** 2 for group in groups]
    spread = ", ".join(f"{np.sqrt(x.mean()):.3g}" for x in squares)
    ax.set_title(f"{one.name}: RMS {spread}", fontsize="small")
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
                line = _interrupted(one.ts[known], residual[known, k])
                ax.plot(*line, color=color, linewidth=0.9, label=name or None)
                continue
            seen = np.flatnonzero(measured[:, k])
            shown = seen[:: -(-seen.size // _MOST_MARKS) or 1]
            dots = one.ts[shown], one.observed[shown, k]
            label = f"{name} measured".strip()
            ax.plot(*dots, ".", color=color, markersize=3, alpha=0.45, label=label)
            motion = _interrupted(one.ts, values[:, k])
            ax.plot(*motion, color=color, linewidth=1.2, label=f"{name} fit".strip())
        unit, named = unit_of(names[group[0]]), [names[k] for k in group]
        if len(named) > _NAMES:
            named = [named[0], "...", named[-1]]
        label = f"{alone} [{unit}]" if unit else alone
        if len(set(axes)) > 1:
            label = before + ", ".join(named)
        labelled(ax, "t [s]" if ax is axes[-1] else "", label)
    return axes


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


def _mean(samples: np.ndarray) -> np.ndarray:
    """The mean of the known samples (T, d) of each sensor, zero without any."""
    known = np.isfinite(samples)
    mean: np.ndarray = samples.sum(0, where=known) / np.maximum(known.sum(0), 1)
    return mean


def _interrupted(ts: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples (T,) with an unknown one in each gap of their times, where a line is interrupted.

    A gap is several times as long as the usual step.
    """
    steps = np.diff(ts)
    gaps = np.flatnonzero(steps > _GAP * np.median(steps)) if steps.size else steps.astype(int)
    middles = (ts[gaps] + ts[gaps + 1]) / 2 if gaps.size else ts[:0]
    return np.insert(ts, gaps + 1, middles), np.insert(values, gaps + 1, np.nan)
