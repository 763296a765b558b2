"""Derivatives of a run with steps by a tolerance: through its steps, whose sizes are held.

The forward run records its moves (`record`). The tangents go along with the moves. The cotangents
go backwards, segment by segment: each is run again from the state before it. Save times enter by
the speeds and accelerations at the saves, because a save is a state of the motion.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import Arrays, Flags, bind, operation_of
from jaxmech.integrate.adaptive.cotangents import cotangents_of
from jaxmech.integrate.adaptive.method import Tolerance
from jaxmech.integrate.adaptive.moves import AdaptiveInputs, KeptRun, MoveProgram, move_program
from jaxmech.integrate.adaptive.tangents import Along, along_all_moves, along_moves, tangents_of
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.segment_parts import AbstractTreeRule, RolloutInputs, zeros_of

SEGMENT = 64  # moves; with the default of `max_steps` about as many segments


def adaptive_trajectory(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Any, tolerance: Tolerance,
    segment: int | None = None,
) -> Trajectory:  # fmt: skip
    """The run as one operation with its JVP and its VJP."""
    program, traced = move_program(scheme, segment or SEGMENT, q0, v0, ts, params, tolerance)
    inputs = AdaptiveInputs(RolloutInputs(q0, v0, ts, params, traced), tolerance)
    leaves, structure = jax.tree.flatten(inputs)

    def run(*leaves: Array) -> tuple[Trajectory, KeptRun]:
        trajectory, record = program.run(jax.tree.unflatten(structure, leaves))
        states = jnp.concatenate([trajectory.q, trajectory.v], axis=1)
        known = ~jnp.isnan(states[:, 0])
        return trajectory, KeptRun(record, jnp.where(known[:, None], states, 0.0), known)

    operation, outs = operation_of(run, leaves, partial(_MoveRule, program, structure))
    return jax.tree.unflatten(outs, bind(operation, (), *leaves))[0]


class _MoveRule(AbstractTreeRule):
    """Derivatives by the moves alone.

    The smooth results are q and v at the save times, the same as kept, and the states before the
    segments, which derivatives of derivatives need.
    """

    def __init__(self, program: MoveProgram, structure: Any, outs: Any) -> None:
        trajectory, kept = jax.tree.unflatten(outs, range(outs.num_leaves))
        smooth = trajectory.q, trajectory.v, kept.record.starts, kept.states
        super().__init__(program, structure, kept, smooth)

    def jvp(self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays) -> list[Array]:
        """Along the moves, as many as there were."""
        return self._tangents(along_moves, args, residuals, wanted, tangents)

    def smooth_jvp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays
    ) -> list[Array]:
        """The same in loops of fixed length, which JAX can differentiate in reverse mode."""
        return self._tangents(along_all_moves, args, residuals, wanted, tangents)

    def _tangents(
        self, along: Along, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays
    ) -> list[Array]:
        inputs, kept = self.trees(args, residuals)
        changes = self.changes(wanted, tangents).motion
        return tangents_of(self.program, along, inputs.motion, kept, changes)

    def vjp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        """Segment by segment, from the last to the first."""
        inputs, kept = self.trees(args, residuals)
        flags = self.flags(wanted)
        found = cotangents_of(self.program, inputs.motion, kept, flags.motion, cotangents)
        return [*jax.tree.leaves(found), *zeros_of(inputs.tolerance, flags.tolerance)]
