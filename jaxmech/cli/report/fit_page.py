"""`write_fit_report`: one page about a fit that opens anywhere, without a network."""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxmech.cli.report.layout import PagePart, Picture, drawn, page
from jaxmech.cli.report.tables import EstimateCell, PageTable
from jaxmech.config.run_folder import write_whole
from jaxmech.identify.result import Fit
from jaxmech.plot.fit import fit_over_data, loss, residuals
from jaxmech.plot.noise import autocorrelation, normal_quantiles, over_input
from jaxmech.plot.panels import legend_below

_RECORDINGS = 3  # of which the motion and the residuals are drawn
_SENSORS = 4
_OUTLIERS = 20  # rows of the table


def write_fit_report(fit: Fit, out: Path, name: str = "Fit", sensors: Sequence[str] = ()) -> Path:
    """Write the page about a fit.

    Args:
        fit: the fit, of this process or from a file.
        out: the file.
        name: title of the page.
        sensors: names of the sensors.
    """
    count = len(fit.train.recordings)
    state = "Converged" if fit.converged else "Not converged"
    lead = (
        f"{len(fit.names)} parameters from {fit.count:,} measurements in {count} "
        f"recording{'s' * (count != 1)}. {state} after {fit.evaluations} evaluations: "
        f"{fit.reason}."
    )
    intervals = "Intervals of 95 % are below their values; the first column is the one to rely on."
    parts = [
        PagePart("Parameters", tables=[_parameters(fit)], note=intervals),
        PagePart(tables=[_facts(fit), _recordings(fit), _outliers(fit, sensors)]),
        PagePart("Pictures", pictures=list(_pictures(fit, sensors))),
        PagePart("What the recordings determine", text=repr(fit.identifiability), is_closed=True),
        PagePart("The fit as it prints itself", text=repr(fit), is_closed=True),
    ]
    write_whole(out, page(name, lead, parts, title=name, warnings=fit.warnings))
    return out


def _parameters(fit: Fit) -> PageTable:
    uncertainty = fit.uncertainty
    law = "AR(1) noise" if uncertainty.whitened else "independent residuals"
    columns = [(law, uncertainty.interval())]
    for title, interval in (
        ("by recording", uncertainty.interval_by_recording()),
        ("by block", uncertainty.interval_by_block()),
    ):
        if interval is not None:
            columns.insert(0 if fit.correlated else len(columns), (title, interval))
    rows: list[Sequence[Any]] = []
    for k, name in enumerate(fit.names):
        if not uncertainty.determined[k]:
            cells: list[Any] = ["not determined"] * len(columns)
        else:
            cells = [EstimateCell(float(fit.values[k]), *map(float, x[k])) for _, x in columns]
        rows.append((name, *cells))
    return PageTable(("", *(title for title, _ in columns)), rows)


def _facts(fit: Fit) -> PageTable:
    rows: list[Sequence[Any]] = [
        ("noise", fit.noise_law),
        ("AIC", f"{fit.aic:.1f}"),
        ("BIC", f"{fit.bic:.1f}"),
        ("unknowns", f"{fit.unknowns}, and {fit.noise_parameters} of the noise"),
    ]
    if fit.sensor_noise is not None:
        rows.insert(1, ("size of the noise", ", ".join(f"{sd:.3g}" for sd in fit.sensor_noise)))
    if fit.correlation_times is not None:
        times = ", ".join(f"{time:.3g} s" for time in fit.correlation_times)
        rows.append(("correlation time", times))
    rows += [(f"{name} at its bound", f"multiplier {x:.3g}") for name, x in fit.at_bound.items()]
    return PageTable((), rows, "Noise")


def _recordings(fit: Fit) -> PageTable:
    rows: list[Sequence[Any]] = [
        (one.name, one.count, float(a), float(b))
        for one, a, b in zip(fit.train.recordings, fit.errors, fit.predicted_errors, strict=True)
    ]
    rows += [
        (f"{one.name}, validation", one.count, None, float(error))
        for one, error in zip(fit.validation.recordings, fit.validation_errors, strict=True)
    ]
    return PageTable(("", "samples", "RMS", "from recorded start"), rows, "Recordings")


def _outliers(fit: Fit, sensors: Sequence[str]) -> PageTable:
    rows: list[Sequence[Any]] = [
        (
            one.recording, float(one.time), sensors[one.sensor] if sensors else str(one.sensor),
            float(one.sigmas),
        )
        for one in fit.outliers.samples[:_OUTLIERS]
    ]  # fmt: skip
    head = repr(fit.outliers).splitlines()[0].removeprefix("Outliers: ")
    titles = ("recording", "time [s]", "sensor", "sigmas") if rows else ()
    return PageTable(titles, rows, "Outliers", caption=head)


def _pictures(fit: Fit, sensors: Sequence[str]) -> Iterator[Picture]:
    for k, one in enumerate(fit.train.recordings[:_RECORDINGS]):
        yield _picture(partial(fit_over_data, fit, k, sensors=sensors), one.name)
        caption = f"{one.name}: residuals over time"
        yield _picture(partial(residuals, fit, k, sensors=sensors), caption)
    for j in range(min(_SENSORS, fit.train.values[0].shape[1])):
        sensor = sensors[j] if sensors else f"sensor {j}"
        yield _picture(partial(autocorrelation, fit, j), f"{sensor}: correlation in time")
        yield _picture(partial(normal_quantiles, fit, j), f"{sensor}: distribution")
        for name in fit.train.recordings[0].inputs:
            yield _picture(partial(over_input, fit, name, j), f"{sensor}: residuals over {name}")
    yield _picture(partial(loss, fit), "loss after each step")


def _picture(draw: Callable[..., Axes], caption: str) -> Picture:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    draw(ax=figure.add_subplot())
    if len(figure.axes) > 1:  # of sensors of unlike units
        figure.set_size_inches(6.4, 2.0 + 1.6 * len(figure.axes))
    if sum(len(ax.get_legend_handles_labels()[0]) for ax in figure.axes) > 1:
        legend_below(figure, figure.axes, columns=4)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    return Picture(f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}", caption)
