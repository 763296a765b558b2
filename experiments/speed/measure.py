"""How jobs are compared: first their results, then their times in alternating rounds."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from experiments.speed.settings import Timing
from experiments.speed.workers import Arrays, Job, JobError, Worker


@dataclass
class Outcome:
    """What is known of a job so far; without a speed, `problem` says why."""

    problem: str = ""
    compile_seconds: float | None = None
    difference: float | None = None  # from the reference, relative to its size
    position_residual: float | None = None  # largest |phi| at the end
    velocity_residual: float | None = None  # largest |dphi/dt| and |psi| at the end
    seconds: list[float] = field(default_factory=list)  # of a run, one for each round

    @property
    def best(self) -> float | None:
        """Seconds of a run in the best round, None if the job has no speed."""
        return min(self.seconds) if self.seconds and not self.problem else None


Outcomes = dict[str, Outcome]


class Entrant(NamedTuple):
    """A job and the largest difference from the reference that counts as agreement."""

    job: Job
    tolerance: float


class Pool:
    """One worker per name, all on one platform and in one precision."""

    def __init__(self, limit: float, platform: str = "cpu", precision: str = "float64") -> None:
        self._kind = limit, platform, precision
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers.values():
            worker.close()

    def worker(self, name: str) -> Worker:
        """The worker of this name, kept for the next job."""
        if name not in self._workers:
            self._workers[name] = Worker(*self._kind)
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
    """Measure jobs that compute the same, and time those that agree with the reference.

    The reference is the first result among the jobs of the smallest tolerance. `outcomes` is
    filled along the way, so that an interruption loses nothing; `audit` adds residuals to it.
    """
    workers: dict[str, Worker] = {}
    results: dict[str, Arrays] = {}
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
        if arrays:  # without, it is timed unchecked
            results[name] = arrays
    _compare(entrants, results, outcomes)
    # In turn, round after round: whatever else the machine does then affects all jobs alike.
    for number in range(timing.rounds):
        for name, outcome in outcomes.items():
            enough = number >= 2 and sum(outcome.seconds) > timing.most
            if outcome.problem or enough:
                continue
            tell(f"round {number + 1} of {timing.rounds}: {name}")
            try:
                outcome.seconds.append(workers[name].seconds(timing.least))
            except JobError as error:
                outcome.problem = str(error)


def _compare(
    entrants: Mapping[str, Entrant], results: Mapping[str, Arrays], outcomes: Outcomes
) -> None:
    if not results:
        return
    reference = results[min(results, key=lambda name: entrants[name].tolerance)]
    for name, arrays in results.items():
        outcome = outcomes[name]
        outcome.difference = difference(arrays, reference[: len(arrays)])
        if not outcome.difference <= entrants[name].tolerance:
            outcome.problem = f"disagrees by {outcome.difference:.1e}"


def difference(arrays: Iterable[np.ndarray], reference: Iterable[np.ndarray]) -> float:
    """Largest difference of any array, relative to the largest entry of its reference.

    An array whose entries are all far smaller than those of the others is compared with theirs.
    A result that is not finite agrees with nothing.
    """
    pairs = list(zip(arrays, reference, strict=True))
    size = max(np.max(np.abs(ref), initial=0.0) for _, ref in pairs)
    found = 0.0
    for array, ref in pairs:
        scale = max(np.max(np.abs(ref), initial=0.0), 1e-6 * size) or 1.0
        away = np.max(np.abs(array - ref), initial=0.0) / scale
        found = max(found, float(away) if np.isfinite(away) else np.inf)
    return found
