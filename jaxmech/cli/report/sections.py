"""The sections of the page about a run: tables from what is stored in its folder."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

import numpy as np

from jaxmech.cli.report.elements import Html, element, number_text, section, table, together
from jaxmech.config.run_folder import stored_environment
from jaxmech.ensemble import Results
from jaxmech.ensemble.checksums import mark_of
from jaxmech.ensemble.finished.comparison import INTERVALS
from jaxmech.ensemble.layout import array_of
from jaxmech.ensemble.summary import failed as failures_of
from jaxmech.status import Status, succeeded

MOST_FAILURES = 100
_MOST_ROWS = 12  # of an array with intervals
_LIMITS = {what: (low, high) for what, low, high in INTERVALS}


def headline(results: Results, summary: dict[str, Any]) -> Html:
    """Describe the run in a sentence."""
    failed = failures_of(summary)
    sentence = f"{summary['done']:,} of {summary['size']:,} trajectories"
    sentence += f", {failed:,} failed" if failed else ", none failed"
    if len(results.blocks) < results.count and not results.summary:
        sentence += "; the run is not finished"
    return together([element("h1", results.name), element("p", sentence + ".", class_="lead")])


def answers(results: Results) -> Html | None:
    """Every statistic with its interval."""
    rows = list(_answers(results))
    if not rows:
        return None
    confidence = _confidences(results)
    note = element("p", f"Intervals of {confidence}; arrays in full are in statistics.npz.")
    return section("Answers", table(("statistic", "value", "low", "high"), rows), note)


def _answers(results: Results) -> Iterator[tuple[object, ...]]:
    limits = {name for pair in _LIMITS.values() for name in pair}
    for name, statistic in results.statistics.items():
        for estimate, value in statistic.items():
            array = np.asarray(value)
            if estimate == "times" and array.dtype.kind == "U":  # those at which passages count
                yield f"{name}: {estimate}", str(value), "", ""
            if estimate in limits or estimate == "at" or array.dtype.kind not in "fiu":
                continue  # beside its value, or a name
            low, high = (
                np.asarray(statistic.get(key, "")) for key in _LIMITS.get(estimate, ("", ""))
            )
            over_time = array.ndim > 0 and len(array) == len(results.ts) and estimate in _LIMITS
            end = ""
            if over_time:
                end = f" at t = {results.ts[-1]:g} s"
                array, low, high = (x[-1] if x.ndim else x for x in (array, low, high))
            if array.size > _MOST_ROWS:
                continue
            for place in np.ndindex(array.shape):
                ends = (_number(x[place]) if x.shape == array.shape else "" for x in (low, high))
                yield (
                    f"{name}: {estimate}{_place(statistic, place)}{end}",
                    _number(array[place]),
                    *ends,
                )


def _place(statistic: Mapping[str, Any], place: tuple[int, ...]) -> str:
    """Name an entry of an array: of quantiles the probability."""
    probabilities = np.asarray(statistic.get("at", ()))
    if len(place) == 1 and len(probabilities) > place[0]:
        return f" {100 * probabilities[place[0]]:g} %"
    return f"[{', '.join(map(str, place))}]" if place else ""


def _confidences(results: Results) -> str:
    settings = results.config.get("statistics", {}).values()
    levels = sorted(
        {statistic["confidence"] for statistic in settings if "confidence" in statistic}
    )
    return " or ".join(f"{100 * x:g} %" for x in levels) or "95 %"


def _number(value: Any) -> object:
    if value.dtype.kind == "U":
        return ""
    number = value.item()
    return number if isinstance(number, int) or np.isfinite(number) else "–"


def audit(summary: dict[str, Any]) -> Html:
    """Count the outcomes of trajectories, and list the worst values of the good ones."""
    ends = [(name, x["count"], x["message"]) for name, x in summary["status"].items()]
    worst = [(name.replace("_", " "), number_text(x)) for name, x in summary["worst"].items()]
    worst.append(("smallest rank", number_text(summary["smallest_rank"])))
    if summary["too_coarse"]:
        worst.append(("trajectories with too large a step", number_text(summary["too_coarse"])))
    return together(
        [
            section("How trajectories ended", table(("status", "count", "meaning"), ends)),
            section("The worst of the successful trajectories", table(("", "largest"), worst)),
        ]
    )


def bands(summary: dict[str, Any]) -> Html | None:
    """Quantiles of the coordinates at the end."""
    quantiles = summary["quantiles"]
    if not quantiles or summary["done"] == failures_of(summary):
        return None
    titles = ("coordinate", *(f"{100 * p:g} %" for p in quantiles["probabilities"]))
    rows = [(name, *rows[-1]) for name, rows in quantiles["coordinates"].items()]
    return section(f"Quantiles at t = {quantiles['times'][-1]:g} s", table(titles, rows))


def failures(results: Results, summary: dict[str, Any]) -> Html | None:
    """Each failed trajectory, with what was drawn for it and the command that replays it."""
    count = failures_of(summary)
    if not count:
        return None
    rows, names = (
        _stored_failures(results)
        if results.has_trajectories
        else ([(int(k), "", "") for k in summary["failed"]], [])
    )
    run = quote(str(results.path))
    lines = [(*row, element("code", f"jaxmech replay {run} {row[0]}")) for row in rows]
    titles = ("trajectory", "status", "t [s]", *names, "to see it alone")
    note = element("p", f"{len(rows):,} of {count:,} are listed.") if count > len(rows) else ""
    return section("Failures", table(titles, lines), note)


def _stored_failures(results: Results) -> tuple[list[tuple[Any, ...]], list[str]]:
    step = int(results.config["block"])
    numbers = [np.arange(b * step, min((b + 1) * step, results.size)) for b in results.blocks]
    bad = np.concatenate(numbers)[~np.asarray(succeeded(results.status))][:MOST_FAILURES]
    arrays = {name: array_of(results.group, name) for name in ("status", "t_failed")}
    drawn = [
        name
        for name in results.group
        if name.startswith(("start_", "coordinate_", "velocity_", "parameter_"))
        and array_of(results.group, name).shape == (results.size,)
    ]
    rows = []
    for k in bad.tolist():
        values = [float(np.asarray(array_of(results.group, name)[k])) for name in drawn]
        status = Status(int(np.asarray(arrays["status"][k])))
        rows.append((k, status.name, float(np.asarray(arrays["t_failed"][k])), *values))
    return rows, drawn


def configuration(results: Results) -> Html:
    """Show the resolved configuration."""
    source = (results.path / "config.toml").read_text(encoding="utf-8")
    return section("Configuration", element("pre", source), folded=True)


def surroundings(results: Results) -> Html:
    """List versions and devices, and the numbers of blocks by kind of processor."""
    facts = stored_environment(results.path)
    texts = ((key, x if isinstance(x, str) else json.dumps(x)) for key, x in facts.items())
    rows = [(key, value) for key, value in texts if value]
    marks = (mark_of(results.path, block).read_text("utf-8") for block in results.blocks)
    kinds = Counter(filter(None, (json.loads(mark).get("processor") for mark in marks)))
    parts = [table(("fact", "value"), rows)]
    if len(kinds) > 1:
        sentence = (
            "Several kinds of processors computed this run; the last bits of results may differ."
        )
        parts += [element("p", sentence), table(("processor", "blocks"), kinds.items())]
    return section("Environment", *parts, folded=True)
