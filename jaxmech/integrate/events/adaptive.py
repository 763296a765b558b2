"""A run with events and steps by a tolerance as one JAX operation, and its derivatives.

The forward run records its moves (`jaxmech.integrate.adaptive.record`): steps, parts of steps up to
a save, and parts up to an event. Derivatives go through the moves. The sizes of the steps are held,
but where an event moves in time, all that follows is shifted with it: the shift is a part of the
state, whose value is always zero.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import Arrays, Flags, bind, operation_of
from jaxmech.integrate.adaptive.method import Tolerance
from jaxmech.integrate.events.adaptive_cotangents import event_cotangents
from jaxmech.integrate.events.adaptive_moves import (
    EventInputs,
    EventMoves,
    MoveResiduals,
    event_program,
)
from jaxmech.integrate.events.adaptive_tangents import (
    EventsAlong,
    event_tangents,
    events_along,
    events_along_all,
)
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.segment_parts import AbstractTreeRule, RolloutInputs, zeros_of
from jaxmech.system import Params


def adaptive_event_trajectory(
    scheme: Scheme, watch: Watch, q0: Array, v0: Array, ts: Array, params: Params,
    tolerance: Tolerance,
) -> Trajectory:  # fmt: skip
    """The trajectory with its events."""
    program, traced = event_program(scheme, watch, q0, v0, ts, params, tolerance)
    inputs = EventInputs(RolloutInputs(q0, v0, ts, params, traced), tolerance)
    leaves, structure = jax.tree.flatten(inputs)

    def run(*leaves: Array) -> tuple[Trajectory, MoveResiduals]:
        trajectory, record = program.run(jax.tree.unflatten(structure, leaves))
        known = ~jnp.isnan(trajectory.q[:, 0])
        return trajectory, MoveResiduals(record, known)

    operation, outs = operation_of(run, leaves, partial(_EventMoveRule, program, structure))
    found: Trajectory = jax.tree.unflatten(outs, bind(operation, (), *leaves))[0]
    return found


class _EventMoveRule(AbstractTreeRule):
    """Derivatives move by move.

    The smooth results are q and v at the save times, times and states of the events, and the states
    before the segments of moves, which derivatives of derivatives need.
    """

    def __init__(self, program: EventMoves, structure: Any, outs: Any) -> None:
        trajectory, kept = jax.tree.unflatten(outs, range(outs.num_leaves))
        found = trajectory.events.found
        smooth = trajectory.q, trajectory.v, found, kept.record.starts
        super().__init__(program, structure, kept, smooth)
        self.found = jax.tree.structure(found)

    def jvp(self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays) -> list[Array]:
        """Along the moves, as many as there were."""
        return self._tangents(events_along, args, residuals, wanted, tangents)

    def smooth_jvp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays
    ) -> list[Array]:
        """The same in loops of fixed length, which JAX can differentiate in reverse mode."""
        return self._tangents(events_along_all, args, residuals, wanted, tangents)

    def _tangents(
        self, along: EventsAlong, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays
    ) -> list[Array]:
        inputs, kept = self.trees(args, residuals)
        changes = self.changes(wanted, tangents).motion
        return event_tangents(self.program, along, inputs.motion, kept, changes)

    def vjp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        """Segment by segment, from the last to the first."""
        inputs, kept = self.trees(args, residuals)
        flags = self.flags(wanted)
        x, rows = inputs.motion, self.program.watch.rows[-1]
        none = Occurrences.none(rows, x.q0, self.program.watch.has_transitions)
        pairs = zip(cotangents[2:-1], jax.tree.leaves(none), strict=True)
        found = jax.tree.unflatten(
            self.found, [jnp.zeros_like(y) if ct is None else ct for ct, y in pairs]
        )
        saves = jnp.concatenate(
            [jnp.zeros((len(x.ts), x.q0.size), x.q0.dtype) if ct is None else ct
             for ct in cotangents[:2]], axis=1
        )  # fmt: skip
        starts = cotangents[-1]
        starts = jnp.zeros_like(kept.record.starts) if starts is None else starts
        wrt = event_cotangents(self.program, x, kept, flags.motion, saves, found, starts)
        return [*jax.tree.leaves(wrt), *zeros_of(inputs.tolerance, flags.tolerance)]
