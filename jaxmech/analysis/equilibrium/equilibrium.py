"""`equilibrium`: a state of rest, or of steady motion, near a guess.

The unknowns are q, the multipliers and, for a steady motion, the rates alpha of the symmetries that
it follows: v = xi(q) = c + W q and a = W v, where alpha combines c and W of `symmetries`. The
equations are the balance of forces, M a = Q + A^T lambda, the constraints at all levels and the
given rates; `root` solves them together.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.equilibrium.assessment import assess
from jaxmech.analysis.equilibrium.held import held
from jaxmech.analysis.equilibrium.result import Equilibrium, EquilibriumStatus
from jaxmech.analysis.equilibrium.root import root
from jaxmech.analysis.stability.balance import balance, row_order
from jaxmech.analysis.stability.freedom import freedom_at, require_regular
from jaxmech.analysis.stability.linearization import is_negligible
from jaxmech.analysis.stability.linearize import NOTHING, linearized
from jaxmech.analysis.stability.reduction import Freedom
from jaxmech.analysis.symmetry.symmetries import Symmetries
from jaxmech.analysis.symmetry.symmetries import symmetries as find
from jaxmech.linalg import column_space_projector, times, unit_rows
from jaxmech.stabilization import reach, violations
from jaxmech.system import Params, System
from jaxmech.utils.checks import is_known, require_finite, require_kind, with_standard_promotion
from jaxmech.utils.jit_cache import jit_of

EASY = 1e3  # ratio of the scale of multipliers to that of coordinates


@with_standard_promotion
def equilibrium(
    system: System,
    q: Any,
    params: Params = None,
    *,
    t: Any = 0.0,
    fixed: Sequence[str] = (),
    v: Mapping[str, Any] | Any = None,
    symmetries: Symmetries | None = None,
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
        v: for a steady motion the rates of named coordinates, which are kept, or a guess of all
            velocities, shape (n,), which is moved to the nearest steady motion; by default at rest.
        symmetries: a result of `jm.symmetries`, which a steady motion may follow. By default it is
            computed at the guess; under `jit` and `vmap` a steady motion needs it.
        freedom: as for `linearize`.

    Returns:
        An `Equilibrium`.

    Raises:
        TypeError: `system` is not a `System`, or names are not in a sequence.
        ValueError: a name is unknown, a shape is wrong, a value not finite, no equilibrium is found
            (not under `jit` or `vmap`), it is a singular pose, or no symmetries are given where
            they are needed.

    Example:
        >>> import jax.numpy as jnp
        >>> def hoop(q, v, t, p):  # a bead on a hoop of radius 1 that turns
        ...     return (v[0] ** 2 + (v[1] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])
        >>> bead = System(hoop, coordinates=("angle", "turn"))
        >>> found = equilibrium(bead, [0.9, 0.0], v={"turn": 5.0})
        >>> print(found.q.round(6), jnp.cos(found.q[0]) * 5.0**2)
        [1.167557 0.      ] 9.81
    """
    case = prepared(system, q, params, t, fixed, v, symmetries)
    found = solve(*case)
    known = is_known(case[3:])
    if known:
        _require_found(case, found, fixed)
    params, _, t, _ = case.theta
    state = found.q, found.v, t, params
    freedom = freedom or freedom_at(case.system, state)
    if known:
        require_regular(case.system, state, freedom)
    lin = linearized(case.system, freedom, NOTHING, state, found.W)
    if known and not found.v.any() and not is_negligible(lin.full.change):
        warnings.warn(
            "The linear equations about this equilibrium change with time: its `stability` is "
            "unknown, and `linearization` holds for this moment alone. Use `floquet` if they are "
            "periodic.",
            stacklevel=2,
        )
    return Equilibrium(
        q=found.q,
        v=found.v,
        multipliers=found.multipliers,
        reactions=found.reactions,
        residual=found.residual,
        status=found.status,
        linearization=lin,
        assessment=assess(lin),
        coordinates=tuple(system.coordinates),
    )


class Case(NamedTuple):
    """The arguments of `solve`.

    Attributes:
        system: the system, with held coordinates as constraints.
        names: coordinates with given rates.
        moving: whether to solve for a steady motion.
        q: guess, shape (n,).
        v: guess, shape (n,).
        theta: params, the rates, t and the symmetries.
    """

    system: System
    names: tuple[str, ...]
    moving: bool
    q: Any
    v: Any
    theta: Any


def prepared(
    system: System, q: Any, params: Params, t: Any, fixed: Sequence[str], v: Any,
    symmetries: Symmetries | None,
) -> Case:  # fmt: skip
    """The checked arguments of `equilibrium`."""
    require_kind("system", system, System, "System(...)")
    given, guess = _rates(system, v)
    q, guess, t, params = system.arguments(q, guess, t, params)
    _require_names(system, fixed)
    known = is_known((q, guess, given, t, params))
    if known:
        require_finite(q=q, v=(guess, given), t=t, params=params)
    if fixed:
        values = q[np.array([list(system.coordinates).index(name) for name in fixed])]
        system, params = held(system, fixed), (params, values)
    if v is None:
        symmetries = _none(system, q)
    elif symmetries is None:
        symmetries = _found_symmetries(system, q, guess, t, params, known=known)
    names = tuple(given)
    rates = jnp.stack([jnp.asarray(given[n], q.dtype) for n in names]) if names else q[:0]
    return Case(system, names, v is not None, q, guess, (params, rates, t, symmetries))


def _rates(system: System, v: Any) -> tuple[dict[str, Any], Any]:
    """The rates that are given by name, and a guess of all velocities."""
    if v is None:
        return {}, np.zeros(system.n)
    if not isinstance(v, Mapping):
        return {}, v
    for name in v:
        if name not in system.coordinates:
            raise ValueError(
                f"Argument `v` must hold names of coordinates, but holds {name!r}; the coordinates "
                f"are {', '.join(system.coordinates)}."
            )
    return dict(v), jnp.stack([1.0 * jnp.asarray(v.get(name, 0.0)) for name in system.coordinates])


def _require_names(system: System, fixed: Sequence[str]) -> None:
    if isinstance(fixed, str):
        raise TypeError(
            f"Argument `fixed` must be a sequence of names, but is {fixed!r}; write ({fixed!r},)."
        )
    for name in fixed:
        if name not in system.coordinates:
            raise ValueError(
                f"Argument `fixed` must hold names of coordinates, but holds {name!r}; the "
                f"coordinates are {', '.join(system.coordinates)}."
            )


def _found_symmetries(
    system: System, q: Array, v: Array, t: Array, params: Params, *, known: bool
) -> Symmetries:
    if not known:
        raise ValueError(
            "Argument `symmetries` must be given for a steady motion under `jit` or `vmap`; "
            "find them outside by `symmetries(system, q, v, t, params)`."
        )
    return find(system, q, v, t, params)


def _none(system: System, q: Array) -> Symmetries:
    n = system.n
    empty = jnp.zeros((0,), q.dtype)
    return Symmetries(empty.reshape(0, n), empty.reshape(0, n, n), empty, tuple(system.coordinates))


class Balanced(NamedTuple):
    """A solution of the equations of equilibrium, before its stability is assessed.

    Attributes:
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        multipliers: multipliers by constraint name.
        reactions: reactions by constraint name, shape (n,) each.
        residual: the largest of the scaled equations.
        W: derivative of the velocity field of the symmetry, shape (n, n).
        status: an `EquilibriumStatus`.
    """

    q: Any
    v: Any
    multipliers: dict[str, Any]
    reactions: dict[str, Any]
    residual: Any
    W: Any
    status: Any


@dataclass(frozen=True)
class ScaledProblem:
    """The scaled equations of equilibrium at a guess.

    Args:
        system: the system.
        names: coordinates with given rates.
        moving: whether to solve for a steady motion.
        scales: scales of forces, of the rows on velocities, and of those on positions.
    """

    system: System
    names: tuple[str, ...]
    moving: bool
    scales: tuple[Array, Array, Array]

    def state(self, z: Array, symmetries: Symmetries) -> tuple[Array, ...]:
        """Unpack the scaled unknowns: q, v, W, the multipliers, the rates of the symmetries."""
        size, row, _ = self.scales
        q, scaled, alpha = jnp.split(z, [self.system.n, self.system.n + row.size])
        W = jnp.tensordot(alpha, symmetries.W, 1)
        v = jnp.tensordot(alpha, symmetries.c, 1) + W @ q
        return q, v, W, scaled * EASY * size * row, alpha

    def equations(self, z: Array, theta: Any) -> Array:
        """The residuals of the equations, the balance of forces first."""
        params, rates, t, symmetries = theta
        size, row, row_p = self.scales
        q, v, W, multipliers, alpha = self.state(z, symmetries)
        found = balance(self.system, q, v, t, params, W @ v, multipliers)
        count = found.speed.size
        parts = [found.force / size, row_p * self.system.position_level(q, t, params)]
        parts += [row[:count] * found.speed, row[count:] * found.rows[count:]]
        if self.moving:
            named = [list(self.system.coordinates).index(name) for name in self.names]
            parts += [v[np.array(named, dtype=int)] - rates, (alpha @ symmetries.s)[None] - 1]
        return jnp.concatenate(parts)

    def solved(self, z: Array, theta: Any) -> Balanced:
        """The state, multipliers, reactions and status at a zero of the equations."""
        params, _, t, symmetries = theta
        q, v, W, multipliers, _ = self.state(z, symmetries)
        order = row_order(self.system, self.system.sizes(q, v, t, params))
        none = jnp.zeros(len(order), q.dtype)

        def rows(a: Array) -> Array:
            return balance(self.system, q, v, t, params, a, none).rows

        A = jax.jacfwd(rows)(jnp.zeros_like(q))
        multipliers = times(column_space_projector(A), multipliers)
        back = np.argsort(order)
        by_name = _by_name(self.system, multipliers[back], A[back], q, v, t, params)
        missed = jax.lax.stop_gradient(self.equations(z, theta))
        status = _status(missed, self.system.n)
        return Balanced(q, v, *by_name, jnp.max(jnp.abs(missed)), W, status)


def problem(
    system: System, names: tuple[str, ...], moving: bool, q: Array, guess: Array, theta: Any
) -> tuple[ScaledProblem, Array]:  # fmt: skip
    """The equations and the vector of unknowns at a guess of q and v."""
    params, _, t, symmetries = theta
    order = row_order(system, system.sizes(q, guess, t, params))
    rest, none = jnp.zeros_like(q), jnp.zeros(len(order), q.dtype)
    at_guess = balance(system, q, guess, t, params, rest, none)
    # The effect of a relative change of q on forces, which themselves vanish at an equilibrium.
    stiffness = jax.jacfwd(lambda q: balance(system, q, guess, t, params, rest, none).force)(q)
    largest = jnp.max(jnp.abs(at_guess.force) + reach(stiffness, q))
    A = jax.jacfwd(lambda a: balance(system, q, guess, t, params, a, none).rows)(rest)
    A_p = jax.jacfwd(lambda q: system.position_level(q, t, params))(q)
    row, row_p = (jnp.where(x > 0, x, 1.0) for x in (unit_rows(A)[1], unit_rows(A_p)[1]))
    scales = jax.lax.stop_gradient((jnp.where(largest > 0, largest, 1.0), row, row_p))
    start = jnp.concatenate([q, none, symmetries.along(q, guess)])
    return ScaledProblem(system, names, moving, scales), start


@jit_of("system", "names", "moving")
def solve(
    system: System, names: tuple[str, ...], moving: bool, q: Array, guess: Array, theta: Any
) -> Balanced:  # fmt: skip
    """An equilibrium near a guess of q and v; theta holds params, rates, t and symmetries."""
    given, start = problem(system, names, moving, q, guess, theta)
    return given.solved(root(given.equations, start, theta), theta)


def _status(missed: Array, n: int) -> Array:
    """The status by the residuals, the first n of which are the balance of forces."""
    tolerance = 100 * jnp.finfo(missed.dtype).eps ** 0.75
    status = jnp.where(
        jnp.max(jnp.abs(missed[n:]), initial=0.0) > 1e3 * tolerance,
        EquilibriumStatus.UNMET,
        EquilibriumStatus.UNBALANCED,
    )
    status = jnp.where(jnp.max(jnp.abs(missed)) <= tolerance, EquilibriumStatus.FOUND, status)
    return jnp.where(jnp.all(jnp.isfinite(missed)), status, EquilibriumStatus.NONFINITE)


def _by_name(
    system: System, multipliers: Array, A: Array, q: Array, v: Array, t: Array, params: Params
) -> tuple[dict[str, Array], dict[str, Array]]:
    ends = list(accumulate(system.sizes(q, v, t, params)))
    rows = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    found = {c.name: multipliers[k] for c, k in zip(system.constraints, rows, strict=True)}
    forces = {c.name: A[k].T @ found[c.name] for c, k in zip(system.constraints, rows, strict=True)}
    return found, forces


def _require_found(case: Case, found: Balanced, fixed: Sequence[str]) -> None:
    status = EquilibriumStatus(int(found.status))
    if status is EquilibriumStatus.FOUND:
        return
    what = "steady motion" if case.moving else "equilibrium"
    why, remedy = status.message, "give a closer guess, or check that there is one"
    if status is EquilibriumStatus.UNMET:
        params, _, t, _ = case.theta
        for violation in violations(case.system, found.q, found.v, t, params):
            why += f" ({violation.name!r} is missed by {violation.size:.2g})"
            break
        if fixed:
            remedy = f"release {' or '.join(fixed)}, or {remedy}"
    elif status is EquilibriumStatus.UNBALANCED:
        why += f": {float(found.residual):.2g} of the forces at play is left"
    raise ValueError(f"No {what} was found: {why}; {remedy}.")
