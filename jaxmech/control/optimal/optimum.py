"""`Optimum`: the result of `optimize`."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from jaxmech.run import Solution

MET = 1e-6  # how much a condition may be missed by


class OptimumStatus(Enum):
    """How a search for the best motion has ended."""

    OPTIMAL = "a local optimum, to the tolerance"
    ACCEPTABLE = "nearly a local optimum: the steps have become too small to get nearer"
    INFEASIBLE = "no motion near this one meets all conditions"
    TOO_MANY_ITERATIONS = "the iterations are used up"
    FAILED = "the solver could not go on"


@dataclass(frozen=True)
class Optimum:
    """The best motion near a guess, with what makes it.

    Attributes:
        status: an `OptimumStatus`.
        cost: its cost.
        params: the parameters with the free ones at their optimum, and a `Signal` for each control:
            `simulate(system, q[0], v[0], ts, params)` is the motion.
        ts: times of the nodes [s], (N + 1,).
        q: coordinates at the nodes, (N + 1, n).
        v: velocities at the nodes, (N + 1, m).
        violations: by how much each condition is violated at most: "motion" for continuity, an
            "end[0]" for each number of `end`, a "path[0]" for each of `path`, and the names of
            coordinates and velocities with bounds.
        multipliers: the multipliers of the conditions, the rates at which the cost would change
            with what they demand: "end" (e,), "path" (N + 1, rows of path, and of bounds of
            coordinates), where those of the nodes are sums over the interval that begins there.
        iterations: of the solver, in all rounds.
        run: computes `solution`.
    """

    status: OptimumStatus
    cost: float
    params: dict[str, Any]
    ts: np.ndarray
    q: np.ndarray
    v: np.ndarray
    violations: dict[str, float]
    multipliers: dict[str, np.ndarray]
    iterations: int
    run: Callable[[], Solution]

    @cached_property
    def solution(self) -> Solution:
        """The motion from the first node in steps half as long, computed when first asked for."""
        return self.run()

    @property
    def deviation(self) -> float:
        """The largest difference of `solution` and `q`: what steps miss, enlarged by the motion."""
        return float(np.abs(np.asarray(self.solution.q) - self.q).max())

    @property
    def succeeded(self) -> bool:
        """Whether it is a local optimum."""
        return self.status in (OptimumStatus.OPTIMAL, OptimumStatus.ACCEPTABLE)

    def __repr__(self) -> str:
        lines = [
            f"Optimum: {self.status.value}",
            f"  cost        {self.cost:.6g}",
            f"  iterations  {self.iterations}",
            f"  deviation   {self.deviation:.1e} of the motion in steps half as long",
        ]
        missed = {name: x for name, x in self.violations.items() if x > MET}
        lines += [f"  {name:<11} violated by {x:.3g}" for name, x in missed.items()]
        if not missed:
            lines.append(f"  conditions  met to {max(self.violations.values()):.1e}")
        return "\n".join(lines)
