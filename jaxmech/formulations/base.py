"""What every law of motion takes and gives."""

import abc
from dataclasses import dataclass, replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.equations import EquationsOfMotion, SingularMass
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
        nonideal_force: C in M qdd = Q + A^T lambda + C, shape (n,); None for ideal constraints.
        converged: whether multipliers were found that C depends on; None if it does not.
        kept: which constraint equations (for `SVD()` singular values) were taken as independent,
            shape (m,); None where the law does not tell.
    """

    qdd: Float[Array, " n"]
    free: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    definite: Bool[Array, ""]
    nonideal_force: Float[Array, " n"] | None = None
    converged: Bool[Array, ""] | None = None
    kept: Bool[Array, " m"] | None = None


class AbstractChart(eqx.Module):
    """Which coordinates and velocities a law integrates during one step, the others following.

    Attributes:
        usable: whether the others follow well enough; if not, `complete` leaves a state as it is.
    """

    usable: eqx.AbstractVar[Bool[Array, ""]]

    @abc.abstractmethod
    def complete(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> tuple[Array, Array, Bool[Array, ""]]:
        """q and v with those that follow from the others, and whether they could be found."""


@dataclass(frozen=True)
class AbstractFormulation(abc.ABC):
    """A law of motion: from M, Q, A, b to accelerations and multipliers."""

    def equations(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> EquationsOfMotion:
        """M, Q, A and b at a state, in the way that belongs to the law."""
        return system.equations(q, v, t, params)

    def chart(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> AbstractChart | None:
        """The chart for the step from this state; None where all coordinates are integrated."""
        return None

    def matrix(self, eom: EquationsOfMotion) -> Float[Array, " k l"] | None:
        """The matrix that is inverted, by whose condition a law is judged; None without one."""
        return None

    def takes_as_singular(self, found: SingularMass) -> SingularMass:
        """Whether M is taken as singular, given whether it was found to be."""
        return found

    @abc.abstractmethod
    def solve(self, eom: EquationsOfMotion, *, kept: Bool[Array, " m"] | None = None) -> Law:
        """Accelerations and multipliers at one state.

        Args:
            eom: the equations at the state.
            kept: what may be taken as independent, as `Law.kept` told nearby; by default all.
        """


def only(eom: EquationsOfMotion, kept: Bool[Array, " m"] | None) -> EquationsOfMotion:
    """The equations with zeros in the rows that may not be kept, which every solver then drops.

    Example:
        >>> import jax.numpy as jnp
        >>> eom = EquationsOfMotion(jnp.eye(1), jnp.ones(1), jnp.ones((2, 1)), jnp.ones(2))
        >>> print(only(eom, jnp.array([True, False])).b)
        [1. 0.]
    """
    if kept is None:
        return eom
    A, b = jnp.where(kept[:, None], eom.A, 0.0), jnp.where(kept, eom.b, 0.0)
    return replace(eom, A=A, b=b)
