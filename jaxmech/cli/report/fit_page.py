"""`write_fit_report`: one page about a fit that opens anywhere, without a network.

It begins with the measurements over the fitted motion and the parameters, and ends with what they
can be trusted for.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from jaxmech.cli.fit import Outcome
from jaxmech.cli.report.layout import (
    EstimateCell,
    PagePart,
    PageTable,
    Picture,
    drawn,
    of_figure,
    page,
)
from jaxmech.config import write_whole
from jaxmech.identify import Fit
from jaxmech.plot import fit_over_data, loss, parameter_intervals, residuals
from jaxmech.utils.text import counted

_RECORDINGS = 3  # of which the motion and the residuals are drawn
_LEGEND = "The light bar is the prior, and the orange side is beyond a bound."


def write_fit_report(fit: Fit, out: Path, name: str) -> Path:
    """Write the page about a fit.

    Args:
        fit: the fit, of this process or from a file.
        out: the file.
        name: title of the page.
    """
    recordings = counted(len(fit.train.recordings), "recording")
    state = "Converged" if fit.converged else "Not converged"
    lead = (
        f"{counted(len(fit.names), 'parameter')} from {fit.count:,} measurements in {recordings}. "
        f"{state} after {fit.optimization.evaluations} evaluations: {fit.optimization.reason}."
    )
    intervals = "Intervals of 95 % are below their values; the first column is the one to rely on."
    caption = f"The parameters with their intervals of 95 %, each on its own scale. {_LEGEND}"
    after = drawn(partial(loss, fit), "The loss after each step of the optimizer.")
    uncertainty, rows = fit.uncertainty, list[tuple[object, ...]]()
    for k, parameter in enumerate(fit.names):
        ends = [one.interval()[k] for one in uncertainty.covariances]
        cells = [EstimateCell(float(fit.values[k]), float(a), float(b)) for a, b in ends]
        is_known = uncertainty.determined[k]
        rows.append((parameter, *(cells if is_known else ["not determined"] * len(ends))))
    parts = [
        PagePart("Measured and fitted", pictures=[*_over_time(fit)]),
        PagePart(
            "Parameters",
            pictures=[of_figure(parameter_intervals(fit), caption)],
            tables=[PageTable(("", *(one.kind for one in uncertainty.covariances)), rows)],
            note=intervals,
        ),
        PagePart("Residuals", pictures=[*_over_time(fit, is_misfit=True)]),
        PagePart("Trust", pictures=[after], text=str(Outcome(name, fit)), is_closed=True),
    ]
    write_whole(out, page(name, lead, parts, title=name, warnings=fit.warnings))
    return out


def _over_time(fit: Fit, *, is_misfit: bool = False) -> Iterator[Picture]:
    """The motion of the first recordings and of a validation, or the residuals of the first."""
    for validation in (False,) if is_misfit else (False, True):
        part = fit.validation if validation else fit.train
        for k, one in enumerate(part.recordings[: 1 if validation else _RECORDINGS]):
            caption = f"{one.name[:1].upper()}{one.name[1:]}"
            if is_misfit:
                caption += ": residuals over time, which should look like noise."
            else:
                caption += ", which was not fitted" if validation else ""
                caption += ": samples as dots, the simulated motion as lines."
            draw = residuals if is_misfit else fit_over_data
            sensors = fit.train.recordings[0].sensors
            draw_one = partial(draw, fit, k, validation=validation, sensors=sensors)
            yield drawn(draw_one, caption, below=True)
