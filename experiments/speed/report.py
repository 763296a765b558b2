"""Results as text: tables in Markdown, and everything as JSON."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from typing import Any

from experiments.speed import gradients
from experiments.speed.benchmarks import Measured, Results, names, places
from experiments.speed.measure import Outcome

NONE = "–"
_RESIDUALS = ("difference", "position_residual", "velocity_residual")


def as_json(results: Results) -> str:
    """Every figure, with the configuration and the devices."""
    content = {
        "finished": results.finished,
        "host": {
            **{package: _version(package) for package in ("diffrax", "mujoco")},
            "cores": os.cpu_count(),
            "load": results.load,
        },
        "devices": results.devices,
        "config": asdict(results.config),
        "table": [_plain(results, x) for x in results.table],
        "scaling": [_plain(results, x) for x in results.scaling],
        "gradients": [_plain(results, x) for x in results.gradient],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_markdown(results: Results) -> str:
    """All tables, the one for the README first."""
    return "\n\n".join(_sections(results)) + "\n"


def heading(measured: Measured) -> str:
    """The case with its size."""
    case = measured.case
    n, m = case.equations
    size = f"{case.batch:,} trajectories of {case.steps:,} steps"
    where = f"{measured.platform}, {measured.precision}"
    return f"{case.title} (n {n}, m {m}), {size}, {where}"


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
    return grid(rows)


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
    for k, (place, table) in enumerate(places(results.table)):
        if k:
            yield f"### {place}"
        yield _summary(table)
        yield from problems(table)
    yield _setting(results)
    for measured in results.table:
        yield f"### {heading(measured)}"
        yield facts(measured)
    for place, group in places(results.scaling):
        yield f"### Speed over the size of the batch and of the system, {place}"
        yield _scaling(results, group)
        yield from problems(group)
    for place, group in places(results.gradient):
        yield f"### Gradient of a scalar of the final state by q0, v0 and all parameters, {place}"
        yield _gradients(group)
        yield f"### Sensitivities of q and v to p numbers, in forward runs, {place}"
        yield _sensitivities(group)
        yield from problems(group)


def _summary(table: list[Measured]) -> str:
    """Routes down, cases across: speed, and how many times slower than the first route."""
    routes = names(table)
    head = [f"{x.case.title} (n {x.case.equations[0]}, m {x.case.equations[1]})" for x in table]
    rows = [["million steps per second", *head], ["", *(f"batch {x.case.batch:,}" for x in table)]]
    rows += [[route, *(_cell(x, route, routes[0]) for x in table)] for route in routes]
    return grid(rows)


def _setting(results: Results) -> str:
    return (
        f"Trajectory-steps per second, RK4, best of {results.config.timing.rounds} rounds; in "
        "brackets how many times slower than the first route. The share of the peak is what the "
        "operations of the scalar graph (a sine is one) would need of the arithmetic peak, which "
        "is measured by chains of multiply-add (two operations).\n\n"
        + "\n".join(f"- {place}: {device(known)}" for place, known in results.devices.items())
        + f"\n- load of the machine before the start: {results.load:.1f}"
    )


def device(known: Mapping[str, Any]) -> str:
    """A device, its peak, and the versions that ran on it."""
    name = known["processor"] if known["platform"] == "cpu" else known["device"]
    peaks = [f"{peak / 1e9:,.0f} G/s in {kind}" for kind, peak in known.get("peak", {}).items()]
    driver = [f"driver {known['driver']}"] if known.get("driver") else []
    versions = [f"jax {known['jax']}", f"Python {known['python']}"]
    return ", ".join([name, *peaks, *driver, *versions])


def _scaling(results: Results, group: list[Measured]) -> str:
    routes = names(group)
    what = ("M steps/s", "of peak", "compile")
    rows = [["case", "batch", *(f"{route}, {x}" for route in routes for x in what)]]
    for x in group:
        cells = [(_cell(x, r, r), _share(results.share(x, r)), _compile(x, r)) for r in routes]
        rows.append([x.case.title, f"{x.case.batch:,}", *(text for cell in cells for text in cell)])
    return grid(rows)


def _share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.2g} %"


def _gradients(group: list[Measured]) -> str:
    forward, forms = gradients.FORWARD, (gradients.INSIDE, gradients.OUTSIDE)
    head = [f"{form}{what}" for form in forms for what in (", forward runs", ", compile")]
    rows = [["case", "forward run, M steps/s", "compile", *head, "difference"]]
    for x in group:
        row = [_name(x), _cell(x, forward, forward), _compile(x, forward)]
        for form in forms:
            row += [_times(x.ratio(form, forward)), _compile(x, form)]
        rows.append([*row, _size(x.outcomes.get(forms[-1], Outcome()).difference)])
    return grid(rows)


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
    return grid(rows)


def grid(rows: Sequence[Sequence[str]]) -> str:
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


def _plain(results: Results, measured: Measured) -> dict[str, Any]:
    case = measured.case
    n, m = case.equations
    sizes = {"batch": case.batch, "steps": case.steps, "step_size": case.step_size}
    where = {key: getattr(measured, key) for key in ("platform", "precision", "operations")}
    outcomes = {
        name: {
            **{key: _finite(value) for key, value in asdict(outcome).items()},
            "best": outcome.best,
            "steps_per_second": measured.speed(name),
            "share_of_peak": results.share(measured, name),
        }
        for name, outcome in measured.outcomes.items()
    }
    named = {"case": case.name, "title": case.title, "n": n, "m": m}
    return {**named, **where, **sizes, "outcomes": outcomes}


def _finite(value: Any) -> Any:
    """The value, as text if it is inf or NaN, which JSON does not have."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
