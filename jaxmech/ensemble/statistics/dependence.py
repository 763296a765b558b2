"""`Covariance` and `SobolIndices`: how quantities depend on each other and on the inputs."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

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


@dataclass(frozen=True)
class SobolIndices(AbstractStatistic):
    """Sobol indices of first order and in total; the sampling must be `design = "saltelli"`.

    The estimators are those of Saltelli et al. ("Variance based sensitivity analysis of model
    output", Computer Physics Communications 181, 2010), table 2: (b) of first order, and (f), by
    Jansen, in total. A group of d + 2 trajectories belongs together: a point A, a point B, and for
    each of the d inputs the point A with that input of B. Intervals are percentiles of a Poisson
    bootstrap: in each resample a group counts as often as a number drawn from the Poisson
    distribution, which depends on nothing but the number of the group.
    """

    of: str = field(metadata=doc("name of the quantity, one number per trajectory"))
    resamples: int = setting(200, "number of resamples", least=20, most=10_000)
    confidence: float = setting(0.95, "confidence of each interval", between=(0, 1))

    scalars_only = True
    with_inputs = True
    size_key = "resamples"

    def state_numbers(self, numbers: Callable[[str], int], inputs: int) -> int:
        """A row for each resample."""
        return (self.resamples + 1) * 3 * (inputs + 1)

    def of_sample(self, sample: Sample) -> State:
        """The products of each group, which all estimators are sums of.

        There is one row for the estimate and one for each resample. The values are those of
        `centred`, less their mean, which the estimate of first order is better for.
        """
        size = self.group(sample)
        value = sample.floats(self.of).reshape(-1, size)
        is_whole = ((sample.weight > 0).reshape(-1, size) & jnp.isfinite(value)).all(1)
        weight = jnp.repeat(is_whole, size).astype(value.dtype)
        state, away = centred(jnp.where(weight > 0, value.ravel(), 0.0), weight)
        away = away.reshape(-1, size)
        # Only sums of products are kept, from which every resample can be made with its own counts.
        a, b, mixed = away[:, :1], away[:, 1:2], away[:, 2:]
        count = is_whole[:, None].astype(value.dtype)
        parts = [count, a + b, a**2 + b**2, b * (mixed - a), mixed - a, (mixed - a) ** 2]
        products = jnp.concatenate(parts, axis=1)
        counts = self._counts(sample.number[::size] // size).astype(value.dtype)
        groups = is_whole.sum().astype(sample.number.dtype)
        return {**state, "sums": counts.T @ products, "groups": groups}

    def merge(self, first: State, second: State) -> State:
        """Sums of the products of distances from the common mean."""
        total = pooled(first, second)
        shifts = (-total.between * total.share, total.between * (1 - total.share))
        states = zip((first, second), total.scales, shifts, strict=True)
        sums, other_sums = (_moved(state["sums"], scale, shift) for state, scale, shift in states)
        return {
            **total.state,
            "sums": sums + other_sums,
            "groups": first["groups"] + second["groups"],
        }

    def group(self, sample: Sample) -> int:
        """The number of trajectories in a group: the other values are the inputs."""
        return len(sample.values) + 1

    def _counts(self, groups: Array) -> Array:
        """The weight of each group: one in the estimate, else from the Poisson distribution."""
        keys = jax.vmap(lambda group: jax.random.fold_in(jax.random.key(0), group))(groups)
        unit = jax.vmap(lambda key: jax.random.uniform(key, (self.resamples,)))(keys)
        # The inverse of the distribution function. More than 15 has a probability of 2e-14, and
        # counts as 16.
        bounds = np.cumsum([np.exp(-1.0) / _FACTORIALS[k] for k in range(len(_FACTORIALS))])
        drawn = (unit[..., None] > bounds[None, None]).sum(-1)
        return jnp.concatenate([jnp.ones((len(groups), 1), drawn.dtype), drawn], axis=1)

    def result(self, state: State) -> StatisticResult:
        """Indices by input, with intervals."""
        x = host(state)
        first, total, variance = _indices(x["sums"])
        tail = 50 * (1 - self.confidence)
        names = {"first_order": first, "total": total}
        with np.errstate(over="ignore"):
            result: StatisticResult = {
                "groups": int(x["groups"]),
                "variance": np.ldexp(variance[0], 2 * x["exponent"]),
            }
        for name, values in names.items():
            low, high = np.nanpercentile(values[1:], [tail, 100 - tail], axis=0)
            result |= {name: values[0], f"{name}_low": low, f"{name}_high": high}
        return result


def _moved(sums: Array, scale: Array, shift: Array) -> Array:
    """The sums of a state for values that are `scale` times as large, and `shift` larger."""
    n, linear, squares = (sums[:, k : k + 1] for k in range(3))
    product, difference, square = jnp.split(sums[:, 3:], 3, axis=1)
    parts = [
        n,
        scale * linear + 2 * shift * n,
        scale**2 * squares + 2 * shift * (scale * linear + shift * n),
        scale**2 * product + shift * scale * difference,
        scale * difference,
        scale**2 * square,
    ]
    return jnp.concatenate(parts, axis=1)


_FACTORIALS = np.cumprod([1.0, *range(1, 16)])


def _indices(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First-order and total indices, shape (rows, d), and the variance, shape (rows,)."""
    n, linear, squares = sums[:, :3].T
    product, difference, square = np.split(sums[:, 3:], 3, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = linear / (2 * n)
        variance = squares / (2 * n) - mean**2
        first = (product - mean[:, None] * difference) / n[:, None] / variance[:, None]
        total = square / (2 * n * variance)[:, None]
    return first, total, variance
