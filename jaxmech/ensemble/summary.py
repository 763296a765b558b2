"""The summary of a run: statuses, worst residuals and drift, quantiles of the coordinates.

It follows from the stored results alone, so an interrupted and continued run has the same one.
"""

from typing import Any

import numpy as np

from jaxmech.config import RunFolder
from jaxmech.ensemble.statistics import QUANTILES
from jaxmech.ensemble.store import STATISTICS_FILE, Results
from jaxmech.run import TOO_COARSE
from jaxmech.status import Status, succeeded
from jaxmech.utils.probing import evenly_spaced
from jaxmech.utils.units import with_unit

WORST = {
    "position_residual": "worst_position_residual",
    "velocity_residual": "worst_velocity_residual",
    "energy_drift": "energy_drift",
    "integration_error": "integration_error",
}
_SHOWN = 5  # number of times at which quantiles are given
_MOST = 64  # numbers of an array that a summary holds
_LONGEST_ROW = 8  # numbers of an array that its table shows


def summarize(results: Results) -> dict[str, Any]:
    """The content of `summary.json`."""
    status, ranks = results.status, results.good("rank")
    worst = {key: results.good(name) for key, name in WORST.items()}
    missed = results.good("missed_events") if results.has("missed_events") else np.zeros(0)
    counts = {s: int(np.sum(status == s)) for s in Status}
    occurring = {s: count for s, count in counts.items() if count or s == Status.OK}
    summary = {
        "model": results.name,
        "size": results.size,
        "done": len(status),
        "status": {
            s.name: {"count": n, "message": _message(results, s)} for s, n in occurring.items()
        },
        "worst": {key: _largest(x) for key, x in worst.items()},
        "smallest_rank": int(ranks.min()) if len(ranks) else None,
        "too_coarse": int(np.sum(worst["integration_error"] > TOO_COARSE)),
        "with_missed_events": int(np.sum(missed > 0)),
        "quantiles": None,
        "blocks": len(results.blocks),
    }
    if results.has("q"):
        indices, names = evenly_spaced(len(results.ts), _SHOWN), results.coordinates
        q = results.good("q", times=indices)
        bands = np.quantile(q, QUANTILES, axis=0).T.tolist() if len(q) else []
        summary["quantiles"] = {
            "times": results.ts[indices].tolist(),
            "probabilities": list(QUANTILES),
            "coordinates": dict(zip(names, bands, strict=False)),
            "units": {name: unit for name in names if (unit := results.unit_of(name))},
        }
    if tables := results.config.get("inputs", {}):
        notes = RunFolder(results.path).environment.get("inputs", {})
        summary["inputs"] = {
            name: {
                "source": table.get("file", table.get("kind", "").replace("-", " ")),
                "notes": notes.get(name, []),
            }
            for name, table in tables.items()
        }
    if results.statistics:
        summary["statistics"] = {
            name: {key: _plain(value) for key, value in values.items()}
            for name, values in results.statistics.items()
        }
    units: dict[str, dict[str, str]] = {}
    for name, values in results.statistics.items():
        known = results.statistic_units(name).items()
        units |= {name: shown} if (shown := {k: x for k, x in known if k in values}) else {}
    return summary | ({"statistic_units": units} if units else {})


def _message(results: Results, status: Status) -> str:
    """What to do about a status; shorter steps do not help a motion that begins at NaN."""
    if status == Status.NONFINITE:
        of_status = results.status == status
        first = results.config["times"].get("start", 0.0)
        count = int((results.all_of("t_failed")[of_status] <= first).sum())
        if count:
            whose = "the initial state" if count == of_status.sum() else f"that of {count} at once"
            return f"{whose} is infinite or NaN; check `state` of the model, and what is drawn"
    return status.message


def failed(summary: dict[str, Any]) -> int:
    """The number of finished members that failed."""
    counts = {Status[name]: int(entry["count"]) for name, entry in summary["status"].items()}
    good = sum(count for status, count in counts.items() if succeeded(status))
    return int(summary["done"]) - good


def as_table(summary: dict[str, Any]) -> str:
    """The text of `summary.txt`, as it is printed."""
    finished, size, quantiles = summary["done"], summary["size"], summary["quantiles"]
    share = "" if finished == size else f" of {size:,}"
    lines = [f"{finished:,}{share} trajectories of {summary['model']}"]
    for name, entry in summary["status"].items():
        lines.append(f"  {name:<18}{entry['count']:>9,}   {entry['message']}")

    texts = {k: f"{'-' if x is None else f'{x:.2e}':>9}" for k, x in summary["worst"].items()}
    drift = " (not conserved)" if summary["worst"]["energy_drift"] is None else " J"
    lines += [
        "",
        "worst of the successful trajectories",
        f"  position residual {texts['position_residual']}",
        f"  velocity residual {texts['velocity_residual']}",
        f"  energy drift      {texts['energy_drift']}{drift}",
        f"  smallest rank     {summary['smallest_rank']}",
        f"  integration error {texts['integration_error']} of the motion",
    ]
    if coarse := summary["too_coarse"]:
        remedy = "leave out `steps.per_save`, or increase it"
        lines.append(f"  above {TOO_COARSE:g} for {coarse:,} trajectories: {remedy}")
    if missing := summary.get("with_missed_events"):
        remedy = "leave out `steps.per_save`, increase it, or set `steps.max_step`"
        lines.append(f"  events missed in too long steps in {missing:,} trajectories: {remedy}")

    if quantiles is not None and failed(summary) != finished:
        units, bands = quantiles["units"], quantiles["coordinates"].items()
        rows = [(with_unit(name, units.get(name, "")), numbers[-1]) for name, numbers in bands]
        width = max(18, *(len(name) + 2 for name, _ in rows))
        title = f"quantiles at t = {quantiles['times'][-1]:g} s"
        lines += ["", f"{title:<{width + 2}}" + "".join(f"{100 * p:>9g} %" for p in QUANTILES)]
        for name, numbers in rows:
            lines.append(f"  {name:<{width}}" + "".join(f"{x:>11.4g}" for x in numbers))

    lines += [""] if "inputs" in summary else []
    for name, entry in summary.get("inputs", {}).items():
        lines.append("; ".join([f"input {name} from {entry['source']}", *entry["notes"]]))

    # Numbers and arrays by their shapes alone, so that results alike are shown alike.
    lines += [""] if "statistics" in summary else []
    for name, values in summary.get("statistics", {}).items():
        units = summary.get("statistic_units", {}).get(name, {})
        lines.append(name)
        for key, value in values.items():
            shape = () if isinstance(value, str) else np.shape(value)
            texts_of = [_shown(row) for row in (value if len(shape) == 2 else [value])]
            if len(shape) > 2 or max(shape, default=0) > _LONGEST_ROW:
                texts_of = [f"array of shape {shape}, in {STATISTICS_FILE}"]
            for row, text in enumerate(texts_of):
                label = "" if row else with_unit(key, units.get(key, ""))
                lines.append(f"  {label:<18}{text}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    if array.size > _MOST:
        return f"array of shape {array.shape}, in {STATISTICS_FILE}"
    if array.dtype.kind == "f":  # JSON has no numbers that are not finite
        array = np.where(np.isfinite(array), array.astype(object), np.array(None))
    return array.tolist()


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_shown(x) for x in value) + "]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _largest(values: np.ndarray) -> float | None:
    finite_values = values[np.isfinite(values)]
    return float(finite_values.max()) if len(finite_values) else None
