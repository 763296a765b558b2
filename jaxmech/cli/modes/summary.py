"""The summary of a study of eigenvalues: verdicts, the probability of instability, quantiles."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxmech.analysis.equilibrium import EquilibriumStatus, Stability
from jaxmech.cli.modes.members import Members
from jaxmech.cli.modes.study import ModesStudy
from jaxmech.ensemble.distributions import Sobol
from jaxmech.ensemble.statistics.intervals import of_proportion
from jaxmech.ensemble.study import SECTIONS
from jaxmech.ensemble.summary import QUANTILES

_ROUND_OFF = 1e-12  # smaller values are printed as 0
MOST_ROWS = 12  # of coordinates, and of frequencies


def summarize(study: ModesStudy, sample: Members) -> dict[str, Any]:
    """The content of `summary.json`, with Wilson's interval for independent members."""
    # Members without a verdict are in neither count; `bounds` says what the probability would be
    # among all members, were every one of those stable, or unstable.
    with_verdict, unstable = sample.has_verdict, sample.stability == Stability.UNSTABLE
    count, hits = int(with_verdict.sum()), int(unstable.sum())
    rows = {name: sample.q[:, k] for k, name in enumerate(sample.coordinates[:MOST_ROWS])}
    frequencies = sample.frequencies
    row_count = min(MOST_ROWS, int(np.isfinite(frequencies).any(axis=0).sum()))
    rows |= {f"frequency {k + 1} [Hz]": frequencies[:, k] for k in range(row_count)}
    rows["growth [1/s]"] = sample.growth
    interval = of_proportion(hits, count, study.confidence, "wilson")
    rules = (rule for section in SECTIONS for rule in getattr(study, section).values())
    return {
        "model": study.model,
        "size": study.size,
        "stability": {s.name: int((sample.stability[with_verdict] == s).sum()) for s in _VERDICTS},
        "no_verdict": _without_verdict(sample),
        "judged": count,
        "unstable": hits,
        "probability": hits / count if count else None,
        "confidence": study.confidence,
        "interval": list(interval) if count else None,
        "bounds": [hits / study.size, (hits + study.size - count) / study.size],
        "independent": not any(isinstance(rule, Sobol) for rule in rules),
        "probabilities": list(QUANTILES),
        "quantiles": {name: _quantiles(values) for name, values in rows.items()},
    }


_VERDICTS = tuple(s for s in Stability if s != Stability.UNKNOWN)


def _without_verdict(sample: Members) -> dict[str, dict[str, Any]]:
    """Counts of members by the reason for which they have no verdict."""
    met = sample.status == EquilibriumStatus.FOUND
    counts = {s: int((sample.status == s).sum()) for s in EquilibriumStatus if s}
    reasons = {s.name: {"count": n, "message": s.message} for s, n in counts.items() if n}
    if unknown := int((met & ~sample.has_verdict).sum()):
        reasons["UNKNOWN"] = {"count": unknown, "message": Stability.UNKNOWN.meaning}
    return reasons


def _quantiles(values: np.ndarray) -> dict[str, Any]:
    """Quantiles among the members that have the value, and the number of these members."""
    values = values[np.isfinite(values)]
    numbers = np.quantile(values, QUANTILES).tolist() if len(values) else None
    return {"count": len(values), "values": numbers}


def as_table(summary: dict[str, Any]) -> str:
    """The text of `summary.txt`, as it is printed."""
    lines = [*_counts(summary), "", *_probability(summary), "", *_bands(summary)]
    return "\n".join(lines).rstrip() + "\n"


def _counts(summary: dict[str, Any]) -> Iterator[str]:
    yield f"{summary['size']:,} members of {summary['model']}"
    for name, count in summary["stability"].items():
        if count:
            yield f"  {name:<22}{count:>9,}   {Stability[name].meaning}"
    for name, entry in summary["no_verdict"].items():
        label = "no verdict" if name == "UNKNOWN" else f"not found: {name}"
        yield f"  {label:<22}{entry['count']:>9,}   {entry['message']}"


def _probability(summary: dict[str, Any]) -> Iterator[str]:
    count, size = summary["judged"], summary["size"]
    if not count:
        yield "probability of instability: unknown, since no member has a verdict"
        return
    low, high = summary["interval"]
    level = f"{100 * summary['confidence']:g} %"
    yield (
        f"probability of instability {summary['probability']:.4g}, "
        f"{level} interval {low:.4g} to {high:.4g} (Wilson)"
    )
    if count < size:
        least, highest = summary["bounds"]
        yield f"  of the {count:,} members with a verdict; of all {size:,} it is {least:.4g}"
        yield f"  if the others are not unstable, and {highest:.4g} if they are"
    if not summary["independent"]:
        yield "  the interval holds for independent members, which those of `sobol` are not"


def _bands(summary: dict[str, Any]) -> Iterator[str]:
    rows = {name: row for name, row in summary["quantiles"].items() if row["values"]}
    if not rows:
        return
    width = max(18, *(len(name) + 2 for name in rows))
    heads = "".join(f"{100 * p:>9g} %" for p in summary["probabilities"])
    yield f"{'quantiles':<{width + 2}}{heads}    members"
    for name, row in rows.items():
        values = "".join(f"{x if abs(x) > _ROUND_OFF else 0:>11.4g}" for x in row["values"])
        yield f"  {name:<{width}}{values}{row['count']:>11,}"
