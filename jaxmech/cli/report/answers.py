"""The answers of a study: each quantity over its members."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jaxmech.cli.report.layout import EstimateCell, Picture, drawn
from jaxmech.ensemble import Results, array_of
from jaxmech.plot import HIGH, LOW, distribution, is_series
from jaxmech.utils.units import with_unit

_MOST_QUANTITIES = 6
_NORMAL = 1.959963984540054  # of a two-sided interval of 95 %
_LEAST, _MOST_BINS = 8, 60  # members from which a distribution is drawn, and its bins


def _names(of: Any) -> list[str]:
    return [of] if isinstance(of, str) else [*(of or ())]


@dataclass(frozen=True, eq=False)
class MemberQuantity:
    """A number of each good member.

    Attributes:
        name: its name, with the time.
        unit: its unit, empty if it has none.
        values: of the members, finite, shape (N,).
        numbers: of the members in the study, shape (N,).
        limits: values whose probability was asked for.
        is_worst_small: whether the smallest value is the worst one.
    """

    name: str
    unit: str
    values: np.ndarray
    numbers: np.ndarray
    limits: tuple[float, ...] = ()
    is_worst_small: bool = False

    @property
    def members(self) -> dict[int, tuple[str, str]]:
        """The members at 5, 50 and 95 %, and the worst one: what each stands for, and its value."""
        order, last = np.argsort(self.values, kind="stable"), self.values.size - 1
        ranks = {f"at {100 * p:g} %": round(p * last) for p in (LOW, 0.5, HIGH)}
        ranks |= {"smallest": 0} if self.is_worst_small else {"largest": last}
        return {
            int(self.numbers[order[rank]]): (name, self._shown(self.values[order[rank]]))
            for name, rank in ranks.items()
        }

    def sentences(self) -> Iterator[str]:
        """Its mean with the interval, its quantiles, and the worst member."""
        x, mean = self.values, float(self.values.mean())
        half = float(_NORMAL * x.std(ddof=1) / np.sqrt(x.size))
        value, low, high = EstimateCell(mean, mean - half, mean + half).texts
        value = f"{value} {self.unit}".rstrip()
        yield f"The mean of {self.name} is {value} (95 % interval {low} to {high})."
        low, middle, high = (self._shown(y) for y in np.quantile(x, (LOW, 0.5, HIGH)))
        yield f"Half of the members are below {middle}, and 90 % are between {low} and {high}."
        for index, (name, value) in self.members.items():
            if not name.startswith("at"):  # no other member goes further
                yield f"The {name} value is {value}, of member {index:,}."

    def picture(self) -> Picture:
        """Its distribution over the members."""
        x = self.values
        count = len(np.histogram_bin_edges(x, "auto")) - 1 if np.ptp(x) > 0 else 1
        draw = partial(
            distribution, *np.histogram(x, min(count, _MOST_BINS)),
            name=with_unit(self.name, self.unit),
            quantiles=np.quantile(x, (LOW, 0.5, HIGH)).tolist(), limits=self.limits,
        )  # fmt: skip
        return drawn(draw, f"The distribution of {self.name} over the members.")

    def _shown(self, value: Any) -> str:
        number = float(value)
        text = f"{number:.0f}" if 1e3 <= abs(number) < 1e6 else f"{number:.4g}"
        return f"{text} {self.unit}".rstrip()


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
    """The stored numbers of a quantity, of a series those at the last time."""
    if name in results.coordinates and results.has("q"):
        x = results.good("q", times=[-1])[:, 0, results.coordinates.index(name)]
    elif not results.has(name):
        return None
    elif not is_series(results, name):
        x = results.good(name).astype(float)
        x = x.reshape(len(x), -1)[:, 0]
    elif len(array_of(results.group, name).shape) == 2:
        x = results.good(name, times=[-1])[:, 0].astype(float)
    else:
        return None
    known = np.isfinite(x)
    if known.sum() < _LEAST:
        return None
    statistics = results.config.get("statistics", {}).values()
    asked = [one for one in statistics if name in _names(one.get("of"))]
    sides = [one.get(side) for one in asked for side in ("above", "below")]
    limits = tuple(dict.fromkeys(float(x) for x in sides if x is not None))
    down = any(one.get("below") is not None or one.get("smallest") for one in asked)
    at = f" at t = {results.ts[-1]:g} s" if is_series(results, name) else ""
    numbers = results.members[results.is_good][known]
    return MemberQuantity(f"{name}{at}", results.unit_of(name), x[known], numbers, limits, down)
