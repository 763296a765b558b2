"""The degrees of freedom that the constraints leave, and whether a state is regular."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.stability.balance import held_integrals
from jaxmech.analysis.stability.reduction import Freedom
from jaxmech.analysis.states import State
from jaxmech.compiler import native_call
from jaxmech.consistency import constraint_jacobians, violations
from jaxmech.constraints import Acceleration
from jaxmech.linalg import unit
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import cached_by_shapes, generic, outside_traces
from jaxmech.utils.tracers import actual

SAMPLES = 4  # number of batch members whose ranks are counted
ASIDE = 1e-3  # relative distance of the states with which a pose is compared


def require_consistent(system: System, state: State) -> None:
    """Raise a ValueError that names a constraint violated by a known state."""
    for violation in violations(system, *state):
        raise ValueError(
            f"Arguments `q` and `v` must meet the constraints, but {violation.name!r} has a "
            f"{violation.level} residual of {violation.size:.3g}; `assemble` them first."
        )


def freedom_at(system: System, state: State) -> Freedom:
    """The numbers of positions, velocities and accelerations that the constraints leave free.

    They are counted at the state, or at members of the batch under `jax.vmap`; under `jit`, where
    values are unknown, at generic arguments.
    """
    members = actual(state, SAMPLES)
    if members is None:
        return _generic_freedom(system, *state)
    leaves, structure = jax.tree.flatten(members)
    states = [jax.tree.unflatten(structure, x) for x in zip(*map(jnp.asarray, leaves), strict=True)]
    return min(_freedom(_rows(system, *member)) for member in states)


def require_regular(system: System, state: State, freedom: Freedom) -> None:
    """Raise a ValueError where the rank of the constraints is smaller than at states nearby."""
    q, v, t, params = state
    A_p, A_v, _ = map(np.asarray, _rows(system, *state))
    if not freedom[0] or not A_v.shape[0]:
        return
    draw = np.random.default_rng(3)
    for _ in range(2):
        change = draw.uniform(-1, 1, system.n) * (1 + np.abs(np.asarray(q)))
        change = change - np.linalg.pinv(A_p, rcond=1e-6) @ (A_p @ change)
        moved = _rows(system, q + ASIDE * jnp.asarray(change, q.dtype), v, t, params)
        for level, A, freedom_rows in zip(
            ("positions", "velocities"), moved[:2], freedom[:2], strict=True
        ):
            # Singular values that vanish in a singular pose are of the order of ASIDE at this
            # distance from it.
            rank = int((_singular_values(A) > 0.03 * ASIDE).sum())
            if rank > system.n - freedom_rows:
                raise ValueError(
                    "Argument `q` must not be a singular pose, but the constraints on "
                    f"{level} have rank {system.n - freedom_rows} there and {rank} nearby; move "
                    "away from it, to where the degrees of freedom are well defined."
                )


@jit_of("system", is_frame=True, is_finite=True)
def _rows(system: System, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, ...]:
    state = q, v, t, params
    return native_call(partial(_rows_at, system), *state)


def _rows_at(system: System, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, ...]:
    """The rows of the constraints on positions, velocities and accelerations."""
    A_p, A_v = constraint_jacobians(system, q, v, t, params)
    A_p = jnp.concatenate([A_p, held_integrals(system, q, v, t, params)])
    servo = [c.rows(q, v, t, params)[0] for c in system.constraints if isinstance(c, Acceleration)]
    return A_p, A_v, jnp.concatenate([A_v, *servo])


def _singular_values(rows: Any) -> np.ndarray:
    rows, lengths = unit(np.asarray(rows))
    return np.linalg.svd(rows[lengths > 0], compute_uv=False)


def _freedom(rows: tuple[Any, ...]) -> Freedom:
    n = rows[0].shape[1]
    tolerance = float(jnp.finfo(rows[0].dtype).eps) ** 0.5
    ranks = [int((_singular_values(A) > tolerance).sum()) for A in rows]
    return n - ranks[0], n - ranks[1], n - ranks[2]


@cached_by_shapes
def _generic_freedom(system: System, q: Array, v: Array, t: Array, params: Params) -> Freedom:
    rows = outside_traces(_rows, system, *generic((q, v, t, params), seed=21))
    if rows is None:
        raise ValueError(
            "Argument `freedom` must be given here, since the functions of the system close over "
            "values that are being traced; pass (positions, velocities, accelerations), as "
            "`structure` counts."
        )
    return _freedom(rows)
