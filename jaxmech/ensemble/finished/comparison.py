"""`compare_runs`: differences of two runs in configuration, environment and statistics.

The interval of a difference follows from the intervals of its two terms: for estimates x, y with
the limits (a, b), (c, d), the lower limit is x - y - sqrt((x - a)^2 + (d - y)^2), the upper one
x - y + sqrt((b - x)^2 + (y - c)^2) (Zou and Donner 2008, equation 4; for proportions, method 10 of
Newcombe 1998). The estimates must be independent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.config import changes, differences, stored_environment
from jaxmech.ensemble.members.base import VELOCITY
from jaxmech.ensemble.store.layout import STATES, array_of
from jaxmech.ensemble.store.results import Results, open_results

Limits = tuple[float, float, float]  # a value, and the limits of its interval
_LEFT = ("chunk", "cluster")  # keys that change no result
_FACTS = (
    "jaxmech", "jaxmech_sha256", "jax", "jaxlib", "numpy", "scipy", "zarr", "python", "platform",
    "device", "devices", "processor", "xla_flags", "x64", "functions",
)  # fmt: skip
INTERVALS = (("mean", "mean_low", "mean_high"), ("probability", "low", "high"),
             ("quantiles", "low", "high"))  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A statistic that two runs have estimated."""

    name: str  # of the statistic and of its result; in an array, where they differ most
    first: Limits  # estimate and limits of the first run
    second: Limits  # those of the second
    difference: Limits  # first minus second
    apart: int  # entries of the array whose difference has an interval without zero
    entries: int  # entries of the array


@dataclass(frozen=True)
class RunComparison:
    """The differences of two runs; prints itself."""

    paths: tuple[Path, Path]  # the run folders
    configuration: tuple[tuple[str, Any, Any], ...]  # key, value of the first run, of the second
    environment: tuple[str, ...]  # one predicate for each fact that differs
    statistics: tuple[Difference, ...]  # those that both have
    only: tuple[str, ...]  # statistics that only one has
    arrays: Mapping[str, int]  # trajectories with different bits, by stored array of the same shape
    same_draws: bool  # whether both drew the same numbers, so that estimates are not independent

    def __str__(self) -> str:
        return "\n".join(_card(self))


def compare_runs(first: Path, second: Path) -> RunComparison:
    """Compare two runs of a study, or of two studies that have statistics of the same name.

    Raises:
        FolderError: if one cannot be read, or is damaged.

    Example:
        >>> import tempfile
        >>> from dataclasses import replace
        >>> from pathlib import Path
        >>> from jaxmech.ensemble import Study, Times, Uniform, compare_runs, run_study
        >>> study = Study(
        ...     model="pendulum",
        ...     size=8,
        ...     times=Times(end=1.0, saves=11),
        ...     start={"theta": Uniform(-1.0, 1.0)},
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first, second = Path(folder) / "first", Path(folder) / "second"
        ...     _ = run_study(study, first)
        ...     _ = run_study(replace(study, seed=1), second)
        ...     comparison = compare_runs(first, second)
        >>> comparison.configuration, comparison.arrays["q"]
        ((('seed', 0, 1),), 8)
    """
    results, reference = open_results(first), open_results(second)
    facts = stored_environment(first), stored_environment(second)
    # A longer study begins with the members of a shorter one, unless its design depends on sizes.
    draws = "draws" if results.size == reference.size else "first_draws"
    estimates = dict(_estimates(results)), dict(_estimates(reference))
    names = {**estimates[0], **estimates[1]}
    return RunComparison(
        paths=(first, second),
        configuration=tuple(differences(results.config, reference.config, _LEFT)),
        environment=tuple(changes(*facts, (*_FACTS, draws))),
        statistics=tuple(_differences(*estimates)),
        only=tuple(name for name in names if not all(name in estimated for estimated in estimates)),
        arrays=dict(_arrays(results, reference)),
        same_draws=bool(facts[0].get(draws)) and facts[0].get(draws) == facts[1].get(draws),
    )


def difference(first: tuple[Any, Any, Any], second: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """The difference of two independent estimates (value, low, high), with its interval.

    Example:
        >>> value, low, high = difference((0.8, 0.7, 0.9), (0.5, 0.3, 0.6))
        >>> print(f"{value:.2f} [{low:.4f}, {high:.4f}]")
        0.30 [0.1586, 0.5236]
    """
    (x, a, b), (y, c, d) = (tuple(map(np.asarray, estimate)) for estimate in (first, second))
    return x - y, x - y - np.hypot(x - a, d - y), x - y + np.hypot(b - x, y - c)


def _estimates(results: Results) -> Iterator[tuple[str, tuple[Any, Any, Any]]]:
    settings = results.config.get("statistics", {})
    for name, values in results.statistics.items():
        for key, low, high in INTERVALS:
            if name in settings and {key, low, high} <= values.keys():
                estimate = values[key], values[low], values[high]
                if len({np.shape(array) for array in estimate}) == 1:
                    yield f"{name}.{key}", estimate


def _differences(
    estimates: Mapping[str, tuple[Any, Any, Any]], reference: Mapping[str, tuple[Any, Any, Any]]
) -> Iterator[Difference]:
    for name, first in estimates.items():
        second = reference.get(name)
        if second is None or np.shape(first[0]) != np.shape(second[0]):
            continue
        value, low, high = difference(first, second)
        apart = (low > 0) | (high < 0)
        width = np.where(np.isfinite(high - low) & (high > low), high - low, np.inf)
        score = np.where(np.isfinite(value), np.abs(value) / width, -1)
        index = np.unravel_index(int(np.argmax(score)), np.shape(value)) if np.ndim(value) else ()
        subscript = f"[{', '.join(map(str, index))}]" if index else ""
        yield Difference(
            name + subscript,
            _at(first, index),
            _at(second, index),
            _at((value, low, high), index),
            int(np.sum(apart)),
            int(np.size(value)),
        )


def _at(estimate: tuple[Any, Any, Any], index: tuple[Any, ...]) -> Limits:
    value, low, high = (float(np.asarray(x)[tuple(index)]) for x in estimate)
    return value, low, high


def _arrays(results: Results, reference: Results) -> Iterator[tuple[str, int]]:
    """Count the trajectories in which stored arrays differ, for blocks of the same size."""
    if results.config["block"] != reference.config["block"] or results.size != reference.size:
        return
    labels = {"t", "coordinate", STATES} | ({VELOCITY} if results.velocities else set())
    for name in results.group:
        if not reference.has(name):
            continue
        arrays = array_of(results.group, name), array_of(reference.group, name)
        by_member = all(array.shape[:1] == (results.size,) for array in arrays)
        alike = arrays[0].shape == arrays[1].shape and arrays[0].dtype == arrays[1].dtype
        if name in labels or not (by_member and alike):
            continue
        pairs = zip(results.pieces(name), reference.pieces(name), strict=False)
        yield name, sum(_rows_that_differ(a, b) for a, b in pairs)


def _rows_that_differ(a: np.ndarray, b: np.ndarray) -> int:
    rows = min(len(a), len(b))
    x, y = (np.ascontiguousarray(z[:rows]).reshape(rows, -1).view(np.uint8) for z in (a, b))
    return int((x != y).any(1).sum())


def _card(comparison: RunComparison) -> Iterator[str]:
    first, second = comparison.paths
    yield f"{first} (first) and {second} (second)"
    yield "" if comparison.configuration else "the same configuration"
    if comparison.configuration:
        yield "configuration"
        for key, old, new in comparison.configuration:
            yield f"  {key:<24}{_shown(old)} and {_shown(new)}"
    if comparison.environment:
        yield "environment (there: first, here: second)"
        yield from (f"  {line}" for line in comparison.environment)
    if comparison.statistics:
        yield "statistics: first, second, their difference with its interval"
        yield from (_statistic_line(statistic) for statistic in comparison.statistics)
        if comparison.same_draws:
            yield "  both drew the same numbers; intervals of differences assume independent ones"
    yield from (f"  only one has {name}" for name in comparison.only)
    differ = {name: count for name, count in comparison.arrays.items() if count}
    if comparison.arrays and not differ:
        yield f"{len(comparison.arrays)} stored arrays are bit-identical"
    for name, count in differ.items():
        yield f"  {name} differs in {count:,} trajectories"


def _statistic_line(statistic: Difference) -> str:
    value, low, high = statistic.difference
    x, y = (f"{e[0]:.6g} [{e[1]:.6g}, {e[2]:.6g}]" for e in (statistic.first, statistic.second))
    share = (
        f"; apart in {statistic.apart:,} of {statistic.entries:,}" if statistic.entries > 1 else ""
    )
    mark = "" if low <= 0 <= high else " *"
    return f"  {statistic.name}: {x}, {y}; {value:.3g} [{low:.3g}, {high:.3g}]{mark}{share}"


def _shown(value: Any) -> str:
    description = "not given" if value is None else str(value)
    return description if len(description) <= 60 else f"{description[:60]} ..."
