"""The parts of the benchmark: every case by every route, scaling, gradients."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.speed import cases, gradients, routes
from experiments.speed.cases import Case
from experiments.speed.measure import Entrant, Outcome, Outcomes, Pool, contest
from experiments.speed.settings import Size, Speed
from experiments.speed.workers import Arrays


@dataclass(frozen=True)
class Measured:
    """A case with the outcomes of its routes, or of the forms of its gradient."""

    case: Case
    outcomes: Outcomes = field(default_factory=dict)

    def speed(self, name: str) -> float | None:
        """Trajectory-steps per second."""
        best = self.outcomes[name].best if name in self.outcomes else None
        return self.case.batch * self.case.steps / best if best else None

    def ratio(self, name: str, base: str) -> float | None:
        """The seconds of a run, divided by those of `base`."""
        own, other = self.speed(name), self.speed(base)
        return other / own if own and other else None

    def compile_seconds(self, name: str) -> float | None:
        """Seconds that a route or form took to compile."""
        return self.outcomes[name].compile_seconds if name in self.outcomes else None


@dataclass
class Results:
    """Everything measured so far; `finished` is false after an interruption."""

    config: Speed
    environment: dict[str, Any] = field(default_factory=dict)  # of the workers
    table: list[Measured] = field(default_factory=list)
    batches: list[Measured] = field(default_factory=list)  # one case by the size of its batch
    lengths: list[Measured] = field(default_factory=list)  # chains by their length
    large: list[Measured] = field(default_factory=list)
    gradients: list[Measured] = field(default_factory=list)
    finished: bool = False
    load: float = field(default_factory=lambda: os.getloadavg()[0])  # before the start


def names(group: Sequence[Measured]) -> list[str]:
    """The routes that occur in a group, in their order."""
    return list(dict.fromkeys(name for measured in group for name in measured.outcomes))


def run(results: Results, tell: Callable[[str], None], done: Callable[[Measured], None]) -> None:
    """Measure all parts that the configuration asks for.

    `results` is filled along the way, `tell` takes progress messages, `done` each finished case.
    """
    for part in results.config.parts:
        with Pool(results.config.timing.limit) as pool:
            try:
                for into, case, routes_or_forms in _cases(results, part):
                    measured = Measured(case)
                    into.append(measured)
                    _measure(measured, routes_or_forms, results.config, pool, tell)
                    done(measured)
            finally:
                results.environment = results.environment or pool.environment
    results.finished = True


def _cases(results: Results, part: str) -> Iterator[tuple[list[Measured], Case, Iterable[str]]]:
    """The cases of a part: the list for the results, the case, and what it is measured by."""
    config = results.config
    table, scaling, gradient = config.table, config.scaling, config.gradient
    if part == "table" and table:
        for name, size in table.cases.items():
            yield results.table, _case(name, size), table.routes
    if part == "scaling" and scaling:
        rest = scaling.steps, scaling.step
        for batch in scaling.batches:
            yield results.batches, cases.make(scaling.case, batch, *rest), scaling.routes
        for links in scaling.links:
            chain = cases.make(f"chain_{links}", scaling.chain_batch, *rest)
            yield results.lengths, chain, scaling.routes
        for name, size in scaling.large.items():
            yield results.large, _case(name, size), scaling.routes
    if part == "gradient" and gradient:
        for name, size in gradient.cases.items():
            yield results.gradients, _case(name, size), gradients.FORMS


def _case(name: str, size: Size) -> Case:
    return cases.make(name, size.batch, size.steps, size.step)


def _measure(
    measured: Measured,
    routes_or_forms: Iterable[str],
    config: Speed,
    pool: Pool,
    tell: Callable[[str], None],
) -> None:
    case = measured.case
    q0, v0 = cases.states(case, config.seed)
    entrants, audit = {}, {}
    for name in routes_or_forms:
        if name in routes.ROUTES:
            job = partial(routes.prepare, name, case, q0, v0)
            entrants[name] = Entrant(job, routes.ROUTES[name].tolerance)
            audit = {"audit": residuals(case)}
        else:
            job = partial(gradients.prepare, name, case, q0, v0)
            comparable = partial(gradients.comparable, name)
            entrants[name] = Entrant(job, gradients.TOLERANCE, comparable)
    about = f"{case.title} x {case.batch:,}: "
    contest(
        entrants,
        pool,
        config.timing,
        measured.outcomes,
        tell=lambda text: tell(about + text),
        **audit,
    )


def residuals(case: Case) -> Callable[[Outcome, Arrays], None]:
    """A function that adds the constraint residuals of final states to an outcome."""
    system, params, end = case.model.system, case.model.params, jnp.asarray(case.end)
    position = jax.jit(jax.vmap(lambda q: system.position_level(q, end, params)))
    velocity = jax.jit(jax.vmap(lambda q, v: system.velocity_level(q, v, end, params)))

    def largest(values: jax.Array) -> float | None:
        return float(np.max(np.abs(values))) if values.size else None

    def audit(outcome: Outcome, arrays: Arrays) -> None:
        outcome.position_residual = largest(position(arrays[0]))
        outcome.velocity_residual = largest(velocity(*arrays))

    return audit
