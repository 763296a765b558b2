"""The three parts of the benchmark: every case by every route, scaling, gradients."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.speed import cases, gradients, roster
from experiments.speed.cases import Case
from experiments.speed.measure import Entrant, Outcome, Outcomes, Pool, contest
from experiments.speed.settings import Size, Speed
from experiments.speed.workers import Arrays

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """A case and how the routes, or the forms of its gradient, went."""

    case: Case
    outcomes: Outcomes = field(default_factory=dict)

    def speed(self, name: str) -> float | None:
        """Trajectory-steps per second."""
        best = self.outcomes[name].best if name in self.outcomes else None
        return self.case.batch * self.case.steps / best if best else None

    def ratio(self, name: str, base: str) -> float | None:
        """How many times the seconds of `base` a run takes."""
        own, other = self.speed(name), self.speed(base)
        return other / own if own and other else None


@dataclass
class Results:
    """Everything measured so far.

    Attributes:
        config: what was asked for.
        environment: of the processes.
        table: the cases by all routes.
        batches: one case by the size of its batch.
        lengths: chains by their length.
        large: other cases.
        gradients: the cases by the forms of the gradient.
        finished: whether it came to its end.
        load: how many cores other processes kept busy before the start.
    """

    config: Speed
    environment: dict[str, Any] = field(default_factory=dict)
    table: list[Measured] = field(default_factory=list)
    batches: list[Measured] = field(default_factory=list)
    lengths: list[Measured] = field(default_factory=list)
    large: list[Measured] = field(default_factory=list)
    gradients: list[Measured] = field(default_factory=list)
    finished: bool = False
    load: float = field(default_factory=lambda: os.getloadavg()[0])


def run(results: Results, tell: Tell, done: Callable[[Measured], None]) -> None:
    """Measures all parts that the configuration asks for.

    Args:
        results: filled while it goes on.
        tell: takes a line about what is going on.
        done: takes every case when it is measured.
    """
    steps = {"table": _table, "scaling": _scaling, "gradient": _gradients}
    for part in results.config.parts:
        with Pool(results.config.timing.limit) as pool:
            try:
                steps[part](results, pool, tell, done)
            finally:
                results.environment = results.environment or pool.environment
    results.finished = True


def _table(results: Results, pool: Pool, tell: Tell, done: Callable[[Measured], None]) -> None:
    table = results.config.table
    assert table is not None
    for name, size in table.cases.items():
        _race(_case(name, size), table.routes, results.table, results.config, pool, tell, done)


def _scaling(results: Results, pool: Pool, tell: Tell, done: Callable[[Measured], None]) -> None:
    scaling = results.config.scaling
    assert scaling is not None
    rest = (scaling.steps, scaling.step)
    batches = [cases.make(scaling.case, batch, *rest) for batch in scaling.batches]
    lengths = [cases.make(f"chain_{n}", scaling.chain_batch, *rest) for n in scaling.links]
    large = [_case(name, size) for name, size in scaling.large.items()]
    groups = (batches, results.batches), (lengths, results.lengths), (large, results.large)
    for many, into in groups:
        for case in many:
            _race(case, scaling.routes, into, results.config, pool, tell, done)


def _gradients(results: Results, pool: Pool, tell: Tell, done: Callable[[Measured], None]) -> None:
    gradient = results.config.gradient
    assert gradient is not None
    for name, size in gradient.cases.items():
        measured = Measured(_case(name, size))
        results.gradients.append(measured)
        q0, v0 = cases.states(measured.case, results.config.seed)
        entrants = {
            form: Entrant(
                partial(gradients.prepare, form, measured.case, q0, v0),
                gradients.TOLERANCE,
                partial(gradients.comparable, form),
            )
            for form in gradients.FORMS
        }
        contest(
            entrants, pool, results.config.timing, measured.outcomes, tell=_about(measured, tell)
        )
        done(measured)


def _race(
    case: Case,
    routes: Iterable[str],
    into: list[Measured],
    config: Speed,
    pool: Pool,
    tell: Tell,
    done: Callable[[Measured], None],
) -> None:
    measured = Measured(case)
    into.append(measured)
    q0, v0 = cases.states(case, config.seed)
    entrants = {
        route: Entrant(partial(roster.prepare, route, case, q0, v0), roster.ROUTES[route].tolerance)
        for route in routes
    }
    contest(
        entrants,
        pool,
        config.timing,
        measured.outcomes,
        audit=residuals(case),
        tell=_about(measured, tell),
    )
    done(measured)


def _case(name: str, size: Size) -> Case:
    return cases.make(name, size.batch, size.steps, size.step)


def _about(measured: Measured, tell: Tell) -> Tell:
    case = measured.case
    return lambda text: tell(f"{case.title} x {case.batch:,}: {text}")


def residuals(case: Case) -> Callable[[Outcome, Arrays], None]:
    """Notes how far final states are off the constraints."""
    system, params, end = case.model.system, case.model.params, jnp.asarray(case.end)
    position = jax.jit(jax.vmap(lambda q: system.position_level(q, end, params)))
    velocity = jax.jit(jax.vmap(lambda q, v: system.velocity_level(q, v, end, params)))

    def audit(outcome: Outcome, arrays: Arrays) -> None:
        q, v = arrays
        outcome.position_residual = _largest(np.asarray(position(q)))
        outcome.velocity_residual = _largest(np.asarray(velocity(q, v)))

    return audit


def _largest(residuals: np.ndarray) -> float | None:
    return float(np.max(np.abs(residuals))) if residuals.size else None
