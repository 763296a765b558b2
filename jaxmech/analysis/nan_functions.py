"""Functions of a system that are not finite at a state, or have no finite derivatives there."""

from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, listed, serious
from jaxmech.analysis.states import State
from jaxmech.compiler import native_call
from jaxmech.sensitivity import REMEDY, bad_slopes, functions_of, state_names
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import number_names

_GUARD = f"{REMEDY}, or start elsewhere"
_NOT_A_NUMBER = "look for 0 / 0, the root of a negative number or a parameter that is NaN"


def not_numbers(system: System, state: State) -> list[Finding]:
    """Findings on functions with NaN or infinite values or derivatives at a state."""
    findings = []
    inputs = (*state_names(system.coordinates), *number_names(state.params))
    for function_name, (value, derivatives, bad) in _probe(system, *state).items():
        names = [name for name, is_bad in zip(inputs, bad, strict=True) if is_bad]
        if not _finite(value):
            findings.append(serious(f"{function_name} is non-finite", _NOT_A_NUMBER))
        elif not _finite(derivatives):
            problem = (
                f"{function_name} is finite, but the derivatives in the equations of motion are not"
            )
            findings.append(serious(problem, _GUARD))
        elif names:
            problem = (
                f"{function_name} can be simulated, but not differentiated: what the equations of "
                f"motion need of it has no finite derivative with respect to {listed(names)}"
            )
            findings.append(serious(problem, _GUARD))
    return findings


@jit_of("system", is_frame=True, is_finite=True)
def _probe(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> dict[str, tuple[Any, Any, Array]]:
    state = q, v, t, params
    return native_call(partial(_probe_at, system), *state)


def _probe_at(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> dict[str, tuple[Any, Any, Array]]:
    """The value of each function, what the motion needs of it, and flags of `bad_slopes`."""
    probes = {}
    for function_name, fn in functions_of(system).items():
        derivatives, bad = bad_slopes(fn, q, v, t, params)
        probes[function_name] = jax.tree.leaves(derivatives)[0], derivatives, bad
    # The motion depends on the derivatives of the Lagrangian only, not on its value.
    _, *slopes = probes["`lagrangian`"]
    return probes | {"`lagrangian`": (system.lagrangian(q, v, t, params), *slopes)}


def _finite(tree: Any) -> bool:
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))
