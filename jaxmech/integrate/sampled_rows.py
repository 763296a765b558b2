"""States of a system with controllers at some times: those right after they have computed."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.compiler import batched_closure
from jaxmech.integrate.events import Events
from jaxmech.integrate.times import Span, span_at, within, within_spans
from jaxmech.system import Params, System

_NEAR = 4.0  # units of round-off of the largest time


def with_samples(
    system: System, rows: tuple[Array, Array, Float[Array, " T"]], ends: tuple[Array, Array],
    params: Params, times: Float[Array, " K"] | None, events: Events | None,
    spans: Span | None = None,
) -> Float[Array, " T k"]:  # fmt: skip
    """v of the rows q, v and t of a run between its `ends`, with what controllers compute then.

    Nothing is computed at the last time, or after a terminal event. `spans` are those that follow
    the rows, where they are known.
    """
    q, v, t = rows
    if system.sampling is None or times is None:
        return v
    # Times that are computed in two ways differ by round-off.
    near = _NEAR * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(ends[0]), jnp.abs(ends[1]))
    timed = within_spans(system)
    spans = span_at(times, t + near, *ends)[0] if spans is None else spans

    def sampled(q: Array, v: Array, t: Array, span: Span, params: Params) -> Array:
        return timed.sampled(q, v, t, within(span, params))

    each = q, v, t, spans
    at_time = batched_closure(sampled, *jax.tree.map(lambda x: x[0], each), params)
    new_v: Array = jax.vmap(at_time, (0, 0, 0, 0, None))(*each, params)
    return new_v if events is None else jnp.where((t <= events.t_end)[:, None], new_v, v)
