"""`write_failure_report`: one page about a probability of failure that opens anywhere."""

import tempfile
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path

from jaxmech.cli.report.layout import PagePart, Picture, clip, of_figure, page
from jaxmech.cli.report.tables import EstimateCell, PageTable, number_text
from jaxmech.config import load, plain, write_whole
from jaxmech.config.errors import InputError
from jaxmech.ensemble import (
    DesignPoint,
    FailureEstimate,
    FailureProbability,
    Study,
    design_point_motion,
)
from jaxmech.plot import animate, failure_figures

_SECONDS, _FPS = 5.0, 10.0  # of an animation
_MOST_CLIPS = 4  # design points in motion
_ROWS = 24  # of a table
_CAPTIONS = {
    "methods": "The probability by every method, with its interval where there is one.",
    "levels": "Subset simulation: the probability that the margin is at most a threshold, from "
    "level to level, down to the failures at 0.",
    "importance": "The share of each variable in the way from the medians to the design point.",
}


def write_failure_report(
    result: FailureProbability,
    out: Path,
    study: Study,
    name: str,
    folder: Path = Path(),
    animated: Sequence[int] | None = None,
) -> Path:
    """Write the page about a probability of failure.

    Args:
        result: the probability.
        out: the file.
        study: the study that it was computed of, whose model is animated if it has a geometry.
        name: title of the page.
        folder: the folder to which relative paths of the study refer.
        animated: numbers of the design points to animate; by default the first four.

    Raises:
        InputError: if there is no such design point.
    """
    chosen = range(len(result.design_points))[:_MOST_CLIPS] if animated is None else animated
    if beyond := [k for k in chosen if k >= len(result.design_points)]:
        count = len(result.design_points)
        raise InputError(
            f"--animate must name design points, of which there are {count}, from 0; "
            f"there is none with the number {beyond[0]}"
        )
    clips = _clips(result, chosen, study, folder) if chosen else ()
    pictures = [of_figure(figure, _CAPTIONS[key]) for key, figure in failure_figures(result)]
    parts = [
        PagePart("How probable it is", tables=[_estimates(result)], sentences=_remarks(result)),
        PagePart(
            "The most probable failures",
            tables=[_design_point(point) for point in result.design_points[:1]], clips=clips,
        ),
        PagePart("Pictures", pictures=pictures),
        PagePart(
            "What would change it", tables=[_sensitivities(result)],
            note="Derivatives of log p: at 2, a parameter that is larger by 0.1 makes the failure "
            "more probable by the factor exp(0.2).",
        ),
        PagePart("The result as it prints itself", text=str(result), is_closed=True),
        PagePart("Configuration", text=_configuration(study), is_closed=True),
    ]  # fmt: skip
    parts = [part for part in parts if part.pictures or part.text or _has_rows(part)]
    title = f"{name}: probability of failure {result.probability:.3g}"
    write_whole(out, page(name, _lead(result), parts, title=title, warnings=result.doubts))
    return out


def _has_rows(part: PagePart) -> bool:
    return any(table.rows for table in part.tables)


def _lead(result: FailureProbability) -> str:
    low, high = result.interval
    interval = ""
    if isfinite(low):
        interval = f", with {100 * result.confidence:g} % between {low:.3g} and {high:.3g}"
    lost = f"; {result.lost:,} of them were not computed to their end" if result.lost else ""
    return (
        f"The motion fails with a probability of {result.probability:.3g}{interval}, by the method "
        f"{result.method}, from {result.trajectories:,} trajectories{lost}."
    )


def _remarks(result: FailureProbability) -> list[str]:
    return [f"{remark[0].upper()}{remark[1:]}." for remark in result.remarks]


def _estimates(result: FailureProbability) -> PageTable:
    rows = [(x.method, _cell(x, result), x.trajectories or None) for x in result.estimates]
    return PageTable(("method", "probability", "trajectories"), rows)


def _cell(estimate: FailureEstimate, result: FailureProbability) -> object:
    low, high = estimate.interval(result.confidence)
    digits = [float(f"{x:.4g}") for x in (estimate.probability, low, high)]
    return EstimateCell(*digits) if isfinite(low) and isfinite(high) else digits[0]


def _design_point(point: DesignPoint) -> PageTable:
    names = sorted(point.importance, key=lambda name: -point.importance[name])[:_ROWS]
    rows = [
        (name, number_text(point.variables[name]), f"{100 * point.importance[name]:.1f} %")
        for name in names
    ]
    caption = f"The design point with the reliability index {point.index:.4f}."
    return PageTable(("variable", "value", "importance"), rows, caption=caption)


def _sensitivities(result: FailureProbability) -> PageTable:
    ordered = sorted(result.sensitivities, key=lambda x: -abs(x.derivative * (x.value or 1.0)))
    rows = [
        (x.variable, x.parameter, x.value, f"{x.derivative:.4g} ± {x.standard_deviation:.2g}")
        for x in ordered[:_ROWS]
    ]
    return PageTable(("variable", "parameter", "value", "derivative"), rows)


def _clips(
    result: FailureProbability, chosen: Sequence[int], study: Study, folder: Path
) -> Sequence[Picture]:
    """The design points in motion, if the model has a geometry."""
    model = load(study.model, study.model_options, folder, study.parameters).model
    if model is None or model.geometry is None:
        return ()
    with tempfile.TemporaryDirectory() as scratch:
        points = [result.design_points[k] for k in chosen]
        return tuple(_animated(points, study, folder, Path(scratch)))


def _animated(
    points: Sequence[DesignPoint], study: Study, folder: Path, scratch: Path
) -> Iterator[Picture]:
    model = load(study.model, study.model_options, folder, study.parameters).model
    assert model is not None
    for k, point in enumerate(points):
        sol = design_point_motion(study, point, folder)
        speed = max(float(sol.ts[-1] - sol.ts[0]) / _SECONDS, 1.0)
        motion = animate(model, (sol.ts, sol.q), point.params, speed=speed, fps=_FPS)
        yield clip(motion, scratch / f"{k}.gif", f"Reliability index {point.index:.3f}.")


def _configuration(study: Study) -> str:
    import tomli_w

    return tomli_w.dumps(plain(study))
