"""Digests of functions, equal if JAX traces them to the same operations on the same constants.

The first two derivatives count, too; names of functions, comments and paths of files do not.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.dry_friction import DryFriction
from jaxmech.system import Params, System
from jaxmech.unilateral import Unilateral
from jaxmech.utils.digests import jaxpr_texts, sha256
from jaxmech.utils.trees import as_dtype


def digest(fn: Callable[..., Any], *args: Any) -> str:
    """Compute the digest of a function, with its derivatives, for arguments of given types.

    Different versions of JAX yield different digests, since they trace to different operations.

    Example:
        >>> digest(lambda x: x + x, 1.0) == digest(lambda y: y + y, 2.0)
        True
    """
    arrays = jax.tree.map(jnp.asarray, args)
    floats, constants = eqx.partition(arrays, lambda x: jnp.issubdtype(x.dtype, jnp.floating))

    def rejoined(floats: Any, constants: Any) -> Any:
        return fn(*eqx.combine(floats, constants))

    jaxprs = [
        jax.make_jaxpr(rejoined)(floats, constants),
        *_derivatives(rejoined, floats, constants),
    ]
    return sha256(str(jax.tree.structure(arrays)), *jaxpr_texts(*jaxprs))


def system_digests(system: System, params: Params, dtype: Any = float) -> dict[str, str]:
    """The digest of each function of a system: "lagrangian", "force", "constraint <name>" ..."""
    dtype = jnp.result_type(dtype)
    q, t = np.zeros(system.n, dtype), np.zeros((), dtype)  # numpy, so that JAX compiles nothing
    u = np.zeros(system.n_velocities, dtype)
    params = as_dtype(params, dtype)
    state = (q, q, t, params)
    digests = {
        "coordinates": sha256(repr(tuple(system.coordinates))),
        "lagrangian": digest(system.lagrangian, *state),
    }
    if system.mass_and_force is not None:
        digests["mass_and_force"] = digest(system.mass_and_force, *state)
    if system.force is not None:
        digests["force"] = digest(system.force, *state)
    if system.nonideal is not None:
        at_rest = jax.tree.map(jnp.asarray, (q, u, t, params))
        forces = np.zeros(sum(system.dynamics.sizes(*at_rest)), dtype)
        digests["nonideal"] = digest(system.nonideal, q, q, forces, t, params)
    if system.rates is not None:
        digests["rates"] = digest(system.rates, *state)
    if system.sampling is not None:
        bare = (x[: x.size - system.held] for x in (q, u))
        starts = digest(system.sampling.controllers.completed, *bare)
        updates = digest(system.sampling.update, q, u, t, params)
        digests["controllers"] = sha256(repr(system.sampling.controllers), starts, updates)
    digests |= _of_quasi_velocities(system, q, u, t, params)
    for constraint in system.constraints:
        code = digest(constraint.residual, q, q, q, t, params)
        digests[f"constraint {constraint.name}"] = sha256(type(constraint).__name__, code)
    for inequality in system.unilateral:
        key = f"constraint {inequality.name}"
        if isinstance(inequality, DryFriction):
            digests[key] = _of_friction(inequality, q, t, params)
        else:
            digests[key] = _of_gap(inequality, q, t, params)
    return digests


def _of_gap(gap: Unilateral, q: Any, t: Any, params: Params) -> str:
    e = gap.restitution
    impacts = digest(e, params) if callable(e) else repr(e)
    return sha256("Unilateral", digest(gap.gap, q, t, params), impacts, repr(gap.rest_speed))


def _of_friction(friction: DryFriction, q: Any, t: Any, params: Params) -> str:
    limits = [
        digest(limit, params) if callable(limit) else repr(limit)
        for limit in (friction.static, friction.kinetic)
    ]
    velocity = digest(friction.velocity, q, q, t, params)
    return sha256("DryFriction", velocity, *limits, repr(friction.normal))


def _of_quasi_velocities(system: System, q: Any, u: Any, t: Any, params: Params) -> dict[str, str]:
    if system.kinematics is None:
        return {}
    digests = {
        "velocities": sha256(repr(system.velocities)),
        "kinematics": digest(system.kinematics, q, t, params),
    }
    if system.quasi_mass_and_force is not None:
        digests["quasi_mass_and_force"] = digest(system.quasi_mass_and_force, q, u, t, params)
    for invariant in system.invariants:
        digests[f"invariant {invariant.name}"] = digest(invariant.fn, q, t, params)
    return digests


def differing(stored: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """The names, in order, whose digests differ or exist in only one of the two."""
    return [name for name in {**current, **stored} if stored.get(name) != current.get(name)]


def _derivatives(function: Callable[..., Any], floats: Any, constants: Any) -> list[Any]:
    """The traced second derivative along a direction, else the reverse-mode gradient, if any."""

    def first(x: Any, along: Any, constants: Any) -> Any:
        return jax.jvp(lambda x: function(x, constants), (x,), (along,))

    def second(x: Any, along: Any, constants: Any) -> Any:
        return jax.jvp(lambda x, along: first(x, along, constants), (x, along), (along, along))

    def reverse(x: Any, constants: Any) -> Any:
        value, back = jax.vjp(lambda x: function(x, constants), x)
        return back(jax.tree.map(jnp.ones_like, value))

    for derivative, arguments in (
        (second, (floats, floats, constants)),
        (reverse, (floats, constants)),
    ):
        try:
            return [jax.make_jaxpr(derivative)(*arguments)]
        except (TypeError, ValueError, NotImplementedError):  # raised by JAX
            continue
    return []
