"""Digests of functions, equal if JAX traces them to the same operations on the same constants.

The first two derivatives count, too; names of functions, comments and paths of files do not.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.system import Params, System, as_dtype
from jaxmech.utils.digests import jaxpr_texts, sha256


def digest(fn: Callable[..., Any], *args: Any) -> str:
    """Compute the digest of a function, with its derivatives, for arguments of given types.

    Different versions of JAX yield different digests, since they trace to different operations.

    Example:
        >>> digest(lambda x: x + x, 1.0) == digest(lambda y: y + y, 2.0)
        True
    """
    arrays = jax.tree.map(jnp.asarray, args)
    numbers, others = eqx.partition(arrays, lambda x: jnp.issubdtype(x.dtype, jnp.floating))

    def of(numbers: Any, others: Any) -> Any:
        return fn(*eqx.combine(numbers, others))

    jaxprs = [jax.make_jaxpr(of)(numbers, others), *_derivatives(of, numbers, others)]
    return sha256(str(jax.tree.structure(arrays)), *jaxpr_texts(*jaxprs))


def system_digests(system: System, params: Params, dtype: Any = float) -> dict[str, str]:
    """The digest of each function of a system: "lagrangian", "force", "constraint <name>" ..."""
    dtype = jnp.result_type(dtype)
    q, t = np.zeros(system.n, dtype), np.zeros((), dtype)  # numpy, so that JAX compiles nothing
    params = as_dtype(params, dtype)
    state = (q, q, t, params)
    found = {
        "coordinates": sha256(repr(tuple(system.coordinates))),
        "lagrangian": digest(system.lagrangian, *state),
    }
    if system.mass_and_force is not None:
        found["mass_and_force"] = digest(system.mass_and_force, *state)
    if system.force is not None:
        found["force"] = digest(system.force, *state)
    if system.nonideal is not None:
        forces = np.zeros(sum(system.sizes(*jax.tree.map(jnp.asarray, state))), dtype)
        found["nonideal"] = digest(system.nonideal, q, q, forces, t, params)
    if system.rates is not None:
        found["rates"] = digest(system.rates, *state)
    for constraint in system.constraints:
        code = digest(constraint.residual, q, q, q, t, params)
        found[f"constraint {constraint.name}"] = sha256(type(constraint).__name__, code)
    return found


def differing(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names, in order, whose digests differ or exist in only one of the two."""
    return [name for name in {**now, **then} if then.get(name) != now.get(name)]


def _derivatives(of: Callable[..., Any], numbers: Any, others: Any) -> list[Any]:
    """The traced second derivative along a direction, else the reverse-mode gradient, if any."""

    def first(x: Any, along: Any, others: Any) -> Any:
        return jax.jvp(lambda x: of(x, others), (x,), (along,))

    def second(x: Any, along: Any, others: Any) -> Any:
        return jax.jvp(lambda x, along: first(x, along, others), (x, along), (along, along))

    def reverse(x: Any, others: Any) -> Any:
        value, back = jax.vjp(lambda x: of(x, others), x)
        return back(jax.tree.map(jnp.ones_like, value))

    for way, given in ((second, (numbers, numbers, others)), (reverse, (numbers, others))):
        try:
            return [jax.make_jaxpr(way)(*given)]
        except (TypeError, ValueError, NotImplementedError):  # raised by JAX
            continue
    return []
