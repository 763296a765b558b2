"""The folder of a failure probability: what it was computed from, every batch, and the result.

config.toml        the resolved configuration
environment.json   versions, device, digests of functions and draws
calls/             margins and gradients of each batch, in the order of the calls
design_points.npz  initial states and parameters of the most probable failures
failure.json, .txt the result
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from jaxmech.config import (
    DECISIVE,
    FolderError,
    command_of,
    environment_json,
    npz,
    opened,
    plain,
    require_same_config,
    require_same_environment,
    write_whole,
)
from jaxmech.ensemble.blocks.kernel import compile_kernel
from jaxmech.ensemble.failure.limit_state import LimitState
from jaxmech.ensemble.failure.result import (
    DesignPoint,
    FailureEstimate,
    FailureProbability,
    Sensitivity,
    SubsetLevel,
)
from jaxmech.ensemble.store.folder import origin
from jaxmech.ensemble.study import Study

_RESULT, _POINTS = "failure.json", "design_points.npz"
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
        write_whole(self.folder / _RESULT, text)
        write_whole(self.folder / "failure.txt", f"{result}\n")
        arrays: dict[str, np.ndarray] = {}
        for k, point in enumerate(result.design_points):
            arrays |= {f"u_{k}": point.u, f"q_{k}": point.q, f"v_{k}": point.v}
            numbers = {
                name: x for name, x in point.params.items() if np.asarray(x).dtype.kind in "fiu"
            }
            arrays |= {f"params_{k}.{name}": np.asarray(x) for name, x in numbers.items()}
        write_whole(self.folder / _POINTS, npz(arrays))


@contextmanager
def opened_journal(
    out: Path, study: Study, limit: LimitState, tell: Callable[[str], None]
) -> Iterator[Journal]:
    """Create the folder, or continue it if it holds the same failure of the same study."""
    config = plain(study)
    facts = origin(compile_kernel(limit.margin.study, limit.margin.subject, limit.sampler))
    with opened(out, "failure"):
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


def read_failure(path: Path, study: Study | None = None) -> FailureProbability:
    """The result in the folder of a failure probability, without the points of standard space.

    Args:
        path: the folder.
        study: the study that it must be of, if there is one to compare with.

    Raises:
        FolderError: if the folder does not contain a result, or that of another study.
    """
    if command_of(path) == "failure" and not (path / _RESULT).is_file():
        message = f"continue it with `jaxmech failure CONFIG --out {path}`"
        raise FolderError(f"{path} holds a failure probability that is not finished; {message}")
    if study is not None:
        require_same_config(path, plain(study), _MAY_CHANGE)
    try:
        data = json.loads((path / _RESULT).read_text(encoding="utf-8"))
        with np.load(path / _POINTS) as stored:
            arrays = dict(stored)
        return _result(data, arrays)
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = "`jaxmech failure` writes it again from the stored batches"
        raise FolderError(f"{path / _RESULT} cannot be read: {error}; {message}") from error


def _result(data: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> FailureProbability:
    estimates = tuple(map(_estimate, data["estimates"]))
    points = (_design_point(k, x, arrays) for k, x in enumerate(data["design_points"]))
    return FailureProbability(
        estimates[-1], data["confidence"], data["trajectories"], data["gradients"], data["lost"],
        tuple(points), tuple(Sensitivity(**_numbers(x)) for x in data["sensitivities"]), estimates,
        tuple(data["remarks"]), tuple(data["doubts"]),
    )  # fmt: skip


def _estimate(data: Mapping[str, Any]) -> FailureEstimate:
    known = _numbers(data)
    return FailureEstimate(
        known["method"], known["probability"], known["coefficient_of_variation"],
        known["trajectories"], degrees=known["degrees"], counted=known.get("counted", 0),
        levels=tuple(SubsetLevel(**_numbers(x)) for x in known["levels"]),
    )  # fmt: skip


def _design_point(
    number: int, data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> DesignPoint:
    prefix = f"params_{number}."
    params = {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
    q, v, u = (arrays[f"{name}_{number}"] for name in "qvu")
    return DesignPoint(data["index"], data["variables"], data["importance"], q, v, params, u)


def _numbers(data: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with NaN for numbers that are not known."""
    return {name: float("nan") if x is None else x for name, x in data.items()}
