"""`write_failure_report`: one page about a probability of failure that opens anywhere."""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import numpy as np
import tomli_w

from jaxmech.cli.report.layout import (
    EstimateCell,
    PagePart,
    PageTable,
    Picture,
    clips,
    motion,
    number_text,
    of_figure,
    page,
)
from jaxmech.config import load, plain, write_whole
from jaxmech.config.errors import InputError
from jaxmech.ensemble import FailureProbability, Study, design_point_motion
from jaxmech.plot import failure_figures

_MOST_CLIPS = 4  # design points in motion
_ROWS = 24  # of a table
_CAPTIONS = {
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
    moving: list[Picture] = []
    if chosen:
        model = load(study.model, study.model_options, folder, study.parameters).model
        motions, captions = {}, {}
        for k in chosen if model is not None and model.geometry is not None else ():
            point = result.design_points[k]
            sol = design_point_motion(study, point, folder)
            motions[k] = motion(model, np.asarray(sol.ts), sol.q, point.params)
            captions[k] = f"Reliability index {point.index:.3f}."
        moving = [*clips(motions, captions).values()]
    pictures = [of_figure(figure, _CAPTIONS[key]) for key, figure in failure_figures(result)]
    low, high = result.interval
    known = f", with {100 * result.confidence:g} % between {low:.3g} and {high:.3g}"
    lost = f"; {result.lost:,} of them were not computed to their end" if result.lost else ""
    lead = (
        f"The motion fails with a probability of {result.probability:.3g}"
        f"{known if isfinite(low) else ''}, by the method {result.method}, from "
        f"{result.trajectories:,} trajectories{lost}."
    )
    estimates = []
    for x in result.estimates:
        p, *ends = (float(f"{y:.4g}") for y in (x.probability, *x.interval(result.confidence)))
        cell = EstimateCell(p, *ends) if all(map(isfinite, ends)) else p
        estimates.append((x.method, cell, x.trajectories or None))
    points = []
    for point in result.design_points[:1]:
        names = sorted(point.importance, key=lambda name: -point.importance[name])[:_ROWS]
        shares = [f"{100 * point.importance[name]:.1f} %" for name in names]
        values = [number_text(point.variables[name]) for name in names]
        caption = f"The design point with the reliability index {point.index:.4f}."
        rows = [*zip(names, values, shares, strict=True)]
        points.append(PageTable(("variable", "value", "importance"), rows, caption=caption))
    ordered = sorted(result.sensitivities, key=lambda x: -abs(x.derivative * (x.value or 1.0)))
    slopes = [
        (x.variable, x.parameter, x.value, f"{x.derivative:.4g} ± {x.standard_deviation:.2g}")
        for x in ordered[:_ROWS]
    ]
    parts = [
        PagePart(
            "How probable it is",
            tables=[PageTable(("method", "probability", "trajectories"), estimates)],
            sentences=[f"{remark[0].upper()}{remark[1:]}." for remark in result.remarks],
        ),
        PagePart(
            "The most probable failures", tables=points,
            clips=moving,
        ),
        PagePart("Pictures", pictures=pictures),
        PagePart(
            "What would change it",
            tables=[PageTable(("variable", "parameter", "value", "derivative"), slopes)],
            note="Derivatives of log p: at 2, a parameter that is larger by 0.1 makes the failure "
            "more probable by the factor exp(0.2).",
        ),
        PagePart("The result as it prints itself", text=str(result), is_closed=True),
        PagePart("Configuration", text=tomli_w.dumps(plain(study)), is_closed=True),
    ]  # fmt: skip
    parts = [x for x in parts if x.pictures or x.text or any(table.rows for table in x.tables)]
    title = f"{name}: probability of failure {result.probability:.3g}"
    write_whole(out, page(name, lead, parts, title=title, warnings=result.doubts))
    return out
