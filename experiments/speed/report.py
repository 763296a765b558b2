"""Results as JSON, and tables in Markdown made from it.

A row is the JSON of a case on a device: its size, and its outcomes by route or form.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from typing import Any

from experiments.speed.benchmarks import Measured, Results

Row = Mapping[str, Any]
NONE = "–"
_RESIDUALS = ("difference", "position_residual", "velocity_residual")


def content(results: Results) -> dict[str, Any]:
    """Collect every figure, with the configuration and the devices, as stored in `speed.json`."""
    return {
        "finished": results.finished,
        "host": {
            **{package: _version(package) for package in ("diffrax", "mujoco")},
            "cores": os.cpu_count(),
            "load": results.load,
        },
        "devices": results.devices,
        "config": asdict(results.config),
        "table": [as_row(results, x) for x in results.table],
        "gradients": [as_row(results, x) for x in results.gradient],
    }


def as_json(found: Mapping[str, Any]) -> str:
    """Format the text of `speed.json`."""
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def as_row(results: Results, measured: Measured) -> Row:
    """Make the row of a case."""
    case, outcomes = measured.case, {}
    for name, outcome in measured.outcomes.items():
        best = outcome.best
        speed = case.batch * case.steps / best if best else None
        outcomes[name] = {
            **{key: _finite(value) for key, value in asdict(outcome).items()},
            "best": best,
            "steps_per_second": speed,
        }
    n, m = case.equations
    return {
        "case": case.name, "title": case.title, "n": n, "m": m,
        "platform": measured.platform,
        "batch": case.batch, "steps": case.steps, "step_size": case.step_size,
        "outcomes": outcomes,
    }  # fmt: skip


def names(group: Sequence[Row]) -> list[str]:
    """The routes that occur in a group, in order."""
    return list(dict.fromkeys(name for row in group for name in row["outcomes"]))


def places(group: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The platforms of a group, with their rows."""
    found: dict[str, list[Row]] = {}
    for row in group:
        found.setdefault(row["platform"], []).append(row)
    return list(found.items())


def figure(row: Row, name: str, what: str) -> Any:
    """A figure of a route, None if it was not measured."""
    return row["outcomes"].get(name, {}).get(what)


def as_markdown(found: Mapping[str, Any]) -> str:
    """Format all tables of the content of a `speed.json`, the one for the README first."""
    return "\n\n".join(["# Speed of batches", *_sections(found)]) + "\n"


def heading(row: Row) -> str:
    """Format the case with its size."""
    size = f"{row['batch']:,} trajectories of {row['steps']:,} steps"
    return f"{_title(row)}, {size}, {row['platform']}"


def facts(row: Row) -> str:
    """Format a table of one case, with a line for each route."""
    base = next(iter(row["outcomes"]), "")
    head = [text.replace("_", " ") for text in ("compile", *_RESIDUALS)]
    lines = [["route", "M steps/s", "times slower", *head]]
    for name, outcome in row["outcomes"].items():
        sizes = [_text(outcome[what], ".1e") for what in _RESIDUALS]
        compiling = _text(outcome["compile_seconds"], ".1f", " s")
        lines.append([name, _speed(row, name), _times(row, name, base), compiling, *sizes])
    return grid(lines)


def problems(group: Sequence[Row]) -> Iterator[str]:
    """Yield the reasons why routes have no speed, a line for each."""
    found = [
        f"- {row['title']}, {name}: {outcome['problem']}"
        for row in group
        for name, outcome in row["outcomes"].items()
        if outcome["problem"]
    ]
    if found:
        yield "\n".join(dict.fromkeys(found))


def _sections(found: Mapping[str, Any]) -> Iterator[str]:
    for k, (place, table) in enumerate(places(found["table"])):
        if k:
            yield f"## {place}"
        yield _summary(table)
        yield from problems(table)
    yield (
        f"Trajectory-steps per second, RK4, best of {found['config']['timing']['rounds']} rounds; "
        "in brackets how many times slower than the first route.\n\n"
        + "\n".join(f"- {place}: {device(known)}" for place, known in found["devices"].items())
        + f"\n- load of the machine before the start: {found['host']['load']:.1f}"
    )
    for row in found["table"]:
        yield f"## {heading(row)}"
        yield facts(row)
    for place, group in places(found["gradients"]):
        yield f"## Gradient of a scalar of the final state, in forward runs, {place}"
        lines = [["case", "batch", *names(group)]]
        for row in group:
            cells = [_in_forward_runs(row, x) for x in names(group)]
            lines.append([row["title"], f"{row['batch']:,}", *cells])
        yield grid(lines)
        yield from problems(group)


def _summary(table: Sequence[Row]) -> str:
    """Format speeds by route and case, with their ratios to the first route."""
    first, *rest = names(table)
    lines = [
        ["million steps per second", *map(_title, table)],
        ["", *(f"batch {row['batch']:,}" for row in table)],
        [first, *(_speed(row, first) for row in table)],
    ]
    for name in rest:
        ratios = [_times(row, name, first) for row in table]
        cells = zip((_speed(row, name) for row in table), ratios, strict=True)
        lines.append([name, *(x if y == NONE else f"{x} ({y})" for x, y in cells)])
    return grid(lines)


def device(known: Mapping[str, Any]) -> str:
    """Describe a device, and the versions that ran on it."""
    name = known["processor"] if known["platform"] == "cpu" else known["device"]
    driver = [f"driver {known['driver']}"] if known.get("driver") else []
    return ", ".join([name, *driver, f"jax {known['jax']}", f"Python {known['python']}"])


def grid(lines: Sequence[Sequence[str]]) -> str:
    """Format a table in Markdown."""
    first, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([first, f"|{'---|' * len(lines[0])}", *rest])


def _title(row: Row) -> str:
    return f"{row['title']} (n {row['n']}, m {row['m']})"


def _speed(row: Row, name: str) -> str:
    """Format million steps per second, or one word for the reason why there is no speed."""
    speed = figure(row, name, "steps_per_second")
    if speed is None:
        word = (figure(row, name, "problem") or "").partition(":")[0]
        return NONE if word in ("", "unavailable") else word
    millions = speed / 1e6
    digits = 0 if millions >= 100 else 1 if millions >= 10 else 2 if millions >= 1 else 3
    return f"{millions:.{digits}f}"


def _in_forward_runs(row: Row, name: str) -> str:
    base = next(iter(row["outcomes"]))
    return f"{_speed(row, name)} M steps/s" if name == base else _times(row, name, base)


def _times(row: Row, name: str, base: str) -> str:
    own, other = (figure(row, x, "best") for x in (name, base))
    if not own or not other:
        return NONE
    ratio = own / other
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.2g}×" if ratio < 10 else f"{ratio:.0f}×"


def _text(value: Any, form: str, unit: str = "") -> str:
    return (
        NONE if value is None else str(value) if isinstance(value, str) else f"{value:{form}}{unit}"
    )


def _finite(value: Any) -> Any:
    """Replace inf and NaN, which JSON does not have, by text."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
