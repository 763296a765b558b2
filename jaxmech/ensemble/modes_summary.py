"""The summary of a study of eigenvalues: verdicts, the probability of instability, quantiles."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxmech.analysis.equilibrium import EquilibriumStatus, Stability
from jaxmech.ensemble.modes_study import INSTABILITY
from jaxmech.ensemble.results import Results
from jaxmech.ensemble.statistics.protocol import StatisticResult
from jaxmech.ensemble.statistics.quantiles import QUANTILES

_ROUND_OFF = 1e-12  # smaller values are printed as 0
MOST_ROWS = 12  # of coordinates, and of frequencies
_VERDICTS = tuple(s for s in Stability if s != Stability.UNKNOWN)


def summarize_modes(results: Results, statistics: Mapping[str, StatisticResult]) -> dict[str, Any]:
    """The verdicts of all members, and quantiles of what was found.

    Members without a verdict do not count in the probability of instability; `bounds` says what it
    would be among all members, were every one of those stable, or unstable.
    """
    stability, status = results.all_of("stability"), results.all_of("status")
    has_verdict = stability != Stability.UNKNOWN
    count, finished = int(has_verdict.sum()), len(stability)
    unstable = int((stability == Stability.UNSTABLE).sum())
    q, frequencies = results.all_of("q"), results.all_of("frequencies")
    rows = {name: q[:, k] for k, name in enumerate(results.labels[:MOST_ROWS])}
    vibrations = min(MOST_ROWS, int(np.isfinite(frequencies).any(axis=0).sum()))
    rows |= {f"frequency {k + 1} [Hz]": frequencies[:, k] for k in range(vibrations)}
    rows["growth [1/s]"] = results.all_of("growth")
    instability = statistics.get(INSTABILITY)
    if instability is None or not count:
        probability, interval = None, None
    else:
        probability = float(instability["probability"])
        interval = [float(instability["low"]), float(instability["high"])]
    sampling = results.config.get("sampling", {})
    return {
        "model": results.config["model"],
        "size": results.size,
        "done": finished,
        "stability": {s.name: int((stability[has_verdict] == s).sum()) for s in _VERDICTS},
        "no_verdict": _without_verdict(status, has_verdict),
        "judged": count,
        "unstable": unstable,
        "probability": probability,
        "confidence": results.config["confidence"],
        "interval": interval,
        "is_weighted": bool(sampling.get("proposal") or sampling.get("weight")),
        "bounds": [unstable / finished, (unstable + finished - count) / finished]
        if finished
        else None,
        "independent": sampling.get("design", "random") == "random",
        "probabilities": list(QUANTILES),
        "quantiles": {name: _quantiles(values) for name, values in rows.items()},
        "blocks": len(results.blocks),
    }


def _without_verdict(status: np.ndarray, has_verdict: np.ndarray) -> dict[str, dict[str, Any]]:
    met = status == EquilibriumStatus.FOUND
    counts = {s: int((status == s).sum()) for s in EquilibriumStatus if s}
    reasons = {s.name: {"count": n, "message": s.message} for s, n in counts.items() if n}
    if unknown := int((met & ~has_verdict).sum()):
        reasons["UNKNOWN"] = {"count": unknown, "message": Stability.UNKNOWN.meaning}
    return reasons


def _quantiles(values: np.ndarray) -> dict[str, Any]:
    values = values[np.isfinite(values)]
    numbers = np.quantile(values, QUANTILES).tolist() if len(values) else None
    return {"count": len(values), "values": numbers}


def modes_parts(summary: dict[str, Any]) -> list[Iterator[str]]:
    """The lines of `summary.txt`, part by part."""
    return [_counts(summary), _probability(summary), _bands(summary)]


def _counts(summary: dict[str, Any]) -> Iterator[str]:
    finished, size = summary["done"], summary["size"]
    share = "" if finished == size else f" of {size:,}"
    yield f"{finished:,}{share} members of {summary['model']}"
    for name, count in summary["stability"].items():
        if count:
            yield f"  {name:<22}{count:>9,}   {Stability[name].meaning}"
    for name, entry in summary["no_verdict"].items():
        label = "no verdict" if name == "UNKNOWN" else f"not found: {name}"
        yield f"  {label:<22}{entry['count']:>9,}   {entry['message']}"


def _probability(summary: dict[str, Any]) -> Iterator[str]:
    count, finished = summary["judged"], summary["done"]
    if summary["interval"] is None:
        yield "probability of instability: unknown, since no member has a verdict"
        return
    low, high = summary["interval"]
    rule = "weighted" if summary["is_weighted"] else "Wilson"
    level = f"{100 * summary['confidence']:g} %"
    yield (
        f"probability of instability {summary['probability']:.4g}, "
        f"{level} interval {low:.4g} to {high:.4g} ({rule})"
    )
    if count < finished and not summary["is_weighted"]:
        smallest, largest = summary["bounds"]
        yield f"  of the {count:,} members with a verdict; of all {finished:,} it is {smallest:.4g}"
        yield f"  if the others are not unstable, and {largest:.4g} if they are"
    if not summary["independent"]:
        yield "  the interval holds for independent members, which those of a design are not"


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
