"""The initial states of recordings and segments, and the directions in which a fit may change them.

Recorded are start variables and their rates (`jaxmech.assemble.begin`). With a `start` they may
change in every direction, without one along the constraints.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.assemble import begin
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.problem.residuals import FitProblem
from jaxmech.stabilization import constraint_jacobians, near
from jaxmech.system import Params
from jaxmech.utils.jit_cache import jit_of


class InitialState(NamedTuple):
    """The state for recorded start variables."""

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    consistent: Bool[Array, ""]  # whether it meets the constraints
    A_position: Float[Array, "k n"]
    A_velocity: Float[Array, "l n"]


@jit_of("problem")
def initial_state(
    problem: FitProblem, q0: Array, v0: Array, t: Array, params: Params
) -> InitialState:
    """The state for start variables (k,) and their rates (k,)."""
    system = problem.system
    q, v = begin(system, problem.start, q0, v0, t, params)
    if q.shape != (system.n,) or v.shape != (system.n,):
        raise ValueError(
            f"Argument `start` must return q and v of shape ({system.n},), but returns {q.shape} "
            f"and {v.shape}."
        )
    A_position, A_velocity = constraint_jacobians(system, q, v, t, params)
    consistent = near(system.position_level(q, t, params), A_position, q)
    consistent &= near(system.velocity_level(q, v, t, params), A_velocity, v)
    return InitialState(q, v, consistent, A_position, A_velocity)


def initial_states(problem: FitProblem, s: Segments, params: Params) -> list[InitialState]:
    """The initial states of all segments."""
    starts = zip(s.q0, s.v0, s.ts[:, 0], strict=True)
    return [initial_state(problem, q0, v0, t, params) for q0, v0, t in starts]


def free_directions(
    problem: FitProblem, s: Segments, states: Sequence[InitialState]
) -> tuple[np.ndarray, np.ndarray]:
    """The directions of the start variables (S, k, i) and of their rates (S, k, j)."""
    if problem.start is not None:
        whole = np.tile(np.eye(s.q0.shape[1]), (len(s.q0), 1, 1))
        return whole, whole.copy()
    from scipy.linalg import null_space  # slow to import, and seldom needed

    levels = ([one.A_position for one in states], [one.A_velocity for one in states])
    sides = [
        [null_space(A, rcond=1e-8) if len(A) else np.eye(A.shape[1]) for A in map(np.asarray, rows)]
        for rows in levels
    ]
    if any(len({basis.shape for basis in side}) > 1 for side in sides):
        raise ValueError(
            "Free initial states need starts with the same number of degrees of freedom, but the "
            "rank of the constraints differs from one to another; give `start`, which makes a "
            'state of independent variables, or hold exact starts by `initial_states="fixed"`.'
        )
    along_q, along_v = map(np.stack, sides)
    return along_q, along_v
