"""`SobolIndices`: by how much of the variance of a quantity each input is responsible."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
)
from jaxmech.utils.text import doc, setting

_MOST = 15  # of a Poisson number; more has a probability of 2e-14, and counts as one more


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

    def group(self, sample: Sample) -> int:
        """The number of trajectories in a group: the other values are the inputs."""
        return len(sample.values) + 1

    def of_sample(self, sample: Sample) -> State:
        """Sums of the products of each group, in a row for the estimate and for each resample."""
        size = self.group(sample)
        value = sample.floats(self.of).reshape(-1, size)
        is_whole = (sample.good.reshape(-1, size) & jnp.isfinite(value)).all(1)
        # Less the first value that counts: sums of squares of large numbers lose digits.
        centre = value[is_whole.argmax(), 0]
        value = jnp.where(is_whole[:, None], value - centre, 0)
        a, b, mixed = value[:, :1], value[:, 1:2], value[:, 2:]
        count = is_whole[:, None].astype(value.dtype)
        parts = [count, a + b, a**2 + b**2, b * (mixed - a), mixed - a, (mixed - a) ** 2]
        counts = self._counts(sample.number[::size] // size).astype(value.dtype)
        groups = is_whole.sum().astype(sample.number.dtype)
        sums = counts.T @ jnp.concatenate(parts, axis=1)
        return {"sums": sums, "groups": groups, "centre": jnp.where(groups > 0, centre, 0)}

    def merge(self, first: State, second: State) -> State:
        """Sums of the products of distances from the centre of the first state."""
        n, linear, squares = (second["sums"][:, k : k + 1] for k in range(3))
        product, difference, square = jnp.split(second["sums"][:, 3:], 3, axis=1)
        shift = jnp.where(first["groups"] > 0, second["centre"] - first["centre"], 0)
        shift = jnp.where(second["groups"] > 0, shift, 0)
        linear, squares = linear + 2 * shift * n, squares + 2 * shift * (linear + shift * n)
        parts = [n, linear, squares, product + shift * difference, difference, square]
        return {
            "sums": first["sums"] + jnp.concatenate(parts, axis=1),
            "groups": first["groups"] + second["groups"],
            "centre": jnp.where(first["groups"] > 0, first["centre"], second["centre"]),
        }

    def _counts(self, groups: Array) -> Array:
        """The weight of each group: one in the estimate, else from the Poisson distribution."""
        keys = jax.vmap(lambda group: jax.random.fold_in(jax.random.key(0), group))(groups)
        unit = jax.vmap(lambda key: jax.random.uniform(key, (self.resamples,)))(keys)
        factorials = np.cumprod([1.0, *range(1, _MOST + 1)])
        bounds = np.cumsum(np.exp(-1.0) / factorials)  # the distribution function
        drawn = (unit[..., None] > bounds[None, None]).sum(-1)
        return jnp.concatenate([jnp.ones((len(groups), 1), drawn.dtype), drawn], axis=1)

    def result(self, state: State) -> StatisticResult:
        """Indices by input, with intervals."""
        sums = np.asarray(state["sums"], float)
        n, linear, squares = sums[:, :3].T
        product, difference, square = np.split(sums[:, 3:], 3, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = linear / (2 * n)
            variance = squares / (2 * n) - mean**2
            first = (product - mean[:, None] * difference) / n[:, None] / variance[:, None]
            total = square / (2 * n * variance)[:, None]
        tail = 50 * (1 - self.confidence)
        result: StatisticResult = {"groups": int(state["groups"]), "variance": variance[0]}
        for name, values in {"first_order": first, "total": total}.items():
            low, high = np.nanpercentile(values[1:], [tail, 100 - tail], axis=0)
            result |= {name: values[0], f"{name}_low": low, f"{name}_high": high}
        return result
