"""Structural properties, which hold at almost every state and are found without concrete values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from jaxmech.compiler import jacobian, native_call
from jaxmech.linalg import matvec
from jaxmech.system.constraints import Acceleration, Holonomic, Nonholonomic
from jaxmech.system.equations import SingularMass
from jaxmech.system.known import mass_and_rows
from jaxmech.system.system import Params, System
from jaxmech.utils.checks import require_in_range
from jaxmech.utils.probing import (
    cached_by_shapes,
    concrete_at,
    depends_on,
    generic,
    outside_traces,
    wide,
)

SAMPLES = 16  # number of states at which sets of rows are compared


def with_mass_rank(system: System, q: Array, v: Array, t: Array, params: Params) -> System:
    """Set `singular_mass` of a system to the value detected for arguments of these shapes."""
    return system.with_singular_mass(singular_mass(system, q, v, t, params))


@cached_by_shapes
def singular_mass(system: System, q: Array, v: Array, t: Array, params: Params) -> SingularMass:
    """Detect whether M lacks full rank at generic states, as for a unit quaternion.

    If it does, return the rows of A that make it definite, or True if all are needed. A wrong
    answer never changes a result: an undetected singular M ends in the status `SINGULAR_MASS`.
    """
    require_entries(system, q, v, t, params)
    states = _generic_states(q, v, t, params)
    matrices = [outside_traces(mass_and_rows, system, *state) for state in states]
    singular = all(pair is not None and _is_singular(np.asarray(pair[0])) for pair in matrices)
    return singular and _needed_rows(system, q, v, t, params)


@cached_by_shapes
def conserves_energy(system: System, q: Array, v: Array, t: Array, params: Params) -> bool:
    """Whether nothing depends on time, no force or state acts, and no constraint does work.

    Non-ideal constraints are assumed to do work. If conservation is not detected, the energy drift
    is not reported.
    """
    works = system.force, system.nonideal, system.sampling
    if any(x is not None for x in works) or system.states:
        return False
    if system.velocities:
        return conserves_energy(system.plain, q, jnp.zeros_like(q), t, params)
    if any(isinstance(c, Acceleration) for c in system.constraints):
        return False
    sources = _work_sources(system, q, v, t, params)
    if not sources:
        return True
    states = _generic_states(q, v, t, params)
    values = concrete_at(lambda *state: jnp.concatenate([work(*state) for work in sources]), states)
    return all(value is not None and np.allclose(value, 0, atol=1e-5) for value in values)


def require_entries(system: System, q: Array, v: Array, t: Array, params: Params) -> None:
    """Raise an IndexError if a function of the user reads an entry of an array that has none there.

    JAX would read the nearest entry instead: q[2] of two coordinates would be q[1].
    """
    functions: dict[str, Callable[..., Any]] = {}
    if system.mass_and_force is None and system.quasi_mass_and_force is None:
        functions["`lagrangian`"] = system.lagrangian
    if system.force is not None:
        functions["`force`"] = system.force
    if system.rates is not None:
        functions["`rates`"] = system.rates
    for source, fn in functions.items():
        require_in_range(source, fn, q, system.dynamics.speeds(q, v, t, params), t, params)
    for c in system.constraints:
        require_in_range(f"Constraint {c.name!r}", c.residual, q, v, v, t, params)


class Drive(Enum):
    """What the constraints that contain the time prescribe."""

    NONE = 0
    POSITIONS = 1
    VELOCITIES = 2  # perhaps beside positions

    @staticmethod
    @cached_by_shapes
    def of(system: System, q: Array, v: Array, t: Array, params: Params) -> "Drive":
        """Whether constraints on positions or velocities contain the time."""

        def nonholonomic(t: Array) -> list[Array]:
            chosen = [c for c in system.constraints if isinstance(c, Nonholonomic)]
            return [c.value(q, v, t, params) for c in chosen]

        if depends_on(nonholonomic, (t,)):
            return Drive.VELOCITIES
        is_driven = depends_on(lambda t: system.dynamics.position_level(q, t, params), (t,))
        return Drive.POSITIONS if is_driven else Drive.NONE


def _generic_states(*state: Any) -> list[tuple[Array, Array, Array, Params]]:
    return [generic(state, seed) for seed in (11, 12)]


def _needed_rows(system: System, q: Array, v: Array, t: Array, params: Params) -> SingularMass:
    """Select few and sparse rows of A with which M + A^T W A is well conditioned.

    With N the null space of M and rows of unit length, the singular values of A N measure how well
    A complements M. Rows are dropped, the densest first, as long as the smallest singular value
    stays above half of that of all rows, or of one, at every sampled state. Rows that vanish where
    the truth values among the parameters are false belong to constraints that can be switched off:
    all rows are needed if M is not definite without them.
    """
    sampled = []
    for seed in range(SAMPLES):
        state, values = wide((q, v, t), seed), generic(params, seed)
        matrices = outside_traces(mass_and_rows, system, *state, values)
        if matrices is None or not all(np.isfinite(x).all() for x in matrices):
            return True
        M, A = (np.asarray(x, float) for x in matrices)
        leaves, structure = jax.tree.flatten(values)
        is_flag = [jnp.result_type(x) == jnp.bool_ for x in leaves]
        if any(is_flag):
            pairs = zip(leaves, is_flag, strict=True)
            off = [np.zeros(np.shape(x), bool) if flag else x for x, flag in pairs]
            off = jax.tree.unflatten(structure, off)
            _, A_off = outside_traces(mass_and_rows, system, *state, off)
            A = np.where((np.asarray(A_off) != 0).any(1, keepdims=True), A, 0.0)
        scale = mass_scale(M)
        M, A = M / np.outer(scale, scale), A / scale
        lengths = np.linalg.norm(A, axis=1, keepdims=True)
        sizes, directions = np.linalg.eigh(M)
        null = directions[:, np.abs(sizes) <= 1e-5 * np.abs(sizes).max()]
        sampled.append((A != 0, A / np.where(lengths > 0, lengths, 1.0) @ null))
    filled = np.any([nonzero for nonzero, _ in sampled], axis=0).sum(1)
    carried = [across for _, across in sampled]
    enough = [min(_least(across), 1.0) / 2 for across in carried]
    rows = list(range(len(filled)))
    for row in sorted(rows, key=lambda row: (-filled[row], -row)):
        remaining = [k for k in rows if k != row]
        if all(_least(x[remaining]) >= e for x, e in zip(carried, enough, strict=True)):
            rows = remaining
    return tuple(rows) if min(enough) > 0 else True


def _least(across: NDArray[np.floating]) -> float:
    """The smallest singular value; zero if there are fewer rows than columns."""
    m, k = across.shape
    return float(np.linalg.svd(across, compute_uv=False)[-1]) if m >= k else 0.0


def _is_singular(M: np.ndarray) -> bool:
    if not np.isfinite(M).all():
        return False
    scale = mass_scale(M)
    return bool(np.linalg.matrix_rank(M / np.outer(scale, scale), tol=1e-5) < M.shape[0])


def mass_scale(M: NDArray[np.floating]) -> NDArray[np.floating]:
    """The square roots of the diagonal of M, 1 where zero: M / (s s^T) has a unit diagonal."""
    scale = np.sqrt(np.abs(np.diagonal(M)))
    return np.where(scale > 0, scale, 1.0)


def _work_sources(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> list[Callable[..., Array]]:
    """Functions of the state that vanish if energy is conserved: dL/dt, and each A v that need not.

    The power of a constraint force is (A v) . lambda. For dphi/dt = A v + phi_t = 0 it vanishes if
    phi_t does; for psi = 0 if A v is psi itself, that is, if psi is linear and homogeneous in v.
    """

    def explicit(q: Array, v: Array, t: Array, params: Params) -> Array:
        return jax.grad(lambda t: system.lagrangian(q, v, t, params))(t)[None]

    def speed(constraint: Holonomic, q: Array, v: Array, t: Array, params: Params) -> Array:
        return constraint.speed(q, jnp.zeros_like(v), t, params)

    def power(constraint: Nonholonomic, q: Array, v: Array, t: Array, params: Params) -> Array:
        A, _ = constraint.rows(q, v, t, params)
        return matvec(A, v) - constraint.value(q, v, t, params)

    # What does not contain the time need not be evaluated.
    sources: list[Callable[..., Array]] = []
    if depends_on(lambda t: system.lagrangian(q, v, t, params), (t,)):
        sources.append(explicit)
    for c in system.constraints:
        if isinstance(c, Nonholonomic):
            sources.append(partial(power, c))
        elif isinstance(c, Holonomic) and depends_on(lambda t, c=c: c.value(q, t, params), (t,)):
            sources.append(partial(speed, c))
    return sources


STATES = 6  # number of states at which equations are evaluated
SHARE = float(jnp.finfo(np.float64).eps) ** (1 / 3)  # of its terms, below which a sum is zero


@dataclass(frozen=True)
class ImpliedEquations:
    """Which of some equations others imply.

    In a planar loop in space, the joint that closes it states again that the axes are parallel. In
    exact numbers such an equation has derivatives of zero in all states. Computed ones are zero
    only if the axes are coordinate axes; otherwise they are sums whose terms cancel up to
    round-off, and a solver, which compares a row with its own length, would take them for another
    equation. So rows are compared with their terms, before a program is compiled: it then contains
    zeros, which cost nothing.

    Attributes:
        terms: the size of the terms of each equation that is implied, None for the others.
    """

    terms: tuple[float | None, ...]

    @staticmethod
    def among(
        equations: Callable[..., Array], variables: tuple[Array, ...], context: tuple[Any, ...]
    ) -> "ImpliedEquations":
        """Those among equations, by their values at random states.

        Args:
            equations: the residuals (k,) as a function of `variables` and `context`.
            variables: examples of coordinates and velocities, of which the first array has to
                satisfy the equations.
            context: examples of time and parameters.
        """

        def sums(x: Array, *others: Any) -> Array:
            def level(x: Array) -> Array:
                return equations(x, *others)

            return jnp.concatenate([level(x)[:, None], jacobian(level, x)], axis=1)

        points = [(*wide(variables, k), *generic(context, k)) for k in range(STATES)]
        single, double = (_evaluated(sums, points, dtype) for dtype in (np.float32, np.float64))
        if not (np.isfinite(single).all() and np.isfinite(double).all()):
            count = len(jax.eval_shape(equations, *variables, *context))
            return ImpliedEquations((None,) * count)
        # Single precision leaves the round-off of the terms, however small their sum is.
        terms = _size(single - double) / float(jnp.finfo(np.float32).eps)
        is_implied = (_size(double) <= SHARE * terms)[:, 1:].all(1)
        is_implied &= terms[:, 1:].any(1)  # exact zeros have no terms, and need no care
        sizes = zip(is_implied, terms.max(1), strict=True)
        return ImpliedEquations(tuple(float(size) if implied else None for implied, size in sizes))

    def as_constants(self, values: Array, x: Array) -> Array:
        """The residuals at x, (k,), implied ones as constants: zero up to round-off."""
        if all(size is None for size in self.terms):
            return values
        share = float(jnp.finfo(values.dtype).eps) ** (1 / 3)
        reach = jax.lax.stop_gradient(1 + jnp.max(jnp.abs(x)))

        def constant(value: Array, size: float) -> Array:
            # Not zero if the loop cannot be closed, which the residual then tells.
            return jnp.where(jnp.abs(value) <= share * size * reach, 0.0, value)

        return jnp.stack(
            [
                value if size is None else constant(jax.lax.stop_gradient(value), size)
                for value, size in zip(values, self.terms, strict=True)
            ]
        )


def _evaluated(fn: Callable[..., Array], points: Sequence[Any], dtype: Any) -> np.ndarray:
    """The values at all points in a precision; NaN where there are none."""

    def leaf(x: Any) -> Any:
        is_real = jnp.issubdtype(jnp.result_type(x), jnp.floating)
        # From single precision, so that both precisions are given the same numbers.
        return np.asarray(np.asarray(x, np.float32), dtype) if is_real else x

    with jax.enable_x64(True):
        # As native code, which compiles several times faster.
        values = list(concrete_at(partial(native_call, fn), jax.tree.map(leaf, points)))
    return np.array([np.nan if x is None else x for x in values], float)


def _size(x: np.ndarray) -> np.ndarray:
    return np.sqrt((x * x).mean(0))
