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
    def of(ts: Float[Array, "2"], times: Float[Array, " K"] | None, many: Array) -> "EvenSteps":
        """Divide the run."""
        first, last = ts
        whole = last - first
        if times is None:
            return EvenSteps(first, whole / many)
        sign = jnp.sign(whole)
        between = sign * jnp.sort(jnp.clip(sign * times, sign * first, sign * last))
        begins = jnp.concatenate([first[None], between])
        lengths = jnp.concatenate([between, last[None]]) - begins
        counts = jnp.ceil(jnp.abs(lengths / whole) * many).astype(int)
        spans, at = span_at(times, begins + lengths / 2, first, last)
        return EvenSteps(
            first, whole / many, begins, lengths / jnp.maximum(counts, 1),
            jnp.cumsum(counts) - counts, spans, (at == begins) & (counts > 0), counts.sum(),
        )  # fmt: skip

    def most(self, many: Any) -> Any:
        """The number of steps, at most, for so many without the times."""
        return many if self.begins is None else many + len(self.begins)

    def is_within(self, k: Array, many: Array) -> Array:
        """Whether there is such a step, and it is one of the first `many`."""
        is_early = k < self.most(many)
        return is_early if self.total is None else is_early & (k < self.total)

    def step(self, k: Array) -> tuple[Array, Array, Span | None, Array | None]:
        """Start and size of a step, its span, and whether the motion turns at its start."""
        if self.begins is None or self.sizes is None or self.numbers is None:
            return self.first + k * self.h, self.h, None, None
        assert self.spans is not None
        assert self.turns is not None
        # The last part that begins at the step has its steps; those before it have none.
        here = jnp.arange(len(self.begins)) == (self.numbers <= k).sum() - 1

        def at(rows: Array) -> Array:
            return jnp.where(here, rows, jnp.zeros_like(rows)).sum().astype(rows.dtype)

        number, size = at(self.numbers), at(self.sizes)
        span = jax.tree.map(lambda x: jnp.max(jnp.where(here, x, -jnp.inf)), self.spans)
        turns = (here & self.turns).any() & (k == number)
        return at(self.begins) + (k - number) * size, size, span, turns
