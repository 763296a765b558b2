"""The comparison of jobs: first their results, then their times in alternating rounds."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from experiments.speed.settings import Timing
from experiments.speed.workers import Arrays, Job, JobError, Pool


@dataclass
class Outcome:
    """The known facts of a job so far; without a speed, `problem` states the reason."""

    problem: str = ""
    compile_seconds: float | None = None
    difference: float | None = None  # from the reference, relative to its size
    position_residual: float | None = None  # largest |phi| at the end
    velocity_residual: float | None = None  # largest |dphi/dt| and |psi| at the end
    seconds: list[float] = field(default_factory=list)  # of a run, one for each round

    @property
    def best(self) -> float | None:
        """The seconds of a run in the best round, None if the job has no speed."""
        return min(self.seconds) if self.seconds and not self.problem else None


Outcomes = dict[str, Outcome]


class Entrant(NamedTuple):
    """A job and the largest difference from the reference that counts as agreement."""

    job: Job
    tolerance: float


def contest(
    entrants: Mapping[str, Entrant], pool: Pool, timing: Timing, outcomes: Outcomes, *,
    audit: Callable[[Outcome, Arrays], None] = lambda outcome, arrays: None,
    tell: Callable[[str], None] = lambda text: None,
) -> None:  # fmt: skip
    """Measure equivalent jobs, and time those that agree with the reference.

    The reference is the first result among the jobs of the smallest tolerance. `outcomes` is
    filled along the way, so that an interruption loses nothing; `audit` adds residuals to it.
    """
    results: dict[str, Arrays] = {}
    for name, entrant in entrants.items():
        outcome = outcomes[name] = Outcome()
        tell(f"preparing {name}")
        with _noted(outcome):
            outcome.compile_seconds, arrays = pool.worker(name).prepare(entrant.job)
            audit(outcome, arrays)
            if arrays:  # otherwise it is timed unchecked
                results[name] = arrays
    for name, arrays in results.items():
        reference = results[min(results, key=lambda other: entrants[other].tolerance)]
        away = outcomes[name].difference = difference(arrays, reference[: len(arrays)])
        if not away <= entrants[name].tolerance:
            outcomes[name].problem = f"disagrees by {away:.1e}"
    # In turn, round after round: other load of the machine then affects all jobs alike.
    for number in range(timing.rounds):
        for name, outcome in outcomes.items():
            enough = number >= 2 and sum(outcome.seconds) > timing.most
            if not (outcome.problem or enough):
                tell(f"round {number + 1} of {timing.rounds}: {name}")
                with _noted(outcome):
                    outcome.seconds.append(pool.worker(name).seconds(timing.least))


@contextmanager
def _noted(outcome: Outcome) -> Iterator[None]:
    """Record the reason if a job has no result."""
    try:
        yield
    except JobError as error:
        outcome.problem = str(error)


def difference(arrays: Iterable[np.ndarray], reference: Iterable[np.ndarray]) -> float:
    """The largest difference of any array, relative to the largest entry of its reference.

    An array whose entries are all far smaller than those of the others is compared with theirs.
    A result that is not finite agrees with nothing.
    """
    pairs = list(zip(arrays, reference, strict=True))
    sizes = [np.max(np.abs(ref), initial=0.0) for _, ref in pairs]
    found = 0.0
    for (array, ref), size in zip(pairs, sizes, strict=True):
        away = np.max(np.abs(array - ref), initial=0.0) / (max(size, 1e-6 * max(sizes)) or 1.0)
        found = max(found, float(away) if np.isfinite(away) else np.inf)
    return found
