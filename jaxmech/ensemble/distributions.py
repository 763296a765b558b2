"""Distributions of a scalar of a study over the trajectories: frozen ones of `scipy.stats`.

The uniform and the normal one are here, since many studies have no others, and `scipy.stats` takes
0.5 s to import.

Each class has the keys of its table in a configuration file, and `frozen` makes the distribution,
around the value of the model where that is left out. Values that are impossible (`low` above
`high`, a negative standard deviation) raise a `StudyError`. A drawn value is the quantile of a
number between 0 and 1: any way to spread those serves all distributions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, isnan, log, nan, pi, sqrt
from typing import Annotated, Any, NamedTuple

import numpy as np

from jaxmech.config import OneOf
from jaxmech.config.errors import refuse
from jaxmech.utils.text import close_name, doc, setting

Function = Callable[[Any], Any]  # of an array, entry by entry


class Law(NamedTuple):
    """The functions of a distribution that a study needs, as `scipy.stats` names them.

    Attributes:
        ppf: values that are not exceeded with some probabilities.
        isf: values that are exceeded with some probabilities.
        logpdf: the logarithm of the density.
        cdf: probabilities of smaller values, where the distribution can be truncated.
        sf: probabilities of larger values likewise.
        is_discrete: whether there are a few values only, of which nothing is a smooth function.
    """

    ppf: Function
    isf: Function
    logpdf: Function
    cdf: Function | None = None
    sf: Function | None = None
    is_discrete: bool = False


def quantile(law: Law, below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Values with the probabilities of smaller and of larger ones; the smaller has the digits."""
    values, is_low = np.empty(np.shape(below)), below <= 0.5
    values[is_low] = law.ppf(below[is_low])
    values[~is_low] = law.isf(above[~is_low])
    return values


def _gaussian(mean: float, sd: float) -> Law:
    """`scipy.stats.norm(mean, sd)`, without `scipy.stats`."""
    from scipy.special import ndtr, ndtri  # imports slowly

    return Law(
        lambda q: mean + sd * ndtri(q),
        lambda q: mean - sd * ndtri(q),
        lambda x: -(((x - mean) / sd) ** 2) / 2 - log(sd * sqrt(2 * pi)),
        lambda x: ndtr((np.asarray(x) - mean) / sd),
        lambda x: ndtr((mean - np.asarray(x)) / sd),
    )


def _truncated(whole: Any, low: float | None, high: float | None) -> Law:
    """A distribution between limits, by the tail in which probabilities have digits."""
    if low is None and high is None:
        return Law(whole.ppf, whole.isf, whole.logpdf)
    limits = -inf if low is None else low, inf if high is None else high
    below, above = whole.cdf(limits), whole.sf(limits)
    is_upper, is_lower = below[0] > 0.5, below[1] < 0.5
    shares = above if is_upper else below
    share = abs(shares[1] - shares[0])
    if not (limits[0] < limits[1] and share > 0):
        raise refuse("low", "must be below `high`, with some probability between them")

    def ppf(q: Any) -> Any:
        x = whole.isf(above[0] - share * q) if is_upper else whole.ppf(below[0] + share * q)
        return np.clip(x, *limits)

    def isf(q: Any) -> Any:
        x = whole.ppf(below[1] - share * q) if is_lower else whole.isf(above[1] + share * q)
        return np.clip(x, *limits)

    def logpdf(x: Any) -> Any:
        is_inside = (limits[0] <= x) & (x <= limits[1])
        return np.where(is_inside, whole.logpdf(x) - log(share), -inf)

    return Law(ppf, isf, logpdf)


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
        low, high = self.low, self.high
        if not (low < high and isfinite(high - low)):
            message = f"must be below `high` and both finite, but they are {low} and {high}"
            raise refuse("low", message)

    def frozen(self, default: float = nan) -> Law:
        low, width = self.low, self.high - self.low
        return Law(
            lambda q: low + width * q,
            lambda q: self.high - width * q,
            lambda x: np.where((low <= x) & (x <= self.high), -log(width), -inf),
        )


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

    def frozen(self, default: float = nan) -> Law:
        """The distribution around `mean`, or the default where no mean is given."""
        mean = default if self.mean is None else self.mean
        if not isfinite(mean):
            raise refuse("mean", f"must be finite, but is {'missing' if isnan(mean) else mean}")
        if self.relative and mean == 0:
            raise refuse("relative", "must be false: a fraction of 0 is 0; give `sd` in its unit")
        sd = self.sd * abs(mean) if self.relative else self.sd
        return _truncated(_gaussian(mean, sd), self.low, self.high) if sd else _certain(mean)


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

    def frozen(self, default: float = nan) -> Law:
        """The distribution around `median`, or the default where no median is given."""
        from scipy.stats import lognorm  # imports slowly

        median = default if self.median is None else self.median
        if not 0 < median < inf:
            shown = "missing" if isnan(median) else median
            raise refuse("median", f"must be finite and above 0, but is {shown}")
        if self.sigma == 0:
            return _certain(median)
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

    def frozen(self, default: float = nan) -> Law:
        """The distribution: unlike `rv_discrete`, it has the values in their order."""
        values = np.asarray(self.values)
        shares = np.asarray(self.probabilities or [1 / len(values)] * len(values))

        def ppf(q: Any) -> Any:
            index = np.searchsorted(np.cumsum(shares), q, side="right")
            return values[np.minimum(index, len(values) - 1)]

        def logpdf(x: Any) -> Any:
            with np.errstate(divide="ignore"):
                return np.log(((values == np.asarray(x)[..., None]) * shares).sum(-1))

        return Law(ppf, lambda q: ppf(1 - q), logpdf, is_discrete=True)


def _certain(value: float) -> Law:
    return Discrete((value,)).frozen()


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

    def frozen(self, default: float = nan) -> Law:
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
