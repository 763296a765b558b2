"""Coordinate partitioning: the motion in terms of independent coordinates.

Where the rows of A = df/dx are independent, one coordinate for each of them is a function of the
others: x_dep = g(y, x_ind, t) solves f(x, t) = y (implicit function theorem; on the constraints
y = 0). Bravy 1987, "Lagrangian Multipliers and Superfluous Variables" (NRL Memorandum Report 6001),
derives from Hamilton's principle, with E = d/dt dL/dv - dL/dx = M qdd - Q,

    E_j + sum_a E_a dg_a/dx_j = 0          for the independent coordinates j     (2)
    lambda_b = sum_a E_a dg_a/dy_b         over the dependent coordinates a      (4)

The function g need not be explicit: B = dg/dy is the inverse of the columns of A that belong to the
dependent coordinates, and dg/dx_j = -B dA/dx_j. So all velocities and accelerations are those of
the independent coordinates times N = I_ind - B A I_ind, plus a term from the right-hand sides:

    qdd = N qdd_ind + B b,    (N^T M N) qdd_ind = N^T (Q - M B b),    lambda = B^T (M qdd - Q)

The sum (2) is N^T E = 0, and N^T M N is definite if [M; A] has full column rank, so M may be
singular.

Dependent coordinates are chosen by elimination with complete pivoting at the start of every step,
because a choice for which g exists at one pose (a rod that is not horizontal) may fail at another.
Within a step only the independent ones are integrated, and Newton's method finds the others. Near a
loss of rank of A every choice amplifies noise in the dependent coordinates; such a step is done in
all coordinates and ends with a projection.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.laws.base import AbstractFormulation, Law, Partition, free_acceleration, without_units
from jaxmech.linalg import LDL, Pivots, coordinate_units, matvec, metric
from jaxmech.system import EquationsOfMotion, Nonholonomic, Params, System, extents_at
from jaxmech.utils.checks import require_positive_integer


@dataclass(frozen=True)
class CoordinatePartition(AbstractFormulation):
    """The equations of motion in independent coordinates, after Bravy 1987.

    Constraints on positions and velocities hold to round-off at every stage and after every step,
    even with `projection=None`; constraints on accelerations may drift. A row that depends on
    others gets no pivot and a multiplier of zero. The choice of coordinates has no derivative.
    Batches run as lanes; the backward pass of a gradient is a plain vmap.

    Args:
        iterations: Newton iterations for the dependent coordinates at every stage; each squares the
            error, which is at first about the square of the step.
        tolerance: a pivot below this fraction of its row counts as zero; by default eps^(1/3).

    Raises:
        ValueError: if `iterations` is not a positive integer, or `tolerance` is not in [0, 1).
    """

    iterations: int = 3
    tolerance: float | None = None

    def __post_init__(self) -> None:
        require_positive_integer("iterations", self.iterations, "three are enough for most steps")
        if self.tolerance is not None and not 0 <= self.tolerance < 1:
            raise ValueError(
                f"Argument `tolerance` must be in [0, 1), but is {self.tolerance}; "
                "leave it out for eps^(1/3)."
            )

    def chart(
        self, system: System, q: Array, v: Array, t: Array, params: Params,
        extents: Float[Array, " n"] | None = None,
    ) -> Partition | None:  # fmt: skip
        plain, speeds = system.plain.dynamics, system.dynamics.speeds(q, v, t, params)
        A = system.dynamics.velocity_jacobian(q, v, t, params)
        A_position = plain.position_jacobian(q, t, params)
        if len(A) + len(A_position) == 0:
            return None
        units = coordinate_units(system.dynamics.mass(q, v, t, params), A)
        positions = velocities = Pivots.of(A * units[None, :], self.tolerance)
        nonholonomic = any(isinstance(c, Nonholonomic) for c in system.constraints)
        if plain is not system.dynamics:
            units = coordinate_units(plain.mass(q, speeds, t, params), A_position)
        if nonholonomic or plain is not system.dynamics:
            positions = Pivots.of(A_position * units[None, :], self.tolerance)
        sizes = jnp.concatenate([positions.sizes, velocities.sizes])
        # Round-off is divided by a pivot in the dependent coordinates, again in their velocities
        # and again in their accelerations, and a pivot changes during a step.
        enough = float(jnp.finfo(A.dtype).eps) ** (1 / 8)
        return Partition(
            positions=positions,
            velocities=velocities,
            usable=~((sizes > 0) & (sizes < enough)).any(),
            extents=extents_at(system, q, v, t, params) if extents is None else extents,
            iterations=self.iterations,
            velocity_iterations=self.iterations if nonholonomic else 1,  # dphi/dt is linear in v
        )

    @without_units
    def solve(self, eom: EquationsOfMotion) -> Law:
        """Solve (2) for accelerations and (4) for multipliers at a state."""
        chosen, B, N, mass = _reduced(eom, self.tolerance)
        M, Q, A = eom.M, eom.Q, eom.A
        # The part of qdd required by b alone; the rest is N times the independent accelerations.
        driven = matvec(B, eom.b)
        factor = metric(mass, A[:0], LDL())
        independent, _, _ = factor.solve(matvec(N.T, Q - matvec(M, driven)), eom.b[:0])
        qdd = matvec(N, independent) + driven
        return Law(
            qdd=qdd,
            free=free_acceleration(eom),
            multipliers=matvec(B.T, matvec(M, qdd) - Q),
            rank=chosen.rank,
            definite=factor.definite,
        )


class _Reduced(NamedTuple):
    chosen: Pivots
    B: Array  # dg/dy, (n, m)
    N: Array  # dx/dx_j, columns of zeros for the dependent coordinates, (n, n)
    mass: Array  # N^T M N with ones for the dependent coordinates, (n, n)


def _reduced(eom: EquationsOfMotion, tolerance: float | None) -> _Reduced:
    chosen = Pivots.of(eom.A, tolerance)
    B = chosen.inverse(eom.A)
    independent = jnp.diag(1 - chosen.dependent)
    N = independent - B @ eom.A @ independent
    # The rank is not known while tracing, so the matrix stays (n, n); the ones make it definite.
    return _Reduced(chosen, B, N, N.T @ eom.M @ N + jnp.diag(chosen.dependent))
