"""Whether `mass_and_force` of a system has the M and Q of its Lagrangian."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, listed, serious
from jaxmech.analysis.states import State
from jaxmech.compiler import native_call
from jaxmech.parts.dynamics import MassAndForce
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of

ACCELERATIONS = 2  # beside zero, for which M a - Q is compared


def mass_and_force_findings(system: System, state: State) -> list[Finding]:
    """A finding on the coordinates whose equations of motion are not those of the Lagrangian."""
    if system.mass_and_force is None or isinstance(system.mass_and_force, MassAndForce):
        return []  # The recursions of `parts` are tested, and a comparison takes long to compile.
    mechanical = system.n - len(system.states)
    draw = np.random.default_rng(31).normal(size=(ACCELERATIONS, mechanical))
    accelerations = jnp.asarray(np.vstack([np.zeros(mechanical), draw]), state.q.dtype)
    residual, expected, size = map(np.asarray, _equations(system, accelerations, *state))
    eps = float(jnp.finfo(state.q.dtype).eps)
    tolerance = eps**0.5 * size + 100 * eps * size.max(initial=0.0)
    differs = (np.abs(residual - expected) > tolerance).any(0)
    names = [name for name, wrong in zip(system.coordinates, differs, strict=False) if wrong]
    if not names:
        return []
    problem = (
        f"M or Q of `mass_and_force` are not those of `lagrangian` in the rows of {listed(names)}"
    )
    remedy = "correct one of them, or leave `mass_and_force` out"
    return [serious(problem, remedy)]


@jit_of("system", is_frame=True, is_finite=True)
def _equations(
    system: System, accelerations: Array, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array, Array]:
    inputs = accelerations, q, v, t, params
    return native_call(partial(_equations_at, system), *inputs)


def _equations_at(
    system: System, accelerations: Array, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array, Array]:
    """M a - Q by `mass_and_force` and by the Lagrangian, and the size of their terms, (k, n - s).

    The latter is d/dt dL/dv - dL/dq along a path with these accelerations, which needs one
    derivative in their direction instead of M.
    """
    mechanical = accelerations.shape[1]
    rates = system.state_rates(q, v, t, params)
    M = system.mass(q, v, t, params)[:mechanical, :mechanical]
    Q = system.conservative_force(q, v, t, params)[:mechanical]

    def by_lagrangian(a: Array) -> Array:
        path = v, jnp.concatenate([a, rates]), jnp.ones_like(t)
        (pull, _), (_, change) = jax.jvp(lambda *x: system.slopes(*x, params), (q, v, t), path)
        return (change - pull)[:mechanical]

    residual = accelerations @ M - Q[None]
    size = jnp.abs(accelerations) @ jnp.abs(M) + jnp.abs(Q)[None]
    return residual, jax.vmap(by_lagrangian)(accelerations), size
