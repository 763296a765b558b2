"""`Linearization`: small deviations from a motion as matrices."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.analysis.stability.reduction import FullEquations, ReducedEquations


class StateSpace(NamedTuple):
    """dz/dt = A z + B w, y = C z + D w with z = (x, u).

    The attribute `space` of a `Linearization`, the result of `linearize`.

    A tuple of four matrices, which `scipy.signal.StateSpace(*...)` and `control.ss(*...)` accept.

    Attributes:
        A: shape (j, j).
        B: shape (j, inputs).
        C: shape (outputs, j).
        D: shape (outputs, inputs).
    """

    A: Float[Array, " j j"]
    B: Float[Array, " j inputs"]
    C: Float[Array, " outputs j"]
    D: Float[Array, " outputs inputs"]


class Linearization(eqx.Module):
    """Linear equations of deviations; under `jax.vmap` every array gets a leading batch axis.

    Attributes:
        full: the equations in all coordinates: M da + C dv + K dq = A^T dlambda with the rows of
            the constraints, as `FullEquations`.
        reduced: the same in independent coordinates, dq = Z x, dv = T x + Y u, as
            `ReducedEquations`.
        space: the first-order system in the state z = (x, u), as a `StateSpace`.
        W: generator of the comoving frame, the rate at which it turns coordinates, shape (n, n);
            zero at rest and where only cyclic coordinates change.
        unsteadiness: distance of the motion from a steady one: the unbalanced force relative to the
            largest force at play.
        regular: whether the constraints have the ranks implied by the dimensions of x and u, and no
            input moves them; where not, the matrices are NaN.
        moved: violation of the constraints per unit of each input, shape (inputs,).
        coordinates: names of the coordinates.
        inputs: names of the inputs.
        outputs: names of the outputs.
    """

    full: FullEquations
    reduced: ReducedEquations
    space: StateSpace
    W: Float[Array, " n n"]
    unsteadiness: Float[Array, ""]
    regular: Bool[Array, ""]
    moved: Float[Array, " inputs"]
    coordinates: tuple[str, ...] = eqx.field(static=True)
    inputs: tuple[str, ...] = eqx.field(static=True)
    outputs: tuple[str, ...] = eqx.field(static=True)

    @property
    def positions(self) -> int:
        """The degrees of freedom of position, the dimension of x."""
        return int(self.reduced.Z.shape[-1])

    @property
    def velocities(self) -> int:
        """The degrees of freedom of velocity, the dimension of u."""
        return int(self.reduced.Y.shape[-1])

    @property
    def rate(self) -> Array:
        """The rate [1/s] at which the forces at play move a unit of length, roughly, shape ().

        The stiffness has round-off of these forces even if none of them varies with q.
        """
        force, mass = jnp.max(self.full.forces, -1), jnp.max(jnp.abs(self.full.M), (-2, -1))
        return jax.lax.stop_gradient(jnp.sqrt(0.1 * force / jnp.where(mass > 0, mass, 1.0)))

    def deviation(self, x: Any) -> tuple[Array, Array]:
        """The deviations dq and dv, shapes (n,), of a state (x, u), shape (j,)."""
        positions, speeds = x[: self.positions], x[self.positions :]
        small = self.reduced
        return small.Z @ positions, small.T @ positions + small.Y @ speeds

    def __repr__(self) -> str:
        channels = f"inputs={self.inputs}, outputs={self.outputs}"
        return f"Linearization(coordinates={self.coordinates}, {channels})"


def is_negligible(share: Any) -> Any:
    """Whether a share, such as `unsteadiness`, is zero to within rounding errors."""
    return share <= float(jnp.finfo(share.dtype).eps) ** 0.375
