"""The pictures of a fit in a folder."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.identify.result import Fit
from jaxmech.plot.fit import correlation, fit_over_data, loss, residuals

MOST_PANELS = 24
_CELL = 0.45  # inches of a parameter in the picture of the correlations


def draw_fit(fit: Fit, folder: Path, *, sensors: Sequence[str] = (), title: str = "") -> list[Path]:
    """Draws the fit over the recordings, what it leaves over, its loss and its correlations.

    Args:
        fit: the fit.
        folder: for the files, which is made.
        sensors: names of what was measured.
        title: above all pictures.

    Returns:
        The files.

    Example:
        >>> import tempfile
        >>> from jaxmech.identify.storage import made_up
        >>> files = draw_fit(made_up(), Path(tempfile.mkdtemp()))
        >>> [file.name for file in files]
        ['fit_over_data.png', 'residuals.png', 'loss.png', 'correlation.png']
    """
    folder.mkdir(exist_ok=True)
    files = []
    for name, note, figure in _figures(fit, sensors):
        figure.suptitle(", ".join(filter(None, (title, note))), fontsize="medium")
        files.append(folder / f"{name}.png")
        figure.savefig(files[-1], dpi=130)
    return files


def _figures(fit: Fit, sensors: Sequence[str]) -> Iterator[tuple[str, str, Figure]]:
    for validation in (False, True):
        count = len((fit.validation if validation else fit.train).recordings)
        note = f"the first {MOST_PANELS} of {count} recordings" if count > MOST_PANELS else ""
        for name, draw in (("fit_over_data", fit_over_data), ("residuals", residuals)):
            if count:
                figure = _grid(fit, draw, min(count, MOST_PANELS), validation, sensors)
                yield f"{name}_validation" if validation else name, note, figure
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    loss(fit, ax=figure.subplots())
    yield "loss", "", figure
    side = max(3.0, _CELL * len(fit.names) + 1.5)
    figure = Figure(figsize=(side, side), layout="constrained")
    ax = correlation(fit, ax=figure.subplots())
    if not ax.texts:  # too many to be written
        figure.colorbar(ax.images[0], ax=ax, shrink=0.5, label="correlation")
    yield "correlation", "", figure


def _grid(
    fit: Fit, draw: Callable[..., Axes], count: int, validation: bool, sensors: Sequence[str]
) -> Figure:
    """One panel for each recording."""
    columns = min(count, 2 if count <= 4 else 4)
    rows = ceil(count / columns)
    figure = Figure(figsize=(max(3.2 * columns, 6.0), 2.2 * rows + 0.6), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in panels[count:]:
        ax.axis("off")
    for k, ax in enumerate(panels[:count]):
        draw(fit, k, validation=validation, sensors=sensors, ax=ax)
        ax.set_xlabel("t [s]" if k + columns >= count else "")
        ax.set_ylabel("" if k % columns else ax.get_ylabel())
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure
