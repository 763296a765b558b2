"""`Servo`: actuators that enforce a constraint, each in its own direction.

The reaction of an ideal constraint acts along its gradient, A^T lambda. An actuator acts along its
column of B instead. A constraint enforced in this way is a servo constraint (Beghin 1922; Appell):
its rows S qdd = s hold, but the rest of the system moves differently:

    M qdd = Q + A^T lambda + B u,    A qdd = b,    S qdd = s.

The accelerations are linear in u, qdd = qdd_0 + G u, so that S G u = s - S qdd_0 determines u.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.laws import UdwadiaKalaba
from jaxmech.linalg import matvec, min_norm_solve
from jaxmech.system import AbstractConstraint, Params, System, padded, with_mass_rank
from jaxmech.utils.checks import coordinate_indices, is_known, require_kind
from jaxmech.utils.jit_cache import jit_of

Actuators = Sequence[str] | Callable[..., Any]


@dataclass(frozen=True)
class Servo:
    """Actuators that enforce a constraint.

    If several u enforce it, the one of smallest Euclidean norm |u| acts; scale the columns of B for
    another norm. Only S qdd = s is enforced, so a `Holonomic` or `Nonholonomic` constraint drifts:
    use one with error feedback, `given_motion(..., approach=Baumgarte(...))`.

    Args:
        plant: the driven system, with its ideal constraints.
        constraint: the constraint to enforce, which is not one of the plant.
        actuators: names of the coordinates on which one generalized force each acts, or a function
            `B(q, t, params)`: the directions of the forces as columns, shape (n, k), without the
            rows of states.

    Raises:
        TypeError: if `plant` is not a `System`, `constraint` not a constraint, or `actuators` not a
            sequence.
        ValueError: if a name is not a coordinate, or the plant has a `nonideal` force.
    """

    plant: System
    constraint: AbstractConstraint
    actuators: Actuators

    def __post_init__(self) -> None:
        require_kind("plant", self.plant, System, "System(...)")
        require_kind("constraint", self.constraint, AbstractConstraint, "given_motion(...)")
        require_ideal("plant", self.plant)
        object.__setattr__(self, "actuators", checked_actuators(self.plant, self.actuators))

    @property
    def system(self) -> System:
        """The driven plant as a `System`, for `simulate`, `acceleration` and so on."""
        return replace(self.plant, force=self)

    def __call__(self, q: Array, v: Array, t: Array, params: Params) -> Array:
        """The non-conservative force on the driven plant, for the rates v of its coordinates.

        It includes B u, and has the shape (n,) without states of first order.
        """
        plant = self.plant.dynamics
        B = directions(self.plant, self.actuators, q, t, params)
        u = self.solved(q, plant.from_speeds(q, v, t, params), t, params)[0]
        force = matvec(B, u)[: plant.mechanical]
        return force if self.plant.force is None else force + self.plant.force(q, v, t, params)

    def inputs(self, q: Any, v: Any, t: Any = 0.0, params: Params = None) -> Float[Array, " k"]:
        """Compute the inputs of the actuators at a state.

        Args:
            q: coordinates, shape (n,).
            v: velocities of the plant, shape (n,), or its quasi-velocities.
            t: time [s].
            params: parameters.

        Returns:
            u, shape (k,).

        Raises:
            ValueError: if the actuators cannot enforce the constraint there. Under `jit` nothing is
                raised, and u is the least-squares solution.
        """
        u, missed, target = _inputs(self, *self.plant.arguments(q, v, t, params))
        if is_known((u, missed)):
            tolerance = float(jnp.finfo(u.dtype).eps) ** 0.5
            if np.max(np.abs(missed)) > tolerance * (1 + np.max(np.abs(target))):
                raise ValueError(
                    f"The actuators cannot enforce constraint {self.constraint.name!r} at "
                    f"t = {float(t):g}: its accelerations are missed by "
                    f"{np.max(np.abs(missed)):.3g}; they must act on what it constrains, directly "
                    "or through the constraints and the masses."
                )
        return u

    def solved(self, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, Array, Array]:
        """Solve for u (k,); also the error S qdd - s and the required change s - S qdd_0."""
        plant = self.plant.dynamics
        eom = with_mass_rank(self.plant, q, v, t, params).dynamics.at(q, v, t, params)
        B = directions(self.plant, self.actuators, q, t, params)
        B = plant.kinematics.forces(B, q, t, params)
        S, s = plant.rows_of(self.constraint, q, v, t, params)

        def accelerations(u: Array) -> Array:
            driven = replace(eom, Q=eom.Q + matvec(B, u))
            return UdwadiaKalaba().solve(driven).qdd

        zeros = jnp.zeros(B.shape[1], q.dtype)
        G = jax.jacfwd(accelerations)(zeros)
        change = s - matvec(S, accelerations(zeros))
        u = min_norm_solve(_without_noise(S, G), change)
        return u, matvec(S, matvec(G, u)) - change, change


@jit_of("servo")
def _inputs(
    servo: Servo, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array, Array]:
    return servo.solved(q, v, t, params)


def _without_noise(S: Array, G: Array) -> Array:
    """S G, with zeros for entries in which all terms cancel up to round-off."""
    products = S[:, :, None] * G[None, :, :]
    SG, terms = products.sum(1), jnp.abs(products).sum(1)
    return jnp.where(jnp.abs(SG) > float(jnp.finfo(SG.dtype).eps) ** (2 / 3) * terms, SG, 0.0)


def require_ideal(argument: str, system: System) -> None:
    """Raise a ValueError for a `nonideal` force."""
    if system.nonideal is not None:
        raise ValueError(
            f"Argument `{argument}` must have ideal constraints, but has a `nonideal` force; write "
            "what does not depend on the multipliers as `force`."
        )


def checked_actuators(plant: System, actuators: Any) -> Actuators:
    """Check actuators, and return names as a tuple, or the function."""
    if callable(actuators):
        return actuators
    if isinstance(actuators, str) or not isinstance(actuators, Sequence):
        raise TypeError(
            "Argument `actuators` must be a sequence of coordinates or a function B(q, t, params), "
            f"but is {actuators!r}; write [name] for a single coordinate."
        )
    coordinate_indices("actuators", actuators, plant.coordinates[: plant.dynamics.mechanical])
    return tuple(actuators)


def directions(
    plant: System, actuators: Actuators, q: Array, t: Array, params: Params
) -> Float[Array, " n k"]:
    """The matrix B, whose columns are the directions of the actuators; zero for states."""
    mechanical = plant.dynamics.mechanical
    if not callable(actuators):
        columns = coordinate_indices("actuators", actuators, plant.coordinates)
        return jnp.asarray(np.eye(plant.n)[:, columns], q.dtype)
    B = jnp.asarray(actuators(q, t, params))
    if B.ndim != 2 or B.shape[0] != mechanical:
        raise ValueError(
            f"The value of `actuators` must have shape ({mechanical}, k), one column per actuator, "
            f"but has shape {B.shape}."
        )
    return padded(B.T, plant.n - mechanical).T.astype(q.dtype)
