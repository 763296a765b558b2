"""How jobs are measured against each other: agreement first, then rounds in turn."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np

from experiments.speed.settings import Timing
from experiments.speed.workers import Arrays, Job, JobError, Worker


@dataclass
class Outcome:
    """What is known of a job so far.

    Attributes:
        problem: why it has no speed; empty where it has.
        compile_seconds: what it took to get ready.
        difference: from the reference, relative to its size.
        position_residual: largest |phi| at the end, where there are such constraints.
        velocity_residual: largest |dphi/dt| and |psi| at the end.
        seconds: of a run, one per round.
    """

    problem: str = ""
    compile_seconds: float | None = None
    difference: float | None = None
    position_residual: float | None = None
    velocity_residual: float | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float | None:
        """Seconds of a run in the best round, None where it has no speed."""
        return min(self.seconds) if self.seconds and not self.problem else None


Outcomes = dict[str, Outcome]


@dataclass(frozen=True)
class Entrant:
    """A job with what its results are held against.

    Attributes:
        job: what is run.
        tolerance: largest difference from the reference that still agrees.
        comparable: what is compared, from what the job gives, with as many arrays of the
            reference; nothing: not held against others.
    """

    job: Job
    tolerance: float
    comparable: Callable[[Arrays], Arrays] = lambda arrays: arrays


class Pool:
    """One worker per name, for a part of the benchmark.

    Attributes:
        environment: versions and settings of the processes.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._workers: dict[str, Worker] = {}
        self.environment: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: object, trace: TracebackType | None) -> None:
        for worker in self._workers.values():
            worker.close()

    def worker(self, name: str) -> Worker:
        """The worker of this name, kept for the next job."""
        if name not in self._workers:
            self._workers[name] = Worker(self._limit)
        self.environment = self.environment or self._workers[name].environment()
        return self._workers[name]


def contest(
    entrants: Mapping[str, Entrant],
    pool: Pool,
    timing: Timing,
    outcomes: Outcomes,
    *,
    audit: Callable[[Outcome, Arrays], None] = lambda outcome, arrays: None,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Measures jobs that do the same.

    The reference for agreement is the first of those with the smallest tolerance that gives a
    result; only jobs that agree with it are timed.

    Args:
        entrants: the jobs by name.
        pool: their processes.
        timing: how long and how often.
        outcomes: filled while it goes on, so that an interruption loses nothing.
        audit: notes in an outcome what the results of its job show.
        tell: takes a line about every job.
    """
    workers: dict[str, Worker] = {}
    shown: dict[str, Arrays] = {}
    for name, entrant in entrants.items():
        outcome = outcomes[name] = Outcome()
        tell(f"preparing {name}")
        try:
            workers[name] = pool.worker(name)
            outcome.compile_seconds, arrays = workers[name].prepare(entrant.job)
        except JobError as error:
            outcome.problem = str(error)
            continue
        audit(outcome, arrays)
        if comparable := entrant.comparable(arrays):
            shown[name] = comparable
    _compare(entrants, shown, outcomes)
    _rounds(
        [name for name in entrants if not outcomes[name].problem], workers, timing, outcomes, tell
    )


def _compare(
    entrants: Mapping[str, Entrant], shown: Mapping[str, Arrays], outcomes: Outcomes
) -> None:
    """Holds every result against the reference."""
    if not shown:
        return
    reference = shown[min(shown, key=lambda name: entrants[name].tolerance)]
    for name, arrays in shown.items():
        outcome = outcomes[name]
        outcome.difference = difference(arrays, reference[: len(arrays)])
        if not outcome.difference <= entrants[name].tolerance:
            outcome.problem = f"disagrees by {outcome.difference:.1e}"


def difference(arrays: Iterable[np.ndarray], reference: Iterable[np.ndarray]) -> float:
    """Largest difference of any array, relative to the largest entry of its reference.

    An array whose entries are all far below those of the others is held against theirs. What is
    not finite agrees with nothing.
    """
    pairs = list(zip(arrays, reference, strict=True))
    size = max(np.max(np.abs(ref), initial=0.0) for _, ref in pairs)
    found = 0.0
    for array, ref in pairs:
        scale = max(np.max(np.abs(ref), initial=0.0), 1e-6 * size) or 1.0
        away = np.max(np.abs(array - ref), initial=0.0) / scale
        found = max(found, float(away) if np.isfinite(away) else np.inf)
    return found


def _rounds(
    names: list[str],
    workers: Mapping[str, Worker],
    timing: Timing,
    outcomes: Outcomes,
    tell: Callable[[str], None],
) -> None:
    """All in turn, round after round, so that whatever else the machine does hits all of them."""
    for number in range(timing.rounds):
        for name in names:
            outcome = outcomes[name]
            enough = number >= 2 and sum(outcome.seconds) > timing.most
            if outcome.problem or enough:
                continue
            tell(f"round {number + 1} of {timing.rounds}: {name}")
            try:
                outcome.seconds.append(workers[name].seconds(timing.least))
            except JobError as error:
                outcome.problem = str(error)
