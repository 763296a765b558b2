"""A motion from another start along the recorded steps of a run, whose sizes are held.

The derivatives of a run are those of this motion: a smooth function of the start and of the
parameters, while the steps of an adaptive run jump where one is rejected.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxmech.compiler import empty_rows, with_row
from jaxmech.integrate.adaptive.derivative import SEGMENT
from jaxmech.integrate.adaptive.method import Adaptive, Tolerance
from jaxmech.integrate.adaptive.record import StepRecord
from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import step
from jaxmech.system import Params


def recorded(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, tolerance: Tolerance
) -> StepRecord:
    """Record the steps of a run."""
    return adaptive_rollout(scheme, q0, v0, ts, params, tolerance, segment=SEGMENT)[1]


def shortened(record: StepRecord) -> StepRecord:
    """A record of known values without the steps that were not made."""
    segments = max(1, -(-int(record.count) // record.segment))
    moves = np.asarray(record.moves)[: segments * record.segment]
    starts, begins = (np.asarray(x)[:segments] for x in (record.starts, record.begins))
    return replace(
        record, moves=jnp.asarray(moves), starts=jnp.asarray(starts), begins=jnp.asarray(begins)
    )


def replayed(
    scheme: Scheme, record: StepRecord, q0: Array, v0: Array, ts: Array, params: Params
) -> tuple[Array, Array, Bool[Array, ""]]:
    """q and v at the save times, shape (T, n), and whether all steps could be made."""
    assert isinstance(scheme.method, Adaptive)
    by_pair = replace(scheme, method=replace(scheme.method.pair, substeps=1))
    sign, n = jnp.sign(ts[-1] - ts[0]), q0.size

    def one(carry: Any) -> Any:
        number, begin, q, v, good, saves = carry
        move = record.move(number, begin, jnp.abs(ts[1] - ts[0]))
        is_save, t = move.save > 0, ts[0] + sign * move.begin
        target = jax.lax.dynamic_index_in_dim(ts, move.save, keepdims=False)
        h = jnp.where(is_save, target - t, sign * move.size)
        new_q, new_v, health = step(by_pair, q, v, t, h, params)
        saves = with_row(saves, move.save, jnp.concatenate([new_q, new_v]), is_save)
        q, v = jnp.where(is_save, q, new_q), jnp.where(is_save, v, new_v)
        return number + 1, move.elapsed(~is_save), q, v, good & health.good, saves

    first = jnp.concatenate([q0, v0])
    none, zero = jnp.zeros((), jnp.int32), jnp.zeros_like(ts[0])
    *_, good, saves = jax.lax.while_loop(
        lambda carry: carry[0] < record.count,
        one,
        (none, zero, q0, v0, jnp.asarray(True), empty_rows(len(ts), first)),
    )
    saves = jnp.where((ts == ts[0])[:, None], first[None], saves)
    return saves[:, :n], saves[:, n:], good
