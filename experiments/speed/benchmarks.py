"""The parts of the benchmark: every case by every route, gradients."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.speed import gradients, routes
from experiments.speed.cases import Case
from experiments.speed.contest import Entrant, Outcome, Outcomes, contest
from experiments.speed.settings import Speed
from experiments.speed.workers import Arrays, JobError, Pool, Worker


@dataclass(frozen=True)
class Measured:
    """A case on a device, with the outcomes of its routes, or of the forms of its gradient."""

    case: Case
    platform: str
    outcomes: Outcomes = field(default_factory=dict)


@dataclass
class Results:
    """Everything measured so far; `finished` is false after an interruption.

    `devices` holds the environment of the workers on each platform.
    """

    config: Speed
    devices: dict[str, dict[str, Any]]
    table: list[Measured] = field(default_factory=list)
    gradient: list[Measured] = field(default_factory=list)
    finished: bool = False
    load: float = field(default_factory=lambda: os.getloadavg()[0])  # before the start


def present(wanted: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The environment of each available platform."""
    found = {}
    for platform in wanted:
        worker = Worker(120.0, platform)
        with suppress(JobError):
            found[platform] = worker.environment()
        worker.close()
    return found


def run(results: Results, tell: Callable[[str], None], done: Callable[[Measured], None]) -> None:
    """Measure all parts of the configuration, on all devices.

    `results` is filled along the way, `tell` receives progress messages, `done` each finished case.
    """
    for part, platform in product(results.config.parts, results.devices):
        with Pool(results.config.timing.limit, platform) as pool:
            for name, size in getattr(results.config, part).cases.items():
                case = Case(name, size.batch, size.steps, size.step)
                measured = Measured(case, platform)
                getattr(results, part).append(measured)
                _measure(part, measured, results.config, pool, tell)
                done(measured)
    results.finished = True


def _measure(
    part: str, measured: Measured, config: Speed, pool: Pool, tell: Callable[[str], None]
) -> None:
    """Compare and time the routes of a case, or the forms of its gradient."""
    case = measured.case
    prepare: Callable[..., Any] = routes.prepare
    if part == "gradient":
        tolerances, prepare = dict.fromkeys(gradients.FORMS, gradients.TOLERANCE), gradients.prepare
        audit: Callable[[Outcome, Arrays], None] = lambda outcome, arrays: None  # noqa: E731
    else:
        names = [x for x in config.table.routes if routes.runs_on(x, measured.platform)]
        tolerances, audit = {x: routes.ROUTES[x].tolerance for x in names}, residuals(case)
    entrants = {
        name: Entrant(partial(prepare, name, case), tolerance)
        for name, tolerance in tolerances.items()
    }
    about = f"{measured.platform}, {case.title} x {case.batch:,}: "
    contest(
        entrants, pool, config.timing, measured.outcomes, audit=audit,
        tell=lambda text: tell(about + text),
    )  # fmt: skip


def residuals(case: Case) -> Callable[[Outcome, Arrays], None]:
    """A function that adds the constraint residuals of final states to an outcome."""
    system, params, end = case.model.system, case.model.params, jnp.asarray(case.end)
    position = jax.jit(jax.vmap(lambda q: system.dynamics.position_level(q, end, params)))
    velocity = jax.jit(jax.vmap(lambda q, v: system.dynamics.velocity_level(q, v, end, params)))

    def largest(values: jax.Array) -> float | None:
        return float(np.max(np.abs(values))) if values.size else None

    def audit(outcome: Outcome, arrays: Arrays) -> None:
        outcome.position_residual = largest(position(arrays[0]))
        outcome.velocity_residual = largest(velocity(*arrays))

    return audit
