"""`inverse_dynamics`: the actuator inputs that make a constrained system follow a given path.

Along a path q(t) the accelerations are known, and

    M qdd - Q = A^T lambda + B u

is linear in the unknowns: the multipliers of the ideal constraints and the inputs u of actuators
with the directions B. With P the projector that removes the range of constraint forces, u solves
P B u = P (M qdd - Q), and the constraints carry the rest. Forces are measured in the metric of
M^-1, by the accelerations that they cause.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.linalg import QR, cholesky, matvec, min_norm_solve
from jaxmech.state import metric_mass
from jaxmech.system import (
    Params,
    Subject,
    System,
    extents_at,
    near,
    on_constraints,
    with_mass_rank,
    with_params,
)
from jaxmech.utils.checks import (
    coordinate_indices,
    is_known,
    naming_missing,
    require_finite,
    require_function,
)
from jaxmech.utils.jit_cache import jit_of

Actuators = Sequence[str] | Callable[..., Any]


class InverseDynamics(eqx.Module):
    """The forces along a path: M qdd = Q + A^T lambda + B u + missing.

    The result of `inverse_dynamics`.

    Attributes:
        ts: times [s], shape (T,).
        q: coordinates on the path, shape (T, n).
        v: velocities on it, shape (T, n).
        qdd: accelerations on it, shape (T, n).
        u: inputs of the actuators, shape (T, k), of minimum norm if there are several solutions.
        actuator_force: B u, shape (T, n).
        constraint_force: A^T lambda, shape (T, n).
        multipliers: lambda, of minimum norm if there are several solutions, shape (T, m).
        missing: the generalized force that actuators and constraints cannot produce, shape (T, n).
        missed: the error of the accelerations without that force, M^-1 missing, shape (T, n).
        residual: sqrt(missing M^-1 missing), shape (T,), in sqrt(kg) m/s^2 for Cartesian
            coordinates.
        consistent: whether the path satisfies all constraints, shape (T,).
        followed: whether `missing` is zero to round-off, shape (T,).
    """

    ts: Float[Array, " *T"]
    q: Float[Array, " *T n"]
    v: Float[Array, " *T n"]
    qdd: Float[Array, " *T n"]
    u: Float[Array, " *T k"]
    actuator_force: Float[Array, " *T n"]
    constraint_force: Float[Array, " *T n"]
    multipliers: Float[Array, " *T m"]
    missing: Float[Array, " *T n"]
    missed: Float[Array, " *T n"]
    residual: Float[Array, " *T"]
    consistent: Bool[Array, " *T"]
    followed: Bool[Array, " *T"]


def inverse_dynamics(
    system: Subject,
    path: Callable[..., Any],
    ts: Any,
    params: Params = None,
    *,
    actuators: Actuators,
    throw: bool = True,
) -> InverseDynamics:
    """Compute the inputs of actuators that make a constrained system follow a path.

    With as many actuators as degrees of freedom u is unique. With more, it is the one of smallest
    Euclidean norm |u| at every time (scale the columns of B for another norm). With fewer, only
    some paths can be followed; for the others u is the least-squares solution in the metric of
    M^-1, and `missing` its residual. Pure: it can be vectorized over and differentiated with
    respect to parameters.

    Args:
        system: the system, with n coordinates and m ideal constraint equations.
        path: `path(t, params)`, the coordinates q, shape (n,); twice differentiable, and consistent
            with the constraints.
        ts: times [s], shape (T,).
        params: the parameters of the system and the path.
        actuators: names of the coordinates on which one generalized force each acts, or a function
            `B(q, t, params)`: the directions of the forces as columns, shape (n, k).
        throw: whether to raise for a path that cannot be followed; never under `jit` or `vmap`.

    Raises:
        TypeError: if `system` is not a `System` or `path` not a function.
        ValueError: if a shape is wrong, or if the path violates a constraint or cannot be followed
            and `throw` is set.

    Example:
        >>> from jaxmech import models
        >>> model = models.double_pendulum_angles()
        >>> held = inverse_dynamics(
        ...     model.system,
        ...     lambda t, p: jnp.array([jnp.pi / 2, 0.0]),
        ...     [0.0, 1.0],
        ...     model.params,
        ...     actuators=model.system.coordinates,
        ... )
        >>> print((held.u / 9.81).round(6)[0])  # both rods level: torques m g (1 + 2) l and m g l
        [3. 1.]
    """
    system, params = with_params(system, params)
    system.require_smooth()
    system = system.in_rates(params)
    require_ideal("system", system)
    system.require_no_states("their rates do not follow from a path")
    require_function("path", path)
    if not callable(actuators):
        if isinstance(actuators, str) or not isinstance(actuators, Sequence):
            raise TypeError(
                "Argument `actuators` must be a sequence of coordinates or a function "
                f"B(q, t, params), but is {actuators!r}; write [name] for a single coordinate."
            )
        coordinate_indices("actuators", actuators, system.coordinates)
        actuators = tuple(actuators)
    ts = jnp.asarray(ts, float)
    if ts.ndim != 1:
        raise ValueError(f"Argument `ts` must have shape (T,), but has shape {ts.shape}.")
    require_finite(ts=ts, params=params)
    result = _along(system, path, actuators, ts, params)
    if throw and is_known(result):
        _require_followed(system, result)
    return result


@jit_of("system", "path", "actuators")
def _along(
    system: System, path: Callable[..., Any], actuators: Actuators, ts: Array, params: Params
) -> InverseDynamics:
    return jax.vmap(partial(_at, system, path, actuators, params))(ts)


def _at(
    system: System, path: Callable[..., Any], actuators: Actuators, params: Params, t: Array
) -> InverseDynamics:
    def pose_at(t: Array) -> Array:
        with naming_missing("`path`", params):
            q = jnp.asarray(path(t, params))
        return system.arguments(q, q, t, params, ("path(t, params)", "v"))[0]

    def speed(t: Array) -> Array:
        return jax.jvp(pose_at, (t,), (jnp.ones_like(t),))[1]

    v, qdd = jax.jvp(speed, (t,), (jnp.ones_like(t),))
    q, v, t, params = system.arguments(pose_at(t), v, t, params)
    eom = system.dynamics.at(q, v, t, params)
    if not callable(actuators):
        columns = coordinate_indices("actuators", actuators, system.coordinates)
        B = jnp.asarray(np.eye(system.n)[:, columns], q.dtype)
    else:
        B = jnp.asarray(actuators(q, t, params), q.dtype)
        if B.ndim != 2 or B.shape[0] != system.n:
            raise ValueError(
                f"The value of `actuators` must have shape ({system.n}, k), one column per "
                f"actuator, but has shape {B.shape}."
            )
    root = cholesky(metric_mass(with_mass_rank(system, q, v, t, params), q, v, t, params))
    need = matvec(eom.M, qdd) - eom.Q
    carried, pushed = root.lower(eom.A.T), root.lower(B)
    u = min_norm_solve(_complement(carried, pushed), root.lower(need))
    remainder = need - matvec(B, u)
    multipliers = min_norm_solve(carried, root.lower(remainder))
    missing = remainder - matvec(eom.A.T, multipliers)
    residual = jnp.linalg.norm(root.lower(missing))
    extents = extents_at(system, q, v, t, params)
    consistent = on_constraints(system, q, v, t, params, extents)
    consistent &= near(matvec(eom.A, qdd) - eom.b, eom.A, q, extents, rates=qdd)
    at_play = jnp.linalg.norm(root.lower(eom.Q)) + jnp.linalg.norm(root.lower(matvec(eom.M, qdd)))
    return InverseDynamics(
        ts=t,
        q=q,
        v=v,
        qdd=qdd,
        u=u,
        actuator_force=matvec(B, u),
        constraint_force=matvec(eom.A.T, multipliers),
        multipliers=multipliers,
        missing=missing,
        missed=root.upper(root.lower(missing)),
        residual=residual,
        consistent=consistent,
        followed=residual <= float(jnp.finfo(q.dtype).eps) ** 0.5 * at_play,
    )


def _complement(carried: Array, pushed: Array) -> Array:
    """The columns of `pushed`, projected onto the complement of the span of `carried`."""
    U = QR().factor(carried.T).U

    def column(x: Array) -> Array:
        # Twice, since one projection leaves round-off along U; entries that small are then zero.
        remainder = x - matvec(U.T, matvec(U, x))
        remainder = remainder - matvec(U.T, matvec(U, remainder))
        least = float(jnp.finfo(x.dtype).eps) ** (4 / 3) * (x * x).sum()
        return jnp.where((remainder * remainder).sum() > least, remainder, 0.0)

    return jnp.stack([column(x) for x in pushed.T], axis=1) if pushed.shape[1] else pushed


def _require_followed(system: System, result: InverseDynamics) -> None:
    for k in np.flatnonzero(~np.asarray(result.consistent))[:1]:
        raise ValueError(
            "Argument `path` must satisfy the constraints and their rates, but does not at "
            f"t = {float(result.ts[k]):g}; correct the path, or pass throw=False."
        )
    for k in np.flatnonzero(~np.asarray(result.followed))[:1]:
        missed = np.asarray(result.missed[k])
        worst = int(np.argmax(np.abs(missed)))
        raise ValueError(
            f"The actuators cannot produce the path at t = {float(result.ts[k]):g}: with "
            f"the best inputs, the acceleration of {system.coordinates[worst]!r} is missed by "
            f"{missed[worst]:.3g}; add an actuator, change the path, or pass throw=False."
        )


def require_ideal(argument: str, system: System) -> None:
    """Raise a ValueError for a `nonideal` force."""
    if system.nonideal is not None:
        raise ValueError(
            f"Argument `{argument}` must have ideal constraints, but has a `nonideal` force; write "
            "what does not depend on the multipliers as `force`."
        )
