"""`equilibrium`: a state of rest, or of steady motion, near a guess.

`problem` has the equations, which `root` solves.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.equilibrium.problem import (
    Balanced,
    ScaledProblem,
    Setup,
    prepared,
    problem,
    scaled_at,
)
from jaxmech.analysis.equilibrium.result import Equilibrium, EquilibriumStatus, assess
from jaxmech.analysis.equilibrium.root import root, root_known
from jaxmech.analysis.stability.balance import Freedom, freedom_at, require_regular
from jaxmech.analysis.stability.linearization import is_negligible
from jaxmech.analysis.stability.linearize import NOTHING, linearized
from jaxmech.analysis.states import State
from jaxmech.compiler import jacobian, native_program
from jaxmech.system import Params, Subject, violations, with_params
from jaxmech.utils.checks import is_known, with_standard_promotion
from jaxmech.utils.jit_cache import is_inside_a_program, jit_of

ATTEMPTS = 3  # searches, of which each measures forces by those where the last one has ended


@with_standard_promotion
def equilibrium(
    system: Subject,
    q: Any,
    params: Params = None,
    *,
    t: Any = 0.0,
    fixed: Sequence[str] = (),
    v: Mapping[str, Any] | Any = None,
    freedom: Freedom | None = None,
) -> Equilibrium:
    """The equilibrium, or the steady motion, near a guess, with its reactions and stability.

    The guess need not satisfy the constraints. Pure under `jit` and `vmap`, where `status` records
    whether an equilibrium was found; derivatives of any order by the parameters, the given rates
    and the values of `fixed` are those of the solution (implicit function theorem).

    Args:
        system: the system, with n coordinates.
        q: guess of the coordinates, shape (n,).
        params: the parameters that the functions of the system expect.
        t: time [s].
        fixed: names of coordinates that are held at their guess, each by a reaction force called
            `fixed` and the name.
        v: for a steady motion the rates of named coordinates, or quasi-velocities by name, which
            are kept; or a guess of all velocities, shape (n,), which is moved to the nearest steady
            motion; by default at rest. Rates are constant, those of cyclic coordinates. States of
            first order, the last entries or by name, are found from the guess given here, also at
            rest.
        freedom: as for `linearize`.

    Raises:
        TypeError: if `system` is not a `System`, or the names are not a sequence.
        ValueError: if a name is unknown, a shape is wrong, a value not finite, no equilibrium is
            found (not under `jit` or `vmap`), or it is a singular pose.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmech import System
        >>> def hoop(q, v, t, p):  # a bead on a hoop of radius 1 that turns
        ...     return (v[0] ** 2 + (v[1] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])
        >>> bead = System(hoop, coordinates=("angle", "turn"))
        >>> found = equilibrium(bead, [0.9, 0.0], v={"turn": 5.0})
        >>> print(found.q.round(6), jnp.cos(found.q[0]) * 5.0**2)
        [1.167557 0.      ] 9.81
    """
    system, params = with_params(system, params)
    setup, *case = prepared(system, q, params, t, fixed, v)
    is_concrete, full_system = is_known(case), setup.system
    search = _solve_known if is_concrete and not is_inside_a_program() else solve
    balanced = search(setup, *case)
    held_params, _, t, _ = case[-1]
    status = EquilibriumStatus(int(balanced.status)) if is_concrete else EquilibriumStatus.FOUND
    if status is not EquilibriumStatus.FOUND:
        subject = "steady motion" if setup.moving else "equilibrium"
        why, remedy = status.message, "give a closer guess, or check that there is one"
        if status is EquilibriumStatus.UNMET:
            for one in violations(full_system, balanced.q, balanced.v, t, held_params)[:1]:
                why += f" ({one.name!r} is missed by {one.size:.2g})"
            if fixed:
                remedy = f"release {' or '.join(fixed)}, or {remedy}"
        elif status is EquilibriumStatus.UNBALANCED:
            why += f": {float(balanced.residual):.2g} of the forces at play is left"
        raise ValueError(f"No {subject} was found: {why}; {remedy}.")
    state = State(balanced.q, balanced.v, t, held_params)
    freedom = freedom or freedom_at(full_system, state)
    if is_concrete:
        require_regular(full_system, state, freedom)
    lin = linearized(
        full_system, freedom, NOTHING, state, jnp.zeros((system.n, system.n), balanced.q.dtype)
    )
    if is_concrete and not balanced.v.any() and not is_negligible(lin.full.change):
        warnings.warn(
            "The linear equations about this equilibrium change with time: its `stability` is "
            "unknown, and `linearization` holds for this moment alone.",
            stacklevel=3,  # beyond the wrapper for type promotion
        )
    return Equilibrium(
        q=balanced.q,
        v=system.dynamics.from_speeds(balanced.q, balanced.v, t, params),
        multipliers=balanced.multipliers,
        reactions=balanced.reactions,
        residual=balanced.residual,
        status=balanced.status,
        linearization=lin,
        assessment=assess(lin),
        coordinates=tuple(system.coordinates),
        states=tuple(system.states),
        velocities=system.velocity_names,
    )


@jit_of("setup")
def solve(setup: Setup, q: Array, guess: Array, theta: Any) -> Balanced:
    """An equilibrium near a guess of q and v; theta holds params, rates, t and directions."""
    scaled, start = problem(setup, q, guess, theta)

    def search(carry: tuple[Any, Array], theta: Any) -> tuple[Any, Array]:
        scaled = ScaledProblem(setup, carry[0])
        return _rescaled(scaled, root(scaled.equations, carry[1], theta), theta)

    # Forces at the guess may be so large that all others count as zero. Only the last search is
    # differentiated: the others are its guess.
    fixed, first = jax.lax.stop_gradient((theta, (scaled.scales, start)))
    first, _ = jax.lax.scan(lambda x, _: (search(x, fixed), None), first, length=ATTEMPTS - 1)
    scales, z = search(first, theta)
    return ScaledProblem(setup, scales).solved(z, theta)


def _rescaled(scaled: ScaledProblem, z: Array, theta: Any) -> tuple[Any, Array]:
    """The scales where a search has ended, and the unknowns in them."""
    q, v, *_ = scaled.state(z, theta[-1])
    rescaled = scaled_at(scaled.setup, q, v, theta, scaled.scales[0])
    return rescaled.scales, rescaled.scaled(scaled.unknowns(z))


def _solve_known(setup: Setup, q: Array, guess: Array, theta: Any) -> Balanced:
    """`solve` for numbers that are known, on the host."""

    def values(scales: Any, z: Any) -> Any:
        return np.asarray(_at(setup, ScaledProblem.equations, scales, z, theta))

    def linear(scales: Any, z: Any) -> Any:
        return jax.tree.map(np.asarray, _at(setup, _linear, scales, z, theta))

    scales, z = _problem_at(setup, q, guess, theta)
    for _ in range(ATTEMPTS):
        z = root_known(partial(values, scales), partial(linear, scales), np.asarray(z))
        last = scales
        scales, z = _at(setup, _rescaled, scales, jnp.asarray(z), theta)
        if 0.1 < scales[0] / last[0] < 10.0:
            break
    A = _at(setup, ScaledProblem.rows, scales, z, theta)
    missed = _at(setup, ScaledProblem.equations, scales, z, theta)
    return _balanced(setup, scales, z, theta, A, missed)


@native_program("setup")
def _problem_at(setup: Setup, q: Array, guess: Array, theta: Any) -> tuple[Any, Array]:
    scaled, start = problem(setup, q, guess, theta)
    return scaled.scales, start


@native_program("setup", "fn")
def _at(setup: Setup, fn: Callable[..., Any], scales: Any, z: Array, theta: Any) -> Any:
    """A function of a scaled problem, the unknowns and theta."""
    return fn(ScaledProblem(setup, scales), z, theta)


def _linear(scaled: ScaledProblem, z: Array, theta: Any) -> tuple[Array, Array]:
    def equations(z: Array) -> Array:
        return scaled.equations(z, theta)

    return equations(z), jacobian(equations, z)


@jit_of("setup", is_frame=True, is_brief=True)
def _balanced(setup: Setup, scales: Any, z: Array, theta: Any, A: Array, missed: Array) -> Balanced:
    return ScaledProblem(setup, scales).balanced(z, theta, A, missed)
