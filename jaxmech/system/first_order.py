"""States of first order, such as the current of a motor: numbers whose rates are given.

A state is the velocity of a coordinate of its own, which is its integral over time, as a charge is
that of a current. Its acceleration is the given rate, whatever forces and constraints act. So a
state is integrated, projected and differentiated like any velocity, with a unit mass, the rate as
its force, and a column of zeros in A.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.linalg import matvec
from jaxmech.utils.checks import distinct_names, require_both
from jaxmech.utils.units import Names


def checked_states(
    coordinates: tuple[str, ...], states: Names, rates: Callable[..., Any] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of all coordinates, the integrals of states last, and the names of the states."""
    states, remedy = distinct_names("states", states), "name them, and give their rates"
    require_both(remedy, ("states", bool(states)), ("rates", rates is not None))
    mixed = [name for name in states if name in coordinates]
    if mixed:
        raise ValueError(
            f"Argument `coordinates` must not have the names of states, but has {mixed[0]!r}; "
            "leave it out, since the states follow the velocities of the coordinates in v."
        )
    integrals = tuple(f"integral of {name}" for name in states)
    is_copy = coordinates[-len(states) :] == integrals  # of a system with its states
    return coordinates if is_copy else coordinates + integrals, states


def with_unit_mass(M: Float[Array, " k k"], states: int) -> Float[Array, " n n"]:
    """The mass matrix of the coordinates that are no integrals, with unit masses of the states."""
    if not states:
        return M
    across = jnp.zeros((len(M), states), M.dtype)
    lower = jnp.concatenate([across.T, jnp.eye(states, dtype=M.dtype)], axis=1)
    return jnp.concatenate([jnp.concatenate([M, across], axis=1), lower])


def padded(x: Float[Array, "*m k"], states: int) -> Float[Array, "*m n"]:
    """Numbers of the coordinates that are not states, with zeros for the states."""
    if not states:
        return x
    return jnp.concatenate([x, jnp.zeros((*x.shape[:-1], states), x.dtype)], axis=-1)


def without_states(A: Float[Array, "*m n"], states: int) -> Float[Array, "*m n"]:
    """Rows with zeros in the columns of the states."""
    return padded(A[..., : A.shape[-1] - states], states) if states else A


def moved_rows(
    A: Float[Array, " m n"], b: Float[Array, " m"], rates: Float[Array, " s"]
) -> tuple[Float[Array, " m n"], Float[Array, " m"]]:
    """The rows of A qdd = b with the known accelerations of the states on the right."""
    states = rates.size
    return without_states(A, states), b - matvec(A[:, A.shape[1] - states :], rates)
