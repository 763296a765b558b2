"""The pictures of the run folder of a fit."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.identify.result import Fit
from jaxmech.plot.fit import correlation, fit_over_data, loss, residuals
from jaxmech.plot.panels import MOST_PANELS, columns_of, grid, legend_below, save, single

_CELL = 0.45  # inches per parameter in the picture of correlations


def draw_fit(fit: Fit, folder: Path, *, sensors: Sequence[str] = (), title: str = "") -> list[Path]:
    """Draw the fit over the recordings, its residuals, loss and correlations into a folder."""
    figures = (
        (name, ", ".join(filter(None, (title, note))), figure)
        for name, note, figure in _figures(fit, sensors)
    )
    return save(figures, folder)


def _figures(fit: Fit, sensors: Sequence[str]) -> Iterator[tuple[str, str, Figure]]:
    for validation in (False, True):
        count = len((fit.validation if validation else fit.train).recordings)
        note = f"the first {MOST_PANELS} of {count} recordings" if count > MOST_PANELS else ""
        for name, draw in (("fit_over_data", fit_over_data), ("residuals", residuals)):
            if count:
                figure = _by_recording(fit, draw, min(count, MOST_PANELS), validation, sensors)
                yield f"{name}_validation" if validation else name, note, figure
    figure, ax = single()
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
    figure, panels = grid(count)
    columns = columns_of(count)
    for k, ax in enumerate(panels):  # each recording has its own scales, so ticks stay
        draw(fit, k, validation=validation, sensors=sensors, ax=ax)
        ax.set_xlabel("t [s]" if k + columns >= count else "")
        ax.set_ylabel("" if k % columns else ax.get_ylabel())
    legend_below(figure, panels[0], columns=4)
    return figure
