"""Functions that are not finite at a state, and parameters without effect."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, listed, serious
from jaxmech.analysis.states import State
from jaxmech.compiler import native_program
from jaxmech.run import REMEDY, bad_slopes, functions_of, state_names
from jaxmech.system import Params, System
from jaxmech.utils.trees import number_names, unread

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


@native_program("system")
def _probe(
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


def unused_parameters(
    system: System, state: State, *, energy: bool = False, also: Callable[..., Any] | None = None
) -> tuple[str, ...]:
    """The parameters on which M, Q, A, b and the constraints do not depend, by name.

    With `energy`, a parameter that only adds to the energy counts as used, and so does one on which
    the results of `also(q, v, t, params)` depend.
    """

    def everything(params: Any) -> Any:
        q, v, t, _ = state
        params = system.with_outputs(params)
        levels = (
            system.dynamics.position_level(q, t, params),
            system.dynamics.velocity_level(q, v, t, params),
        )
        speeds = system.dynamics.speeds(q, v, t, params)
        forces = system.nonideal and system.nonideal(q, speeds, ones, t, params)
        value = system.lagrangian(q, speeds, t, params) if energy else ()
        extra = also(q, v, t, params) if also else ()
        more: list[Any] = [
            inequality.values(q, speeds, t, params) for inequality in system.unilateral
        ]
        if system.sampling is not None:
            more.append(system.sampling(system.memory_at(t[None], params), q, v, t, params))
        more.append(extra)
        return system.dynamics.at(q, v, t, params), levels, forces, value, more

    sizes = system.dynamics.sizes(*state[:3], system.with_outputs(state.params))
    ones = jnp.ones(sum(sizes), state.q.dtype)
    return unread(everything, state.params)
