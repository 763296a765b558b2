"""What every law of motion takes and gives."""

import abc
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from jaxmech.equations import EquationsOfMotion
from jaxmech.system import Params, System


class Law(eqx.Module):
    """What a law of motion says at one state.

    Attributes:
        qdd: accelerations with the constraints, shape (n,).
        free: accelerations without them, shape (n,).
        multipliers: some lambda with M qdd = Q + A^T lambda, shape (m,).
        rank: number of independent constraint equations.
        definite: whether the mass matrix (with the constraints, if it is singular) was positive
            definite; if not, nothing else here means anything.
    """

    qdd: Float[Array, " n"]
    free: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    definite: Bool[Array, ""]


@dataclass(frozen=True)
class AbstractFormulation(abc.ABC):
    """A law of motion: from M, Q, A, b to accelerations and multipliers."""

    def equations(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> EquationsOfMotion:
        """M, Q, A and b at a state, in the way that belongs to the law."""
        return system.equations(q, v, t, params)

    @abc.abstractmethod
    def takes_as_singular(self, found: bool) -> bool:
        """Whether M is taken as singular, given whether it was found to be."""

    @abc.abstractmethod
    def solve(self, eom: EquationsOfMotion, *, singular_mass: bool) -> Law:
        """Accelerations and multipliers at one state; M may be singular if the flag says so."""
