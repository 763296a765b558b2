"""Plots of the noise of a fit: its correlation in time, its distribution, and what it follows.

The residuals are those in units of the noise, `Fit.noise.residuals`: of noise as the fit assumes
it they are independent, normal and of size one.
"""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from jaxmech.identify import Fit
from jaxmech.plot.panels import BLUE, COLORS, GREY, axes_or_new, labelled

_LAGS = 40  # shown of a correlation
_BAND = 1.96  # of independent residuals, in standard errors
_MOST = 5000  # points of a picture
_MEDIANS = 1.4826  # standard deviation of a normal distribution in medians of |r|


def autocorrelation(fit: Fit, sensor: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the correlation of residuals that are some samples apart, with its band for noise.

    Args:
        fit: the fit.
        sensor: index of the sensor.
        ax: axes to draw into.
    """
    ax = axes_or_new(ax)
    columns = _columns(fit, sensor)
    values = np.concatenate(columns)
    longest = max((len(x) for x in columns), default=0)
    lags = np.arange(1, min(_LAGS, longest // 3) + 1)
    squares = float((values**2).sum())
    if lags.size and squares > 0:
        sums = [sum(float(x[k:] @ x[:-k]) for x in columns) for k in lags]
        ax.vlines(lags, 0, np.array(sums) / squares, color=BLUE, linewidth=1.5)
        band = _BAND / np.sqrt(values.size)
        ax.axhspan(-band, band, color=GREY, alpha=0.25, linewidth=0)
    ax.axhline(0, color=GREY, linewidth=0.6)
    labelled(ax, "distance [samples]", "autocorrelation")
    ax.margins(x=0.02)
    return ax


def normal_quantiles(fit: Fit, sensor: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the residuals in order against a normal distribution: a line, but for outliers.

    Args:
        fit: the fit.
        sensor: index of the sensor.
        ax: axes to draw into.
    """
    from scipy.special import ndtri  # slow to import, and seldom needed

    ax = axes_or_new(ax)
    values = np.sort(np.concatenate(_columns(fit, sensor)))
    if values.size:
        expected = ndtri((np.arange(values.size) + 0.5) / values.size)
        size = _MEDIANS * float(np.median(np.abs(values)))
        ax.plot(expected, size * expected, color=GREY, linewidth=0.8)
        # the tails are what matters; the middle is thinned out
        shown = np.unique(np.r_[:100, np.linspace(0, values.size - 1, _MOST).astype(int),
                                max(values.size - 100, 0) : values.size])  # fmt: skip
        shown = shown[shown < values.size]
        ax.plot(expected[shown], values[shown], ".", color=BLUE, markersize=4)
    labelled(ax, "normal quantile", "residual in units of the noise")
    ax.margins(x=0.03)
    return ax


def over_input(fit: Fit, name: str, sensor: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the residuals against an input of the recordings: a pattern is a lack of the model.

    Args:
        fit: the fit.
        name: name of the input.
        sensor: index of the sensor.
        ax: axes to draw into.

    Raises:
        ValueError: if the recordings have no such input.
    """
    ax = axes_or_new(ax)
    if name not in fit.train.recordings[0].inputs:
        raise ValueError(f"Argument `name` must be an input of the recordings, but is {name!r}.")
    for k, (u, r) in enumerate(_with_inputs(fit, name, sensor)):
        stride = -(-len(r) // _MOST)
        color = COLORS[k % len(COLORS)]
        ax.plot(u[::stride], r[::stride], ".", color=color, markersize=3, alpha=0.5)
    ax.axhline(0, color=GREY, linewidth=0.6)
    labelled(ax, name, "residual in units of the noise")
    ax.margins(x=0.03)
    return ax


def _with_inputs(fit: Fit, name: str, sensor: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """An input and the residuals of a sensor at the samples of each recording."""
    for recording, r in zip(fit.train.recordings, fit.noise.residuals, strict=True):
        signal = recording.inputs[name]
        values = np.array([np.ravel(signal(t))[0] for t in recording.ts])
        seen = np.isfinite(r[:, sensor])
        yield values[seen], np.asarray(r[seen, sensor])


def _columns(fit: Fit, sensor: int) -> list[np.ndarray]:
    """The residuals of a sensor at its samples, of each recording."""
    if not fit.noise.residuals:  # of a fit that an earlier version saved
        return [np.zeros(0)]
    return fit.samples(sensor)
