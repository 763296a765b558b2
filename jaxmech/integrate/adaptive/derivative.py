"""Derivatives of a run with adaptive steps: through its steps, whose sizes are held fixed.

The forward run records its moves (`record`). The tangents go along with the moves. The cotangents
go backwards, segment by segment: each is run again from the state before it. Save times enter by
the speeds and accelerations at the saves, because a save is a state of the motion.
"""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Array

from jaxmech.compiler import AbstractRule, Arrays, Flags
from jaxmech.integrate.adaptive.cotangents import cotangents_of
from jaxmech.integrate.adaptive.moves import KeptRun, MoveProgram, move_program
from jaxmech.integrate.adaptive.tangents import along_all_moves, along_moves, tangents_of
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.run_rule import AbstractRun, RolloutInputs, RunRule, SmoothResults
from jaxmech.integrate.scheme import Scheme

SEGMENT = 64  # moves; with the default of `max_steps` about as many segments


def adaptive_trajectory(
    scheme: Scheme, x: RolloutInputs, watch: Watch | None = None, segment: int | None = None
) -> Trajectory:
    """The run as one operation with its derivatives."""
    x, run, program = move_program(scheme, watch, segment or SEGMENT, x)
    return MovesRun(run, program).trajectory(x)


@dataclass(frozen=True)
class MovesRun(AbstractRun):
    """A run with adaptive steps; `program` defines its moves."""

    program: MoveProgram

    def tangents(self, x: RolloutInputs, kept: KeptRun, changes: RolloutInputs) -> SmoothResults:
        """Push tangents along the moves that were made."""
        return tangents_of(self.program, along_moves, x, kept, changes)

    def smooth_tangents(
        self, x: RolloutInputs, kept: KeptRun, changes: RolloutInputs
    ) -> SmoothResults:
        """The same in loops of fixed length, which JAX can differentiate in reverse mode."""
        return tangents_of(self.program, along_all_moves, x, kept, changes)

    def cotangents(
        self, x: RolloutInputs, kept: KeptRun, wanted: RolloutInputs, given: SmoothResults
    ) -> RolloutInputs:
        """Segment by segment, from the last to the first."""
        return cotangents_of(self.program, x, kept, wanted, given)

    def rule(self, structure: Any, outs: Any) -> AbstractRule:
        """The derivatives, with loops of two kinds in forward mode."""
        return _MoveRule(self, structure, outs)


class _MoveRule(RunRule):
    def smooth_jvp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays
    ) -> list[Array]:
        """Push tangents by loops of fixed length."""
        return self.pushed(self.program.smooth_tangents, args, residuals, wanted, tangents)
