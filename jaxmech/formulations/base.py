"""The interface of a law of motion."""

import abc
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from jaxmech.equations import EquationsOfMotion, SingularMass
from jaxmech.formulations.partition import Partition
from jaxmech.system import Params, System
from jaxmech.unilateral import require_no_gaps


class Law(eqx.Module):
    """The solution of a law of motion at one state.

    Attributes:
        qdd: accelerations with the constraints, shape (n,).
        free: accelerations without them, shape (n,).
        multipliers: some lambda with M qdd = Q + A^T lambda, shape (m,).
        rank: number of independent constraint equations.
        definite: whether the mass matrix (with the constraints, if it is singular) was positive
            definite; if not, the other fields are meaningless.
        nonideal_force: C in M qdd = Q + A^T lambda + C, shape (n,); None for ideal constraints.
        converged: whether the multipliers that C depends on were found; None if C does not.
        independent: flags of the constraint equations (for `SVD()` singular values) counted as
            independent, shape (m,); None where the law does not know.
    """

    qdd: Float[Array, " n"]
    free: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    definite: Bool[Array, ""]
    nonideal_force: Float[Array, " n"] | None = None
    converged: Bool[Array, ""] | None = None
    independent: Bool[Array, " m"] | None = None


@dataclass(frozen=True)
class AbstractFormulation(abc.ABC):
    """A law of motion: from M, Q, A, b to accelerations and multipliers."""

    def equations(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> EquationsOfMotion:
        """M, Q, A and b at a state."""
        require_no_gaps(system)
        return system.equations(q, v, t, params)

    def chart(
        self, system: System, q: Array, v: Array, t: Array, params: Params,
        extents: Float[Array, " n"] | None = None,
    ) -> Partition | None:  # fmt: skip
        """The chart for the step from this state; None where all coordinates are integrated.

        `extents` are those of the coordinates (`jaxmech.consistency`), by default at this state.
        """
        return None

    def matrix(self, eom: EquationsOfMotion) -> Float[Array, " k l"] | None:
        """The matrix inverted for equations `without_units`, whose condition counts, or None."""
        return None

    def takes_as_singular(self, detected: SingularMass) -> SingularMass:
        """Whether M is treated as singular, given the result of its detection."""
        return detected

    @abc.abstractmethod
    def solve(self, eom: EquationsOfMotion, *, independent: Bool[Array, " m"] | None = None) -> Law:
        """Solve for accelerations and multipliers; only rows in `independent` may count as such."""
