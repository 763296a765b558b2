"""`equilibrium`: a state of rest, or of steady motion, near a guess, with its stability.

It lets `root` solve the equations of `equilibrium_equations`, traced or known ones.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.analysis.deviations import Freedom, freedom_at, require_regular
from jaxmech.analysis.equilibrium_equations import (
    Balanced,
    EquilibriumStatus,
    ScaledProblem,
    Setup,
    prepared,
    problem,
    root,
    root_known,
    scaled_at,
)
from jaxmech.analysis.linearization import NOTHING, Linearization, is_negligible, linearized
from jaxmech.analysis.modes import null, on_host, spectrum_of
from jaxmech.analysis.states import State
from jaxmech.compiler import jacobian, native_program
from jaxmech.system import KnownState, Params, Subject, with_params
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import is_known, with_standard_promotion
from jaxmech.utils.jit_cache import is_inside_a_program, jit_of

AXIS = 0.45  # power of round-off of a real part that is zero, also when repeated


class Stability(IntEnum):
    """Stability according to the linear equations; zero eigenvalues are counted apart."""

    UNKNOWN = -1  # the linear equations change with time, or are not finite
    UNSTABLE = 0  # an eigenvalue has a positive real part
    MARGINAL = 1  # all are on the imaginary axis or left of it; nonlinear terms decide
    STABLE = 2  # the potential energy has a strict minimum (Lagrange and Dirichlet)
    ASYMPTOTICALLY_STABLE = 3  # all eigenvalues but zeros have negative real parts


class Assessment(NamedTuple):
    """The stability of a motion, in numbers.

    Attributes:
        stability: a `Stability`.
        index: number of negative eigenvalues of the projected Hessian (the symmetric part of the
            reduced stiffness); -1 where a nonholonomic constraint makes it rectangular.
        unstable: number of eigenvalues with a positive real part.
        zeros: number of zero eigenvalues.
        growth: the largest real part of an eigenvalue [1/s].
    """

    stability: Any
    index: Any
    unstable: Any
    zeros: Any
    growth: Any


def assess(lin: Linearization) -> Assessment:
    """The assessment of the linearization of one motion; it has no derivative."""
    full, small = lin.full, lin.reduced
    A = jnp.where(is_negligible(lin.unsteadiness), lin.space.A, jnp.nan)
    # The size relative to which the reduced stiffness counts as zero.
    stiffness = sum(jnp.max(jnp.abs(x), initial=0.0) for x in (full.K, full.geometric))
    matrices = jax.lax.stop_gradient((A, small.M, small.C, small.K, stiffness, lin.rate))
    count, growth = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), A.dtype)
    shapes = Assessment(count, count, count, count, growth)
    return on_host(_assess, shapes, *matrices, vmap_method="sequential")


def _assess(
    A: HostArray, M: HostArray, C: HostArray, K: HostArray, stiffness: HostArray, rate: HostArray
) -> Assessment:
    k, negligible = K.shape[1], null(A.dtype)

    def assessment(*counts: int, growth: float) -> Assessment:
        return Assessment(*np.array(counts, np.int32), np.asarray(growth, A.dtype))  # type: ignore[call-arg]

    if not np.isfinite(A).all():
        return assessment(Stability.UNKNOWN, -1, 0, 0, growth=np.nan)
    spectrum = spectrum_of(A, M, K, float(rate))
    values, zero = spectrum.eigenvalues, spectrum.zero
    nonzero = values[~zero]
    # Round-off of the largest eigenvalue moves a slow one less, even if this one is repeated.
    size = np.sqrt(np.abs(nonzero) * np.abs(values).max(initial=0.0))
    axis = float(np.finfo(A.dtype).eps) ** AXIS * size
    unstable = int((nonzero.real > axis).sum())
    growth = float(values.real.max(initial=-np.inf))
    index, definite = -1, False
    if K.shape[0] == k:
        curvatures = np.linalg.eigvalsh((K + K.T) / 2)
        flat = np.abs(curvatures) <= negligible * stiffness
        index = int(((curvatures < 0) & ~flat).sum())
        definite = bool((curvatures[~flat] > 0).all()) and not flat.any()
        # A minimum of the potential energy proves stability only if the other forces are gyroscopic
        # or dissipative: no skew part of K (circulatory forces), and no negative damping.
        scale = negligible * max(float(stiffness), 1e-300)
        symmetric = bool(np.abs(K - K.T).max(initial=0.0) <= scale)
        definite &= symmetric
        dissipation = np.linalg.eigvalsh((C + C.T) / 2) if k else np.zeros(0)
        definite &= bool(dissipation.min(initial=0.0) >= -negligible * np.abs(C).max(initial=0.0))
    stability = Stability.MARGINAL
    if unstable:
        stability = Stability.UNSTABLE
    elif nonzero.size and (nonzero.real < -axis).all():
        stability = Stability.ASYMPTOTICALLY_STABLE
    elif definite:
        stability = Stability.STABLE
    return assessment(stability, index, unstable, int(zero.sum()), growth=growth)


class Equilibrium(eqx.Module):
    """A state of rest or of steady motion; under `jax.vmap` with a leading batch axis.

    Attributes:
        q: coordinates, shape (n,).
        v: velocities, shape (n,); those of the system, also where they are quasi-velocities, unlike
            `reactions` and `linearization`, which are in the rates of the coordinates.
        multipliers: multipliers of minimum norm by constraint name, shape (k,).
        reactions: by constraint name, A_k^T lambda_k, the generalized force on the system, (n,);
            also by `fixed x` for a coordinate x that is held.
        residual: the largest unbalanced force relative to the largest force at play, or the largest
            violation of a constraint relative to its row.
        status: an `EquilibriumStatus`, 0 if the equilibrium was found.
        linearization: the linear equations about the equilibrium, for `modes`.
        assessment: the stability in numbers.
        coordinates: names of the coordinates.
        states: names of the states of first order, the last entries of v.
        velocities: names of all entries of v.
    """

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    multipliers: dict[str, Float[Array, " _"]]
    reactions: dict[str, Float[Array, " n"]]
    residual: Float[Array, ""]
    status: Int[Array, ""]
    linearization: Linearization
    assessment: Assessment
    coordinates: tuple[str, ...] = eqx.field(static=True)
    states: tuple[str, ...] = eqx.field(static=True, default=())
    velocities: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def converged(self) -> Bool[Array, "..."]:
        """Whether the equilibrium was found."""
        return self.status == EquilibriumStatus.FOUND

    @property
    def stability(self) -> Int[Array, "..."]:
        """The stability, a `Stability`."""
        return self.assessment.stability

    @property
    def index(self) -> Int[Array, "..."]:
        """Number of negative eigenvalues of the projected Hessian of the energy; -1 if it has none.

        In a steady motion the Hessian is that of the comoving frame, with the given rates kept.
        With a nonholonomic constraint there is no such Hessian.
        """
        return self.assessment.index

    def __repr__(self) -> str:
        is_array = isinstance(self.q, jax.Array | np.ndarray)
        if not is_array or not is_known(self.q):
            return f"Equilibrium(coordinates={self.coordinates}, without values)"
        if self.q.ndim != 1:
            count = int(np.sum(self.converged))
            return f"Equilibrium: {self.q.shape[:-1]} of them, {count} found"
        return "\n".join(_card(self))


def _card(equilibrium: Equilibrium) -> list[str]:
    mechanical = len(equilibrium.coordinates) - len(equilibrium.states)
    count = len(equilibrium.velocities) - len(equilibrium.states)
    is_motion = bool(np.any(np.asarray(equilibrium.v)[:count]))
    rates = dict(zip(equilibrium.velocities, equilibrium.v, strict=True))
    verdict = Stability(int(equilibrium.stability)).name
    title = "in steady motion" if is_motion else "at rest"
    lines = [f"Equilibrium: {title}, {verdict}"]
    integrals = zip(equilibrium.coordinates[mechanical:], equilibrium.q[mechanical:], strict=True)
    names = equilibrium.coordinates[:mechanical] + tuple(name for name, x in integrals if x)
    width = max(map(len, (*names, *rates)))
    for name in names:
        entry = equilibrium.coordinates.index(name)
        x, rate = equilibrium.q[entry], rates.pop(name, 0.0)
        line = f"  {name:<{width}}  {_short(x)}"
        lines.append(line + (f", changing at {_short(rate)} per second" if rate else ""))
    for name, x in rates.items():  # of states, and quasi-velocities
        lines.append(f"  {name:<{width}}  {_short(x)}")
    for name, force in equilibrium.reactions.items():
        size = _short(jnp.linalg.norm(force))
        lines.append(f"  {name:<{width}}  {size} (norm of the generalized force)")
    if not bool(equilibrium.converged):
        status = EquilibriumStatus(int(equilibrium.status))
        lines.append(f"  not found: {status.message} (residual {float(equilibrium.residual):.2g})")
    return lines


def _short(x: Array | float) -> str:
    return f"{0.0 if abs(float(x)) < 1e-12 else float(x):.6g}"


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
            known = KnownState(full_system, balanced.q, balanced.v, t, held_params)
            for violation in known.violations()[:1]:
                why += f" ({violation.name!r} is missed by {violation.size:.2g})"
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
