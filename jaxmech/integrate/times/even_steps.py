"""Steps of nearly equal size that end at given times."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.times.spans import Span, span_at


class EvenSteps(eqx.Module):
    """About `many` steps from a first to a last time; one ends at each of K times between them.

    Attributes:
        first: first time.
        h: size of a step where no step has to end.
        begins: times before the K + 1 parts of the run; None without such times.
        sizes: sizes of the steps in each part.
        numbers: number of steps before each part.
        spans: span of time of each part.
        turns: whether a step ends there and the motion turns.
        total: number of all steps.
    """

    first: Float[Array, ""]
    h: Float[Array, ""]
    begins: Float[Array, " parts"] | None = None
    sizes: Float[Array, " parts"] | None = None
    numbers: Int[Array, " parts"] | None = None
    spans: Span | None = None
    turns: Bool[Array, " parts"] | None = None
    total: Int[Array, ""] | None = None

    @staticmethod
    def of(
        ts: Float[Array, "2"], times: Float[Array, " K"] | None, step_count: Array
    ) -> "EvenSteps":
        """Divide the run."""
        first, last = ts
        duration = last - first
        if times is None:
            return EvenSteps(first, duration / step_count)
        sign = jnp.sign(duration)
        inner_times = sign * jnp.sort(jnp.clip(sign * times, sign * first, sign * last))
        begins = jnp.concatenate([first[None], inner_times])
        lengths = jnp.concatenate([inner_times, last[None]]) - begins
        counts = jnp.ceil(jnp.abs(lengths / duration) * step_count).astype(int)
        spans, span_begins = span_at(times, begins + lengths / 2, first, last)
        return EvenSteps(
            first, duration / step_count, begins, lengths / jnp.maximum(counts, 1),
            jnp.cumsum(counts) - counts, spans, (span_begins == begins) & (counts > 0),
            counts.sum(),
        )  # fmt: skip

    def most(self, step_count: Any) -> Any:
        """The number of steps, at most, for so many without the times."""
        return step_count if self.begins is None else step_count + len(self.begins)

    def is_within(self, k: Array, step_count: Array) -> Array:
        """Whether there is such a step, and it is one of the first `step_count`."""
        is_early = k < self.most(step_count)
        return is_early if self.total is None else is_early & (k < self.total)

    def step(self, k: Array) -> tuple[Array, Array, Span | None, Array | None]:
        """Start and size of a step, its span, and whether the motion turns at its start."""
        if self.begins is None or self.sizes is None or self.numbers is None:
            return self.first + k * self.h, self.h, None, None
        assert self.spans is not None
        assert self.turns is not None
        # The last part that begins at the step has its steps; those before it have none.
        is_part = jnp.arange(len(self.begins)) == (self.numbers <= k).sum() - 1

        def entry(rows: Array) -> Array:
            return jnp.where(is_part, rows, jnp.zeros_like(rows)).sum().astype(rows.dtype)

        number, size = entry(self.numbers), entry(self.sizes)
        span = jax.tree.map(lambda x: jnp.max(jnp.where(is_part, x, -jnp.inf)), self.spans)
        turns = (is_part & self.turns).any() & (k == number)
        return entry(self.begins) + (k - number) * size, size, span, turns
