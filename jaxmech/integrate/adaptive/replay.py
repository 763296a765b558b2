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
from jaxmech.integrate.derivatives.adaptive import (
    SEGMENT,
    AdaptiveReplay,
    AdaptiveSegment,
    ElapsedPosition,
    make_step,
)
from jaxmech.integrate.derivatives.event_moves import ReplayState
from jaxmech.integrate.derivatives.record import StepRecord
from jaxmech.integrate.derivatives.replay import MovePlace
from jaxmech.integrate.derivatives.run_rule import RolloutInputs
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import step
from jaxmech.integrate.steps import Tolerance
from jaxmech.system import Params


def recorded(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, tolerance: Tolerance,
    times: Array | None,
) -> StepRecord:  # fmt: skip
    """Record the steps of a run."""
    given = q0, v0, ts, params, tolerance
    return adaptive_rollout(scheme, *given, segment=SEGMENT, times=times)[1][0]


def shortened(record: StepRecord) -> StepRecord:
    """A record of known values without the steps that were not made."""
    segments = max(1, -(-int(record.count) // record.segment))
    moves = np.asarray(record.moves)[: segments * record.segment]
    begins = np.asarray(record.begins)[:segments]
    return replace(record, moves=jnp.asarray(moves), begins=jnp.asarray(begins))


def replayed(
    scheme: Scheme, record: StepRecord, q0: Array, v0: Array, ts: Array, params: Params,
    times: Array | None, held: Array | None,
) -> tuple[Array, Array, Bool[Array, ""]]:  # fmt: skip
    """q and v at the save times, shape (T, n), and whether all steps could be made.

    A step that ended at one of the times `held` (K,) of the recorded run ends at that of `times`.
    """
    by_pair, n = scheme.with_one_step(), q0.size
    replay = AdaptiveReplay(None, record.segment, partial(make_step, by_pair, None), None)
    x, first = RolloutInputs(q0, v0, ts, params, times=held), jnp.concatenate([q0, v0])
    state = ReplayState(q0, v0, None if times is None else jnp.zeros_like(ts[0]))
    segment = AdaptiveSegment(first, record)

    def advance(carry: Any) -> Any:
        number, position, state, good, saves = carry
        place = MovePlace(x, segment, number, position)
        move = replay.move(place, state, (None, times))
        q, v, t, now = move.begun(by_pair, None, state, params)
        q, v, health = step(by_pair, q, v, t, move.h, now)
        saves = with_row(saves, move.save, jnp.concatenate([q, v]), move.save > 0)
        new = ReplayState(q, v, state.offset if move.late is None else move.late)
        state = jax.tree.map(partial(jnp.where, move.save > 0), state, new)
        return number + 1, replay.after(place, move), state, good & health.good, saves

    position = ElapsedPosition(None, jnp.zeros_like(ts[0]))
    start = jnp.zeros((), jnp.int32), position, state, jnp.asarray(True)
    *_, good, saves = jax.lax.while_loop(
        lambda carry: carry[0] < record.count, advance, (*start, empty_rows(len(ts), first))
    )
    saves = jnp.where((ts == ts[0])[:, None], first[None], saves)
    return saves[:, :n], saves[:, n:], good
