"""The parts of the benchmark: every case by every route, scaling, gradients."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.speed import cases, gradients, peak, routes
from experiments.speed.cases import Case
from experiments.speed.contest import Entrant, Outcome, Outcomes, contest
from experiments.speed.routes import Unavailable
from experiments.speed.settings import Speed
from experiments.speed.straight_line import rollout_kernel
from experiments.speed.workers import Arrays, JobError, Pool, Worker

SINGLE = 2e-3  # largest difference between routes in float32, relative to their size
FEW = 1000  # trajectories, too few to fill a device


@dataclass(frozen=True)
class Measured:
    """A case on a device, with the outcomes of its routes, or of the forms of its gradient."""

    case: Case
    platform: str
    precision: str
    operations: float | None = None  # per step
    outcomes: Outcomes = field(default_factory=dict)


@dataclass
class Results:
    """Everything measured so far; `finished` is false after an interruption.

    `devices` holds the known facts of each platform: the environment of the workers, and the
    arithmetic peak in each precision [operations/s].
    """

    config: Speed
    devices: dict[str, dict[str, Any]]
    table: list[Measured] = field(default_factory=list)
    scaling: list[Measured] = field(default_factory=list)
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
        for precision in getattr(results.config, part).precisions:
            with Pool(results.config.timing.limit, platform, precision) as pool:
                _find_peak(results, pool, platform, precision, tell)
                group: list[Measured] = []
                for case in _cases(results.config, part):
                    measured = Measured(case, platform, precision, _operations(case.name))
                    getattr(results, part).append(measured)
                    _measure(part, measured, group, results.config, pool, tell)
                    group.append(measured)
                    done(measured)
    results.finished = True


def _find_peak(
    results: Results, pool: Pool, platform: str, precision: str, tell: Callable[[str], None]
) -> None:
    peaks = results.devices[platform].setdefault("peak", {})
    if precision not in peaks:
        tell(f"arithmetic peak of {platform} in {precision}")
        with suppress(JobError):
            worker = pool.worker("peak")
            worker.prepare(partial(peak.prepare, platform))
            seconds = min(worker.seconds(0.2) for _ in range(5))
            peaks[precision] = peak.operations(platform) / seconds


def _cases(config: Speed, part: str) -> Iterator[Case]:
    for name, size in getattr(config, part).cases.items():
        for batch in size.batches:
            yield cases.make(name, batch, size.steps, size.step)


@cache
def _operations(name: str) -> float | None:
    """Count the operations per step in the scalar graph of a rollout without projection."""
    case = cases.make(name, batch=1, steps=64, step_size=1e-3)
    try:
        return rollout_kernel(case, *(x[0] for x in cases.states(case)))[0].executed / case.steps
    except Unavailable:
        return None


def _measure(
    part: str, measured: Measured, smaller: Sequence[Measured], config: Speed, pool: Pool,
    tell: Callable[[str], None],
) -> None:  # fmt: skip
    """Compare and time the routes of a case, or the forms of its gradient."""
    case, precision = measured.case, measured.precision
    prepare: Callable[..., Any] = routes.prepare
    if part == "gradient":
        tolerances, prepare = dict.fromkeys(gradients.FORMS, gradients.TOLERANCE), gradients.prepare
        audit: Callable[[Outcome, Arrays], None] = lambda outcome, arrays: None  # noqa: E731
    else:
        names = [
            name
            for name in getattr(config, part).routes
            if routes.runs_on(name, measured.platform, precision)
        ]
        tolerances, audit = {x: routes.ROUTES[x].tolerance for x in names}, residuals(case)
    entrants, left_out = {}, {}
    for name, tolerance in tolerances.items():
        if (seconds := expected(case, name, smaller)) > config.timing.longest:
            left_out[name] = Outcome(f"unavailable: a run would take about {seconds:.0f} s")
        else:
            job = partial(prepare, name, case, config.seed)
            entrants[name] = Entrant(job, SINGLE if precision == "float32" else tolerance)
    about = f"{measured.platform}, {precision}, {case.title} x {case.batch:,}: "
    contest(
        entrants, pool, config.timing, measured.outcomes, audit=audit,
        tell=lambda text: tell(about + text),
    )  # fmt: skip
    measured.outcomes.update(left_out)


def expected(case: Case, name: str, smaller: Sequence[Measured]) -> float:
    """The expected seconds of a run, by the speed of the same case in a smaller batch."""
    for x in reversed(smaller):
        best = x.outcomes[name].best if name in x.outcomes else None
        if best and x.case.name == case.name and x.case.batch > FEW:
            return best * case.batch * case.steps / (x.case.batch * x.case.steps)
    return 0.0


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
