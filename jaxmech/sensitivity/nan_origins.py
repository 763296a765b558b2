"""Where a NaN derivative starts: which function, by which of its arguments, and when.

Reverse mode multiplies the derivatives of everything on the way, and 0 times NaN is NaN: one
function without a derivative at one state spoils the gradient by all that comes before. So every
function that a motion is made of is differentiated alone, in reverse mode, at every state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.equations import generalized_force, mass_matrix
from jaxmech.integrate import Scheme
from jaxmech.solution import Solution
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import numbers_of

REMEDY = (
    "a root, norm, power, quotient or arctan2 stands where it has no derivative, often 0: write "
    "x = jnp.where(safe, x, 1.0) before it and jnp.where(safe, result, limit) after it"
)


@dataclass(frozen=True)
class NanOrigin:
    """A function that is a number where its derivative is none.

    Attributes:
        what: the function: "`lagrangian`", "constraint 'rod'", "the projection" ...
        by: the coordinates, velocities and parameters by which it has no derivative.
        t: first time [s] at which that is so; None for what does not belong to one time.
    """

    what: str
    by: tuple[str, ...]
    t: float | None

    def __str__(self) -> str:
        when = "" if self.t is None else f" at t = {self.t:.6g} s"
        return f"it starts in {self.what}, which has no derivative by {', '.join(self.by)}{when}"


Pieces = dict[str, Callable[..., Any]]  # each of q, v, t, params


def origins_in_system(
    scheme: Scheme, q: Array, v: Array, ts: Array, params: Params, names: tuple[str, ...]
) -> list[NanOrigin]:
    """Functions of the system that have no derivative along a motion, the earliest first.

    If there is none, the projection and the law of motion are looked at as a whole: they have no
    derivative where the rank of the constraints changes.

    Args:
        scheme: how the motion was computed.
        q: coordinates along it, (T, n).
        v: velocities, (T, n).
        ts: times, (T,).
        params: parameters.
        names: of the numbers of the parameters, in their order.

    Returns:
        For each function and each thing by which it has no derivative at some time, an `NanOrigin`.
    """
    inputs = [*scheme.system.coordinates, *(f"{c}'" for c in scheme.system.coordinates), *names]
    for whole in (False, True):
        bad = _bad(scheme, whole, q, v, ts, params)
        found = [
            NanOrigin(what, (inputs[k],), float(ts[int(np.argmax(rows[:, k]))]))
            for what, rows in ((what, np.asarray(rows)) for what, rows in bad.items())
            for k in np.flatnonzero(rows.any(0))
        ]
        if found:
            return sorted(found, key=lambda origin: abs(float(origin.t or 0.0) - float(ts[0])))
    return []


@jit_of("scheme", "whole")
def _bad(
    scheme: Scheme, whole: bool, q: Array, v: Array, ts: Array, params: Params
) -> dict[str, Array]:
    """For each piece whether its slope by q, v and the numbers is no number, (T, 2 n + p)."""
    numbers, with_numbers = numbers_of(params)
    pieces = _wholes(scheme) if whole else functions_of(scheme.system)

    def one(piece: Callable[..., Any], q: Array, v: Array, t: Array) -> Array:
        needs, pull = jax.vjp(lambda q, v, x: piece(q, v, t, with_numbers(x)), q, v, numbers)
        return ~jnp.isfinite(jnp.concatenate(pull(jax.tree.map(jnp.ones_like, needs))))

    return {what: jax.vmap(partial(one, piece))(q, v, ts) for what, piece in pieces.items()}


def functions_of(system: System) -> Pieces:
    """What the motion needs of every function: M and Q, forces, and levels with A and b."""

    def motion(q: Array, v: Array, t: Array, params: Params) -> Any:
        def lagrangian(q: Array, v: Array, t: Array) -> Array:
            return jnp.asarray(system.lagrangian(q, v, t, params), q.dtype)

        return mass_matrix(lagrangian, q, v, t), generalized_force(lagrangian, q, v, t)

    def friction(q: Array, v: Array, t: Array, params: Params) -> Array:
        multipliers = jnp.ones(sum(system.sizes(q, v, t, params)), q.dtype)
        return system.nonideal_force(q, v, multipliers, t, params)

    def rows(constraint: Any, q: Array, v: Array, t: Array, params: Params) -> Any:
        level = constraint.residual(q, v, jnp.zeros_like(v), t, params)
        return level, constraint.rows(q, v, t, params)

    pieces: Pieces = {"`lagrangian`": motion}
    if system.force is not None:
        pieces["`force`"] = system.force
    if system.nonideal is not None:
        pieces["`nonideal`"] = friction
    return pieces | {f"constraint {c.name!r}": partial(rows, c) for c in system.constraints}


def _wholes(scheme: Scheme) -> Pieces:
    def projected(q: Array, v: Array, t: Array, params: Params) -> Any:
        return scheme.stabilization.after_step(scheme.system, q, v, t, params)[:2]

    def law(q: Array, v: Array, t: Array, params: Params) -> Array:
        return scheme.law(q, v, t, params)[1].qdd

    return {"the projection": projected, "the law of motion": law}


def origins_in_start(
    start: Callable[..., Any] | None,
    q0: Array,
    v0: Array,
    t: Array,
    params: Params,
    names: tuple[str, ...],
) -> list[NanOrigin]:
    """The numbers by which `start` has no derivative.

    Args:
        start: start(q0, v0, params), or None.
        q0: start variables.
        v0: their rates.
        t: time of the start.
        params: parameters.
        names: of the numbers of the parameters, in their order.
    """
    if start is None:
        return []
    numbers, with_numbers = numbers_of(params)
    state, pull = jax.vjp(lambda x: start(q0, v0, with_numbers(x)), numbers)
    (slopes,) = pull(jax.tree.map(jnp.ones_like, state))
    bad = ~np.isfinite(np.asarray(slopes))
    return [NanOrigin("`start`", (names[k],), float(t)) for k in np.flatnonzero(bad)]


def origins_in_loss(
    loss: Callable[..., Any], solution: Solution, params: Params, names: tuple[str, ...]
) -> list[NanOrigin]:
    """The coordinates, velocities and numbers by which `loss` has no derivative.

    Args:
        loss: loss(q, v, ts, params).
        solution: the motion.
        params: parameters.
        names: of the numbers of the parameters, in their order.
    """
    numbers, with_numbers = numbers_of(params)
    by_state, by_velocity, by_numbers = jax.grad(
        lambda q, v, x: loss(q, v, solution.ts, with_numbers(x)), argnums=(0, 1, 2)
    )(solution.q, solution.v, numbers)
    slopes = np.hstack([np.asarray(by_state), np.asarray(by_velocity)])
    coordinates = solution.coordinates
    inputs = [*coordinates, *(f"{c}'" for c in coordinates)]
    bad = ~np.isfinite(slopes)
    found = [
        NanOrigin("`loss`", (inputs[k],), float(solution.ts[int(np.argmax(bad[:, k]))]))
        for k in np.flatnonzero(bad.any(0))
    ]
    wrong = np.flatnonzero(~np.isfinite(np.asarray(by_numbers)))
    return found + [NanOrigin("`loss`", (names[k],), None) for k in wrong]


def concerning(
    name: str | None, found: list[NanOrigin], names: tuple[str, ...]
) -> tuple[NanOrigin, ...]:
    """The earliest origins that spoil the gradient by one number, one for each function.

    A function without a derivative by a state spoils all gradients. One without a derivative by
    a number spoils in reverse mode that one alone, in forward mode, where 0 times infinity counts,
    all of them.

    Args:
        name: the number, or what else is differentiated by; None for forward mode.
        found: all origins.
        names: of all numbers.
    """
    others = set() if name is None else set(names) - {name}
    own = [origin for origin in found if not others & set(origin.by)]
    own = [origin for origin in own if origin.t is None or origin.t == _first(own)]
    merged: dict[tuple[str, float | None], tuple[str, ...]] = {}
    for origin in own:
        key = origin.what, origin.t
        merged[key] = (*merged.get(key, ()), *origin.by)
    return tuple(NanOrigin(what, by, t) for (what, t), by in merged.items())


def _first(origins: list[NanOrigin]) -> float | None:
    return next((origin.t for origin in origins if origin.t is not None), None)
