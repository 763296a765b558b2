"""`Covariance`: covariances and correlations of quantities with each other and with the inputs."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.intervals import of_correlation
from jaxmech.ensemble.statistics.moments import pooled
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Found,
    Sample,
    State,
    host,
    weights_of,
)
from jaxmech.utils.field_docs import doc, setting


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

    def of_sample(self, sample: Sample) -> State:
        """Two passes, as in `Moments`."""
        columns = [sample.floats(name).astype(sample.weight.dtype) for name in sample.values]
        value, w = weights_of(jnp.stack(columns, axis=1), sample.weight)
        # Rows that lack a number are left out whole: pairs of different samples need not have a
        # positive semidefinite covariance.
        w = jnp.where((w > 0).all(1), sample.weight, 0)
        total = w.sum()
        mean = (w[:, None] * value).sum(0) / jnp.where(total > 0, total, 1)
        away = value - mean[None]
        return {
            "count": (w > 0).sum().astype(sample.number.dtype), "weight": total,
            "squares": (w**2).sum(), "mean": mean, "spread": (w[:, None] * away).T @ away,
        }  # fmt: skip

    def merge(self, first: State, second: State) -> State:
        """Chan's formulas for products of distances from the means."""
        both, away, share = pooled(first, second)
        between = away[:, None] * away[None] * (first["weight"] * share)
        return {**both, "spread": first["spread"] + second["spread"] + between}

    def result(self, state: State) -> Found:
        """The covariances and correlations with intervals, NaN for a number that does not vary."""
        x = host(state)
        with np.errstate(divide="ignore", invalid="ignore"):
            effective = float(x["weight"] ** 2 / x["squares"])
            covariance = x["spread"] / x["weight"] * effective / (effective - 1)
            sd = np.sqrt(np.diagonal(covariance))
            correlation = np.clip(covariance / (sd[:, None] * sd), -1, 1)
        low, high = of_correlation(correlation, effective, self.confidence)
        return {
            "count": x["count"],
            "mean": x["mean"],
            "covariance": covariance,
            "correlation": correlation,
            "correlation_low": low,
            "correlation_high": high,
        }
