"""Functions of a system that are not numbers at a state, or have no derivatives there, by name."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, Severity, listed
from jaxmech.analysis.states import State
from jaxmech.constraints import AbstractConstraint
from jaxmech.equations import generalized_force, mass_matrix
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import named_leaves

_GUARD = (
    "a norm, root, quotient or arccos stands where it has no derivative: write "
    "x = jnp.where(safe, x, 1.0) before it and jnp.where(safe, result, limit) after it, or start "
    "elsewhere"
)
_NOT_A_NUMBER = "look for 0 / 0, the root of a negative number or a parameter that is NaN"


def not_numbers(system: System, state: State) -> list[Finding]:
    """The functions that give NaN or infinity at a state, or whose derivatives do.

    Args:
        system: the system.
        state: where.
    """
    findings = []
    for what, (value, needed, slopes) in _probe(system, *state).items():
        inputs = [where for where, slope in _named_leaves(system, slopes) if not _finite(slope)]
        if not _finite(value):
            findings.append(Finding(Severity.SERIOUS, f"{what} is not a number", _NOT_A_NUMBER))
        elif not _finite(needed):
            text = f"{what} is a number, but its derivatives, which the motion needs, are not"
            findings.append(Finding(Severity.SERIOUS, text, _GUARD))
        elif inputs:
            text = (
                f"{what} gives a motion, but no gradients: what the motion needs of it has no "
                f"derivative by {listed(inputs)}"
            )
            findings.append(Finding(Severity.SERIOUS, text, _GUARD))
    return findings


Probe = dict[str, tuple[Any, Any, Any]]


@jit_of("system")
def _probe(system: System, q: Array, v: Array, t: Array, params: Params) -> Probe:
    """For every function its value, what the motion needs of it, and the derivatives of that."""
    leaves, structure = jax.tree.flatten(params)
    smooth = [k for k, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]

    def with_smooth(values: list[Array]) -> Params:
        whole = list(leaves)
        for k, value in zip(smooth, values, strict=True):
            whole[k] = value
        return jax.tree.unflatten(structure, whole)

    def probed(value: Callable[..., Any], needed: Callable[..., Any]) -> tuple[Any, Any, Any]:
        def of_smooth(q: Array, v: Array, values: list[Array]) -> Any:
            return needed(q, v, t, with_smooth(values))

        needs, pull = jax.vjp(of_smooth, q, v, [leaves[k] for k in smooth])
        slopes = pull(jax.tree.map(jnp.ones_like, needs))
        by_params = with_smooth(slopes[2])
        return value(q, v, t, params), needs, (slopes[0], slopes[1], by_params)

    return {what: probed(*functions) for what, functions in _functions(system).items()}


def _functions(system: System) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """For every function of the system itself, and M and Q, or A and b, as functions of a state."""

    def motion(q: Array, v: Array, t: Array, params: Params) -> Any:
        def lagrangian(q: Array, v: Array, t: Array) -> Array:
            return jnp.asarray(system.lagrangian(q, v, t, params), q.dtype)

        return mass_matrix(lagrangian, q, v, t), generalized_force(lagrangian, q, v, t)

    functions = {"`lagrangian`": (system.lagrangian, motion)}
    if system.force is not None:
        functions["`force`"] = (system.force, system.force)
    if system.nonideal is not None:
        friction = partial(_friction, system, system.nonideal)
        functions["`nonideal`"] = (friction, friction)
    for c in system.constraints:
        functions[f"constraint {c.name!r}"] = (partial(_residual, c), c.rows)
    return functions


def _friction(
    system: System, nonideal: Callable[..., Any], q: Array, v: Array, t: Array, params: Params
) -> Any:
    """At multipliers of 1; with others it is as much a number as there."""
    ones = jnp.ones(sum(system.sizes(q, v, t, params)), q.dtype)
    return nonideal(q, v, ones, t, params)


def _residual(c: AbstractConstraint, q: Array, v: Array, t: Array, params: Params) -> Array:
    return c.residual(q, v, jnp.zeros_like(v), t, params)


def _finite(tree: Any) -> bool:
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(tree))


def _named_leaves(system: System, slopes: Any) -> list[tuple[str, Any]]:
    """Every coordinate, velocity and parameter with the slope by it."""
    by_q, by_v, by_params = slopes
    named = list(zip(system.coordinates, np.asarray(by_q), strict=True))
    named += [(f"{c}'", slope) for c, slope in zip(system.coordinates, by_v, strict=True)]
    return named + named_leaves(by_params)
