"""Plots of a fit: measured and fitted motion, residuals, loss, correlations; files of them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.result import Fit
from jaxmech.plot import panels
from jaxmech.plot.panels import BLUE, COLORS, GREY, MOST_PANELS, axes_or_new, heat_map, labelled

_CELL = 0.45  # inches per parameter in the picture of correlations
MOST_MARKS = 200  # measurements drawn of one recording; more would merge into a line


def fit_over_data(
    fit: Fit,
    recording: int = 0,
    *,
    validation: bool = False,
    sensors: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw the measurements of a recording as dots and the fitted motion as lines.

    Args:
        fit: the fit.
        recording: index of the recording.
        validation: whether `recording` is the index of a validation recording, simulated from its
            recorded initial state; the others are simulated from their fitted ones.
        sensors: names for the legend.
        ax: axes to draw into.

    Raises:
        ValueError: the recording does not exist.

    Example:
        >>> from jaxmech.identify.storage import made_up
        >>> fit_over_data(made_up()).get_title()
        'swing: RMS 0.00408'
    """
    ax = axes_or_new(ax)
    chosen, values = _chosen(fit, recording, validation=validation, ax=ax)
    stride = -(-len(chosen.ts) // MOST_MARKS)
    # A sensor that wraps is drawn where the prediction is.
    near = np.where(chosen.periods > 0, values - chosen.residuals(values), chosen.observed)
    for k, name, color in _sensors(chosen, sensors):
        measured, ts = near[::stride, k], chosen.ts[::stride]
        label = f"{name} measured" if name else "measured"
        ax.plot(ts, measured, ".", color=color, markersize=3, alpha=0.45, label=label)
        ax.plot(chosen.ts, values[:, k], color=color, linewidth=1.2, label=f"{name} fit".strip())
    return labelled(ax, "t [s]", "measured and fitted")


def residuals(
    fit: Fit,
    recording: int = 0,
    *,
    validation: bool = False,
    sensors: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw the residuals of a recording over time, predicted - measured: noise, if the model fits.

    Args:
        fit: the fit.
        recording: index of the recording.
        validation: as for `fit_over_data`.
        sensors: names for the legend.
        ax: axes to draw into.

    Raises:
        ValueError: the recording does not exist.

    Example:
        >>> from jaxmech.identify.storage import made_up
        >>> residuals(made_up()).get_ylabel()
        'predicted - measured'
    """
    ax = axes_or_new(ax)
    chosen, values = _chosen(fit, recording, validation=validation, ax=ax)
    ax.axhline(0, color=GREY, linewidth=0.6)
    for k, name, color in _sensors(chosen, sensors):
        residual = chosen.residuals(values)[:, k]
        ax.plot(chosen.ts, residual, color=color, linewidth=0.9, label=name or None)
    return labelled(ax, "t [s]", "predicted - measured")


def loss(fit: Fit, *, ax: Axes | None = None) -> Axes:
    """Draw half the sum of squared residuals after each step, logarithmic.

    Args:
        fit: the fit.
        ax: axes to draw into.

    Example:
        >>> from jaxmech.identify.storage import made_up
        >>> loss(made_up()).get_yscale()
        'log'
    """
    ax = axes_or_new(ax)
    mark = "o" if len(fit.history) <= MOST_MARKS else ""
    steps = np.arange(len(fit.history))
    ax.plot(steps, fit.history, color=BLUE, linewidth=1.2, marker=mark, markersize=3)
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    labelled(ax, "step", "loss")
    ax.margins(x=0.02)
    return ax


def correlation(fit: Fit, *, by_recording: bool = False, ax: Axes | None = None) -> Axes:
    """Draw the correlations of the fitted parameters; grey for parameters not determined.

    Near 1 or -1 the recordings hardly distinguish two parameters.

    Args:
        fit: the fit.
        by_recording: whether to assume independent residuals between recordings only.
        ax: axes to draw into.

    Raises:
        ValueError: the recordings are too few for `by_recording`.

    Example:
        >>> from jaxmech.identify.storage import made_up
        >>> [label.get_text() for label in correlation(made_up()).get_xticklabels()]
        ['k']
    """
    uncertainty = fit.uncertainty
    values = uncertainty.correlation_by_recording if by_recording else uncertainty.correlation
    if values is None:
        raise ValueError(
            f"Argument `by_recording` must be False: {uncertainty.recordings} recordings are too "
            f"few for {len(uncertainty.names)} parameters."
        )
    ax = axes_or_new(ax)
    ax.set_facecolor("#DDDDDD")
    texts = [[f"{x:.2f}" for x in row] for row in values]
    return heat_map(ax, values, texts, uncertainty.names, uncertainty.names, rotation=90)


def draw_fit(fit: Fit, folder: Path, *, sensors: Sequence[str] = (), title: str = "") -> list[Path]:
    """Draw the fit over the recordings, its residuals, loss and correlations into a folder."""
    figures = (
        (name, ", ".join(filter(None, (title, note))), figure)
        for name, note, figure in _figures(fit, sensors)
    )
    return panels.save(figures, folder)


def _figures(fit: Fit, sensors: Sequence[str]) -> Iterator[tuple[str, str, Figure]]:
    for validation in (False, True):
        count = len((fit.validation if validation else fit.train).recordings)
        note = f"the first {MOST_PANELS} of {count} recordings" if count > MOST_PANELS else ""
        for name, draw in (("fit_over_data", fit_over_data), ("residuals", residuals)):
            if count:
                figure = _by_recording(fit, draw, min(count, MOST_PANELS), validation, sensors)
                yield f"{name}_validation" if validation else name, note, figure
    figure, ax = panels.single()
    loss(fit, ax=ax)
    yield "loss", "", figure
    side = max(3.0, _CELL * len(fit.names) + 1.5)
    figure = Figure(figsize=(side, side), layout="constrained")
    ax = correlation(fit, ax=figure.subplots())
    if not ax.texts:  # too many parameters to write the numbers
        figure.colorbar(ax.images[0], ax=ax, shrink=0.5, label="correlation")
    yield "correlation", "", figure


def _by_recording(
    fit: Fit, draw: Callable[..., Axes], count: int, validation: bool, sensors: Sequence[str]
) -> Figure:
    figure, axes = panels.grid(count)
    columns = panels.columns_of(count)
    for k, ax in enumerate(axes):  # each recording has its own scales, so ticks stay
        draw(fit, k, validation=validation, sensors=sensors, ax=ax)
        ax.set_xlabel("t [s]" if k + columns >= count else "")
        ax.set_ylabel("" if k % columns else ax.get_ylabel())
    panels.legend_below(figure, axes[0], columns=4)
    return figure


def _chosen(
    fit: Fit, recording: int, *, validation: bool, ax: Axes
) -> tuple[Recording, np.ndarray]:
    part = fit.validation if validation else fit.train
    count = len(part.recordings)
    if not 0 <= recording < count:
        raise ValueError(
            f"Argument `recording` must be a number from 0 to {count - 1}, but is {recording}."
            if count
            else "Argument `validation` must be False: the fit has no validation recordings."
        )
    series = part.recordings[recording]
    ax.set_title(f"{series.name}: RMS {float(part.errors[recording]):.3g}", fontsize="small")
    return series, part.values[recording]


def _sensors(recording: Recording, names: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    count = recording.observed.shape[1]
    titles = names or ([""] if count == 1 else [f"sensor {k}" for k in range(count)])
    for k in range(count):
        yield k, titles[k], COLORS[k % len(COLORS)]
