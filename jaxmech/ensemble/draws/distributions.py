"""Distributions of a scalar of a study over the trajectories: frozen ones of `scipy.stats`.

The uniform and the normal one are here, since many studies have no others, and `scipy.stats` takes
0.5 s to import.

Each class has the keys of its table in a configuration file, and `frozen` makes the distribution,
around the value of the model where that is left out. Values that are impossible (`low` above
`high`, a negative standard deviation) raise a `StudyError`. A drawn value is the quantile of a
number between 0 and 1: any way to spread those serves all distributions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, isnan, log, nan, pi, sqrt
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np

from jaxmech.config import OneOf
from jaxmech.config.errors import refuse
from jaxmech.utils.text import close_name, doc, setting


@runtime_checkable
class Frozen(Protocol):
    """What a study needs of a frozen distribution of `scipy.stats`."""

    def ppf(self, q: Any) -> Any:
        """Values that are not exceeded with these probabilities."""

    def isf(self, q: Any) -> Any:
        """Values that are exceeded with these probabilities."""

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density."""


def quantile(law: Frozen, below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Values with the probabilities of smaller and of larger ones; the smaller has the digits."""
    values, is_low = np.empty(np.shape(below)), below <= 0.5
    values[is_low] = law.ppf(below[is_low])
    values[~is_low] = law.isf(above[~is_low])
    return values


class Truncated:
    """A frozen distribution between limits, by the tail in which probabilities have digits."""

    def __init__(self, whole: Any, low: float | None, high: float | None) -> None:
        self.whole = whole
        self.limits = -inf if low is None else low, inf if high is None else high
        self._below, self._above = whole.cdf(self.limits), whole.sf(self.limits)
        self._is_upper, self._is_lower = self._below[0] > 0.5, self._below[1] < 0.5
        shares = self._above if self._is_upper else self._below
        self.share = abs(shares[1] - shares[0])
        if not (self.limits[0] < self.limits[1] and self.share > 0):
            raise refuse("low", "must be below `high`, with some probability between them")

    def ppf(self, q: Any) -> Any:
        """Values that are not exceeded with these probabilities."""
        if self._is_upper:
            return np.clip(self.whole.isf(self._above[0] - self.share * q), *self.limits)
        return np.clip(self.whole.ppf(self._below[0] + self.share * q), *self.limits)

    def isf(self, q: Any) -> Any:
        """Values that are exceeded with these probabilities."""
        if self._is_lower:
            return np.clip(self.whole.ppf(self._below[1] - self.share * q), *self.limits)
        return np.clip(self.whole.isf(self._above[1] + self.share * q), *self.limits)

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density, -inf outside of the limits."""
        is_inside = (self.limits[0] <= x) & (x <= self.limits[1])
        return np.where(is_inside, self.whole.logpdf(x) - log(self.share), -inf)


class Gaussian:
    """`scipy.stats.norm(mean, sd)`, without `scipy.stats`."""

    def __init__(self, mean: float, sd: float) -> None:
        from scipy import special  # imports slowly

        self.mean, self.sd, self._special = mean, sd, special

    def cdf(self, x: Any) -> Any:
        """Probabilities of smaller values."""
        return self._special.ndtr((np.asarray(x) - self.mean) / self.sd)

    def sf(self, x: Any) -> Any:
        """Probabilities of larger values."""
        return self._special.ndtr((self.mean - np.asarray(x)) / self.sd)

    def ppf(self, q: Any) -> Any:
        """Values that are not exceeded with these probabilities."""
        return self.mean + self.sd * self._special.ndtri(q)

    def isf(self, q: Any) -> Any:
        """Values that are exceeded with these probabilities."""
        return self.mean - self.sd * self._special.ndtri(q)

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density."""
        return -(((x - self.mean) / self.sd) ** 2) / 2 - log(self.sd * sqrt(2 * pi))


@dataclass(frozen=True)
class Fixed:
    """The same value in every trajectory; a plain number in a file means this too."""

    value: float | list[Any] = field(metadata=doc("the value; a list for an array parameter"))

    def __post_init__(self) -> None:
        try:
            value = np.asarray(self.value)
        except ValueError as error:
            message = "must be a number, or a list whose rows are equally long"
            raise refuse("value", f"{message}, but is {self.value}") from error
        cells = np.asarray(self.value, object).ravel()  # where NumPy has not made True a number
        is_number = value.dtype.kind in "iuf" and bool not in map(type, cells)
        if not is_number or not value.size or not np.isfinite(value).all():
            message = f"must be finite, a number or a list of numbers, but is {self.value!r}"
            raise refuse("value", message)
        object.__setattr__(self, "value", value.astype(float).tolist())


@dataclass(frozen=True)
class Uniform:
    """Every value from `low` to `high` equally likely."""

    low: float = field(metadata=doc("smallest value"))
    high: float = field(metadata=doc("largest value"))

    def __post_init__(self) -> None:
        _require_interval(self.low, self.high)

    def frozen(self, default: float = nan) -> Frozen:
        """Itself, which does not depend on the default."""
        return self

    def ppf(self, q: Any) -> Any:
        """Values that are not exceeded with these probabilities."""
        return self.low + (self.high - self.low) * q

    def isf(self, q: Any) -> Any:
        """Values that are exceeded with these probabilities."""
        return self.high - (self.high - self.low) * q

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density."""
        return np.where((self.low <= x) & (x <= self.high), -log(self.high - self.low), -inf)


@dataclass(frozen=True)
class Normal:
    """The normal (Gaussian) distribution, truncated where `low` or `high` is given."""

    sd: float = field(metadata=doc("standard deviation before truncation, at least 0"))
    mean: float | None = setting(None, "mean; the model's own value by default")
    relative: bool = setting(False, "sd is a fraction of the mean: sd = 0.02 is 2 %")
    low: float | None = setting(None, "smallest value, if it is truncated")
    high: float | None = setting(None, "largest value, if it is truncated")

    def __post_init__(self) -> None:
        if not 0 <= self.sd < inf:
            raise refuse("sd", f"must be a number of at least 0, but is {self.sd}")
        if self.mean is not None:
            self.frozen()

    def moments(self, default: float = nan) -> tuple[float, float]:
        """Mean and standard deviation before truncation, around the default without a mean."""
        mean = default if self.mean is None else self.mean
        if not isfinite(mean):
            raise refuse("mean", f"must be finite, but is {'missing' if isnan(mean) else mean}")
        if self.relative and mean == 0:
            raise refuse("relative", "must be false: a fraction of 0 is 0; give `sd` in its unit")
        return mean, self.sd * abs(mean) if self.relative else self.sd

    def frozen(self, default: float = nan) -> Frozen:
        """The distribution around `mean`, or the default where no mean is given."""
        mean, sd = self.moments(default)
        return _truncated(Gaussian(mean, sd), self.low, self.high) if sd else Discrete((mean,))


@dataclass(frozen=True)
class LogNormal:
    """The log-normal distribution: positive values whose logarithm is normal; may be truncated."""

    sigma: float = field(metadata=doc("standard deviation of the natural logarithm, at least 0"))
    median: float | None = setting(None, "median, above 0; the model's own value by default")
    low: float | None = setting(None, "smallest value, if it is truncated")
    high: float | None = setting(None, "largest value, if it is truncated")

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < inf:
            raise refuse("sigma", f"must be a number of at least 0, but is {self.sigma}")
        if self.median is not None:
            self.frozen()

    def frozen(self, default: float = nan) -> Frozen:
        """The distribution around `median`, or the default where no median is given."""
        from scipy.stats import lognorm  # imports slowly

        median = default if self.median is None else self.median
        if not 0 < median < inf:
            shown = "missing" if isnan(median) else median
            raise refuse("median", f"must be finite and above 0, but is {shown}")
        if self.sigma == 0:
            return Discrete((median,))
        return _truncated(lognorm(self.sigma, scale=median), self.low, self.high)


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

    def frozen(self, default: float = nan) -> Frozen:
        """Itself: unlike `rv_discrete`, it has the values in their order."""
        return self

    def ppf(self, q: Any) -> Any:
        """Values that are not exceeded with these probabilities, in the order of `values`."""
        index = np.searchsorted(np.cumsum(self._shares), q, side="right")
        return np.asarray(self.values)[np.minimum(index, len(self.values) - 1)]

    def isf(self, q: Any) -> Any:
        """The same of probabilities from the other end."""
        return self.ppf(1 - q)

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the probability."""
        is_value = np.asarray(self.values) == np.asarray(x)[..., None]
        with np.errstate(divide="ignore"):
            return np.log((is_value * self._shares).sum(-1))

    @property
    def _shares(self) -> np.ndarray:
        count = len(self.values)
        return np.asarray(self.probabilities or [1 / count] * count)


@dataclass(frozen=True)
class Scipy:
    """Any other continuous distribution of `scipy.stats`, with its parameters by name.

    In a file it is named by itself: { distribution = "gamma", a = 2.0, scale = 0.5 }; `low` and
    `high` truncate it.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.frozen()

    def frozen(self, default: float = nan) -> Frozen:
        """The distribution, which does not depend on the default."""
        from scipy import stats  # imports slowly

        family = getattr(stats, self.name, None)
        if not isinstance(family, stats.rv_continuous):
            names = [name for name, x in vars(stats).items() if isinstance(x, stats.rv_continuous)]
            near = close_name(self.name, [*DISTRIBUTIONS, *names])
            message = "is not a distribution of scipy.stats, nor one of"
            hint = f"; did you mean `{near}`?" if near else ""
            raise refuse("distribution", f"{message} {', '.join(DISTRIBUTIONS)}{hint}")
        for key, value in self.parameters.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise refuse(key, f"must be a number, but is {value!r}")
        parameters = dict(self.parameters)
        limits = parameters.pop("low", None), parameters.pop("high", None)
        keys = ", ".join(filter(None, (family.shapes, "loc, scale, low, high")))
        try:
            whole = family(**parameters)
        except TypeError as error:  # which names the parameter
            raise refuse("distribution", f"has the parameters {keys}: {error}") from error
        if not np.isfinite(whole.ppf(0.5)):
            raise refuse("distribution", f"must have valid parameters {keys}, but has {parameters}")
        return _truncated(whole, *limits)


DISTRIBUTIONS: dict[str, type] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "normal": Normal,
    "log-normal": LogNormal,
    "choice": Discrete,
}
Spread = Uniform | Normal | LogNormal | Discrete | Scipy
Distribution = Annotated[
    Fixed | Spread, OneOf(DISTRIBUTIONS, tag="distribution", bare=Fixed, other=Scipy)
]


def _truncated(whole: Any, low: float | None, high: float | None) -> Frozen:
    return whole if low is None and high is None else Truncated(whole, low, high)


def _require_interval(low: float, high: float) -> None:
    if not (low < high and isfinite(high - low)):
        raise refuse("low", f"must be below `high` and both finite, but they are {low} and {high}")
