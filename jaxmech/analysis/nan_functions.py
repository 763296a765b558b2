"""Functions of a system that are not finite at a state, or have no finite derivatives there."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, Severity, listed
from jaxmech.analysis.states import State
from jaxmech.sensitivity.nan_origins import REMEDY, functions_of
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import named_leaves, numbers_of

_GUARD = f"{REMEDY}, or start elsewhere"
_NOT_A_NUMBER = "look for 0 / 0, the root of a negative number or a parameter that is NaN"


def not_numbers(system: System, state: State) -> list[Finding]:
    """Findings on functions with NaN or infinite values or derivatives at a state."""
    findings = []
    for what, (value, needed, slopes) in _probe(system, *state).items():
        inputs = [name for name, slope in _named(system, *slopes) if not _finite(slope)]
        if not _finite(value):
            findings.append(Finding(Severity.SERIOUS, f"{what} is non-finite", _NOT_A_NUMBER))
        elif not _finite(needed):
            text = f"{what} is finite, but the derivatives in the equations of motion are not"
            findings.append(Finding(Severity.SERIOUS, text, _GUARD))
        elif inputs:
            text = (
                f"{what} can be simulated, but not differentiated: what the equations of motion "
                f"need of it has no finite derivative with respect to {listed(inputs)}"
            )
            findings.append(Finding(Severity.SERIOUS, text, _GUARD))
    return findings


@jit_of("system")
def _probe(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> dict[str, tuple[Any, Any, Any]]:
    """The value of every function, the part that the motion depends on, and its derivatives."""
    numbers, with_numbers = numbers_of(params)
    found = {}
    for what, fn in functions_of(system).items():
        needs, pull = jax.vjp(lambda q, v, x, fn=fn: fn(q, v, t, with_numbers(x)), q, v, numbers)
        by_q, by_v, by_numbers = pull(jax.tree.map(jnp.ones_like, needs))
        value = jax.tree.leaves(needs)[0]
        found[what] = value, needs, (by_q, by_v, with_numbers(by_numbers))
    # The motion depends on the derivatives of the Lagrangian only, not on its value.
    value, *rest = found["`lagrangian`"]
    return found | {"`lagrangian`": (system.lagrangian(q, v, t, params), *rest)}


def _finite(tree: Any) -> bool:
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(tree))


def _named(system: System, by_q: Array, by_v: Array, by_params: Params) -> list[tuple[str, Any]]:
    """Every coordinate, velocity and parameter with the derivative with respect to it."""
    velocities = [f"{name}'" for name in system.coordinates]
    named = zip([*system.coordinates, *velocities], np.concatenate([by_q, by_v]), strict=True)
    return [*named, *named_leaves(by_params)]
