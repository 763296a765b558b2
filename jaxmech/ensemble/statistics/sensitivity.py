"""`SobolIndices`: shares of the variance of a quantity due to its inputs."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.ensemble.statistics.moments import centred, pooled
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
    host,
)
from jaxmech.utils.text import doc, setting


@dataclass(frozen=True)
class SobolIndices(AbstractStatistic):
    """Sobol indices of first order and in total; the sampling must be `design = "saltelli"`.

    The estimators are those of Saltelli et al. ("Variance based sensitivity analysis of model
    output", Computer Physics Communications 181, 2010), table 2: (b) of first order, and (f), by
    Jansen, in total. A group of d + 2 trajectories belongs together: a point A, a point B, and for
    each of the d inputs the point A with that input of B. Intervals are percentiles of a Poisson
    bootstrap: in each resample a group counts as often as a number drawn from the Poisson
    distribution, which depends on nothing but the number of the group.

    Example:
        Four fifths of the variance of 2 a + b, with a and b between 0 and 1, are due to a:

        >>> first, second = np.random.default_rng(0).random((2, 1000, 2))
        >>> mixed = [np.where(np.arange(2) == k, second, first) for k in range(2)]
        >>> a, b = jnp.asarray(np.stack([first, second, *mixed], axis=1).reshape(-1, 2)).T
        >>> sample = Sample(
        ...     {"x": 2 * a + b, "a": a, "b": b},
        ...     weight=jnp.ones(4000),
        ...     real=jnp.full(4000, True),
        ...     number=jnp.arange(4000),
        ... )
        >>> indices = SobolIndices(of="x")
        >>> found = indices.result(indices.of_sample(sample))
        >>> print(found["first_order"].round(1), found["total"].round(1))
        [0.8 0.2] [0.8 0.2]
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
