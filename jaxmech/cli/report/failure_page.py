"""`write_failure_report`: one page about a probability of failure that opens anywhere."""

from math import isfinite
from pathlib import Path

import tomli_w

from jaxmech.cli.report.layout import (
    EstimateCell,
    PagePart,
    PageTable,
    number_text,
    page,
)
from jaxmech.config import plain, write_whole
from jaxmech.ensemble import FailureProbability, Study

_ROWS = 24  # of a table


def write_failure_report(result: FailureProbability, out: Path, study: Study, name: str) -> Path:
    """Write the page about a probability of failure of a study, with a name as its title."""
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
    parts = [
        PagePart(
            "How probable it is",
            tables=[PageTable(("method", "probability", "trajectories"), estimates)],
            sentences=[f"{remark[0].upper()}{remark[1:]}." for remark in result.remarks],
        ),
        PagePart("The most probable failures", tables=points),
        PagePart("The result as it prints itself", text=str(result), is_closed=True),
        PagePart("Configuration", text=tomli_w.dumps(plain(study)), is_closed=True),
    ]  # fmt: skip
    parts = [x for x in parts if x.text or any(table.rows for table in x.tables)]
    title = f"{name}: probability of failure {result.probability:.3g}"
    write_whole(out, page(name, lead, parts, title=title, warnings=result.doubts))
    return out
