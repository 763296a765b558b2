"""The answers of a study: tables of its statistics, and each quantity over its members."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmech.cli.report.tables import Answer, EstimateCell, PageTable
from jaxmech.ensemble import SERIES, Results, array_of
from jaxmech.plot import HIGH, LOW, BinnedDensity, Influence
from jaxmech.utils.units import with_unit

MOST_QUANTITIES = 6
_NORMAL = 1.959963984540054  # of a two-sided interval of 95 %
_LEAST = 8  # members from which a distribution is drawn
_MOST_ROWS, _MOST_COLUMNS = 24, 12  # of a table
# What is listed of each statistic, and the names of the ends of its interval, if it has one.
_LISTED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "moments": {"mean": ("mean_low", "mean_high"), "sd": (), "min": (), "max": (), "count": ()},
    "probability": {"probability": ("low", "high"), "hits": (), "count": (), "left_out": ()},
    "first-passage": {
        "probability": ("low", "high"), "mean": (), "sd": (), "earliest": (), "latest": (),
        "never": (), "count": (),
    },
    "quantiles": {"quantiles": ("low", "high")},
    "histogram": {"below": (), "above": ()},
    "covariance": {"correlation": ("correlation_low", "correlation_high"), "count": ()},
    "sobol-indices": {
        name: (f"{name}_low", f"{name}_high") for name in ("first_order", "total")
    },
    "worst": {"index": (), "value": ()},
}  # fmt: skip
# Drawn inputs in the names of statistics, and what is added to the name of a variable.
_INPUTS = {"start": "", "coordinates": " at the start", "velocities": " rate at the start",
           "parameters": ""}  # fmt: skip

Settings = Mapping[str, Any]
Asked = Sequence[tuple[Settings, Mapping[str, np.ndarray]]]  # settings and results of statistics


def answers(results: Results) -> list[Answer]:
    """The results of all statistics that have some to list."""
    table = results.config.get("statistics", {})
    found = [_answer(results, name, table[name]) for name in results.statistics if name in table]
    return [answer for answer in found if answer.tables]


def confidences(results: Results) -> str:
    """The confidences of the intervals."""
    settings = results.config.get("statistics", {}).values()
    levels = sorted({statistic.get("confidence", 0.95) for statistic in settings})
    return " or ".join(f"{100 * level:g} %" for level in levels) or "95 %"


def _answer(results: Results, name: str, settings: Settings) -> Answer:
    kind, of = settings["statistic"], settings.get("of", "")
    description = f"{kind} of {', '.join(_names(of))}" if of else kind
    sides = [side for side in ("above", "below") if settings.get(side) is not None]
    description += "".join(f" {side} {settings[side]:g}" for side in sides)
    values, at = _at_the_end(results, settings, results.statistics[name])
    if str(values.get("times", "")) and np.asarray(values.get("times", 0)).dtype.kind == "U":
        at += f"; times: {values['times']}"
    own = {key: () for key, x in values.items() if np.asarray(x).dtype.kind in "fiu"}
    units, tables = results.statistic_units(name), list[PageTable]()
    numbers: list[tuple[object, ...]] = []
    columns: dict[str, np.ndarray] = {}
    for key, ends in _LISTED.get(kind, own).items():
        if key not in values:
            continue
        cells = _cells(*(np.asarray(values[x]) for x in (key, *ends) if x in values))
        title = with_unit(key.replace("_", " "), units.get(key, ""))
        if kind == "quantiles":
            probabilities = [f"{100 * p:g} %" for p in values["at"]]
            if cells.ndim == 1:
                numbers += zip(probabilities, cells, strict=True)
            elif len(cells) <= _MOST_ROWS:
                rows = zip(_components(results, of, len(cells)), *cells.T, strict=True)
                tables.append(PageTable(("", *probabilities), [*rows], caption=title))
        elif cells.ndim == 2 and max(cells.shape) <= _MOST_COLUMNS and "names" in values:
            names = [str(x) for x in values["names"]]
            rows = zip(names, *cells.T, strict=True)
            tables.append(PageTable(("", *names), [*rows], caption=title))
        elif cells.ndim == 1 and 0 < len(cells) <= _MOST_ROWS:
            columns[title] = cells
        elif cells.ndim == 0:
            numbers.append((title, cells[()]))
    if columns:
        count = len(next(iter(columns.values())))
        named = [str(x) for x in values.get("names", _components(results, of, count))]
        same = {title: x for title, x in columns.items() if len(x) == count == len(named)}
        rows = zip(named, *same.values(), strict=True)
        tables.insert(0, PageTable(("", *same), [*rows]))
    if numbers:
        tables.insert(0, PageTable((), numbers))
    return Answer(name, f"{description}{at}", tables)


def _cells(value: np.ndarray, *ends: np.ndarray) -> np.ndarray:
    """Numbers, with their intervals where these are known."""
    cells = np.empty(value.shape, object)
    for index in np.ndindex(value.shape):
        interval = [end[index].item() for end in ends]
        known = len(interval) == 2 and not np.isnan(interval).any()
        x = value[index].item()
        cells[index] = EstimateCell(x, *interval) if known else x
    return cells


def _components(results: Results, of: Any, count: int) -> Sequence[str]:
    names: Sequence[str] = ()
    if of in ("q", "rates"):
        names = results.coordinates
    elif of in ("v", "qdd", "constraint_force"):
        names = results.velocities or results.coordinates
    return names if len(names) == count else [str(k + 1) for k in range(count)]


def _names(of: Any) -> list[str]:
    return [of] if isinstance(of, str) else [*(of or ())]


def is_series(results: Results, name: str) -> bool:
    """Whether a quantity has a value at each saved time."""
    observed = results.config.get("observe", {}).get(name)
    if observed is not None:
        return bool(observed.get("keep", "all") == "all")
    return name in results.coordinates or name in SERIES


def saved_times(results: Results, quantity: Any) -> np.ndarray:
    """The saved times of a quantity [s], which may be every so many of all."""
    observed = results.config.get("observe", {}).get(str(quantity), {})
    return results.ts[:: observed.get("every", 1)]


def _at_the_end(
    results: Results, settings: Settings, values: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
    """The results at the last time, and a remark on it, of a statistic over time."""
    kind, of = settings["statistic"], settings.get("of")
    over_time = kind in ("histogram", "moments", "quantiles") and is_series(results, str(of))
    if not over_time and kind != "first-passage":
        return values, ""
    ts, shared = saved_times(results, of), {"at": 1, "edges": 1}  # the same at all times
    last = {
        key: x[-1] if np.ndim(x) > shared.get(key, 0) and len(x) == len(ts) else x
        for key, x in values.items()
    }
    return last, f" at t = {ts[-1]:g} s"


@dataclass(frozen=True)
class TypicalMember:
    """A member that stands for many, or is the worst."""

    index: int
    rank_name: str  # "median" or "largest", ...
    value: str  # of the quantity, with its unit


@dataclass(frozen=True, eq=False)
class MemberQuantity:
    """A number of each member, with what is known of it."""

    name: str
    label: str  # with its unit
    sentences: tuple[str, ...]
    density: BinnedDensity | None
    mean: tuple[float, float, float] | None
    limits: tuple[float, ...]
    influence: Influence | None
    members: tuple[TypicalMember, ...]


def quantities(results: Results) -> list[MemberQuantity]:
    """The quantities of statistics, then the observed ones; without any, the coordinates."""
    table = results.config.get("statistics", {})
    names = [x for one in table.values() for x in _names(one.get("of"))]
    names = [*dict.fromkeys([*names, *results.config.get("observe", {})])]
    found = [*filter(None, (_quantity(results, name) for name in names))]
    if not found and results.has("q"):
        found = [*filter(None, (_quantity(results, name) for name in results.coordinates))]
    return found[:MOST_QUANTITIES]


def _quantity(results: Results, name: str) -> MemberQuantity | None:
    table, unit = results.config.get("statistics", {}), results.unit_of(name)
    asked = [
        (table[key], values)
        for key, values in results.statistics.items()
        if name in _names(table.get(key, {}).get("of"))
    ]
    level, density = 95.0, None
    mean: Any = None
    members: list[TypicalMember] = []
    at = f" at t = {saved_times(results, name)[-1]:g} s" if is_series(results, name) else ""
    if (stored := _of_members(results, name)) is not None:
        numbers, good = stored
        x = numbers[known := np.isfinite(numbers)]
        if x.size < _LEAST:
            return None
        half = _NORMAL * x.std(ddof=1) / np.sqrt(x.size)
        mean = (float(x.mean()), float(x.mean() - half), float(x.mean() + half))
        density = BinnedDensity.of_values(x)
        down = any(s.get("below") is not None or s.get("smallest") for s, _ in asked)
        members = [*_typical(x, results.members[good[known]], unit, is_smallest=down)]
    for settings, found in asked if stored is None else ():
        kind, (values, _) = settings["statistic"], _at_the_end(results, settings, found)
        if kind == "moments" and np.ndim(values["mean"]) == 0:
            mean = tuple(float(values[f"mean{end}"]) for end in ("", "_low", "_high"))
            level = 100 * settings.get("confidence", 0.95)
            for key, word in (("max", "largest"), ("min", "smallest")):
                if values[f"{key}_index"] >= 0:
                    value = number_with_unit(values[key], unit)
                    members.append(TypicalMember(int(values[f"{key}_index"]), word, value))
        elif kind == "histogram" and np.ndim(values["counts"]) == 1 and values["counts"].any():
            ends = float(values["below"]), float(values["above"])
            density = BinnedDensity.of_counts(values["counts"], values["edges"], *ends)
        elif kind == "worst" and len(values["index"]):
            word = "smallest" if settings.get("smallest") else "largest"
            value = number_with_unit(values["value"][0], unit)
            members.insert(0, TypicalMember(int(values["index"][0]), word, value))
    influence = influence_of(name, asked)
    members = [*dict.fromkeys(members)]  # the same one by several statistics
    said = tuple(_sentences(f"{name}{at}", unit, mean, level, density, members, asked))
    if not said and influence is None:
        return None
    sides = (settings.get(side) for settings, _ in asked for side in ("above", "below"))
    limits = tuple(dict.fromkeys(float(x) for x in sides if x is not None))
    label = with_unit(f"{name}{at}", unit)
    return MemberQuantity(
        f"{name}{at}", label, said, density, mean, limits, influence, tuple(members)
    )


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


def influence_of(name: str, asked: Asked) -> Influence | None:
    """Sobol indices of a quantity or, without any, its correlations with the inputs."""
    by_kind = {settings["statistic"]: values for settings, values in asked}
    if values := by_kind.get("sobol-indices"):
        labels = tuple(_input_label(str(x)) for x in values["names"])
        parts = (np.asarray(values[x]) for x in ("total", "total_low", "total_high"))
        return Influence("share of the variance, total Sobol index", labels, *parts).known()
    if values := by_kind.get("covariance"):
        names = [str(x) for x in values["names"]]
        inputs = [k for k, x in enumerate(names) if x.partition(".")[0] in _INPUTS]
        if name not in names or not inputs:
            return None
        row, keys = names.index(name), ("correlation", "correlation_low", "correlation_high")
        parts = (np.asarray(values[key])[row, inputs] for key in keys)
        labels = tuple(_input_label(names[k]) for k in inputs)
        return Influence("correlation", labels, *parts).known()
    return None


def _input_label(key: str) -> str:
    section, _, name = key.partition(".")
    return f"{name}{_INPUTS[section]}" if section in _INPUTS else key


def _typical(
    values: np.ndarray, numbers: np.ndarray, unit: str, *, is_smallest: bool
) -> Iterator[TypicalMember]:
    """The members at 5, 50 and 95 %, and the worst one."""
    order = np.argsort(values, kind="stable")
    last = len(order) - 1
    ranks = {f"at {100 * p:g} %": round(p * last) for p in (LOW, 0.5, HIGH)}
    ranks |= {"smallest": 0} if is_smallest else {"largest": last}
    for rank_name, rank in ranks.items():
        k = order[rank]
        yield TypicalMember(int(numbers[k]), rank_name, number_with_unit(values[k], unit))


def number_with_unit(value: Any, unit: str) -> str:
    """A number of four digits with its unit."""
    number = float(value)
    text = f"{number:.0f}" if 1e3 <= abs(number) < 1e6 else f"{number:.4g}"
    return f"{text} {unit}".rstrip()


def _sentences(
    name: str, unit: str, mean: Any, level: float, density: BinnedDensity | None,
    members: Sequence[TypicalMember], asked: Asked,
) -> Iterator[str]:  # fmt: skip
    if mean is not None and np.isfinite(mean).all():
        value, low, high = EstimateCell(*mean).texts
        interval = f"({level:g} % interval {low} to {high})"
        yield f"The mean of {name} is {f'{value} {unit}'.rstrip()} {interval}."
    if density is not None and np.isfinite(density.quantiles[[0, 2]]).all():
        low, middle, high = (number_with_unit(x, unit) for x in density.quantiles)
        yield f"Half of the members are below {middle}, and 90 % are between {low} and {high}."
    for settings, values in asked:
        if settings["statistic"] == "probability":
            side = "above" if settings.get("above") is not None else "below"
            cell = EstimateCell(*(float(values[x]) for x in ("probability", "low", "high")))
            p, low, high = cell.texts
            level = 100 * settings.get("confidence", 0.95)
            limit = number_with_unit(settings[side], unit)
            interval = f"({level:g} % interval {low} to {high})"
            yield f"It is {side} {limit} with a probability of {p} {interval}."
    for one in members:
        if one.rank_name in ("largest", "smallest"):  # no other member goes further
            yield f"The {one.rank_name} value is {one.value}, of member {one.index:,}."
