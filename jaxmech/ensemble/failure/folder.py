"""The folder of a failure probability: what it was computed from, every batch, and the result.

config.toml        the resolved configuration
environment.json   versions, device, digests of functions and draws
calls/             margins and gradients of each batch, in the order of the calls
design_points.npz  initial states and parameters of the most probable failures
failure.json, .txt the result
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tomli_w

from jaxmech.config import (
    DECISIVE,
    environment_json,
    npz,
    opened,
    plain,
    require_same_config,
    require_same_environment,
    write_whole,
)
from jaxmech.ensemble.failure.limit_state import LimitState
from jaxmech.ensemble.failure.result import FailureProbability
from jaxmech.ensemble.kernel import compile_kernel
from jaxmech.ensemble.provenance import origin
from jaxmech.ensemble.study import Study

# Keys that say how the probability is computed, and not of what: batches are still valid.
_MAY_CHANGE = {
    "size", "chunk", "cluster", "statistics", "until", "store", "failure.method",
    "failure.coefficient_of_variation", "failure.most", "failure.level", "failure.confidence",
}  # fmt: skip


@dataclass(frozen=True)
class Journal:
    """The folder while it is open."""

    folder: Path

    @property
    def path(self) -> Path:
        """The folder of the batches."""
        return self.folder / "calls"

    def conclude(self, result: FailureProbability) -> None:
        """Write the result."""
        text = json.dumps(result.as_dict(), indent=2, allow_nan=False) + "\n"
        write_whole(self.folder / "failure.json", text)
        write_whole(self.folder / "failure.txt", f"{result}\n")
        arrays: dict[str, np.ndarray] = {}
        for k, point in enumerate(result.design_points):
            arrays |= {f"u_{k}": point.u, f"q_{k}": point.q, f"v_{k}": point.v}
            numbers = {
                name: x for name, x in point.params.items() if np.asarray(x).dtype.kind in "fiu"
            }
            arrays |= {f"params_{k}.{name}": np.asarray(x) for name, x in numbers.items()}
        write_whole(self.folder / "design_points.npz", npz(arrays))


@contextmanager
def opened_journal(
    out: Path, study: Study, limit: LimitState, tell: Callable[[str], None]
) -> Iterator[Journal]:
    """Create the folder, or continue it if it holds the same failure of the same study."""
    config = plain(study)
    facts = origin(compile_kernel(limit.margin.study, limit.margin.subject, limit.sampler))
    with opened(out):
        journal = Journal(out)
        if (out / "environment.json").is_file():
            require_same_config(out, config, _MAY_CHANGE)
            require_same_environment(out, facts, DECISIVE)
            if count := len(list(journal.path.glob("*.npz"))):
                tell(f"{out} holds {count} batches already")
        else:
            journal.path.mkdir(exist_ok=True)
            write_whole(out / "config.toml", tomli_w.dumps(config))
            write_whole(out / "environment.json", environment_json(facts))
        yield journal
