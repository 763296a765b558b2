"""Distributions: how one scalar of a study varies from trajectory to trajectory.

Each is a frozen dataclass whose fields are the keys of its table in a configuration file. Values
that are impossible (`low` above `high`, a negative standard deviation) raise a `StudyError`.
"""

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Annotated, Any

import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.config.schema import OneOf
from jaxmech.utils.field_docs import doc


@dataclass(frozen=True)
class Fixed:
    """The same value in every trajectory; a plain number means this too."""

    value: float | list[Any] = field(metadata=doc("the value; a list for an array parameter"))

    def __post_init__(self) -> None:
        try:
            shape = np.shape(self.value)
        except ValueError as error:
            text = "must be a number, or a list whose rows are equally long"
            raise refuse("value", f"{text}, but is {self.value}") from error
        if 0 in shape:
            raise refuse("value", "must be a number or hold numbers, but is an empty list")
        if not all(isfinite(x) for x in _leaves(self.value)):
            raise refuse("value", f"must be finite, but is {self.value}")


@dataclass(frozen=True)
class Uniform:
    """Every value from `low` to `high` equally likely."""

    low: float = field(metadata=doc("smallest value"))
    high: float = field(metadata=doc("largest value"))

    def __post_init__(self) -> None:
        _require_interval(self.low, self.high)

    def draw(self, rng: np.random.Generator, size: int, default: float | None) -> np.ndarray:
        """`size` values; the default is not used."""
        return rng.uniform(self.low, self.high, size)


@dataclass(frozen=True)
class Normal:
    """The normal (Gaussian) distribution."""

    sd: float = field(metadata=doc("standard deviation, at least 0"))
    mean: float | None = field(default=None, metadata=doc("mean; the model's own value by default"))
    relative: bool = field(
        default=False, metadata=doc("sd is a fraction of the mean: sd = 0.02 is 2 %")
    )

    def __post_init__(self) -> None:
        if not self.sd >= 0 or not isfinite(self.sd):
            raise refuse("sd", f"must be a number of at least 0, but is {self.sd}")
        if self.mean is not None and not isfinite(self.mean):
            raise refuse("mean", f"must be finite, but is {self.mean}")
        if self.relative and self.mean == 0:
            raise refuse("relative", "must be false where `mean` is 0: a fraction of 0 is 0")

    def draw(self, rng: np.random.Generator, size: int, default: float | None) -> np.ndarray:
        """`size` values around `mean`, or around the default where no mean is given."""
        mean = _or_default(self.mean, default)
        sd = self.sd * abs(mean) if self.relative else self.sd
        return mean + sd * rng.standard_normal(size)


@dataclass(frozen=True)
class LogNormal:
    """The log-normal distribution: positive values whose logarithm is normal."""

    sigma: float = field(metadata=doc("standard deviation of the natural logarithm, at least 0"))
    median: float | None = field(
        default=None, metadata=doc("median, above 0; the model's own value by default")
    )

    def __post_init__(self) -> None:
        if not self.sigma >= 0 or not isfinite(self.sigma):
            raise refuse("sigma", f"must be a number of at least 0, but is {self.sigma}")
        if self.median is not None and not 0 < self.median < inf:
            raise refuse("median", f"must be finite and above 0, but is {self.median}")

    def draw(self, rng: np.random.Generator, size: int, default: float | None) -> np.ndarray:
        """`size` values around `median`, or around the default where no median is given."""
        return _or_default(self.median, default) * np.exp(self.sigma * rng.standard_normal(size))


@dataclass(frozen=True)
class Sobol:
    """Evenly spread from `low` to `high`, jointly with the other Sobol variables.

    All of them share one scrambled Sobol sequence (Owen, "Scrambling Sobol' and Niederreiter-Xing
    points", Journal of Complexity 14, 1998), as `scipy.stats.qmc.Sobol` makes it.
    """

    low: float = field(metadata=doc("smallest value"))
    high: float = field(metadata=doc("largest value"))

    def __post_init__(self) -> None:
        _require_interval(self.low, self.high)

    def scale(self, unit: np.ndarray) -> np.ndarray:
        """Map points of the unit interval to [low, high]."""
        return self.low + (self.high - self.low) * unit


DISTRIBUTIONS: dict[str, type] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "normal": Normal,
    "log-normal": LogNormal,
    "sobol": Sobol,
}
Distribution = Annotated[
    Fixed | Uniform | Normal | LogNormal | Sobol,
    OneOf(DISTRIBUTIONS, tag="distribution", bare=Fixed),
]


def needs_default(rule: Distribution) -> str | None:
    """The key that, left out, is replaced by the default value of the model, if there is one."""
    match rule:
        case Normal(mean=None):
            return "mean"
        case LogNormal(median=None):
            return "median"
    return None


def _or_default(given: float | None, default: float | None) -> float:
    value = default if given is None else given
    if value is None:
        raise refuse("mean", "must be given, but is missing and there is no default value")
    return value


def _require_interval(low: float, high: float) -> None:
    if not low < high:
        raise refuse("low", f"must be below `high`, but {low} is not below {high}")
    if not isfinite(high - low):
        raise refuse("high", f"must be finite, as `low` must, but they are {low} and {high}")


def _leaves(value: float | list[Any]) -> list[float]:
    return [x for part in value for x in _leaves(part)] if isinstance(value, list) else [value]
