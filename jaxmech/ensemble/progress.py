"""How far a study is: a bar for people, or lines of JSON for programs."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tqdm import tqdm

from jaxmech.ensemble.accumulate import Estimate, as_json_line, as_line

Shown = Literal["bar", "json", "none"]
PERIOD = 0.5  # seconds between lines of JSON, at least


@dataclass
class RunProgress:
    """The progress of a run, which is told on the standard error.

    Attributes:
        size: trajectories of the study.
        initial: those that were computed before.
        shown: a bar, if that is a terminal; lines of JSON; or nothing.
    """

    size: int
    initial: int
    shown: Shown
    failed: int = 0
    _done: int = field(default=0, init=False)
    _begun: float = field(default_factory=time.perf_counter, init=False)
    _told: float = field(default=0.0, init=False)
    _bar: Any = field(default=None, init=False)

    def __enter__(self) -> "RunProgress":
        disable = None if self.shown == "bar" else True
        bar = tqdm(total=self.size, initial=self.initial, unit=" trajectories", disable=disable)
        self._bar = bar
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def add(self, done: int, failed: int, estimates: Mapping[str, Estimate]) -> None:
        """Some trajectories more are done."""
        self._done += done
        self.failed += failed
        if self._bar.disable is not True:
            text = f"{self.failed} failed" if self.failed else ""
            self._bar.set_postfix_str(", ".join(filter(None, [text, as_line(estimates)])), False)
        self._bar.update(done)
        if self.shown == "json":
            self._line(estimates)

    def _line(self, estimates: Mapping[str, Estimate]) -> None:
        now = time.perf_counter()
        done = self.initial + self._done
        if now - self._told < PERIOD and done < self.size:
            return
        self._told = now
        rate = self._done / (now - self._begun)
        facts = {
            "done": done,
            "size": self.size,
            "failed": self.failed,
            "rate": rate,
            "seconds_left": (self.size - done) / rate if rate else None,
            "estimates": {
                name: {"value": x, "low": low, "high": high}
                for name, (x, low, high) in estimates.items()
            },
        }
        sys.stderr.write(as_json_line(facts) + "\n")
        sys.stderr.flush()
