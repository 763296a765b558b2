"""The answers of a study: a table, or more, for each of its statistics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jaxmech.cli.report.tables import EstimateCell, PageTable
from jaxmech.ensemble import INTERVALS, Results
from jaxmech.utils.units import with_unit

_LIMITS = {value: (low, high) for value, low, high in INTERVALS} | {
    name: (f"{name}_low", f"{name}_high") for name in ("correlation", "first_order", "total")
}
_NOT_LISTED = {"at", "counts", "edges", "names", "passed", "times"}  # labels, and parts of pictures
_OVER_TIME = {"moments", "quantiles", "first-passage"}  # statistics that may be of each saved time
_OF_VELOCITIES = {"v", "qdd", "constraint_force"}
_MOST_ROWS = 24  # of a table
_MOST_COLUMNS = 12  # of a matrix


@dataclass(frozen=True)
class Answer:
    """The results of one statistic."""

    name: str
    description: str  # kind and quantity, such as "moments of q at t = 2 s"
    tables: Sequence[PageTable]

    @property
    def is_wide(self) -> bool:
        """Whether its tables take the whole width of the page."""
        return any(table.is_wide for table in self.tables)


def answers(results: Results) -> list[Answer]:
    """The results of all statistics that have some to list."""
    settings = results.config.get("statistics", {})
    listed = (
        _answer(results, name, settings.get(name, {}), values)
        for name, values in results.statistics.items()
    )
    return [answer for answer in listed if answer.tables]


def confidences(results: Results) -> str:
    """The confidences of the intervals."""
    settings = results.config.get("statistics", {}).values()
    levels = sorted({statistic.get("confidence", 0.95) for statistic in settings})
    return " or ".join(f"{100 * level:g} %" for level in levels) or "95 %"


def _answer(
    results: Results, name: str, setting: Mapping[str, Any], values: Mapping[str, Any]
) -> Answer:
    kind, quantity = setting.get("statistic", "statistic"), setting.get("of", "")
    quantities = [quantity] if isinstance(quantity, str) else quantity
    description = f"{kind} of {', '.join(quantities)}" if quantity else kind
    description += "".join(
        f" {side} {setting[side]:g}" for side in ("above", "below") if side in setting
    )
    ts = saved_times(results, quantity)
    arrays = {key: np.asarray(value) for key, value in values.items()}
    if kind in _OVER_TIME:
        at_end = {key: x for key, x in arrays.items() if x.shape[:1] == ts.shape and key != "at"}
        if at_end:
            description += f" at t = {ts[-1]:g} s"
        arrays |= {key: np.asarray(x[-1]) for key, x in at_end.items() if key not in _NOT_LISTED}
    if arrays.get("times", np.zeros(())).dtype.kind == "U":
        description += f"; times: {arrays['times']}"
    labels = _labels(results, quantity, values)
    titles = partial(_title, results.statistic_units(name))
    tables = [
        *_table_of_numbers(arrays, titles),
        *_tables_of_vectors(arrays, labels, titles),
        *_tables_of_matrices(arrays, labels, titles),
    ]
    return Answer(name, description, tables)


def saved_times(results: Results, quantity: Any) -> np.ndarray:
    """The saved times of a quantity [s], which may be every so many of all."""
    observed = results.config.get("observe", {}).get(str(quantity), {})
    return results.ts[:: observed.get("every", 1)]


def _labels(results: Results, quantity: Any, values: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    labels: list[Sequence[str]] = []
    if "names" in values:
        labels.append([str(name) for name in np.asarray(values["names"])])
    if quantity in ("q", "rates"):
        labels.append(results.coordinates)
    elif isinstance(quantity, str) and quantity in _OF_VELOCITIES:
        labels.append(results.velocities or results.coordinates)
    if "at" in values:
        labels.append([f"{100 * p:g} %" for p in np.asarray(values["at"])])
    return labels


def _labels_of(count: int, labels: Sequence[Sequence[str]]) -> Sequence[str]:
    fitting = [names for names in labels if len(names) == count]
    return fitting[0] if fitting else [str(k + 1) for k in range(count)]


def _listed(arrays: Mapping[str, np.ndarray], ndim: int) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of numbers with so many axes that are not the limits of others."""
    limits = {limit for pair in _LIMITS.values() for limit in pair}
    for key, array in arrays.items():
        if array.ndim == ndim and array.dtype.kind in "fiu" and key not in limits | _NOT_LISTED:
            yield key, array


def _cells(arrays: Mapping[str, np.ndarray], key: str) -> np.ndarray:
    array = arrays[key]
    limits = [arrays.get(limit) for limit in _LIMITS.get(key, ())]
    cells = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        value = array[index].item()
        low_high = [x[index].item() for x in limits if x is not None and x.shape == array.shape]
        has_interval = len(low_high) == 2 and not np.isnan(low_high).any()
        cells[index] = EstimateCell(value, *low_high) if has_interval else value
    return cells


def _title(units: Mapping[str, str], key: str) -> str:
    return with_unit(key.replace("_", " "), units.get(key, ""))


def _table_of_numbers(
    arrays: Mapping[str, np.ndarray], title: Callable[[str], str]
) -> Iterator[PageTable]:
    rows = [(title(key), _cells(arrays, key)[()]) for key, _ in _listed(arrays, 0)]
    if rows:
        yield PageTable((), rows)


def _tables_of_vectors(
    arrays: Mapping[str, np.ndarray], labels: Sequence[Sequence[str]], title: Callable[[str], str]
) -> Iterator[PageTable]:
    keys_of: dict[int, list[str]] = {}
    for key, array in _listed(arrays, 1):
        keys_of.setdefault(len(array), []).append(key)
    for count, keys in keys_of.items():
        if 0 < count <= _MOST_ROWS:
            names = _labels_of(count, labels)
            columns = [_cells(arrays, key) for key in keys]
            rows = [(name, *cells) for name, *cells in zip(names, *columns, strict=True)]
            yield PageTable(("", *map(title, keys)), rows)


def _tables_of_matrices(
    arrays: Mapping[str, np.ndarray], labels: Sequence[Sequence[str]], title: Callable[[str], str]
) -> Iterator[PageTable]:
    for key, array in _listed(arrays, 2):
        if max(array.shape) <= _MOST_COLUMNS and array.size:
            names, titles = (_labels_of(count, labels) for count in array.shape)
            if len(labels) > 1:  # of components and of probabilities
                titles = _labels_of(array.shape[1], labels[1:])
            rows = [(name, *cells) for name, cells in zip(names, _cells(arrays, key), strict=True)]
            yield PageTable(("", *titles), rows, caption=title(key))
