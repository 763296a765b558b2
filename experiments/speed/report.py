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

from experiments.measuring import table_head, table_row
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
        "table": [as_row(x) for x in results.table],
        "gradients": [as_row(x) for x in results.gradient],
    }


def as_json(found: Mapping[str, Any]) -> str:
    """Format the text of `speed.json`."""
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def as_row(measured: Measured) -> Row:
    """Make the row of a case."""
    case, outcomes = measured.case, {}
    for name, outcome in measured.outcomes.items():
        best = outcome.best
        outcomes[name] = {
            **{key: _finite(value) for key, value in asdict(outcome).items()},
            "best": best,
            "steps_per_second": case.batch * case.steps / best if best else None,
        }
    n, m = case.equations
    return {
        "case": case.name, "title": case.title, "n": n, "m": m,
        "platform": measured.platform,
        "batch": case.batch, "steps": case.steps, "step_size": case.step_size,
        "outcomes": outcomes,
    }  # fmt: skip


def as_markdown(found: Mapping[str, Any]) -> str:
    """Format all tables of the content of a `speed.json`, the one for the README first."""
    return "\n\n".join(["# Speed of batches", *_sections(found)]) + "\n"


def of_case(row: Row) -> Iterator[str]:
    """The case with its size, a table with a line for each route, and what has no speed."""
    size = f"{row['batch']:,} trajectories of {row['steps']:,} steps"
    yield f"{_title(row)}, {size}, {row['platform']}"
    base = next(iter(row["outcomes"]), "")
    head = [text.replace("_", " ") for text in ("compile", *_RESIDUALS)]
    lines = [["route", "M steps/s", "times slower", *head]]
    for name, outcome in row["outcomes"].items():
        sizes = [_text(outcome[what], ".1e") for what in _RESIDUALS]
        compiling = _text(outcome["compile_seconds"], ".1f", " s")
        lines.append([name, _speed(row, name), _times(row, name, base), compiling, *sizes])
    yield _grid(lines)
    yield from _problems([row])


def _sections(found: Mapping[str, Any]) -> Iterator[str]:
    for k, table in enumerate(_by_platform(found["table"])):
        if k:
            yield f"## {table[0]['platform']}"
        yield _summary(table)
        yield from _problems(table)
    devices = "\n".join(f"- {place}: {_device(known)}" for place, known in found["devices"].items())
    yield (
        f"Trajectory-steps per second, RK4, best of {found['config']['timing']['rounds']} rounds; "
        f"in brackets how many times slower than the first route.\n\n{devices}\n"
        f"- load of the machine before the start: {found['host']['load']:.1f}"
    )
    for row in found["table"]:
        heading, *rest = of_case(row)
        yield f"## {heading}"
        yield rest[0]
    for group in _by_platform(found["gradients"]):
        yield f"## Gradient of a scalar of the final state, in forward runs, {group[0]['platform']}"
        forward, *others = names = _names(group)
        lines = [["case", "batch", *names]]
        for row in group:
            cells = [
                f"{_speed(row, forward)} M steps/s",
                *(_times(row, x, forward) for x in others),
            ]
            lines.append([row["title"], f"{row['batch']:,}", *cells])
        yield _grid(lines)
        yield from _problems(group)


def _by_platform(rows: Sequence[Row]) -> list[list[Row]]:
    platforms = dict.fromkeys(row["platform"] for row in rows)
    return [[row for row in rows if row["platform"] == platform] for platform in platforms]


def _names(group: Sequence[Row]) -> list[str]:
    """The routes that occur in a group, in order."""
    return list(dict.fromkeys(name for row in group for name in row["outcomes"]))


def _summary(table: Sequence[Row]) -> str:
    """Format speeds by route and case, with their ratios to the first route."""
    first, *rest = _names(table)
    lines = [
        ["million steps per second", *map(_title, table)],
        ["", *(f"batch {row['batch']:,}" for row in table)],
        [first, *(_speed(row, first) for row in table)],
    ]
    for name in rest:
        pairs = [(_speed(row, name), _times(row, name, first)) for row in table]
        lines.append([name, *(x if y == NONE else f"{x} ({y})" for x, y in pairs)])
    return _grid(lines)


def _problems(group: Sequence[Row]) -> Iterator[str]:
    """Yield the reasons why routes have no speed, a line for each."""
    reasons = [
        f"- {row['title']}, {name}: {outcome['problem']}"
        for row in group
        for name, outcome in row["outcomes"].items()
        if outcome["problem"]
    ]
    if reasons:
        yield "\n".join(dict.fromkeys(reasons))


def _device(known: Mapping[str, Any]) -> str:
    """Describe a device, and the versions that ran on it."""
    name = known["processor"] if known["platform"] == "cpu" else known["device"]
    driver = [f"driver {known['driver']}"] if known.get("driver") else []
    return ", ".join([name, *driver, f"jax {known['jax']}", f"Python {known['python']}"])


def _grid(lines: Sequence[Sequence[str]]) -> str:
    head, *rest = lines
    return "\n".join([table_head(head), *map(table_row, rest)])


def _title(row: Row) -> str:
    return f"{row['title']} (n {row['n']}, m {row['m']})"


def _speed(row: Row, name: str) -> str:
    """Format million steps per second, or one word for the reason why there is no speed."""
    outcome = row["outcomes"].get(name, {})
    if outcome.get("steps_per_second") is None:
        word = outcome.get("problem", "").partition(":")[0]
        return NONE if word in ("", "unavailable") else word
    millions = outcome["steps_per_second"] / 1e6
    digits = 0 if millions >= 100 else 1 if millions >= 10 else 2 if millions >= 1 else 3
    return f"{millions:.{digits}f}"


def _times(row: Row, name: str, base: str) -> str:
    """Format how many times longer a route takes than another one."""
    own, other = (row["outcomes"].get(x, {}).get("best") for x in (name, base))
    if not own or not other:
        return NONE
    ratio = own / other
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.2g}×" if ratio < 10 else f"{ratio:.0f}×"


def _text(value: Any, form: str, unit: str = "") -> str:
    if value is None or isinstance(value, str):
        return value or NONE
    return f"{value:{form}}{unit}"


def _finite(value: Any) -> Any:
    """Replace inf and NaN, which JSON does not have, by text."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
