"""Quasi-velocities: velocities u of which the rates of the coordinates are linear functions.

    dq/dt = T(q, t, p) u,    d2q/dt2 = T du/dt + (dT/dt) u

T (n, k) has full column rank, k <= n. Spins of a body are such velocities, which are no rates of
coordinates, and the forward speed and the turning rate of a sledge, which cannot move sideways.
Lagrange's equations M qdd = Q + A^T lambda, with A qdd = b, are projected on the columns of T:

    T^T M T du/dt = T^T (Q - M (dT/dt) u) + (A T)^T lambda,    A T du/dt = b - A (dT/dt) u

This is Maggi's equation, and the Boltzmann-Hamel equation without its coefficients of structure
(Greenwood, Advanced Dynamics, 2003, sections 4.1 to 4.3); Kane and Levinson, Dynamics, 1985, call u
generalized speeds. Rates of coordinates that are not in the range of T are excluded, by forces that
do no work on those that are.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.linalg import cholesky, matvec
from jaxmech.utils.checks import distinct_names, naming_missing, require_both, with_shape
from jaxmech.utils.jit_cache import traced_once
from jaxmech.utils.units import Names


@dataclass(frozen=True)
class Rates:
    """Velocities that are the rates of the coordinates: T is the identity."""

    def matrix(self, q: Array, t: Array, params: Any) -> Float[Array, " n k"]:
        """T at a state."""
        return jnp.eye(q.size, dtype=q.dtype)

    def speeds(self, q: Array, v: Array, t: Array, params: Any) -> Float[Array, " n"]:
        """The rates of the coordinates, T v."""
        return v

    def speed_rates(self, q: Array, v: Array, a: Array, t: Array, params: Any) -> Array:
        """The accelerations of the coordinates, T a + (dT/dt) v, for the rates a of v."""
        return a

    def from_speeds(self, q: Array, speeds: Array, t: Array, params: Any) -> Float[Array, " k"]:
        """The velocities whose rates of the coordinates are nearest to the given ones."""
        return speeds

    def rows(self, A: Float[Array, " m n"], q: Array, t: Array, params: Any) -> Array:
        """Rows for the rates of the coordinates as rows for v, A T."""
        return A

    def rows_of_speeds(self, A: Float[Array, " m k"], q: Array, t: Array, params: Any) -> Array:
        """Rows for v as rows for the rates of the coordinates, the shortest ones."""
        return A

    def forces(self, Q: Float[Array, " n *m"], q: Array, t: Array, params: Any) -> Array:
        """Forces on the coordinates as forces on v, T^T Q."""
        return Q

    def mass_and_force(
        self, M: Array, Q: Array, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Array, Array]:
        """M and Q of the coordinates that belong to no state as those of v."""
        return M, Q


@dataclass(frozen=True)
class QuasiVelocities(Rates):
    """The matrix T of a system; states of first order are the rates of their own integrals.

    Attributes:
        fn: the function of the user, for the coordinates and velocities that belong to no state.
        coordinates: number of coordinates n, integrals of states included.
        velocities: number of velocities k, states included.
        states: number of states.
    """

    fn: Callable[..., Any]
    coordinates: int
    velocities: int
    states: int

    @traced_once
    def matrix(self, q: Array, t: Array, params: Any) -> Float[Array, " n k"]:
        shape = self.coordinates - self.states, self.velocities - self.states
        with naming_missing("`kinematics`", params):
            need = "a row for each coordinate, a column for each velocity"
            T = with_shape(
                "The value of `kinematics`", self.fn(q, t, params), shape, need=need
            ).astype(q.dtype)
        if not self.states:
            return T
        upper = jnp.concatenate([T, jnp.zeros((shape[0], self.states), T.dtype)], axis=1)
        across = jnp.zeros((self.states, shape[1]), T.dtype)
        lower = jnp.concatenate([across, jnp.eye(self.states, dtype=T.dtype)], axis=1)
        return jnp.concatenate([upper, lower])

    def speeds(self, q: Array, v: Array, t: Array, params: Any) -> Float[Array, " n"]:
        return matvec(self.matrix(q, t, params), v)

    def speed_rates(self, q: Array, v: Array, a: Array, t: Array, params: Any) -> Array:
        def speeds(q: Array, v: Array, t: Array) -> Array:
            return self.speeds(q, v, t, params)

        along = self.speeds(q, v, t, params), a, jnp.ones_like(t)
        return jax.jvp(speeds, (q, v, t), along)[1]

    def from_speeds(self, q: Array, speeds: Array, t: Array, params: Any) -> Float[Array, " k"]:
        T = self.matrix(q, t, params)
        factor = cholesky(T.T @ T)
        return factor.upper(factor.lower(matvec(T.T, speeds)))

    def rows(self, A: Float[Array, " m n"], q: Array, t: Array, params: Any) -> Array:
        return A @ self.matrix(q, t, params)

    def rows_of_speeds(self, A: Float[Array, " m k"], q: Array, t: Array, params: Any) -> Array:
        """Rows for u as rows for the rates of the coordinates, A T^+."""
        T = self.matrix(q, t, params)
        factor = cholesky(T.T @ T)
        return factor.lower(A.T).T @ factor.lower(T.T)

    def forces(self, Q: Float[Array, " n *m"], q: Array, t: Array, params: Any) -> Array:
        T = self.matrix(q, t, params)
        return matvec(T.T, Q) if Q.ndim == 1 else T.T @ Q

    def mass_and_force(
        self, M: Array, Q: Array, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Array, Array]:
        """T^T M T and T^T (Q - M (dT/dt) u), without the rows of states."""
        size = self.coordinates - self.states
        T = self.matrix(q, t, params)[:size, : self.velocities - self.states]
        change = self.speed_rates(q, v, jnp.zeros_like(v), t, params)[:size]
        return T.T @ M @ T, matvec(T.T, Q - matvec(M, change))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def checked_velocities(
    coordinates: tuple[str, ...],
    states: tuple[str, ...],
    velocities: Names,
    kinematics: Callable[..., Any] | None,
) -> tuple[str, ...]:
    """The names of the quasi-velocities as a tuple, or an error."""
    velocities = distinct_names("velocities", velocities)
    remedy = "name them, and give the function of the matrix that makes rates of the coordinates"
    require_both(remedy, ("velocities", bool(velocities)), ("kinematics", kinematics is not None))
    count = len(coordinates) - len(states)
    if len(velocities) > count:
        raise ValueError(
            f"Argument `velocities` must have at most {count} names, one for each coordinate, but "
            f"has {len(velocities)}; more velocities than coordinates depend on each other."
        )
    for name in velocities:
        if name in coordinates or name in states:
            raise ValueError(
                f"Argument `velocities` must not have the name of a coordinate or a state, but has "
                f"{name!r}; name it differently."
            )
    return velocities
