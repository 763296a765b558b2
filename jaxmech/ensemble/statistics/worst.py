"""`Worst`, the trajectories with the largest values."""

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


@dataclass(frozen=True)
class Worst(AbstractStatistic):
    """The trajectories with the largest values of a quantity, with q and v at all saved times.

    A quantity with more than one number counts with its largest one. Of equal ones, the trajectory
    of the lower number is kept.
    """

    of: str = field(metadata=doc("name of the quantity"))
    keep: int = setting(20, "how many are kept", least=1, most=10_000)
    smallest: bool = setting(False, "keep those with the smallest value")

    in_unit = ("value",)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the quantity and of the kept series."""
        return tuple(dict.fromkeys((self.of, "q", "v")))

    def init(self, sample: Sample) -> State:
        """Places for the trajectories, all empty."""
        score = self._score(sample)
        series = {
            name: jnp.full((self.keep, *sample.values[name].shape[1:]), jnp.nan, x.dtype)
            for name, x in sample.values.items()
            if name in ("q", "v")
        }
        index = jnp.full(self.keep, -1, sample.number.dtype)
        return {"score": jnp.full(self.keep, -jnp.inf, score.dtype), "index": index, **series}

    def update(self, state: State, sample: Sample) -> State:
        """The best of those kept and those of the sample."""
        series = {name: sample.values[name] for name in state if name in ("q", "v")}
        return self.merge(state, {"score": self._score(sample), "index": sample.number, **series})

    def merge(self, first: State, second: State) -> State:
        """Keep the best of both."""
        score = jnp.concatenate([first["score"], second["score"]])
        # Of equal scores `top_k` takes the first, which is that of the earlier trajectory.
        best, index = jax.lax.top_k(score, self.keep)
        old = len(first["score"])
        from_first = jnp.minimum(index, old - 1)
        from_second = jnp.clip(index - old, 0, len(second["score"]) - 1)
        merged = {"score": best}
        for name in [key for key in first if key != "score"]:
            a, b = first[name][from_first], second[name][from_second]
            chosen = (index < old).reshape(-1, *(1,) * (a.ndim - 1))
            empty = jnp.isneginf(best).reshape(chosen.shape)
            nothing = -1 if name == "index" else jnp.nan
            merged[name] = jnp.where(empty, nothing, jnp.where(chosen, a, b))
        return merged

    def _score(self, sample: Sample) -> Array:
        value = sample.floats(self.of).reshape(len(sample.good), -1)
        value = -value.min(1) if self.smallest else value.max(1)
        return jnp.where(sample.good & ~jnp.isnan(value), value, -jnp.inf)

    def result(self, state: State) -> StatisticResult:
        """Numbers, values, q and v of the trajectories, the worst one first."""
        held = np.asarray(state["index"]) >= 0
        x = {name: np.asarray(values)[held] for name, values in state.items()}
        value = -x["score"] if self.smallest else x["score"]
        return {"index": x["index"], "value": value, "q": x["q"], "v": x["v"]}
