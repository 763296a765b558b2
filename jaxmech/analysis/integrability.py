"""Whether constraints on velocities are derivatives of constraints on positions (Frobenius).

A constraint a(q, t) . v + a0(q, t) = 0 is the covector w = (a, a0) on (q, t). A set of them is
integrable where every dw vanishes on the common null space of the set (Frobenius 1877). The
largest such set is found by repeatedly dropping the constraints that fail against the rest;
holonomic constraints stay in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, listed, note
from jaxmech.analysis.states import State
from jaxmech.linalg import unit
from jaxmech.system import Nonholonomic, Params, System
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import wide

SMALL = 1e-8  # relative size that counts as zero


@dataclass(frozen=True)
class Integrability:
    """Nonholonomic constraints that restrict positions after all.

    Attributes:
        integrable: names of the derivatives of constraints on positions.
        nonlinear: names of those not affine in the velocities, which are not tested.
        reachable: degrees of freedom of position, integrable constraints included.
    """

    integrable: tuple[str, ...]
    nonlinear: tuple[str, ...]
    reachable: int


def integrability(system: System, states: Sequence[State]) -> Integrability | None:
    """Test integrability at several states on the constraints; None without nonholonomic ones."""
    names = [c.name for c in system.constraints if isinstance(c, Nonholonomic)]
    if not names:
        return None
    covectors = [jax.tree.map(np.asarray, _covectors(system, *state)) for state in states]
    covectors = [
        x for x in covectors if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(x))
    ]
    if not covectors:
        return None
    bent = [name for k, name in enumerate(names) if any(x[1][k][2] > SMALL for x in covectors)]
    affine = [k for k, name in enumerate(names) if name not in bent]
    while True:
        failing = {
            k
            for k in affine
            for fixed, velocity_forms in covectors
            if not _closes(k, affine, fixed, velocity_forms)
        }
        if not failing:
            break
        affine = [k for k in affine if k not in failing]
    rows = [_stacked(affine, fixed, velocity_forms)[:, :-1] for fixed, velocity_forms in covectors]
    reachable = system.n - max(int(np.linalg.matrix_rank(x, tol=SMALL)) for x in rows)
    return Integrability(tuple(names[k] for k in affine), tuple(bent), reachable)


def integrability_findings(result: Integrability) -> list[Finding]:
    """A note for constraints that should be written on positions."""
    if not result.integrable:
        return []
    words = ("is", "a derivative") if len(result.integrable) == 1 else ("are", "derivatives")
    return [
        note(
            f"{listed(result.integrable)} {words[0]} integrable: {words[1]} of constraints on "
            f"positions, which leave {result.reachable} degrees of freedom of position",
            "harmless; written as `Holonomic` constraints, they would not drift",
        )
    ]


@jit_of("system")
def _covectors(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, list[tuple[Array, Array, Array]]]:
    """Rows of the holonomic constraints; rows, derivatives and nonlinearity of each other one."""
    elsewhere = wide(v, seed=11)

    def covector(c: Nonholonomic) -> tuple[Array, Array, Array]:
        def rows(z: Array) -> Array:
            q, t, zeros = z[:-1], z[-1], jnp.zeros_like(v)
            A = c.jacobian(q, zeros, t, params)
            return jnp.concatenate([A, c.value(q, zeros, t, params)[:, None]], axis=1)

        z = jnp.append(q, t)
        forms = rows(z)
        expected = forms[:, :-1] @ elsewhere + forms[:, -1]
        size = jnp.abs(forms[:, :-1]) @ jnp.abs(elsewhere) + jnp.abs(forms[:, -1])
        bent = jnp.abs(c.value(q, elsewhere, t, params) - expected) / jnp.where(size > 0, size, 1.0)
        return forms, jax.jacfwd(rows)(z), jnp.max(bent, initial=0.0)

    by_q, by_t = jax.jacfwd(lambda q, t: system.dynamics.position_level(q, t, params), (0, 1))(q, t)
    fixed = jnp.concatenate([by_q, by_t[:, None]], axis=1)
    return fixed, [covector(c) for c in system.constraints if isinstance(c, Nonholonomic)]


def _stacked(indices: Sequence[int], fixed: HostArray, velocity_forms: Any) -> HostArray:
    rows = np.concatenate([fixed, *(velocity_forms[k][0] for k in indices)])
    rows, lengths = unit(rows)
    return rows[lengths > 0]


def _closes(k: int, indices: Sequence[int], fixed: HostArray, velocity_forms: Any) -> bool:
    """Whether dw of a constraint vanishes on the null space of the held ones."""
    rows = _stacked(indices, fixed, velocity_forms)
    _, sizes, V = np.linalg.svd(rows)
    free = V[int((sizes > SMALL).sum()) :]
    slopes = velocity_forms[k][1]
    curl = free @ (slopes - slopes.swapaxes(1, 2)) @ free.T
    return bool(np.abs(curl).max(initial=0.0) <= SMALL * (1e-6 + np.abs(slopes).max(initial=0.0)))
