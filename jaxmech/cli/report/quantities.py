"""What a study asks for: numbers of each member, with sentences, pictures and typical members.

`influence_from_statistics` and `influence_from_members` say how much a quantity depends on each
drawn input.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmech.cli.report.tables import EstimateCell, saved_times
from jaxmech.ensemble import Results, array_of
from jaxmech.plot import HIGH, LOW, BinnedDensity, Influence
from jaxmech.utils.units import with_unit

_LEAST_SAMPLE, _LARGEST_SAMPLE = 60, 16_384  # members from which shares are estimated
_IN_A_GROUP = 15  # members with nearby values of an input, at least
_GROUPS = 20
_RESAMPLES = 200
_SECTIONS = {"start_": "", "coordinate_": " at the start", "velocity_": " rate at the start",
             "parameter_": ""}  # fmt: skip
_KEYS = {"start": "start_", "coordinates": "coordinate_", "velocities": "velocity_",
         "parameters": "parameter_"}  # fmt: skip


def influence_from_statistics(
    name: str, asked: Sequence[tuple[Mapping[str, Any], Mapping[str, np.ndarray]]]
) -> Influence | None:
    """Sobol indices of a quantity or, without any, its correlations with the inputs."""
    for kind, draw in (("sobol-indices", _of_sobol), ("covariance", _of_covariance)):
        for settings, values in asked:
            if settings.get("statistic") == kind:
                found = draw(name, values)
                return found.known() if found is not None else None
    return None


def _of_sobol(name: str, values: Mapping[str, np.ndarray]) -> Influence:
    labels = tuple(_label_of_key(str(x)) for x in values["names"])
    parts = (values["total"], values["total_low"], values["total_high"])
    return Influence("share of the variance, total Sobol index", labels, *map(np.asarray, parts))


def _of_covariance(name: str, values: Mapping[str, np.ndarray]) -> Influence | None:
    names = [str(x) for x in values["names"]]
    inputs = [k for k, x in enumerate(names) if x.partition(".")[0] in _KEYS]
    if name not in names or not inputs:
        return None
    row = names.index(name)
    parts = (np.asarray(values[f"correlation{end}"])[row, inputs] for end in ("", "_low", "_high"))
    return Influence("correlation", tuple(_label_of_key(names[k]) for k in inputs), *parts)


def influence_from_members(
    results: Results, values: np.ndarray, good: np.ndarray
) -> Influence | None:
    """Sobol indices of first order of the values of good members, at their indices, both (N,)."""
    kept = np.flatnonzero(np.isfinite(values))[:_LARGEST_SAMPLE]
    return first_order(dict(_inputs(results, good[kept])), values[kept])


def first_order(inputs: Mapping[str, np.ndarray], values: np.ndarray) -> Influence | None:
    """Sobol indices of first order from members of any design; None with too few of them.

    The variance of the means of groups with nearby values of an input, beside the whole variance,
    less what groups of as many random members would have (E. Plischke, "How to compute variance-
    based sensitivity indicators with your spreadsheet software", Environmental Modelling and
    Software 35, 2012). The intervals are those of a bootstrap.

    Args:
        inputs: the values of each input, shape (N,), by name.
        values: the quantity, shape (N,).
    """
    if len(values) < _LEAST_SAMPLE or not inputs or not values.std() > 0:
        return None
    y = (values - values.mean()) / values.std()
    count = int(np.clip(len(y) // _IN_A_GROUP, 2, _GROUPS))
    weights = np.random.default_rng(0).poisson(1.0, (_RESAMPLES, len(y))).astype(float)
    weights = np.concatenate([np.ones((1, len(y))), weights])
    shares = np.stack([_shares(x, y, weights, count) for x in inputs.values()], axis=1)
    low, high = np.quantile(shares[1:], (0.025, 0.975), axis=0)
    bias = np.median(shares[1:], axis=0) - shares[0]  # a resample repeats members
    ends = (np.clip(x - bias, 0.0, 1.0) for x in (low, high))
    measure = "share of the variance, Sobol index of first order"
    return Influence(measure, tuple(inputs), np.clip(shares[0], 0.0, 1.0), *ends)


def _shares(x: np.ndarray, y: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """The share of the variance of y between groups by x, for each row of weights."""
    order = np.argsort(np.argsort(x, kind="stable"), kind="stable")
    groups = np.eye(count)[order * count // len(x)]
    n = np.maximum(weights @ groups, 1e-9)
    means = ((weights * y) @ groups) / n
    total = weights.sum(1)
    mean = (weights @ y) / total
    between = (n * (means - mean[:, None]) ** 2).sum(1)
    whole = weights @ y**2 - total * mean**2
    within: np.ndarray = (whole - between) / (total - count)
    return 1.0 - within / (whole / (total - 1))


def _inputs(results: Results, members: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The drawn numbers of some members by label, where each member has its own."""
    for name in sorted(results.group):
        section = next((x for x in _SECTIONS if name.startswith(x)), None)
        if section is not None and array_of(results.group, name).shape == (results.size,):
            values = results.all_of(name)[members]
            if np.ptp(values) > 0:
                yield _label(section, name.removeprefix(section)), values


def _label_of_key(key: str) -> str:
    section, _, name = key.partition(".")
    return _label(_KEYS[section], name) if section in _KEYS else key


def _label(section: str, name: str) -> str:
    return f"{name}{_SECTIONS[section]}"


MOST_QUANTITIES = 6
_NORMAL = 1.959963984540054  # of a two-sided interval of 95 %
_LEAST = 8  # members from which a distribution is drawn

Settings = Mapping[str, Any]
Asked = Sequence[tuple[Settings, Mapping[str, np.ndarray]]]  # settings and results of statistics


@dataclass(frozen=True)
class TypicalMember:
    """A member that stands for many, or is the worst."""

    index: int
    rank_name: str  # "median" or "largest", ...
    value: str  # of the quantity, with its unit

    @property
    def is_extreme(self) -> bool:
        """Whether no other member goes further."""
        return self.rank_name in ("largest", "smallest")


@dataclass(frozen=True, eq=False)
class MemberQuantity:
    """A number of each member, with what is known of it."""

    name: str
    label: str  # with its unit
    sentences: tuple[str, ...]
    density: BinnedDensity | None = None
    mean: tuple[float, float, float] | None = None
    limits: tuple[float, ...] = ()
    influence: Influence | None = None
    members: tuple[TypicalMember, ...] = ()


def quantities(results: Results) -> list[MemberQuantity]:
    """The quantities of statistics, then the observed ones; without any, the coordinates."""
    table = results.config.get("statistics", {})
    names = [x for one in table.values() for x in _names(one.get("of"))]
    names += results.config.get("observe", {})
    names = [*dict.fromkeys(names)]
    listed = [*filter(None, (_quantity(results, name) for name in names))]
    if not listed and results.has("q"):
        listed = [*filter(None, (_quantity(results, name) for name in results.coordinates))]
    return listed[:MOST_QUANTITIES]


def _names(of: Any) -> list[str]:
    return [of] if isinstance(of, str) else [*(of or ())]


def _quantity(results: Results, name: str) -> MemberQuantity | None:
    table = results.config.get("statistics", {})
    asked = [
        (table[key], values)
        for key, values in results.statistics.items()
        if name in _names(table.get(key, {}).get("of"))
    ]
    series = _of_members(results, name)
    if series is None:
        return _from_statistics(results, name, asked)
    values, good, is_over_time = series
    finite = np.isfinite(values)
    if finite.sum() < _LEAST:
        return None
    x = values[finite]
    half = _NORMAL * x.std(ddof=1) / np.sqrt(x.size)
    mean = (float(x.mean()), float(x.mean() - half), float(x.mean() + half))
    unit, at = results.unit_of(name), _moment(results, name) if is_over_time else ""
    is_smallest = any(_looks_down(settings) for settings, _ in asked)
    numbers = results.members[good[finite]]
    members = tuple(_typical(x, numbers, unit, is_smallest))
    known = BinnedDensity.of_values(x)
    influence = influence_from_statistics(name, asked)
    return MemberQuantity(
        f"{name}{at}",
        with_unit(f"{name}{at}", unit),
        tuple(_sentences(f"{name}{at}", unit, mean, 95.0, known, members, asked)),
        known,
        mean,
        _limits(asked),
        influence or influence_from_members(results, values, good),
        members,
    )


def _from_statistics(results: Results, name: str, asked: Asked) -> MemberQuantity | None:
    """A quantity of which nothing is stored but statistics."""
    density: BinnedDensity | None = None
    mean: Any = None
    level, at, members = 95.0, "", list[TypicalMember]()
    unit = results.unit_of(name)
    ts = saved_times(results, name)
    for settings, values in asked:
        kind = str(settings.get("statistic"))
        if np.ndim(values.get(_ESTIMATE.get(kind, ""), ())) > _NUMBERS.get(kind, 9):  # over time
            values = {
                key: x[-1] if key != "at" and np.shape(x)[:1] == ts.shape else x
                for key, x in values.items()
            }
            at = _moment(results, name)
        if kind == "moments" and np.ndim(values["mean"]) == 0:
            mean = tuple(float(values[f"mean{end}"]) for end in ("", "_low", "_high"))
            level = 100 * settings.get("confidence", 0.95)
            members += [
                TypicalMember(
                    int(values[f"{key}_index"]), word, number_with_unit(values[key], unit)
                )
                for key, word in (("max", "largest"), ("min", "smallest"))
                if values[f"{key}_index"] >= 0
            ]
        elif kind == "histogram" and np.ndim(values["counts"]) == 1 and values["counts"].any():
            ends = (float(values["below"]), float(values["above"]))
            density = BinnedDensity.of_counts(values["counts"], values["edges"], *ends)
        elif kind == "quantiles" and np.ndim(values["quantiles"]) == 1 and density is None:
            density = _of_quantiles(np.asarray(values["at"]), np.asarray(values["quantiles"]))
        elif kind == "worst" and len(values["index"]):
            word = "smallest" if settings.get("smallest") else "largest"
            value = number_with_unit(values["value"][0], unit)
            members.insert(0, TypicalMember(int(values["index"][0]), word, value))
    influence = influence_from_statistics(name, asked)
    members = [*dict.fromkeys(members)]  # the same one by several statistics
    sentences = tuple(_sentences(f"{name}{at}", unit, mean, level, density, members, asked))
    if not sentences and influence is None:
        return None
    label = with_unit(f"{name}{at}", unit)
    limits = _limits(asked)
    return MemberQuantity(name, label, sentences, density, mean, limits, influence, tuple(members))


_ESTIMATE = {"moments": "mean", "quantiles": "quantiles", "histogram": "counts"}
_NUMBERS = {"moments": 0, "quantiles": 1, "histogram": 1}  # axes of a statistic of one number


def _of_quantiles(at: np.ndarray, values: np.ndarray) -> BinnedDensity | None:
    """The density between known quantiles."""
    order = np.argsort(at)
    at, values = at[order], values[order]
    if len(at) < 3 or not (np.diff(values) > 0).all():
        return None
    known = np.interp((LOW, 0.5, HIGH), at, values, left=np.nan, right=np.nan)
    return BinnedDensity(values, np.diff(at) / np.diff(values), known)


def _of_members(results: Results, name: str) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """A number of each good member (N,), their indices, and whether it is that of the last time."""
    sampling = results.config.get("sampling", {})
    if sampling.get("weight") or sampling.get("proposal") or not results.has_trajectories:
        return None  # members with weights do not count alike
    good = np.flatnonzero(results.is_good)
    if name in results.coordinates and results.has("q"):
        column = results.coordinates.index(name)
        return results.good("q", times=[-1])[:, 0, column], good, True
    if not results.has(name):
        return None
    shape = array_of(results.group, name).shape
    if len(shape) == 1:
        return results.good(name).astype(float), good, False
    if len(shape) == 2 and shape[1] in (len(saved_times(results, name)), 1):
        is_series = results.config.get("observe", {}).get(name, {}).get("keep", "all") == "all"
        return results.good(name, times=[-1])[:, 0].astype(float), good, is_series
    return None


def _moment(results: Results, name: str) -> str:
    return f" at t = {saved_times(results, name)[-1]:g} s"


def _looks_down(settings: Settings) -> bool:
    return settings.get("below") is not None or bool(settings.get("smallest"))


def _limits(asked: Asked) -> tuple[float, ...]:
    sides = (settings.get(side) for settings, _ in asked for side in ("above", "below"))
    return tuple(dict.fromkeys(float(x) for x in sides if x is not None))


def _typical(
    values: np.ndarray, numbers: np.ndarray, unit: str, is_smallest: bool
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
    """A number of four digits with its unit.

    Example:
        >>> number_with_unit(1234.5678, "m"), number_with_unit(0.25, "")
        ('1235 m', '0.25')
    """
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
        if settings.get("statistic") == "probability":
            side = "above" if settings.get("above") is not None else "below"
            p, low, high = EstimateCell(*(float(values[x]) for x in _PROBABILITY)).texts
            level = 100 * settings.get("confidence", 0.95)
            limit = number_with_unit(settings[side], unit)
            interval = f"({level:g} % interval {low} to {high})"
            yield f"It is {side} {limit} with a probability of {p} {interval}."
    for one in members:
        if one.is_extreme:
            yield f"The {one.rank_name} value is {one.value}, of member {one.index:,}."


_PROBABILITY = ("probability", "low", "high")
