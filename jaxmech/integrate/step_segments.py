"""The segments of a run with fixed steps: their times, their steps and their spans of time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.times import Intervals, Span


class StepSegments(eqx.Module):
    """The S segments, of the same number of steps, from ts[0] to ts[-1]; or one of them.

    Attributes:
        t: save time before each segment, shape (S,).
        h: step in each segment, shape (S,).
        done: steps from that save time to the segment, shape (S,).
        span: span of time of each segment; None without times at which a step ends.
        turns: whether each segment begins at such a time, shape (S,); None without them.
    """

    t: Float[Array, " *S"]
    h: Float[Array, " *S"]
    done: Int[Array, " *S"]
    span: Span | None = None
    turns: Bool[Array, " *S"] | None = None


def segments(
    ts: Array, per_save: int, steps: int, times: Intervals | Array | None = None
) -> StepSegments:
    """The segments, of `steps` steps each, of a run with `per_save` steps per save interval.

    `times`, at which a step ends, are among the ts, or their intervals are known.
    """
    count = per_save // steps
    step_numbers = np.tile(np.arange(count) * steps, len(ts) - 1)
    span, turns = None, None
    if times is not None:
        intervals = Intervals.of(ts, times)
        span = jax.tree.map(lambda x: jnp.repeat(x, count), intervals.span)
        turns = jnp.repeat(intervals.turns, count) & (step_numbers == 0)
    return StepSegments(
        t=jnp.repeat(ts[:-1], count),
        h=jnp.repeat((ts[1:] - ts[:-1]) / per_save, count),
        done=jnp.asarray(step_numbers),
        span=span,
        turns=turns,
    )
