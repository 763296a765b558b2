"""A motion from another start along the recorded steps of a run, whose sizes are held.

The derivatives of a run are those of this motion: a smooth function of the start and of the
parameters, while the steps of an adaptive run jump where one is rejected.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxmech.compiler import empty_rows, with_row
from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.derivatives.adaptive_rule import SEGMENT
from jaxmech.integrate.derivatives.event_pieces import PieceState
from jaxmech.integrate.derivatives.record import StepRecord
from jaxmech.integrate.derivatives.step_replay import recorded_moves, repeat_step
from jaxmech.integrate.events.event_set import NO_EVENTS
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.steps import Tolerance
from jaxmech.system import Params


def recorded(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, tolerance: Tolerance,
    times: Array,
) -> StepRecord:  # fmt: skip
    """Record the steps of a run."""
    inputs = q0, v0, ts, params, tolerance
    return adaptive_rollout(scheme, *inputs, segment=SEGMENT, times=times)[1]


def shortened(record: StepRecord) -> StepRecord:
    """A record of known values without the steps that were not made."""
    segments = max(1, -(-int(record.count) // record.segment))
    moves = np.array(record.moves[: segments * record.segment])
    moves[int(record.count) :] = 0.0
    return replace(record, moves=jnp.asarray(moves), starts=record.starts[:segments])


def replayed(
    scheme: Scheme, record: StepRecord, q0: Array, v0: Array, ts: Array, params: Params,
    times: Array, recorded_times: Array,
) -> tuple[Array, Array, Bool[Array, ""]]:  # fmt: skip
    """q and v at the save times, shape (T, n), and whether all steps could be made.

    A step that ended at one of the `recorded_times` (K,) ends at that of `times`.
    """
    moves, by_pair = recorded_moves(scheme, (q0, v0), ts, times, recorded_times)
    offset, n = jnp.zeros(min(times.size, 1), ts.dtype), q0.size

    def make_move(carry: Any) -> Any:
        number, begin, state, good, saves = carry
        move = record.move(number, begin, jnp.abs(ts[1] - ts[0]))
        piece, h = moves.at(state, (None, None), NO_EVENTS.active(), move)
        new, info = repeat_step(by_pair, NO_EVENTS, state, piece, h, params)
        saves = with_row(saves, move.save, jnp.concatenate([new.q, new.v]), move.save > 0)
        state = jax.tree.map(partial(jnp.where, move.save > 0), state, new)
        return number + 1, moves.elapsed(move), state, good & info.good, saves

    first = jnp.concatenate([q0, v0])
    start = (
        jnp.zeros((), jnp.int32),
        jnp.zeros_like(ts[0]),
        PieceState(q0, v0, offset),
        jnp.asarray(True),
    )
    *_, good, saves = jax.lax.while_loop(
        lambda carry: carry[0] < record.count, make_move, (*start, empty_rows(len(ts), first))
    )
    saves = jnp.where((ts == ts[0])[:, None], first[None], saves)
    return saves[:, :n], saves[:, n:], good
