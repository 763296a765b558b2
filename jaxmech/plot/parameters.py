"""The fitted parameters with their intervals, beside their bounds and priors."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmech.identify import Fit
from jaxmech.plot.style import BLUE, GREY, ORANGE, UNKNOWN, add_axes, new_figure

MOST_PARAMETERS = 24
_WIDTH, _ROW = 7.0, 0.62  # inches
_NEAR = 3.0  # lengths of what is drawn within which a bound is drawn too
_NORMAL = 1.96  # of a prior, so that it compares with an interval of 95 %


def parameter_intervals(fit: Fit) -> Figure:
    """Draw each fitted number in a row of its own scale.

    A dot with a bar is the value with its interval of 95 %, the one to rely on. The light bar
    behind it is the interval of the prior, and the orange side is beyond a bound. A number that
    the recordings do not determine is an empty dot.

    Args:
        fit: the fit, of which the first 24 numbers are drawn.

    Example:
        >>> from jaxmech.identify.storage import made_up
        >>> figure = parameter_intervals(made_up())
        >>> [ax.get_ylabel() for ax in figure.axes]
        ['k']
    """
    count = min(len(fit.names), MOST_PARAMETERS)
    figure = new_figure(_WIDTH, _ROW * count + 0.5)
    intervals = reliable_intervals(fit)
    for k in range(count):
        ax = add_axes(figure, (count, 1, k + 1))
        known = bool(fit.uncertainty.determined[k])
        _row(fit, k, intervals[k] if known else None, ax)
    names: dict[str, Any] = {}
    for ax in figure.axes:
        names |= {text: x for x, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    settings: dict[str, Any] = {"loc": "outside lower center", "ncols": 4, "frameon": False}
    figure.legend([*names.values()], [*names], **settings)
    return figure


def reliable_intervals(fit: Fit) -> np.ndarray:
    """The intervals that a fit shows first, (p, 2): by recording or by block where it must."""
    uncertainty = fit.uncertainty
    if fit.noise.correlated:
        for interval in (uncertainty.interval_by_block(), uncertainty.interval_by_recording()):
            if interval is not None:
                return interval
    return uncertainty.interval()


def _row(fit: Fit, k: int, interval: np.ndarray | None, ax: Axes) -> None:
    value = float(fit.values[k])
    drawn = [value, *(interval if interval is not None else ())]
    if fit.priors is not None and np.isfinite(fit.priors[k, 1]):
        mean, sd = fit.priors[k]
        drawn += [mean - _NORMAL * sd, mean + _NORMAL * sd]
        ax.barh(0, 2 * _NORMAL * sd, 0.8, mean - _NORMAL * sd, color=UNKNOWN, label="prior")
    if interval is None:
        ax.plot([value], [0], "o", color=GREY, markerfacecolor="none", label="not determined")
    else:
        label = "value and its interval"
        error = np.abs(interval - value)[:, None]
        ax.errorbar([value], [0], xerr=error, fmt="o", color=BLUE, capsize=4, label=label)
    low, high = min(drawn), max(drawn)
    span = (high - low) or abs(value) or 1.0
    bounds = (-np.inf, np.inf) if fit.bounds is None else fit.bounds[k]
    near = [x for x in bounds if low - _NEAR * span <= x <= high + _NEAR * span]
    low, high = min([low, *near]), max([high, *near])
    room = 0.12 * ((high - low) or span)
    ax.set_xlim(low - room, high + room)
    for bound, end in zip(bounds, ax.get_xlim(), strict=True):
        if bound in near:
            ax.axvspan(
                *sorted((bound, end)), color=ORANGE, alpha=0.25, linewidth=0, label="beyond a bound"
            )
    at_bound = fit.names[k] in fit.optimization.at_bound
    ax.set_ylim(-0.8, 0.8)
    ax.set_yticks([])
    ax.set_ylabel(fit.names[k], rotation=0, ha="right", va="center")
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(6))
    if at_bound:
        ax.set_title("at its bound", fontsize="small", color=ORANGE)
