"""Results as text: tables in Markdown, and everything as JSON."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from typing import Any

from experiments.speed import gradients
from experiments.speed.benchmarks import Measured, Results, names
from experiments.speed.measure import Outcome

NONE = "–"
_RESIDUALS = ("difference", "position_residual", "velocity_residual")
_PARTS = ("table", "batches", "lengths", "large", "gradients")


def as_json(results: Results) -> str:
    """Every figure, with the configuration and the environment."""
    content = {
        "finished": results.finished,
        "environment": {
            **{package: _version(package) for package in ("diffrax", "mujoco")},
            "cores": os.cpu_count(),
            "load": results.load,
            **results.environment,
        },
        "config": asdict(results.config),
        **{part: [_plain(measured) for measured in getattr(results, part)] for part in _PARTS},
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_markdown(results: Results) -> str:
    """All tables, the one for the README first."""
    return "\n\n".join(_sections(results)) + "\n"


def heading(measured: Measured) -> str:
    """The case with its size."""
    case = measured.case
    n, m = case.equations
    return f"{case.title} (n {n}, m {m}), {case.batch:,} trajectories of {case.steps:,} steps"


def facts(measured: Measured) -> str:
    """A table of one case: a row for each route."""
    base = next(iter(measured.outcomes), "")
    rows = [["route", "steps/s", "times slower", "compile", *_RESIDUALS]]
    for name, outcome in measured.outcomes.items():
        speed = measured.speed(name)
        row = [name, f"{_millions(speed)} M" if speed else _in_short(outcome)]
        row += [_times(measured.ratio(name, base)), _compile(measured, name)]
        rows.append([*row, *(_size(getattr(outcome, what)) for what in _RESIDUALS)])
    rows[0] = [text.replace("_", " ") for text in rows[0]]
    return _grid(rows)


def problems(group: Sequence[Measured]) -> Iterator[str]:
    """Why routes have no speed, a line for each."""
    found = [
        f"- {measured.case.title}, {name}: {outcome.problem}"
        for measured in group
        for name, outcome in measured.outcomes.items()
        if outcome.problem
    ]
    if found:
        yield "\n".join(dict.fromkeys(found))


def _sections(results: Results) -> Iterator[str]:
    if results.table:
        yield _summary(results.table)
        yield from problems(results.table)
    yield _setting(results)
    for measured in results.table:
        yield f"### {heading(measured)}"
        yield facts(measured)
    for first, title, group in (
        ("batch", "Speed over the size of the batch", results.batches),
        ("links", "Speed over the length of a chain", results.lengths),
        ("case", "Speed of other cases", results.large),
    ):
        if group:
            yield f"### {title}"
            yield _scaling(first, group)
            yield from problems(group)
    if results.gradients:
        yield "### Gradient of a scalar of the final state by q0, v0 and all parameters"
        yield _gradients(results.gradients)
        yield "### Sensitivities of q and v to p numbers, in forward runs"
        yield _sensitivities(results.gradients)
        yield from problems(results.gradients)


def _summary(table: list[Measured]) -> str:
    """Routes down, cases across: speed, and how many times slower than the first route."""
    routes = names(table)
    head = [f"{x.case.title} (n {x.case.equations[0]}, m {x.case.equations[1]})" for x in table]
    rows = [["million steps per second", *head], ["", *(f"batch {x.case.batch:,}" for x in table)]]
    rows += [[route, *(_cell(x, route, routes[0]) for x in table)] for route in routes]
    return _grid(rows)


def _setting(results: Results) -> str:
    known = results.environment
    return (
        f"Trajectory-steps per second, RK4, float64, best of {results.config.timing.rounds} "
        "rounds; in brackets how many times slower than the first route. "
        f"{known.get('processor', '')}, {os.cpu_count()} cores with a load of {results.load:.1f} "
        f"before the start, jax {known.get('jax', '')}, Python {known.get('python', '')}."
    )


def _scaling(first: str, group: list[Measured]) -> str:
    routes = names(group)
    rows = [[first, *(f"{r}{what}" for r in routes for what in (", M steps/s", ", compile"))]]
    for x in group:
        labels = {"batch": f"{x.case.batch:,}", "links": f"{x.case.equations[1]}"}
        cells = [text for r in routes for text in (_cell(x, r, r), _compile(x, r))]
        rows.append([labels.get(first, heading(x)), *cells])
    return _grid(rows)


def _gradients(group: list[Measured]) -> str:
    forward, forms = gradients.FORWARD, (gradients.INSIDE, gradients.OUTSIDE)
    head = [f"{form}{what}" for form in forms for what in (", forward runs", ", compile")]
    rows = [["case", "forward run, M steps/s", "compile", *head, "difference"]]
    for x in group:
        row = [_name(x), _cell(x, forward, forward), _compile(x, forward)]
        for form in forms:
            row += [_times(x.ratio(form, forward)), _compile(x, form)]
        rows.append([*row, _size(x.outcomes.get(forms[-1], Outcome()).difference)])
    return _grid(rows)


def _sensitivities(group: list[Measured]) -> str:
    """Cost in forward runs, and relative to 1 + p runs: one for the motion, one per derivative."""
    forms = gradients.SENSITIVITIES
    rows = [["case", *(f"{what}p = {p}" for p in forms.values() for what in ("", "compile, "))]]
    for x in group:
        row = [_name(x)]
        for form, p in forms.items():
            ratio = x.ratio(form, gradients.FORWARD)
            share = "" if ratio is None else f" = {ratio / (1 + p):.2f} (1 + p)"
            row += [f"{_times(ratio)}{share}", _compile(x, form)]
        rows.append(row)
    return _grid(rows)


def _grid(rows: Sequence[Sequence[str]]) -> str:
    first, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([first, f"|{'---|' * len(rows[0])}", *rest])


def _name(measured: Measured) -> str:
    return f"{measured.case.title} × {measured.case.batch:,}"


def _cell(measured: Measured, route: str, base: str) -> str:
    speed, ratio = measured.speed(route), measured.ratio(route, base)
    if speed is None:
        return _in_short(measured.outcomes.get(route, Outcome()))
    times = "" if route == base or ratio is None else f" ({_times(ratio)})"
    return f"{_millions(speed)}{times}"


def _in_short(outcome: Outcome) -> str:
    """Why there is no speed, in a word."""
    word = outcome.problem.partition(":")[0]
    return NONE if word in ("", "unavailable") else word


def _millions(speed: float) -> str:
    millions = speed / 1e6
    digits = 0 if millions >= 100 else 1 if millions >= 10 else 2 if millions >= 1 else 3
    return f"{millions:.{digits}f}"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return NONE
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.2g}×" if ratio < 10 else f"{ratio:.0f}×"


def _compile(measured: Measured, name: str) -> str:
    seconds = measured.compile_seconds(name)
    return NONE if seconds is None else f"{seconds:.1f} s"


def _size(value: float | None) -> str:
    return NONE if value is None else f"{value:.1e}"


def _plain(measured: Measured) -> dict[str, Any]:
    case = measured.case
    n, m = case.equations
    sizes = {"batch": case.batch, "steps": case.steps, "step_size": case.step_size}
    outcomes = {
        name: {
            **{key: _finite(value) for key, value in asdict(outcome).items()},
            "best": outcome.best,
            "steps_per_second": measured.speed(name),
        }
        for name, outcome in measured.outcomes.items()
    }
    return {"case": case.name, "n": n, "m": m, **sizes, "outcomes": outcomes}


def _finite(value: Any) -> Any:
    """The value, as text if it is inf or NaN, which JSON does not have."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
