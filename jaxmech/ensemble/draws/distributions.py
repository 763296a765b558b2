"""Distributions of a scalar of a study over the trajectories.

Each is a frozen dataclass whose fields are the keys of its table in a configuration file. Values
that are impossible (`low` above `high`, a negative standard deviation) raise a `StudyError`.
A value is the quantile of a number between 0 and 1: any way to spread those serves all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, log
from typing import Annotated, Any

import numpy as np

from jaxmech.config import OneOf
from jaxmech.config.errors import Problem, refuse, refuse_all, unknown
from jaxmech.ensemble.draws import truncated_normal
from jaxmech.ensemble.draws.truncated_normal import (
    require_interval,
    require_truncation,
    within,
)
from jaxmech.utils.text import doc, not_one_of, setting


@dataclass(frozen=True)
class Fixed:
    """The same value in every trajectory; a plain number in a file means this too."""

    value: float | list[Any] = field(metadata=doc("the value; a list for an array parameter"))

    def __post_init__(self) -> None:
        try:
            shape = np.shape(self.value)
        except ValueError as error:
            message = "must be a number, or a list whose rows are equally long"
            raise refuse("value", f"{message}, but is {self.value}") from error
        if np.asarray(self.value).dtype.kind not in "iuf":
            raise refuse("value", f"must be a number or a list of numbers, but is {self.value!r}")
        if 0 in shape:
            raise refuse("value", "must be a number or hold numbers, but is an empty list")
        if not np.isfinite(self.value).all():
            raise refuse("value", f"must be finite, but is {self.value}")


@dataclass(frozen=True)
class Uniform:
    """Every value from `low` to `high` equally likely."""

    low: float = field(metadata=doc("smallest value"))
    high: float = field(metadata=doc("largest value"))

    def __post_init__(self) -> None:
        require_interval(self.low, self.high)

    def quantile(self, unit: np.ndarray, default: float | None) -> np.ndarray:
        """Values at probabilities; the default is not used."""
        return self.low + (self.high - self.low) * unit

    def log_density(self, x: np.ndarray, default: float | None) -> np.ndarray:
        """The logarithm of the density."""
        inside = (self.low <= x) & (x <= self.high)
        return np.where(inside, -log(self.high - self.low), -inf)


@dataclass(frozen=True)
class Normal:
    """The normal (Gaussian) distribution, truncated where `low` or `high` is given."""

    sd: float = field(metadata=doc("standard deviation before truncation, at least 0"))
    mean: float | None = setting(None, "mean; the model's own value by default")
    relative: bool = setting(False, "sd is a fraction of the mean: sd = 0.02 is 2 %")
    low: float | None = setting(None, "smallest value, if it is truncated")
    high: float | None = setting(None, "largest value, if it is truncated")

    def __post_init__(self) -> None:
        if not self.sd >= 0 or not isfinite(self.sd):
            raise refuse("sd", f"must be a number of at least 0, but is {self.sd}")
        if self.mean is not None and not isfinite(self.mean):
            raise refuse("mean", f"must be finite, but is {self.mean}")
        if self.relative and self.mean == 0:
            raise refuse("relative", "must be false where `mean` is 0: a fraction of 0 is 0")
        require_truncation(self.low, self.high, self.sd)

    def quantile(self, unit: np.ndarray, default: float | None) -> np.ndarray:
        """Values at probabilities, around `mean`, or the default where no mean is given."""
        mean, sd = self._shape(default)
        low, high = self._limits(mean, sd)
        values = mean + sd * truncated_normal.quantile(unit, low, high)
        return within(values, self.low, self.high)

    def log_density(self, x: np.ndarray, default: float | None) -> np.ndarray:
        """The logarithm of the density."""
        mean, sd = self._shape(default)
        z = (x - mean) / sd
        return truncated_normal.log_density(z, *self._limits(mean, sd)) - log(sd)

    def _shape(self, default: float | None) -> tuple[float, float]:
        mean = _or_default(self.mean, default)
        return mean, self.sd * abs(mean) if self.relative else self.sd

    def _limits(self, mean: float, sd: float) -> tuple[float, float]:
        low = -inf if self.low is None else (self.low - mean) / sd
        high = inf if self.high is None else (self.high - mean) / sd
        return low, high


@dataclass(frozen=True)
class LogNormal:
    """The log-normal distribution: positive values whose logarithm is normal; may be truncated."""

    sigma: float = field(metadata=doc("standard deviation of the natural logarithm, at least 0"))
    median: float | None = setting(None, "median, above 0; the model's own value by default")
    low: float | None = setting(None, "smallest value, if it is truncated")
    high: float | None = setting(None, "largest value, if it is truncated")

    def __post_init__(self) -> None:
        if not self.sigma >= 0 or not isfinite(self.sigma):
            raise refuse("sigma", f"must be a number of at least 0, but is {self.sigma}")
        if self.median is not None and not 0 < self.median < inf:
            raise refuse("median", f"must be finite and above 0, but is {self.median}")
        require_truncation(self.low, self.high, self.sigma)
        if self.low is not None and self.low < 0:
            raise refuse("low", f"must be at least 0, but is {self.low}")

    def quantile(self, unit: np.ndarray, default: float | None) -> np.ndarray:
        """Values at probabilities, around `median`, or the default where no median is given."""
        median = _or_default(self.median, default)
        low, high = self._limits(median)
        values = median * np.exp(self.sigma * truncated_normal.quantile(unit, low, high))
        return within(values, self.low, self.high)

    def log_density(self, x: np.ndarray, default: float | None) -> np.ndarray:
        """The logarithm of the density."""
        median = _or_default(self.median, default)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(x > 0, np.log(x / median) / self.sigma, inf)
            density = truncated_normal.log_density(z, *self._limits(median))
            density -= np.log(self.sigma * x)
        return np.where(x > 0, density, -inf)

    def _limits(self, median: float) -> tuple[float, float]:
        low = log(self.low / median) / self.sigma if self.low else -inf
        return low, inf if self.high is None else log(self.high / median) / self.sigma


@dataclass(frozen=True)
class Triangular:
    """A triangular density from `low` to `high` with its peak at `mode`."""

    low: float = field(metadata=doc("smallest value"))
    high: float = field(metadata=doc("largest value"))
    mode: float = field(metadata=doc("most likely value"))

    def __post_init__(self) -> None:
        require_interval(self.low, self.high)
        if not self.low <= self.mode <= self.high:
            raise refuse("mode", f"must lie between `low` and `high`, but is {self.mode}")

    def quantile(self, unit: np.ndarray, default: float | None) -> np.ndarray:
        """Values at probabilities; the default is not used."""
        return np.asarray(self._scipy().ppf(unit))

    def log_density(self, x: np.ndarray, default: float | None) -> np.ndarray:
        """The logarithm of the density."""
        return np.asarray(self._scipy().logpdf(x))

    def _scipy(self) -> Any:
        from scipy.stats import triang

        width = self.high - self.low
        return triang((self.mode - self.low) / width, loc=self.low, scale=width)


@dataclass(frozen=True)
class Discrete:
    """One of several values, equally likely unless `probabilities` say otherwise."""

    values: tuple[float, ...] = field(metadata=doc("the values"))
    probabilities: tuple[float, ...] = setting((), "their probabilities, which sum to 1")

    def __post_init__(self) -> None:
        if not self.values or not all(map(isfinite, self.values)):
            raise refuse("values", f"must be finite numbers, but is {list(self.values)}")
        if self.probabilities:
            if len(self.probabilities) != len(self.values):
                message = f"must have the length of `values`, {len(self.values)}, but has"
                raise refuse("probabilities", f"{message} {len(self.probabilities)}")
            if min(self.probabilities) < 0 or abs(sum(self.probabilities) - 1) > 1e-9:
                message = f"must be at least 0 and sum to 1, but are {list(self.probabilities)}"
                raise refuse("probabilities", message)

    def quantile(self, unit: np.ndarray, default: float | None) -> np.ndarray:
        """Values at probabilities; the default is not used."""
        ends = np.cumsum(self._shares())
        index = np.searchsorted(ends, unit, side="right")
        return np.asarray(self.values)[np.minimum(index, len(ends) - 1)]

    def log_density(self, x: np.ndarray, default: float | None) -> np.ndarray:
        """The logarithm of the probability."""
        is_value = np.asarray(self.values) == np.asarray(x)[..., None]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log((is_value * self._shares()).sum(-1)))

    def _shares(self) -> np.ndarray:
        count = len(self.values)
        return np.asarray(self.probabilities or [1 / count] * count)


@dataclass(frozen=True)
class FromTable:
    """A column of the file that `Sampling.table` names, with a row for each trajectory."""

    column: str | None = setting(None, "name of the column; that of the variable by default")


@dataclass(frozen=True)
class Scipy:
    """Any other continuous distribution of `scipy.stats`, with its parameters by name.

    In a file it is named by itself: { distribution = "gamma", a = 2.0, scale = 0.5 }; `low` and
    `high` truncate it.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from scipy import stats  # imports slowly

        families = [
            n for n, family in vars(stats).items() if isinstance(family, stats.rv_continuous)
        ]
        if self.name not in families:
            reason = not_one_of(self.name, {*DISTRIBUTIONS}, "a distribution of jaxmech or scipy")
            if near := [n for n in families if n.startswith(self.name[:3])][:5]:
                reason += f"; of scipy.stats, for example: {', '.join(near)}"
            raise refuse("distribution", reason)
        family = getattr(stats, self.name)
        shapes = [part.strip() for part in (family.shapes or "").split(",") if part.strip()]
        keys = [*shapes, "loc", "scale", "low", "high"]
        message = f"must be given, but is missing: scipy.stats.{self.name} needs it"
        refuse_all([
            *unknown((), self.parameters, keys, f"a parameter of scipy.stats.{self.name}"),
            *(Problem((key,), message) for key in shapes if key not in self.parameters),
        ])  # fmt: skip
        for key, value in self.parameters.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise refuse(key, f"must be a number, but is {value!r}")
        if not np.isfinite(self._scipy().ppf(0.5)):
            parameters = ", ".join(f"{key} = {value}" for key, value in self.parameters.items())
            raise refuse("distribution", f"must have valid parameters, but has {parameters}")
        _, start, end = self._tail()
        if start == end:
            raise refuse("low", "must be below `high`, with some probability between them")

    def quantile(self, unit: np.ndarray, default: float | None) -> np.ndarray:
        """Values at probabilities; the default is not used."""
        inverse, start, end = self._tail()
        return within(inverse(start + (end - start) * unit), *self._limits)

    def upper_quantile(self, unit: np.ndarray) -> np.ndarray:
        """Values that are exceeded with these probabilities, with the digits of small ones."""
        frozen, (low, high) = self._scipy(), self._limits
        start, end = frozen.sf(high), frozen.sf(low)
        return within(frozen.isf(start + (end - start) * unit), low, high)

    def log_density(self, x: np.ndarray, default: float | None) -> np.ndarray:
        """The logarithm of the density."""
        _, start, end = self._tail()
        inside = within(x, *self._limits) == x
        return np.where(inside, self._scipy().logpdf(x) - log(abs(end - start)), -inf)

    def _scipy(self) -> Any:
        from scipy import stats

        parameters = {key: x for key, x in self.parameters.items() if key not in ("low", "high")}
        return getattr(stats, self.name)(**parameters)

    @property
    def _limits(self) -> tuple[float, float]:
        return self.parameters.get("low", -inf), self.parameters.get("high", inf)

    def _tail(self) -> tuple[Any, float, float]:
        """The inverse of a probability, and its values at the limits, which keep their digits."""
        frozen, (low, high) = self._scipy(), self._limits
        if frozen.cdf(low) > 0.5:  # in the upper tail
            return frozen.isf, float(frozen.sf(low)), float(frozen.sf(high))
        return frozen.ppf, float(frozen.cdf(low)), float(frozen.cdf(high))


DISTRIBUTIONS: dict[str, type] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "normal": Normal,
    "log-normal": LogNormal,
    "triangular": Triangular,
    "choice": Discrete,
    "table": FromTable,
}
Spread = Uniform | Normal | LogNormal | Triangular | Discrete | Scipy
Distribution = Annotated[
    Fixed | FromTable | Spread, OneOf(DISTRIBUTIONS, tag="distribution", bare=Fixed, other=Scipy)
]


def needs_default(rule: Distribution) -> str | None:
    """The key that, left out, is replaced by the default value of the model, if there is one."""
    match rule:
        case Normal(mean=None):
            return "mean"
        case LogNormal(median=None):
            return "median"
    return None


def _or_default(setting: float | None, default: float | None) -> float:
    value = default if setting is None else setting
    if value is None:
        raise refuse("mean", "must be given, but is missing and there is no default value")
    return value
