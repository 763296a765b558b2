"""`Covariance`: covariances and correlations of quantities with each other and with the inputs."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.moments import (
    centred,
    effective_count,
    mean_of,
    of_correlation,
    pooled,
)
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
    host,
    weights_of,
)
from jaxmech.utils.text import doc, setting


@dataclass(frozen=True)
class Covariance(AbstractStatistic):
    """Covariances and correlations of several numbers per trajectory, merged as `Moments` are.

    With `inputs`, all numbers that vary from trajectory to trajectory are among them. Trajectories
    where one of the numbers is NaN are left out.

    Example:
        >>> x = jnp.array([1.0, 2.0, 6.0])
        >>> given = {"x": x, "y": 3 - 2 * x}
        >>> sample = Sample(given, jnp.ones(3), jnp.full(3, True), jnp.arange(3))
        >>> both = Covariance(of=("x", "y"))
        >>> print(both.result(both.update(both.init(sample), sample))["correlation"].round(12))
        [[ 1. -1.]
         [-1.  1.]]
    """

    of: tuple[str, ...] = field(metadata=doc("names of quantities, each one number per trajectory"))
    inputs: bool = setting(True, "whether all drawn variables are taken, too")
    confidence: float = setting(0.95, "confidence of each interval", between=(0, 1))

    scalars_only = True

    @property
    def with_inputs(self) -> bool:
        """Whether the drawn variables are among the values of a sample."""
        return self.inputs

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.of:
            raise refuse("of", "must name quantities, but is empty")

    def state_numbers(self, numbers: Callable[[str], int], inputs: int) -> int:
        """A matrix."""
        return (len(self.of) + inputs * self.inputs + 3) ** 2

    def of_sample(self, sample: Sample) -> State:
        """Count and centred moments of the rows that are finite."""
        columns = [sample.floats(name).astype(sample.weight.dtype) for name in sample.values]
        value, w = weights_of(jnp.stack(columns, axis=1), sample.weight)
        # Rows that lack a number are left out whole: pairs of different samples need not have a
        # positive semidefinite covariance.
        w = jnp.where((w > 0).all(1), sample.weight, 0)
        state, away = centred(jnp.where(w[:, None] > 0, value, 0), w)
        count = (w > 0).sum().astype(sample.number.dtype)
        return {**state, "count": count, "spread": (w[:, None] * away).T @ away}

    def merge(self, first: State, second: State) -> State:
        """Chan's formulas for products of distances from the means."""
        total = pooled(first, second)
        (scale, other_scale), away = total.scales, total.between
        inner = first["spread"] * jnp.outer(scale, scale)
        inner += second["spread"] * jnp.outer(other_scale, other_scale)
        outer = jnp.outer(away, away) * (first["weight"] * total.share)
        count = first["count"] + second["count"]
        return {**total.state, "count": count, "spread": inner + outer}

    def result(self, state: State) -> StatisticResult:
        """The covariances and correlations with intervals, NaN for a number that does not vary."""
        x = host(state)
        effective, e = float(effective_count(x)), x["exponent"]
        with np.errstate(divide="ignore", invalid="ignore"):
            products = x["spread"].astype(float) / x["weight"] * effective / (effective - 1)
            sd = np.sqrt(np.diagonal(products))
            correlation = np.clip(products / (sd[:, None] * sd), -1, 1)
        with np.errstate(over="ignore"):
            covariance = np.ldexp(products, e[:, None] + e)
        low, high = of_correlation(correlation, effective, self.confidence)
        return {
            "count": x["count"],
            "mean": mean_of(x),
            "covariance": covariance,
            "correlation": correlation,
            "correlation_low": low,
            "correlation_high": high,
        }
