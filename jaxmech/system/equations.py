"""Equations of motion from a Lagrangian and constraints, by automatic differentiation.

    M = d2L/dv2,    Q = dL/dq - (d2L/dv dq) v - d2L/dv dt + F

so that without constraints M a = Q. With the constraints A qdd = b and their multipliers,

    M qdd = Q + A^T lambda,    A qdd = b

(Lagrange's equations of the first kind; Kalaba, Udwadia, Xu and Itiki 1995, equation (1)).
A^T lambda is the force of the constraints on the system.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.compiler import jacobian
from jaxmech.system.constraints import AbstractConstraint, Holonomic, Nonholonomic
from jaxmech.system.first_order import moved_rows, padded, with_unit_mass, without_states
from jaxmech.system.quasi_velocities import Rates
from jaxmech.utils.checks import naming_missing, stacked, with_shape, with_standard_promotion
from jaxmech.utils.jit_cache import traced_once

# Whether M lacks full rank; if it does, also the rows of A that compensate for it, if known.
SingularMass: TypeAlias = bool | tuple[int, ...]
# The gradients dL/dq and dL/dv, (n,) each, of a Lagrangian at q, v and t; the velocities may be
# quasi-velocities, the gradients are those by coordinates and their rates.
Slopes: TypeAlias = Callable[[Array, Array, Array], tuple[Array, Array]]


class EquationsOfMotion(eqx.Module):
    """The equations at one state: M a = Q without the constraints, and the constraints A a = b.

    The result of `System.equations`, see `System`.

    Attributes:
        M: mass matrix, shape (n, n).
        Q: generalized force, shape (n,).
        A: constraint matrix, shape (m, n), rows in the order of the system's constraints.
        b: right-hand side, shape (m,).
        singular_mass: whether M lacks full rank, or the rows of A that compensate for it.
    """

    M: Float[Array, " n n"]
    Q: Float[Array, " n"]
    A: Float[Array, " m n"]
    b: Float[Array, " m"]
    singular_mass: SingularMass = eqx.field(static=True, default=False)


def mass_matrix(slopes: Slopes, q: Array, v: Array, t: Array) -> Float[Array, " n k"]:
    """The mass matrix M = d2L/dv2 (n, n); with k quasi-velocities M T (n, k)."""
    return jacobian(lambda v: slopes(q, v, t)[1], v)


def generalized_force(
    slopes: Slopes, q: Array, v: Array, t: Array, change: Array | None = None,
    speeds: Array | None = None,
) -> Float[Array, " n"]:  # fmt: skip
    """The generalized force Q (n,), without the non-conservative one.

    `change` has the accelerations of velocities that are given functions of time. With
    quasi-velocities the `speeds` (n,) are the rates of the coordinates, and the force is that of
    the coordinates for constant velocities, Q - M (dT/dt) u.
    """
    along = v if speeds is None else speeds, jnp.ones_like(t)
    transported = jax.jvp(lambda q, t: slopes(q, v, t)[1], (q, t), along)[1]
    if change is not None:
        transported = transported + jax.jvp(lambda v: slopes(q, v, t)[1], (v,), (change,))[1]
    return slopes(q, v, t)[0] - transported


def lagrange_equations(
    slopes: Slopes, q: Array, v: Array, t: Array, speeds: Array | None = None
) -> tuple[Float[Array, " n k"], Float[Array, " n"]]:
    """M and Q by derivatives, as of `mass_matrix` and `generalized_force`."""
    return mass_matrix(slopes, q, v, t), generalized_force(slopes, q, v, t, speeds=speeds)


@dataclass(frozen=True)
class Dynamics:
    """The equations of motion of a system as functions of its state (q, v, t, params).

    It is what laws of motion, methods and analyses see of a `System`. The functions of the user
    take the rates of the coordinates, dq/dt = T v, and know nothing of the rows and columns of
    states of first order; here they become functions of v, and get those rows and columns.

    Attributes:
        kinematics: T, the identity unless v are quasi-velocities.
        n: number of coordinates, integrals of states included.
        n_velocities: number of velocities, states included.
        states: the names of the states of first order, the last entries of v.
        constraints: those of the system, as functions of v.
        singular_mass: whether M lacks full rank, or the rows of A that compensate for it.
    """

    lagrangian: Callable[..., Array]
    force: Callable[..., Array] | None
    nonideal: Callable[..., Array] | None
    mass_and_force: Callable[..., tuple[Array, Array]] | None
    quasi_mass_and_force: Callable[..., tuple[Array, Array]] | None
    rates: Callable[..., Array] | None
    kinematics: Rates
    n: int
    n_velocities: int
    states: tuple[str, ...]
    constraints: tuple[AbstractConstraint, ...]
    singular_mass: SingularMass

    @property
    def n_states(self) -> int:
        """The number of states of first order."""
        return len(self.states)

    @property
    def mechanical(self) -> int:
        """The number of coordinates that are no integrals of states, which come after them."""
        return self.n - self.n_states

    def without_states(self, x: Float[Array, "*m n"]) -> Float[Array, "*m n"]:
        """Numbers of coordinates or velocities, such as rows of A, with zeros for the states."""
        return without_states(x, self.n_states)

    @property
    def mechanical_velocities(self) -> int:
        """The number of velocities that are no states, which come after them."""
        return self.n_velocities - self.n_states

    @with_standard_promotion
    def at(self, q: Array, v: Array, t: Array, params: Any) -> EquationsOfMotion:
        """M, Q, A and b at a state."""
        Q = self.conservative_force(q, v, t, params)
        if self.force is not None:
            Q = Q + self.applied_force(q, v, t, params)
        rows = [c.rows(q, v, t, params) for c in self.constraints]
        A = _matrix([A for A, _ in rows], v)
        b = stacked([b for _, b in rows], q.dtype)
        if self.states:
            A, b = moved_rows(A, b, self.state_rates(q, v, t, params))
        return EquationsOfMotion(self.mass(q, v, t, params), Q, A, b, self.singular_mass)

    def nonideal_force(
        self, q: Array, v: Array, multipliers: Array, t: Array, params: Any
    ) -> Array:
        """The force C for given multipliers (m,), shape (n,); zero if ideal."""
        if self.nonideal is None:
            return jnp.zeros_like(v)
        speeds = self.speeds(q, v, t, params)
        with naming_missing("`nonideal`", params):
            C = self.nonideal(q, speeds, multipliers, t, params)
        C = self._forces("The value of `nonideal`", C).astype(q.dtype)
        return self.kinematics.forces(C, q, t, params)

    @traced_once
    def mass(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The mass matrix M = d2L/dv2 at a state, (n, n); with quasi-velocities T^T M T (k, k)."""
        if self._has_recursion:
            return self._mass_and_force(q, v, t, params)[0]
        M = mass_matrix(lambda *state: self.slopes(*state, params), q, v, t)
        M = self.kinematics.forces(M, q, t, params)
        M = M[: self.mechanical_velocities, : self.mechanical_velocities]
        return with_unit_mass(M, self.n_states)

    @traced_once
    def conservative_force(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The generalized force of the Lagrangian, without `force`, and rates of states, (n,).

        With quasi-velocities T^T (Q - M (dT/dt) u), (k,).
        """
        if self._has_recursion:
            return self._mass_and_force(q, v, t, params)[1]

        def slopes(*state: Array) -> tuple[Array, Array]:
            return self.slopes(*state, params)

        speeds = self.speeds(q, v, t, params)
        if not self.states:
            Q = generalized_force(slopes, q, v, t, speeds=speeds)
            return self.kinematics.forces(Q, q, t, params)
        rates, mechanical = self.state_rates(q, v, t, params), self.mechanical_velocities
        change = jnp.concatenate([jnp.zeros(mechanical, q.dtype), rates])
        Q = generalized_force(slopes, q, v, t, change, speeds)
        Q = self.kinematics.forces(Q, q, t, params)
        return jnp.concatenate([Q[:mechanical], rates])

    def energy(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The energy v . dL/dv - L at a state [J], a scalar."""
        speeds = self.speeds(q, v, t, params)
        directions = self.without_states(speeds)
        value, along = jax.jvp(
            lambda rates: self.lagrangian_value(q, rates, t, params), (speeds,), (directions,)
        )
        return along - value

    def speeds(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The rates of the coordinates, (n,): v itself, or T v for quasi-velocities."""
        return self.kinematics.speeds(q, v, t, params)

    def speed_rates(self, q: Array, v: Array, a: Array, t: Array, params: Any) -> Array:
        """The accelerations of the coordinates, (n,), for those of the velocities."""
        return self.kinematics.speed_rates(q, v, a, t, params)

    def from_speeds(self, q: Array, speeds: Array, t: Array, params: Any) -> Array:
        """The velocities whose rates of the coordinates are nearest to the given ones."""
        return self.kinematics.from_speeds(q, speeds, t, params)

    @traced_once
    def position_level(self, q: Array, t: Array, params: Any) -> Array:
        """The residuals phi of the holonomic constraints, (k,)."""
        return stacked([c.value(q, t, params) for c in self._holonomic], q.dtype)

    def position_jacobian(self, q: Array, t: Array, params: Any) -> Array:
        """The Jacobian of the position level with respect to q, (k, n)."""
        return self.without_states(_matrix([c.jacobian(q, t, params) for c in self._holonomic], q))

    @traced_once
    def velocity_level(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The residuals dphi/dt and psi, in the order of the constraints, (k,)."""

        def value(constraint: Holonomic | Nonholonomic) -> Array:
            if isinstance(constraint, Nonholonomic):
                return constraint.value(q, v, t, params)
            return constraint.speed(q, v, t, params)

        return stacked([value(c) for c in self._of_velocities], q.dtype)

    def velocity_jacobian(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The Jacobian of the velocity level with respect to v, shape (l, n) or (l, k)."""
        return self.without_states(self._rows_of(self._of_velocities, q, v, t, params))

    def jacobians(self, q: Array, v: Array, t: Array, params: Any) -> tuple[Array, Array]:
        """The Jacobians d(position level)/dq and d(velocity level)/dv, (k, n) and (l, n).

        With quasi-velocities the first one is that by displacements du, dq = T du.
        """
        A_velocity = self.velocity_jacobian(q, v, t, params)
        if not any(isinstance(c, Nonholonomic) for c in self.constraints):
            return A_velocity, A_velocity
        A_position = self.position_jacobian(q, t, params)
        return self.kinematics.rows(A_position, q, t, params), A_velocity

    def rows(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The constraint matrix A, (m, n) or (m, k)."""
        return self._rows_of(self.constraints, q, v, t, params)

    def _rows_of(
        self, constraints: Sequence[AbstractConstraint], q: Array, v: Array, t: Array, params: Any
    ) -> Array:
        def rows_of(constraint: AbstractConstraint) -> Array:
            if isinstance(constraint, Holonomic):
                return constraint.velocity_jacobian(q, t, params)
            if isinstance(constraint, Nonholonomic):
                return constraint.jacobian(q, v, t, params)
            return constraint.rows(q, v, t, params)[0]

        return _matrix([rows_of(c) for c in constraints], v)

    def sizes(self, q: Array, v: Array, t: Array, params: Any) -> tuple[int, ...]:
        """The number of equations of each constraint."""
        residuals = jax.eval_shape(
            lambda *state: [c.residual(q, v, v, *state) for c in self.constraints], t, params
        )
        return tuple(residual.shape[0] for residual in residuals)

    def sizes_of_levels(
        self, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The number of equations of each constraint on the positions, and on the velocities."""
        pairs = list(zip(self.constraints, self.sizes(q, v, t, params), strict=True))
        return (
            tuple(size for c, size in pairs if isinstance(c, Holonomic)),
            tuple(size for c, size in pairs if isinstance(c, Holonomic | Nonholonomic)),
        )

    def applied_force(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The value of `force` at a state, shape (n,), or (k,); zero without one."""
        if self.force is None:
            return jnp.zeros_like(v)
        speeds = self.speeds(q, v, t, params)
        with naming_missing("`force`", params):
            F = self._forces("The value of `force`", self.force(q, speeds, t, params))
        return self.kinematics.forces(F.astype(q.dtype), q, t, params)

    @traced_once
    def state_rates(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The rates of the states of first order, shape (s,)."""
        if self.rates is None:
            return jnp.zeros(0, q.dtype)
        speeds = self.speeds(q, v, t, params)
        with naming_missing("`rates`", params):
            rates = self.rates(q, speeds, t, params)
            if np.shape(rates) == () and rates is not None:
                rates = jnp.asarray(rates)[None]
            need = "one number per state"
            rates = with_shape("The value of `rates`", rates, (self.n_states,), need=need)
        return rates.astype(q.dtype)

    @property
    def _holonomic(self) -> list[Holonomic]:
        return [c for c in self.constraints if isinstance(c, Holonomic)]

    @property
    def _of_velocities(self) -> list[Holonomic | Nonholonomic]:
        return [c for c in self.constraints if isinstance(c, Holonomic | Nonholonomic)]

    def _forces(self, source: str, value: Any) -> Array:
        """Check the shape of generalized forces, and add zeros for the states."""
        shape = (self.mechanical,)
        if self.states and np.shape(value) == (self.n,):
            raise ValueError(
                f"{source} must have shape {shape}, without the states {', '.join(self.states)}, "
                f"but has shape {np.shape(value)}."
            )
        return padded(with_shape(source, value, shape), self.n_states)

    @traced_once
    def _mass_and_force(self, q: Array, v: Array, t: Array, params: Any) -> tuple[Array, Array]:
        """M and Q by the functions of them, with the unit masses and the rates of states."""
        if self.quasi_mass_and_force is not None:
            fn, size = self.quasi_mass_and_force, self.mechanical_velocities
            M, Q = _mass_and_force_of(fn, "`quasi_mass_and_force`", size, q, v, t, params)
            return self._with_states(M, Q, q, v, t, params)
        assert self.mass_and_force is not None
        state = q, self.speeds(q, v, t, params), t, params
        M, Q = _mass_and_force_of(self.mass_and_force, "`mass_and_force`", self.mechanical, *state)
        return self.of_velocities(M, Q, q, v, t, params)

    def of_velocities(
        self, M: Array, Q: Array, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Array, Array]:
        """M and Q of the coordinates that are no integrals of states as those of v."""
        M, Q = self.kinematics.mass_and_force(M, Q, q, v, t, params)
        return self._with_states(M, Q, q, v, t, params)

    def _with_states(
        self, M: Array, Q: Array, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Array, Array]:
        """M and Q with the unit masses and the rates of states."""
        if self.states:
            M = with_unit_mass(M, self.n_states)
            Q = jnp.concatenate([Q, self.state_rates(q, v, t, params)])
        return M.astype(q.dtype), Q.astype(q.dtype)

    @property
    def _has_recursion(self) -> bool:
        return self.mass_and_force is not None or self.quasi_mass_and_force is not None

    @traced_once
    def slopes(self, q: Array, v: Array, t: Array, params: Any) -> tuple[Array, Array]:
        """The gradients dL/dq and dL/dv at a state, by coordinates and their rates."""
        speeds = self.speeds(q, v, t, params)
        return jax.grad(self.lagrangian_value, argnums=(0, 1))(q, speeds, t, params)

    @traced_once
    def lagrangian_value(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The value of the Lagrangian, for the rates v of the coordinates."""
        with naming_missing("`lagrangian`", params):
            value = with_shape("The value of `lagrangian`", self.lagrangian(q, v, t, params), ())
        return value.astype(q.dtype)

    def mechanical_lagrangian(
        self, q: Array, v: Array, t: Array, params: Any
    ) -> Callable[[Array, Array, Array], Array]:
        """L(q, dq/dt, t) of the coordinates that are no integrals of states.

        The states and their integrals are functions of time there, with their rates at this state.
        """
        first, states = self.mechanical, v[self.mechanical_velocities :]
        rates, integrals = self.state_rates(q, v, t, params), q[first:]

        def lagrangian(x: Array, speeds: Array, time: Array) -> Array:
            ahead = time - t
            x = jnp.concatenate([x, integrals + ahead * states])
            speeds = jnp.concatenate([speeds, states + ahead * rates])
            return self.lagrangian_value(x, speeds, time, params)

        return lagrangian

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _matrix(rows: Sequence[Array], x: Array) -> Array:
    return jnp.concatenate([jnp.zeros((0, x.size), x.dtype), *rows])


def _mass_and_force_of(
    fn: Callable[..., tuple[Array, Array]], name: str, size: int, *state: Any
) -> tuple[Array, Array]:
    """M and Q by a function of the user, with their shapes checked."""
    with naming_missing(name, state[-1]):
        M, Q = fn(*state)
    M = with_shape(f"The matrix of {name}", M, (size, size), need="rows of coordinates")
    return M, with_shape(f"The force of {name}", Q, (size,))
