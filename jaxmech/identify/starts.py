"""How a motion begins: the state that belongs to what was recorded, and how it may change.

Recorded are start variables and their rates. `start` makes a state of them; without it they are
the coordinates and velocities themselves, put onto the constraints. Free initial states change the
start variables along a basis: every direction with a `start`, those along the constraints without.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.manifold import Projection, constraint_jacobians
from jaxmech.programs import jit_of
from jaxmech.system import Params, System
from jaxmech.traits import traits

Start = Callable[[Array, Array, Params], tuple[Array, Array]]
CORRECTIONS = 6  # Newton steps onto the constraints: from 20 % off, five arrive at round-off


def begin(
    system: System, start: Start | None, q0: Array, v0: Array, t: Array, params: Params
) -> tuple[Array, Array]:
    """The state q (n,), v (n,) for recorded start variables (k,)."""
    if start is not None:
        q, v = start(q0, v0, params)
        return jnp.asarray(q), jnp.asarray(v)
    return onto(system, q0, v0, t, params)


def onto(system: System, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, Array]:
    """The state on the constraints near another; a loop, so that a correction compiles once."""
    singular = traits(system, q, v, t, params).singular_mass

    def correct(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        once = Projection(iterations=1)
        return once.after_step(system, *state, t, params, singular_mass=singular)[:2]

    return jax.lax.fori_loop(0, CORRECTIONS, correct, (q, v))


def bases(
    system: System, start: Start | None, q0: Array, v0: Array, t: Array, params: Params
) -> tuple[np.ndarray, np.ndarray]:
    """The directions in which start variables and their rates may change, (k, i) and (k, j)."""
    if start is not None:
        whole = np.eye(q0.size)
        return whole, whole
    along_q, along_v = (_null_space(np.asarray(A)) for A in _rows(system, q0, v0, t, params))
    return along_q, along_v


@jit_of("system")
def _rows(system: System, q0: Array, v0: Array, t: Array, params: Params) -> tuple[Array, Array]:
    q, v = begin(system, None, q0, v0, t, params)
    return constraint_jacobians(system, q, v, t, params)


def _null_space(A: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the directions that A does not see, (n, n - rank)."""
    if not A.shape[0]:
        return np.eye(A.shape[1])
    _, sizes, Vt = np.linalg.svd(A)
    rank = int((sizes > 1e-8 * sizes.max(initial=0.0)).sum())
    return Vt[rank:].T
