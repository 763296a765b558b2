"""What was measured as text: tables in Markdown, and everything as JSON."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from typing import Any

from experiments.speed import gradients
from experiments.speed.benchmarks import Measured, Results
from experiments.speed.measure import Outcome

Row = Sequence[str]
NONE = "–"
_SCALES = {
    "batch": "Speed over the size of the batch",
    "links": "Speed over the length of a chain",
    "case": "Speed of other cases",
}


def as_json(results: Results) -> str:
    """Every figure, with the configuration and the environment."""
    parts = ("table", "batches", "lengths", "large", "gradients")
    content = {
        "finished": results.finished,
        "environment": {
            **{package: _version(package) for package in ("diffrax", "mujoco")},
            "cores": os.cpu_count(),
            "load": results.load,
            **results.environment,
        },
        "config": asdict(results.config),
        **{part: [_plain(measured) for measured in getattr(results, part)] for part in parts},
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_markdown(results: Results) -> str:
    """All tables, the one for the README first."""
    return "\n\n".join(_sections(results)) + "\n"


def line(measured: Measured) -> str:
    """A case in a few lines, for the screen."""
    rows = [[name, *_facts(measured, name)] for name in measured.outcomes]
    widths = [max(map(len, column)) for column in zip(_FACTS, *rows, strict=True)]
    shown = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in (_FACTS, *rows)
    ]
    problems = _problems([measured])
    return "\n".join([heading(measured), *(f"  {text}" for text in shown), *problems])


def heading(measured: Measured) -> str:
    """The case with its size."""
    case = measured.case
    n, m = case.equations
    return f"{case.title} (n {n}, m {m}), {case.batch:,} trajectories of {case.steps:,} steps"


def _sections(results: Results) -> Iterator[str]:
    if results.table:
        yield _summary(results.table)
        yield from _problems(results.table)
    yield _setting(results)
    for measured in results.table:
        yield f"### {heading(measured)}"
        yield _grid([_FACTS, *([name, *_facts(measured, name)] for name in measured.outcomes)])
    groups = results.batches, results.lengths, results.large
    for (what, title), group in zip(_SCALES.items(), groups, strict=True):
        if group:
            yield f"### {title}"
            yield _scaling(what, group)
            yield from _problems(group)
    if results.gradients:
        yield "### Gradient of a scalar of the final state by q0, v0 and all parameters"
        yield _gradients(results.gradients)
        yield "### Sensitivities of q and v to p numbers, in forward runs"
        yield _sensitivities(results.gradients)
        yield from _problems(results.gradients)


def _summary(table: list[Measured]) -> str:
    """Routes down, cases across: speed, and how many times slower than the first route."""
    routes = list(dict.fromkeys(route for measured in table for route in measured.outcomes))
    head = [f"{x.case.title} (n {x.case.equations[0]}, m {x.case.equations[1]})" for x in table]
    rows = [["million steps per second", *head], ["", *(f"batch {x.case.batch:,}" for x in table)]]
    rows += [[route, *(_cell(x, route, routes[0]) for x in table)] for route in routes]
    return _grid(rows)


def _cell(measured: Measured, route: str, base: str) -> str:
    speed, ratio = measured.speed(route), measured.ratio(route, base)
    if speed is None:
        return _in_short(measured.outcomes.get(route, Outcome()))
    times = "" if route == base or ratio is None else f" ({_times(ratio)})"
    return f"{_millions(speed)}{times}"


def _in_short(outcome: Outcome) -> str:
    """Why there is no speed."""
    word = outcome.problem.partition(":")[0]
    return NONE if word in ("", "unavailable") else word


_FACTS = (
    "route",
    "steps/s",
    "times slower",
    "compile",
    "difference",
    "position residual",
    "velocity residual",
)


def _facts(measured: Measured, name: str) -> list[str]:
    outcome, speed = measured.outcomes[name], measured.speed(name)
    base = next(iter(measured.outcomes))
    return [
        f"{_millions(speed)} M" if speed else _in_short(outcome),
        _times(measured.ratio(name, base)),
        _seconds(outcome.compile_seconds),
        *map(_size, (outcome.difference, outcome.position_residual, outcome.velocity_residual)),
    ]


def _problems(group: list[Measured]) -> Iterator[str]:
    """Why there is no speed, a line for each."""
    found = [
        f"- {measured.case.title}, {name}: {outcome.problem}"
        for measured in group
        for name, outcome in measured.outcomes.items()
        if outcome.problem
    ]
    if found:
        yield "\n".join(dict.fromkeys(found))


def _setting(results: Results) -> str:
    facts = results.environment
    timing = results.config.timing
    return (
        f"Trajectory-steps per second, RK4, float64, best of {timing.rounds} rounds; in brackets "
        f"how many times slower than the first route. {facts.get('processor', '')}, "
        f"{os.cpu_count()} cores with a load of {results.load:.1f} before the start, jax "
        f"{facts.get('jax', '')}, Python {facts.get('python', '')}."
    )


def _scaling(first: str, group: list[Measured]) -> str:
    routes = list(dict.fromkeys(route for measured in group for route in measured.outcomes))
    head = [first, *(f"{route}{what}" for route in routes for what in (", M steps/s", ", compile"))]
    rows = [head]
    for measured in group:
        case = measured.case
        names = {"batch": f"{case.batch:,}", "links": f"{case.equations[1]}"}
        row = [names.get(first, heading(measured))]
        for route in routes:
            seconds = measured.outcomes.get(route, Outcome()).compile_seconds
            row += [_cell(measured, route, route), _seconds(seconds)]
        rows.append(row)
    return _grid(rows)


def _gradients(group: list[Measured]) -> str:
    forward, forms = gradients.FORWARD, (gradients.INSIDE, gradients.OUTSIDE)
    head = [f"{form}{what}" for form in forms for what in (", forward runs", ", compile")]
    rows = [["case", "forward run, M steps/s", "compile", *head, "difference"]]
    for measured in group:
        known = measured.outcomes
        row = [
            f"{measured.case.title} × {measured.case.batch:,}",
            _cell(measured, forward, forward),
            _seconds(known.get(forward, Outcome()).compile_seconds),
        ]
        for form in forms:
            seconds = known.get(form, Outcome()).compile_seconds
            row += [_times(measured.ratio(form, forward)), _seconds(seconds)]
        rows.append([*row, _size(known.get(forms[-1], Outcome()).difference)])
    return _grid(rows)


def _sensitivities(group: list[Measured]) -> str:
    """With the share that each of 1 + p runs would be, the motion and every derivative alike."""
    forms = gradients.SENSITIVITIES
    rows = [["case", *(f"{what}p = {p}" for p in forms.values() for what in ("", "compile, "))]]
    for measured in group:
        row = [f"{measured.case.title} × {measured.case.batch:,}"]
        for form, p in forms.items():
            ratio = measured.ratio(form, gradients.FORWARD)
            share = "" if ratio is None else f" = {ratio / (1 + p):.2f} (1 + p)"
            seconds = measured.outcomes.get(form, Outcome()).compile_seconds
            row += [f"{_times(ratio)}{share}", _seconds(seconds)]
        rows.append(row)
    return _grid(rows)


def _grid(rows: Sequence[Row]) -> str:
    first, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([first, f"|{'---|' * len(rows[0])}", *rest])


def _millions(speed: float) -> str:
    millions = speed / 1e6
    digits = 0 if millions >= 100 else 1 if millions >= 10 else 2 if millions >= 1 else 3
    return f"{millions:.{digits}f}"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return NONE
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.2g}×" if ratio < 10 else f"{ratio:.0f}×"


def _seconds(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds:.1f} s"


def _size(value: float | None) -> str:
    return NONE if value is None else f"{value:.1e}"


def _plain(measured: Measured) -> dict[str, Any]:
    case = measured.case
    n, m = case.equations
    return {
        "case": case.name,
        "n": n,
        "m": m,
        "batch": case.batch,
        "steps": case.steps,
        "step_size": case.step_size,
        "outcomes": {
            name: {
                **{key: _finite(value) for key, value in asdict(outcome).items()},
                "best": outcome.best,
                "steps_per_second": measured.speed(name),
            }
            for name, outcome in measured.outcomes.items()
        },
    }


def _finite(value: Any) -> Any:
    """JSON has no word for what is not finite."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
