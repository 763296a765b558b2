"""`equilibrium`: a state of rest, or of steady motion, near a guess.

The unknowns are q, the multipliers and, for a steady motion, the rates alpha of the symmetries that
it follows: v = xi(q) = c + W q and a = W v, where alpha combines c and W of `symmetries`. The
equations are the balance of forces, M a = Q + A^T lambda, the constraints at all levels and the
given rates; `root` solves them together.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.equilibrium.assessment import assess
from jaxmech.analysis.equilibrium.held import held
from jaxmech.analysis.equilibrium.result import Equilibrium, EquilibriumStatus
from jaxmech.analysis.equilibrium.root import root, root_known
from jaxmech.analysis.stability.balance import (
    acceleration_rows,
    balance,
    parameter_reach,
    row_order,
)
from jaxmech.analysis.stability.freedom import freedom_at, require_regular
from jaxmech.analysis.stability.linearization import is_negligible
from jaxmech.analysis.stability.linearize import NOTHING, linearized
from jaxmech.analysis.stability.reduction import Freedom
from jaxmech.analysis.states import State
from jaxmech.analysis.symmetry.symmetries import Symmetries
from jaxmech.analysis.symmetry.symmetries import symmetries as find
from jaxmech.compiler import jacobian, native_call
from jaxmech.consistency import reach, violations
from jaxmech.first_order import padded, require_no_states
from jaxmech.linalg import column_space_projector, matvec, unit_rows
from jaxmech.properties import reads_integrals
from jaxmech.quasi_velocities import IN_RATES, require_plain_velocities
from jaxmech.rates import in_rates
from jaxmech.subjects import Subject, with_params
from jaxmech.system import Params, System
from jaxmech.utils.checks import (
    coordinate_indices,
    is_known,
    require_finite,
    require_kind,
    with_standard_promotion,
)
from jaxmech.utils.jit_cache import is_inside_a_program, jit_of
from jaxmech.utils.trees import ByName

EASY = 1e3  # ratio of the scale of multipliers to that of coordinates
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
            States of first order, the last entries or by name, are found also at rest, from the
            guess given here.
        symmetries: a result of `jm.analysis.symmetries`, which a steady motion may follow. By
            default it is computed at the guess; under `jit` and `vmap` a steady motion needs it.
        freedom: as for `linearize`.

    Raises:
        TypeError: if `system` is not a `System`, or the names are not a sequence.
        ValueError: if a name is unknown, a shape is wrong, a value not finite, no equilibrium is
            found (not under `jit` or `vmap`), it is a singular pose, or no symmetries are given
            where they are needed.

    Example:
        >>> import jax.numpy as jnp
        >>> def hoop(q, v, t, p):  # a bead on a hoop of radius 1 that turns
        ...     return (v[0] ** 2 + (v[1] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])
        >>> bead = System(hoop, coordinates=("angle", "turn"))
        >>> found = equilibrium(bead, [0.9, 0.0], v={"turn": 5.0})
        >>> print(found.q.round(6), jnp.cos(found.q[0]) * 5.0**2)
        [1.167557 0.      ] 9.81
    """
    system, params = with_params(system, params)
    case = prepared(system, q, params, t, fixed, v, symmetries)
    is_concrete, full_system = is_known(case[1:]), case.setup.system
    balanced = _solve_known(*case) if is_concrete and not is_inside_a_program() else solve(*case)
    if is_concrete:
        _require_found(case, balanced, fixed)
    held_params, _, t, _ = case.theta
    state = State(balanced.q, balanced.v, t, held_params)
    freedom = freedom or freedom_at(full_system, state)
    if is_concrete:
        require_regular(full_system, state, freedom)
    lin = linearized(full_system, freedom, NOTHING, state, balanced.W)
    if is_concrete and not balanced.v.any() and not is_negligible(lin.full.change):
        warnings.warn(
            "The linear equations about this equilibrium change with time: its `stability` is "
            "unknown, and `linearization` holds for this moment alone. Use `floquet` if they are "
            "periodic.",
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


class Setup(NamedTuple):
    """What does not change while equilibria are sought."""

    system: System  # with held coordinates as constraints
    names: tuple[str, ...]  # coordinates with given rates
    moving: bool  # whether to solve for a steady motion
    seeks_states: bool  # whether to solve for states of first order in place of their integrals


class Case(NamedTuple):
    """The arguments of `solve`."""

    setup: Setup
    q: Any  # guess, shape (n,)
    v: Any  # guess, shape (n,)
    theta: Any  # params, the rates, t and the symmetries


def prepared(
    system: System, q: Any, params: Params, t: Any, fixed: Sequence[str], v: Any,
    symmetries: Symmetries | None,
) -> Case:  # fmt: skip
    """The checked arguments of `equilibrium`."""
    require_kind("system", system, System, "System(...)")
    velocities, guess = _rates(system, v)
    q, guess, t, params = system.arguments(q, guess, t, params)
    guess = system.dynamics.speeds(q, guess, t, params)
    system = in_rates(system, params)
    indices = coordinate_indices("fixed", fixed, system.coordinates)
    require_finite(q=q, v=(guess, velocities), t=t, params=params)
    if fixed:
        system, params = held(system, fixed), (params, q[np.array(indices)])
    seeks_motion = v is not None
    if system.states:
        mechanical = system.n - len(system.states)
        is_at_rest = is_known(guess) and not np.any(np.asarray(guess)[:mechanical])
        is_of_states = isinstance(v, Mapping) and not velocities
        seeks_motion = seeks_motion and not (is_at_rest or is_of_states)
        remedy = "give `v` for the states alone, zero for the others"
        require_no_states(system.states if seeks_motion else (), "A steady motion", remedy)
    if not seeks_motion:
        no_symmetries = np.zeros((0, system.n + system.n**2 + 1))
        symmetries = Symmetries.of(no_symmetries, system.coordinates, q.dtype)
    elif symmetries is None:
        if not is_known((q, guess, velocities, t, params)):
            raise ValueError(
                "Argument `symmetries` must be given for a steady motion under `jit` or `vmap`; "
                "find them outside by `symmetries(system, q, v, t, params)`."
            )
        symmetries = find(system, q, guess, t, params)
    rates = (
        jnp.stack([jnp.asarray(x, q.dtype) for x in velocities.values()]) if velocities else q[:0]
    )
    seeks = bool(system.states) and not reads_integrals(system, q, guess, t, params)
    setup = Setup(system, tuple(velocities), seeks_motion, seeks)
    return Case(setup, q, guess, (params, rates, t, symmetries))


def _rates(system: System, v: Any) -> tuple[dict[str, Any], Any]:
    if v is None:
        return {}, np.zeros(system.n_velocities)
    if not isinstance(v, Mapping):
        return {}, v
    require_plain_velocities(system.velocities, "Argument `v`, rates by name,", IN_RATES)
    names = system.velocity_names
    coordinate_indices("v", v, names)
    rates = {name: rate for name, rate in v.items() if name not in system.states}
    return rates, jnp.stack([1.0 * jnp.asarray(v.get(name, 0.0)) for name in names])


class Balanced(NamedTuple):
    """A solution of the equations of equilibrium, before its stability is assessed."""

    q: Any
    v: Any
    multipliers: dict[str, Any]  # by constraint name
    reactions: dict[str, Any]  # by constraint name, shape (n,) each
    residual: Any  # the largest of the scaled equations
    W: Any  # derivative of the velocity field of the symmetry, shape (n, n)
    status: Any  # an `EquilibriumStatus`


@dataclass(frozen=True)
class ScaledProblem:
    """The scaled equations of equilibrium at a guess."""

    setup: Setup
    scales: tuple[Array, Array, Array]  # of forces, of the rows on velocities and on positions

    def scaled(self, x: Array) -> Array:
        """The scaled unknowns."""
        return x / self._factors(x)

    def unknowns(self, z: Array) -> Array:
        """The unknowns in their own units: q, the multipliers, the rates of the symmetries."""
        return z * self._factors(z)

    def _factors(self, z: Array) -> Array:
        (size, row, _), ones = self.scales, jnp.ones_like(z)
        n = self.setup.system.n
        return jnp.concatenate([ones[:n], EASY * size * row, ones[n + row.size :]])

    def state(self, z: Array, symmetries: Symmetries) -> tuple[Array, ...]:
        """Unpack the scaled unknowns: q, v, W, the multipliers, the rates of the symmetries."""
        system, count = self.setup.system, self.scales[1].size
        q, multipliers, alpha = jnp.split(self.unknowns(z), np.cumsum([system.n, count]))
        states = None
        if self.setup.seeks_states:
            mechanical = system.n - len(system.states)
            # States are sought in place of their integrals, which have no effect.
            q, states = (
                padded(q[:mechanical], q.size - mechanical),
                jnp.zeros_like(q).at[mechanical:].set(q[mechanical:]),
            )
        W = jnp.tensordot(alpha, symmetries.W, 1)
        v = jnp.tensordot(alpha, symmetries.c, 1) + W @ q
        return q, v if states is None else v + states, W, multipliers, alpha

    def equations(self, z: Array, theta: Any) -> Array:
        """The residuals of the equations, the balance of forces first."""
        params, rates, t, symmetries = theta
        system, names, seeks_motion, _ = self.setup
        size, row, row_p = self.scales
        q, v, W, multipliers, alpha = self.state(z, symmetries)
        balances = balance(system, q, v, t, params, W @ v, multipliers)
        count = balances.speed.size
        parts = [balances.force / size, row_p * system.dynamics.position_level(q, t, params)]
        parts += [row[:count] * balances.speed, row[count:] * balances.rows[count:]]
        if seeks_motion:
            indices = coordinate_indices("v", names, system.coordinates)
            parts += [v[np.array(indices, dtype=int)] - rates, (alpha @ symmetries.s)[None] - 1]
        return jnp.concatenate(parts)

    def solved(self, z: Array, theta: Any) -> Balanced:
        """The state, multipliers, reactions and status at a zero of the equations."""
        return self.balanced(z, theta, self.rows(z, theta), self.equations(z, theta))

    def rows(self, z: Array, theta: Any) -> Array:
        """The rows of the constraints on accelerations, shape (m, n)."""
        params, _, t, symmetries = theta
        q, v, *_ = self.state(z, symmetries)
        return acceleration_rows(self.setup.system, q, v, t, params)

    def balanced(self, z: Array, theta: Any, A: Array, missed: Array) -> Balanced:
        """`solved` for the values of `rows` and `equations`."""
        params, _, t, symmetries = theta
        q, v, W, multipliers, _ = self.state(z, symmetries)
        system, sizes = self.setup.system, self.setup.system.dynamics.sizes(q, v, t, params)
        multipliers = matvec(column_space_projector(A), multipliers)
        back = np.argsort(row_order(system, sizes))
        of_names = np.split(back, np.cumsum(sizes)[:-1])
        rows = dict(zip((c.name for c in system.constraints), of_names, strict=False))
        missed = jax.lax.stop_gradient(missed)
        return Balanced(
            q=q,
            v=v,
            multipliers={name: multipliers[k] for name, k in rows.items()},
            reactions=ByName({name: A[k].T @ multipliers[k] for name, k in rows.items()}),
            residual=jnp.max(jnp.abs(missed)),
            W=W,
            status=_status(missed, system.n),
        )


def problem(setup: Setup, q: Array, guess: Array, theta: Any) -> tuple[ScaledProblem, Array]:
    """The equations and the vector of unknowns at a guess of q and v."""
    symmetries = theta[-1]
    scaled = scaled_at(setup, q, guess, theta)
    no_multipliers = jnp.zeros(scaled.scales[1].size, q.dtype)
    if setup.seeks_states:
        mechanical = setup.system.n - len(setup.system.states)
        q = jnp.concatenate([q[:mechanical], guess[mechanical:]])
    return scaled, jnp.concatenate([q, no_multipliers, symmetries.along(q, guess)])


def scaled_at(setup: Setup, q: Array, v: Array, theta: Any, otherwise: Any = 1.0) -> ScaledProblem:
    """The equations, measured by the forces at a state, or `otherwise` if there are none."""
    (params, _, t, _), system, at_rest = theta, setup.system, jnp.zeros_like(q)
    A = acceleration_rows(system, q, v, t, params)
    no_multipliers = jnp.zeros(len(A), q.dtype)

    def force(q: Array, params: Params) -> Array:
        return balance(system, q, v, t, params, at_rest, no_multipliers).force

    # Effects of relative changes of q and the parameters on forces, which themselves vanish at an
    # equilibrium.
    effects = reach(jax.jacfwd(force)(q, params), q) + parameter_reach(partial(force, q), params)
    largest = jnp.max(jnp.abs(force(q, params)) + effects)
    A_p = system.dynamics.position_jacobian(q, t, params)
    row, row_p = (jnp.where(x > 0, x, 1.0) for x in (unit_rows(A)[1], unit_rows(A_p)[1]))
    size = jnp.where((largest > 0) & jnp.isfinite(largest), largest, otherwise)
    return ScaledProblem(setup, jax.lax.stop_gradient((size, row, row_p)))


@jit_of("setup")
def solve(setup: Setup, q: Array, guess: Array, theta: Any) -> Balanced:
    """An equilibrium near a guess of q and v; theta holds params, rates, t and symmetries."""
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
        return np.asarray(_values(setup, scales, z, theta))

    def linear(scales: Any, z: Any) -> Any:
        return jax.tree.map(np.asarray, _linear(setup, scales, z, theta))

    scales, z = _problem_at(setup, q, guess, theta)
    for _ in range(ATTEMPTS):
        z = root_known(partial(values, scales), partial(linear, scales), np.asarray(z))
        last = scales
        scales, z = _rescaled_at(setup, scales, jnp.asarray(z), theta)
        if 0.1 < scales[0] / last[0] < 10.0:
            break
    arguments = setup, scales, z, theta
    return _balanced(*arguments, _rows(*arguments), _values(*arguments))


@jit_of("setup", is_frame=True, is_finite=True)
def _problem_at(setup: Setup, q: Array, guess: Array, theta: Any) -> tuple[Any, Array]:
    def scales_and_start(q: Array, guess: Array, theta: Any) -> tuple[Any, Array]:
        scaled, start = problem(setup, q, guess, theta)
        return scaled.scales, start

    return native_call(scales_and_start, q, guess, theta)


@jit_of("setup", is_frame=True, is_finite=True)
def _rescaled_at(setup: Setup, scales: Any, z: Array, theta: Any) -> tuple[Any, Array]:
    def rescaled(scales: Any, z: Array, theta: Any) -> tuple[Any, Array]:
        return _rescaled(ScaledProblem(setup, scales), z, theta)

    return native_call(rescaled, scales, z, theta)


@jit_of("setup", is_frame=True, is_finite=True)
def _values(setup: Setup, scales: Any, z: Array, theta: Any) -> Array:
    def evaluated(scales: Any, z: Array, theta: Any) -> Array:
        return ScaledProblem(setup, scales).equations(z, theta)

    return native_call(evaluated, scales, z, theta)


@jit_of("setup", is_frame=True, is_finite=True)
def _linear(setup: Setup, scales: Any, z: Array, theta: Any) -> tuple[Array, Array]:
    def evaluated(scales: Any, z: Array, theta: Any) -> tuple[Array, Array]:
        def equations(z: Array) -> Array:
            return ScaledProblem(setup, scales).equations(z, theta)

        return equations(z), jacobian(equations, z)

    return native_call(evaluated, scales, z, theta)


@jit_of("setup", is_frame=True, is_finite=True)
def _rows(setup: Setup, scales: Any, z: Array, theta: Any) -> Array:
    def evaluated(scales: Any, z: Array, theta: Any) -> Array:
        return ScaledProblem(setup, scales).rows(z, theta)

    return native_call(evaluated, scales, z, theta)


@jit_of("setup", is_frame=True, is_brief=True)
def _balanced(setup: Setup, scales: Any, z: Array, theta: Any, A: Array, missed: Array) -> Balanced:
    return ScaledProblem(setup, scales).balanced(z, theta, A, missed)


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


def _require_found(case: Case, balanced: Balanced, fixed: Sequence[str]) -> None:
    status = EquilibriumStatus(int(balanced.status))
    if status is EquilibriumStatus.FOUND:
        return
    subject = "steady motion" if case.setup.moving else "equilibrium"
    why, remedy = status.message, "give a closer guess, or check that there is one"
    if status is EquilibriumStatus.UNMET:
        params, _, t, _ = case.theta
        for violation in violations(case.setup.system, balanced.q, balanced.v, t, params)[:1]:
            why += f" ({violation.name!r} is missed by {violation.size:.2g})"
        if fixed:
            remedy = f"release {' or '.join(fixed)}, or {remedy}"
    elif status is EquilibriumStatus.UNBALANCED:
        why += f": {float(balanced.residual):.2g} of the forces at play is left"
    raise ValueError(f"No {subject} was found: {why}; {remedy}.")
