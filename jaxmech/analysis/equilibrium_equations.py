"""The equations of an equilibrium or a steady motion, with coordinates that are held, and `root`.

The unknowns are q, the multipliers and, for a steady motion, its constant rates alpha along the
directions in which nothing depends on q, those of cyclic coordinates. The equations are the balance
of forces, 0 = Q + A^T lambda, the constraints at all levels and the given rates.

A zero of these, possibly redundant, equations is found by minimum-norm Levenberg-Marquardt steps.
Six dampings and parts of their steps are tried side by side and the best is taken, the undamped
Newton step among them; so there is no state between steps, and a batch has no branches. Redundant
equations and directions of no effect do no harm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.deviations import (
    acceleration_rows,
    balance,
    parameter_reach,
    reach,
    reads_integrals,
    row_order,
)
from jaxmech.compiler import hoisted
from jaxmech.linalg import QR, column_space_projector, matvec, rows_on_host, unit, unit_rows
from jaxmech.system import Acceleration, Holonomic, Params, System
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import coordinate_indices, is_known, require_finite, require_kind
from jaxmech.utils.probing import cached_by_shapes, concrete_at, generic
from jaxmech.utils.trees import ByName

ITERATIONS = 100
DAMPING = (0.0, 1e-8, 1e-5, 1e-3, 1e-1, 10.0)
LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03)  # parts of a step, of which the best is taken

Equations = Callable[[Array, Any], Array]


def root(equations: Equations, start: Array, theta: Any) -> Array:
    """Return z with equations(z, theta) = 0 near a start, or the z of the least residual.

    Its derivatives of any order with respect to theta, and to traced values in the equations, are
    those of the zero that moves least (implicit function theorem), whatever the start.
    """
    theta = jax.tree.map(jnp.asarray, theta)
    # A function with custom derivative rules must not close over traced values.
    with_traced, traced = hoisted(equations, start, theta)

    def stacked(z: Array, theta: Any) -> Array:
        return with_traced(theta[0], z, theta[1])

    @jax.custom_jvp
    def solved(start: Array, theta: Any) -> Array:
        return _solve(lambda z: stacked(z, theta), start)

    @solved.defjvp
    def implicit(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
        start, theta = primals
        z = solved(start, theta)
        _, moved = jax.jvp(lambda theta: stacked(z, theta), (theta,), (tangents[1],))
        return z, -_shortest(jax.jacfwd(stacked)(z, theta), moved)

    return solved(jax.lax.stop_gradient(start), (traced, theta))


def _shortest(J: Array, r: Array) -> Array:
    """J^+ r for r in the range of J, with the derivatives of the solution of a linear equation."""
    count, unknowns = J.shape
    size = max(count, unknowns)  # `custom_linear_solve` accepts square matrices
    square = jnp.zeros((size, size), J.dtype).at[:count, :unknowns].set(J)
    frozen = jax.lax.stop_gradient(square)

    def solve(_: Any, b: Array) -> Array:
        return QR().factor(frozen).min_norm_solve(b)[0]

    def solve_transposed(_: Any, b: Array) -> Array:
        return QR().factor(frozen.T).min_norm_solve(b)[0]

    b = jnp.zeros(size, r.dtype).at[:count].set(r)
    x = jax.lax.custom_linear_solve(lambda x: matvec(square, x), b, solve, solve_transposed)
    return x[:unknowns]


def _solve(equations: Callable[[Array], Array], start: Array) -> Array:
    def missed(value: Array) -> Array:
        return jnp.where(jnp.all(jnp.isfinite(value)), jnp.sqrt((value * value).sum()), jnp.inf)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        z, size, _, k = carry
        F, J = equations(z), jax.jacfwd(equations)(z)

        def trial(damping: Array) -> tuple[Array, Array]:
            # The z part of the shortest solution of [J, sqrt(mu) 1] x = F is J^T (J J^T + mu)^-1 F,
            # the Levenberg-Marquardt step. mu decreases with the residual, so that the last steps
            # are Newton steps.
            damped = jnp.sqrt(damping * size) * jnp.eye(len(F), dtype=z.dtype)
            augmented = jnp.concatenate([J, damped], axis=1)
            d = QR().factor(augmented).min_norm_solve(F)[0][: z.size]
            # Far from a zero whole steps fail for every damping where constraints are many.
            moved = z[None] - jnp.asarray(np.array(LENGTHS), z.dtype)[:, None] * d[None]
            sizes = jax.vmap(lambda z: missed(equations(z)))(moved)
            best = jnp.argmin(sizes)
            return moved[best], sizes[best]

        # Steps are few and the factorization is small: trying all dampings is simpler than choosing
        # one.
        trials, sizes = jax.lax.map(trial, jnp.asarray(np.array(DAMPING), z.dtype))
        best = jnp.argmin(sizes)
        better = sizes[best] < size
        z = jnp.where(better, trials[best], z)
        return z, jnp.minimum(sizes[best], size), better, k + 1

    def goes_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, size, better, k = carry
        return better & (k < ITERATIONS) & (size > 0)

    first = (start, missed(equations(start)), jnp.asarray(True), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(goes_on, step, first)[0]


def root_known(
    values: Callable[[HostArray], HostArray],
    linear: Callable[[HostArray], tuple[HostArray, HostArray]],
    start: HostArray,
) -> HostArray:
    """`root` for a start whose numbers are known.

    Args:
        values: the equations.
        linear: the equations and their Jacobian.
        start: shape (n,).
    """
    with np.errstate(all="ignore"):
        z, size = start, _missed(values(start))
        for _ in range(ITERATIONS):
            if not size > 0:
                break
            F, J = linear(z)
            trials = []  # parts of the steps for all dampings
            for damping in np.array(DAMPING, z.dtype):
                damped = np.sqrt(damping * size, dtype=z.dtype) * np.eye(len(F), dtype=z.dtype)
                rows = rows_on_host(np.concatenate([J, damped], axis=1))
                step = rows.min_norm_solve(F)[0][: z.size]
                trials += [z - length * step for length in np.array(LENGTHS, z.dtype)]
            sizes = [_missed(values(trial)) for trial in trials]
            best = int(np.argmin(sizes))
            if not sizes[best] < size:
                break
            z, size = trials[best], sizes[best]
        return z


def _missed(value: HostArray) -> float:
    return float(np.sqrt((value * value).sum())) if np.isfinite(value).all() else float("inf")


EASY = 1e3  # ratio of the scale of multipliers to that of coordinates


class EquilibriumStatus(IntEnum):
    """The outcome of the search for an equilibrium."""

    FOUND = 0
    UNBALANCED = 1
    UNMET = 2
    NONFINITE = 3

    @property
    def message(self) -> str:
        return _MESSAGES[self]


_MESSAGES = {
    EquilibriumStatus.FOUND: "forces are in balance and the constraints are satisfied",
    EquilibriumStatus.UNBALANCED: "forces are not in balance anywhere near the guess",
    EquilibriumStatus.UNMET: "the constraints cannot all be satisfied near the guess",
    EquilibriumStatus.NONFINITE: "the functions of the system are not finite",
}


class Setup(NamedTuple):
    """What does not change while equilibria are sought."""

    system: System  # with held coordinates as constraints
    kept: "Kept"  # the velocities with given values
    moving: bool  # whether to solve for a steady motion
    seeks_states: bool  # whether to solve for states of first order in place of their integrals


@dataclass(frozen=True)
class Kept:
    """Some velocities of the system, from the rates of its coordinates."""

    system: System
    entries: tuple[int, ...]

    def __call__(self, q: Array, speeds: Array, t: Array, params: Params) -> Array:
        velocities = self.system.dynamics.from_speeds(q, speeds, t, params)
        return velocities[np.array(self.entries, dtype=int)]


def prepared(
    system: System, q: Any, params: Params, t: Any, fixed: Sequence[str], v: Any
) -> tuple[Setup, Any, Any, Any]:
    """The checked arguments of `solve`.

    They are the setup, guesses of q and v (n,), and theta: params, the given rates, t and the
    directions of a steady motion, (k, n).
    """
    require_kind("system", system, System, "System(...)")
    velocities, guess = dict[str, Any](), np.zeros(system.n_velocities) if v is None else v
    if isinstance(v, Mapping):
        names = system.velocity_names
        coordinate_indices("v", v, names)
        velocities = {name: rate for name, rate in v.items() if name not in system.states}
        guess = jnp.stack([1.0 * jnp.asarray(v.get(name, 0.0)) for name in names])
    q, guess, t, params = system.arguments(q, guess, t, params)
    indices = coordinate_indices("fixed", fixed, system.coordinates)
    require_finite(q=q, v=(guess, velocities), t=t, params=params)
    if fixed:
        system, params = held(system, fixed), (params, q[np.array(indices)])
    kept = Kept(system, tuple(map(system.velocity_names.index, velocities)))
    guess = system.dynamics.speeds(q, guess, t, params)
    system.require_smooth()
    system = system.in_rates(params)
    seeks_motion = v is not None
    if system.states:  # which alone may have been given
        moving = np.asarray(guess)[: system.dynamics.mechanical] if is_known(guess) else 1.0
        is_of_states = isinstance(v, Mapping) and not velocities
        seeks_motion = seeks_motion and bool(np.any(moving)) and not is_of_states
    directions = np.zeros((0, system.n))
    if seeks_motion:
        directions = _cyclic_directions(system, q, guess, t, params)
    rates = (
        jnp.stack([jnp.asarray(x, q.dtype) for x in velocities.values()]) if velocities else q[:0]
    )
    seeks = bool(system.states) and not reads_integrals(system, q, guess, t, params)
    setup = Setup(system, kept, seeks_motion, seeks)
    return setup, q, guess, (params, rates, t, jnp.asarray(directions, q.dtype))


@cached_by_shapes
def _cyclic_directions(system: System, q: Array, v: Array, t: Array, params: Params) -> HostArray:
    """Orthonormal directions in which nothing of the motion depends on q, shape (k, n).

    They are those in which no derivative with respect to q has a part, at generic states and
    parameters, as values may be traced.
    """
    dynamics, mechanical = system.dynamics, system.dynamics.mechanical

    def functions(
        q: Array, v: Array, t: Array, params: Params, a: Array, multipliers: Array
    ) -> Array:
        parts = [
            dynamics.lagrangian_value(q, v, t, params)[None],
            dynamics.slopes(q, v, t, params)[1],
        ]
        parts += [dynamics.velocity_level(q, v, t, params), dynamics.state_rates(q, v, t, params)]
        parts += [dynamics.applied_force(q, v, t, params)]
        if system.nonideal is not None:
            parts.append(dynamics.nonideal_force(q, v, multipliers, t, params))
        for c in system.constraints:
            if isinstance(c, Acceleration):
                parts.append(c.value(q, v, a, t, params))
        return jnp.concatenate(parts)

    count = sum(dynamics.sizes(q, v, t, params))
    points = [
        generic((q, v, t, params, jnp.zeros_like(q), jnp.zeros(count, q.dtype)), seed)
        for seed in range(4)
    ]
    slopes = [x for x in concrete_at(jax.jacfwd(functions), points) if x is not None]
    if not slopes:
        raise ValueError(
            "Argument `system` must not close over values that are being traced where a steady "
            "motion is sought; pass them as parameters."
        )
    rows = np.concatenate(slopes)[:, :mechanical]
    rows = unit(rows[np.isfinite(rows).all(1)])[0]
    _, sizes, V = np.linalg.svd(rows)
    free = V[int((sizes > np.finfo(rows.dtype).eps ** 0.5).sum()) :]
    return np.pad(free, ((0, 0), (0, system.n - mechanical)))


class Balanced(NamedTuple):
    """A solution of the equations of equilibrium, before its stability is assessed."""

    q: Any
    v: Any
    multipliers: dict[str, Any]  # by constraint name
    reactions: dict[str, Any]  # by constraint name, shape (n,) each
    residual: Any  # the largest of the scaled equations
    status: Any  # an `EquilibriumStatus`


@dataclass(frozen=True)
class ScaledProblem:
    """The scaled equations of equilibrium at a guess."""

    setup: Setup
    scales: tuple[Array, Array, Array]  # of forces, of the rows on velocities and on positions

    def scaled(self, x: Array) -> Array:
        return x / self._factors(x)

    def unknowns(self, z: Array) -> Array:
        """The unknowns in their own units: q, the multipliers, the rates along the directions."""
        return z * self._factors(z)

    def _factors(self, z: Array) -> Array:
        (size, row, _), ones = self.scales, jnp.ones_like(z)
        n = self.setup.system.n
        return jnp.concatenate([ones[:n], EASY * size * row, ones[n + row.size :]])

    def state(self, z: Array, directions: Array) -> tuple[Array, ...]:
        """Unpack the scaled unknowns: q, v and the multipliers."""
        system, count = self.setup.system, self.scales[1].size
        q, multipliers, alpha = jnp.split(self.unknowns(z), np.cumsum([system.n, count]))
        states = None
        if self.setup.seeks_states:
            mechanical = system.dynamics.mechanical
            # States are sought in place of their integrals, which have no effect.
            q, states = (
                system.dynamics.without_states(q),
                jnp.zeros_like(q).at[mechanical:].set(q[mechanical:]),
            )
        v = alpha @ directions
        return q, v if states is None else v + states, multipliers

    def equations(self, z: Array, theta: Any) -> Array:
        """The residuals of the equations, the balance of forces first."""
        params, rates, t, directions = theta
        system, kept, seeks_motion, _ = self.setup
        size, row, row_p = self.scales
        q, v, multipliers = self.state(z, directions)
        balances = balance(system, q, v, t, params, jnp.zeros_like(v), multipliers)
        count = balances.speed.size
        parts = [balances.force / size, row_p * system.dynamics.position_level(q, t, params)]
        parts += [row[:count] * balances.speed, row[count:] * balances.rows[count:]]
        if seeks_motion:
            parts.append(kept(q, v, t, params) - rates)
        return jnp.concatenate(parts)

    def solved(self, z: Array, theta: Any) -> Balanced:
        """The state, multipliers, reactions and status at a zero of the equations."""
        return self.balanced(z, theta, self.rows(z, theta), self.equations(z, theta))

    def rows(self, z: Array, theta: Any) -> Array:
        """The rows of the constraints on accelerations, shape (m, n)."""
        params, _, t, directions = theta
        q, v, _ = self.state(z, directions)
        return acceleration_rows(self.setup.system, q, v, t, params)

    def balanced(self, z: Array, theta: Any, A: Array, missed: Array) -> Balanced:
        """`solved` for the values of `rows` and `equations`."""
        params, _, t, directions = theta
        q, v, multipliers = self.state(z, directions)
        system, sizes = self.setup.system, self.setup.system.dynamics.sizes(q, v, t, params)
        multipliers = matvec(column_space_projector(A), multipliers)
        back = np.argsort(row_order(system, sizes))
        of_names = np.split(back, np.cumsum(sizes)[:-1])
        rows = dict(zip((c.name for c in system.constraints), of_names, strict=False))
        missed = jax.lax.stop_gradient(missed)
        # The first n residuals are the balance of forces.
        tolerance = 100 * jnp.finfo(missed.dtype).eps ** 0.75
        status = jnp.where(
            jnp.max(jnp.abs(missed[system.n :]), initial=0.0) > 1e3 * tolerance,
            EquilibriumStatus.UNMET,
            EquilibriumStatus.UNBALANCED,
        )
        status = jnp.where(jnp.max(jnp.abs(missed)) <= tolerance, EquilibriumStatus.FOUND, status)
        is_finite = jnp.all(jnp.isfinite(missed))
        return Balanced(
            q=q,
            v=v,
            multipliers={name: multipliers[k] for name, k in rows.items()},
            reactions=ByName({name: A[k].T @ multipliers[k] for name, k in rows.items()}),
            residual=jnp.max(jnp.abs(missed)),
            status=jnp.where(is_finite, status, EquilibriumStatus.NONFINITE),
        )


def problem(setup: Setup, q: Array, guess: Array, theta: Any) -> tuple[ScaledProblem, Array]:
    """The equations and the vector of unknowns at a guess of q and v."""
    scaled = scaled_at(setup, q, guess, theta)
    no_multipliers = jnp.zeros(scaled.scales[1].size, q.dtype)
    mechanical = setup.system.dynamics.mechanical
    alpha = theta[-1] @ setup.system.dynamics.without_states(guess)
    if setup.seeks_states:
        q = jnp.concatenate([q[:mechanical], guess[mechanical:]])
    return scaled, jnp.concatenate([q, no_multipliers, alpha])


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


@dataclass(frozen=True)
class _WithFirst:
    """A function of the system applied to the first of a pair of parameters."""

    fn: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args[:-1], args[-1][0])


@dataclass(frozen=True)
class _Hold:
    """The constraint q[entry] - values[number], with the values as the second of a pair."""

    entry: int
    number: int

    def __call__(self, q: Array, t: Any, params: Any) -> Array:
        return q[self.entry] - params[1][self.number]


def held(system: System, names: Sequence[str]) -> System:
    """The system with `fixed x` for each named coordinate x; params become (params, values)."""
    with_pair = system.with_functions(lambda fn, _: _WithFirst(fn))
    extra = [
        Holonomic(_Hold(system.coordinates.index(name), number), f"fixed {name}")
        for number, name in enumerate(names)
    ]
    return replace(with_pair, constraints=(*with_pair.constraints, *extra))
