"""Progress of a study: a bar for people, or lines of JSON for programs."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tqdm import tqdm

from jaxmech.ensemble.accumulate import Estimate, finite

Shown = Literal["bar", "json", "none"]
Estimates = Callable[[], Mapping[str, Estimate]]
PERIOD = 0.5  # seconds between estimates that are shown, at least


@dataclass
class RunProgress:
    """The progress of a run, reported on the standard error."""

    size: int  # trajectories of the study
    initial: int  # those that were computed before
    shown: Shown  # a bar, if that is a terminal; lines of JSON; or nothing
    members: str = "trajectories"  # the word for them
    failed: int = 0
    _done: int = field(default=0, init=False)
    _begun: float = field(default_factory=time.perf_counter, init=False)
    _reported: float = field(default=0.0, init=False)
    _bar: Any = field(default=None, init=False)

    def __enter__(self) -> "RunProgress":
        disable = None if self.shown == "bar" else True
        bar = tqdm(total=self.size, initial=self.initial, unit=f" {self.members}", disable=disable)
        self._bar = bar
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def add(self, finished: int, failed: int, estimates: Estimates) -> None:
        """Some trajectories more are done; estimates are made only when something is shown."""
        self._done += finished
        self.failed += failed
        clock, all_done = time.perf_counter(), self.initial + self._done >= self.size
        if clock - self._reported >= PERIOD or all_done:
            self._reported = clock
            if self._bar.disable is not True:
                texts = [f"{self.failed} failed"] if self.failed else []
                intervals = estimates().items()
                texts += [f"{n} {x:.4g} [{low:.4g}, {high:.4g}]" for n, (x, low, high) in intervals]
                self._bar.set_postfix_str(", ".join(texts), False)
            if self.shown == "json":
                self._line(clock, estimates())
        self._bar.update(finished)

    def _line(self, clock: float, estimates: Mapping[str, Estimate]) -> None:
        finished = self.initial + self._done
        rate = self._done / (clock - self._begun)
        facts = {
            "done": finished,
            "size": self.size,
            "failed": self.failed,
            "rate": rate,
            "seconds_left": (self.size - finished) / rate if rate else None,
            "estimates": {
                name: {"value": x, "low": low, "high": high}
                for name, (x, low, high) in estimates.items()
            },
        }
        sys.stderr.write(json.dumps(finite(facts), allow_nan=False) + "\n")
        sys.stderr.flush()
