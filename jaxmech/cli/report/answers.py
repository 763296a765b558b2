"""The answers of a study: tables of its statistics, and each quantity over its members."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxmech.cli.report.layout import EstimateCell, PagePart, PageTable
from jaxmech.ensemble import Results, array_of
from jaxmech.plot import (
    HIGH,
    LOW,
    BinnedDensity,
    Influence,
    ShownStatistic,
    is_series,
    saved_times,
)
from jaxmech.utils.units import with_unit

_MOST_QUANTITIES = 6
_NORMAL = 1.959963984540054  # of a two-sided interval of 95 %
_LEAST = 8  # members from which a distribution is drawn
_MOST_ROWS, _MOST_COLUMNS = 24, 12  # of a table
# Drawn inputs in the names of statistics, and what is added to the name of a variable.
_INPUTS = {"start": "", "coordinates": " at the start", "velocities": " rate at the start",
           "parameters": ""}  # fmt: skip


def answers(results: Results) -> list[PagePart]:
    """The results of all statistics that have some to list, each with its kind and quantity."""
    names = results.config.get("statistics", {})
    cards = [_answer(results, name) for name in results.statistics if name in names]
    return [card for card in cards if card.tables]


def _answer(results: Results, name: str) -> PagePart:
    shown = ShownStatistic(results, name)
    kind, of = shown.kind, shown.settings.get("of", "")
    note = f"{kind} of {', '.join(_names(of))}" if of else kind
    for side in ("above", "below"):
        limit = shown.settings.get(side)
        note += "" if limit is None else f" {side} {limit:g}"
    note += shown.at
    if kind != "custom" and "times" in shown.values:
        note += f"; times: {shown.values['times']}"  # whether events find them, or the saved times
    columns = [x for x in shown.columns() if np.ndim(x.value) < 2]
    cells = {x.title: _cells(x.value, *x.ends) for x in columns}
    tables = []
    if one := [(title, x[()]) for title, x in cells.items() if not x.ndim]:
        tables.append(PageTable((), one))
    lists = {title: x for title, x in cells.items() if x.ndim}
    count = max((len(x) for x in lists.values()), default=0)
    rows = [str(x) for x in shown.values.get("names", _components(results, of, count))]
    same = {title: x for title, x in lists.items() if len(x) == count == len(rows)}
    if 0 < count <= _MOST_ROWS and 0 < len(same) <= _MOST_COLUMNS:
        body = [*zip(rows, *same.values(), strict=True)]
        tables.append(PageTable(("", *same), body, caption=shown.caption))
    return PagePart(name, note=note, tables=tables)


def _cells(value: Any, *ends: Any) -> np.ndarray:
    """Numbers, with their intervals where these are known."""
    cells = np.empty(np.shape(value), object)
    for index in np.ndindex(cells.shape):
        x, *interval = (np.asarray(part)[index].item() for part in (value, *ends))
        cells[index] = EstimateCell(x, *interval) if ends and np.isfinite(interval).all() else x
    return cells


def _components(results: Results, of: Any, count: int) -> tuple[str, ...]:
    names = results.velocities if of in ("v", "qdd", "constraint_force") else ()
    names = names or results.coordinates
    return names if len(names) == count else tuple(str(k + 1) for k in range(count))


def _names(of: Any) -> list[str]:
    return [of] if isinstance(of, str) else [*(of or ())]


@dataclass
class MemberQuantity:
    """A number of each member, with what is known of it."""

    name: str  # with the time
    unit: str
    level: float = 95.0  # of the interval of the mean [%]
    mean: tuple[float, float, float] | None = None
    density: BinnedDensity | None = None
    influence: Influence | None = None
    members: dict[int, tuple[str, str]] = field(default_factory=dict)  # "median" and its value
    limits: list[float] = field(default_factory=list)  # whose probability was asked for
    sentences: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Its name with its unit."""
        return with_unit(self.name, self.unit)

    def add(self, index: Any, rank_name: str, value: Any) -> None:
        """Add a member that stands for many, or is the worst, which counts more."""
        self.members[int(index)] = rank_name, number_with_unit(value, self.unit)


def quantities(results: Results) -> list[MemberQuantity]:
    """The quantities of statistics, then the observed ones; without any, the coordinates."""
    table = results.config.get("statistics", {})
    names = [x for one in table.values() for x in _names(one.get("of"))]
    names = [*dict.fromkeys([*names, *results.config.get("observe", {})])]
    known = [*filter(None, (_quantity(results, name) for name in names))]
    if not known and results.has("q"):
        known = [*filter(None, (_quantity(results, name) for name in results.coordinates))]
    return known[:_MOST_QUANTITIES]


def _quantity(results: Results, name: str) -> MemberQuantity | None:
    at = f" at t = {saved_times(results, name)[-1]:g} s" if is_series(results, name) else ""
    quantity = MemberQuantity(f"{name}{at}", results.unit_of(name))
    asked = [ShownStatistic(results, key) for key in results.statistics]
    asked = [x for x in asked if name in _names(x.settings.get("of"))]
    stored = _of_members(results, name)
    if stored is not None:
        numbers, good = stored
        x, good = numbers[np.isfinite(numbers)], good[np.isfinite(numbers)]
        if x.size < _LEAST:
            return None
        half = _NORMAL * x.std(ddof=1) / np.sqrt(x.size)
        quantity.mean = float(x.mean()), float(x.mean() - half), float(x.mean() + half)
        quantity.density = BinnedDensity.of_values(x)
        # The members at 5, 50 and 95 %, and the worst one.
        down = any(x.settings.get("below") is not None or x.settings.get("smallest") for x in asked)
        order, last = np.argsort(x, kind="stable"), x.size - 1
        ranks = {f"at {100 * p:g} %": round(p * last) for p in (LOW, 0.5, HIGH)}
        ranks |= {"smallest": 0} if down else {"largest": last}
        for rank_name, rank in ranks.items():
            quantity.add(results.members[good[order[rank]]], rank_name, x[order[rank]])
    for statistic in asked:
        _add_statistic(quantity, name, statistic, stored is None)
    quantity.sentences = [*_sentences(quantity), *quantity.sentences, *_worst(quantity)]
    return quantity if quantity.sentences or quantity.influence is not None else None


def _add_statistic(
    quantity: MemberQuantity, name: str, statistic: ShownStatistic, is_alone: bool
) -> None:
    """Add what a statistic says of a quantity, of whose members nothing is stored if alone."""
    kind, settings, values = statistic.kind, statistic.settings, statistic.values
    confidence = 100 * settings.get("confidence", 0.95)
    sides = [side for side in ("above", "below") if settings.get(side) is not None]
    quantity.limits += [x for side in sides if (x := float(settings[side])) not in quantity.limits]
    if kind == "sobol-indices":
        labels = tuple(_input_label(str(x)) for x in values["names"])
        parts = [values[x] for x in ("total", "total_low", "total_high")]
        measure = "share of the variance, total Sobol index"
        quantity.influence = Influence.of(measure, labels, *parts)
    elif kind == "covariance" and quantity.influence is None:
        names = [str(x) for x in values["names"]]
        inputs = [k for k, x in enumerate(names) if x.partition(".")[0] in _INPUTS]
        row, keys = names.index(name), ("correlation", "correlation_low", "correlation_high")
        parts = [np.asarray(values[key])[row, inputs] for key in keys]
        labels = tuple(_input_label(names[k]) for k in inputs)
        if inputs:
            quantity.influence = Influence.of("correlation", labels, *parts)
    elif kind == "probability":
        p, low, high = EstimateCell(
            *(float(values[x]) for x in ("probability", "low", "high"))
        ).texts
        limit = number_with_unit(settings[sides[0]], quantity.unit)
        interval = f"({confidence:g} % interval {low} to {high})"
        sentence = f"It is {sides[0]} {limit} with a probability of {p} {interval}."
        quantity.sentences.append(sentence)
    elif kind == "moments" and is_alone and np.ndim(values["mean"]) == 0:
        mean = (float(values[f"mean{end}"]) for end in ("", "_low", "_high"))
        quantity.mean, quantity.level = (next(mean), next(mean), next(mean)), confidence
        for key, word in (("max", "largest"), ("min", "smallest")):
            if values[f"{key}_index"] >= 0:
                quantity.add(values[f"{key}_index"], word, values[key])
    elif kind == "histogram" and is_alone:
        if np.ndim(values["counts"]) == 1 and np.any(values["counts"]):
            ends = float(values["below"]), float(values["above"])
            quantity.density = BinnedDensity.of_counts(values["counts"], values["edges"], *ends)
    elif kind == "worst" and is_alone and len(values["index"]):
        word = "smallest" if settings.get("smallest") else "largest"
        quantity.add(values["index"][0], word, values["value"][0])


def _of_members(results: Results, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """A number of each good member (N,), of a series the last one, and their indices."""
    sampling = results.config.get("sampling", {})
    if sampling.get("weight") or sampling.get("proposal") or not results.has_trajectories:
        return None  # members with weights do not count alike
    good = np.flatnonzero(results.is_good)
    if name in results.coordinates and results.has("q"):
        return results.good("q", times=[-1])[:, 0, results.coordinates.index(name)], good
    if not results.has(name):
        return None
    axes = len(array_of(results.group, name).shape)
    if is_series(results, name):
        return (results.good(name, times=[-1])[:, 0].astype(float), good) if axes == 2 else None
    return (results.good(name).astype(float).reshape(len(good), -1)[:, 0], good)


def _input_label(key: str) -> str:
    section, _, name = key.partition(".")
    return f"{name}{_INPUTS[section]}" if section in _INPUTS else key


def number_with_unit(value: Any, unit: str) -> str:
    """A number of four digits with its unit."""
    number = float(value)
    text = f"{number:.0f}" if 1e3 <= abs(number) < 1e6 else f"{number:.4g}"
    return f"{text} {unit}".rstrip()


def _sentences(quantity: MemberQuantity) -> Iterator[str]:
    unit, density = quantity.unit, quantity.density
    if quantity.mean is not None and np.isfinite(quantity.mean).all():
        value, low, high = EstimateCell(*quantity.mean).texts
        interval = f"({quantity.level:g} % interval {low} to {high})"
        yield f"The mean of {quantity.name} is {f'{value} {unit}'.rstrip()} {interval}."
    if density is not None and np.isfinite(density.quantiles[[0, 2]]).all():
        low, middle, high = (number_with_unit(x, unit) for x in density.quantiles)
        yield f"Half of the members are below {middle}, and 90 % are between {low} and {high}."


def _worst(quantity: MemberQuantity) -> Iterator[str]:
    for index, (rank_name, value) in quantity.members.items():
        if rank_name in ("largest", "smallest"):  # no other member goes further
            yield f"The {rank_name} value is {value}, of member {index:,}."
