"""`floquet`: stability of a periodic motion, from its monodromy matrix."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxmech.analysis.stability.balance import (
    Freedom,
    freedom_at,
    require_consistent,
    require_regular,
)
from jaxmech.analysis.stability.linearization import Linearization
from jaxmech.analysis.stability.linearize import NOTHING, linearized
from jaxmech.analysis.states import State, checked_in_rates, require_smooth
from jaxmech.integrate import RK4, AbstractMethod, FixedSteps
from jaxmech.run import Sensitivities, Solution, sensitivities
from jaxmech.status import Status
from jaxmech.system import Params, Subject, System, reads_integrals
from jaxmech.utils.checks import (
    coordinate_indices,
    require_positive,
    require_positive_integer,
    with_standard_promotion,
)
from jaxmech.utils.jit_cache import jit_of

CIRCLE = 1e-6  # largest distance from the unit circle that counts as on it
PERIODIC = 1e-4  # largest relative difference after one period
PHASES = (0.0, 0.15, 0.38, 0.71)  # of the period, at which the equations are compared


class Floquet(eqx.Module):
    """Small deviations from a periodic motion after one period.

    The result of `floquet`.

    Attributes:
        multipliers: eigenvalues of the monodromy matrix, the largest first, shape (j,).
        monodromy: the map of deviations z = (x, u) over one period, shape (j, j).
        exponents: log(multipliers) / period [1/s]; their imaginary part is known only up to whole
            multiples of 2 pi / period, shape (j,).
        errors: changes of the multipliers when the steps were halved, shape (j,); large for a
            repeated multiplier, as those of energy and of the direction of motion.
        closure: distance between end and start of the motion, relative to the ranges of q and v.
        period: the period [s].
        linearization: the linearization at the start, whose `deviation` turns z into (dq, dv).
    """

    multipliers: Complex[Array, " j"]
    monodromy: Float[Array, " j j"]
    exponents: Complex[Array, " j"]
    errors: Float[Array, " j"]
    closure: float
    period: float
    linearization: Linearization

    @property
    def unstable(self) -> int:
        """The number of multipliers outside the unit circle by more than their errors."""
        least = 1 + np.maximum(CIRCLE, np.asarray(self.errors))
        return int((np.abs(np.asarray(self.multipliers)) > least).sum())

    def __repr__(self) -> str:
        verdict = f"{self.unstable} outside the unit circle" if self.unstable else "none outside"
        lines = [f"Floquet: {len(self.multipliers)} multipliers over {self.period:g} s, {verdict}"]
        lines[0] += f", known to {float(self.errors.max()):.1g}" if self.errors.size else ""
        for x in np.asarray(self.multipliers):
            number = f"{x.real:.6g} + {x.imag:.6g}i" if abs(x.imag) > 1e-12 else f"{x.real:.6g}"
            if x.imag >= 0:
                lines.append(f"  {number}, size {abs(x):.6g}")
        return "\n".join(lines)


@with_standard_promotion
def floquet(
    system: Subject,
    q: Any,
    v: Any,
    period: Any,
    params: Params = None,
    *,
    t: Any = 0.0,
    advance: Mapping[str, float] | None = None,
    steps: int = 1000,
    method: AbstractMethod = RK4(),
) -> Floquet:
    """The Floquet multipliers of a periodic motion with projected constraints.

    One period is simulated with its derivatives with respect to all admissible deviations of its
    start (`sensitivities`); a deviation at its end is expressed in the same coordinates. It is then
    simulated again in halves, with steps half as long, which give the result. An autonomous system
    has a multiplier 1 along the motion, and another for its energy if that is conserved. A host
    function.

    Args:
        system: the system, with n coordinates.
        q: coordinates at the start, on the constraints, shape (n,).
        v: velocities at the start, on the constraints, shape (n,).
        period: the period [s]; that of the forces and constraints if these depend on time.
        params: the parameters.
        t: time at the start [s].
        advance: increments of named coordinates over one period, such as 2 pi for an angle that
            makes a turn.
        steps: number of equal steps in one period; the result is that of twice as many.
        method: the integration method.

    Raises:
        TypeError: if `system` is not a `System`.
        ValueError: if an argument is invalid, the start is not on the constraints or is a singular
            pose, the simulation fails, or the motion or the equations are not periodic.

    Example:
        >>> import jax.numpy as jnp
        >>> def swing(q, v, t, p):  # an inverted pendulum whose support is shaken
        ...     weight = 9.81 - p["a"] * p["w"] ** 2 * jnp.cos(p["w"] * t)
        ...     return v[0] ** 2 / 2 - weight * jnp.cos(q[0])
        >>> pendulum = System(swing, coordinates=("angle",))
        >>> for w in (40.0, 60.0):
        ...     up = floquet(pendulum, [0.0], [0.0], 2 * jnp.pi / w, {"a": 0.1, "w": w}, steps=200)
        ...     print(up.unstable)
        1
        0
    """
    system, state = checked_in_rates(system, q, v, t, params)
    require_smooth(system)
    q, v, t, params = state
    require_positive_integer("steps", steps, "such as 1000")
    require_positive("period", period)
    require_consistent(system, state)
    freedom = freedom_at(system, state)
    require_regular(system, state, freedom)
    span, W = jnp.asarray(period).astype(q.dtype), jnp.zeros((system.n, system.n), q.dtype)

    def sensitivities_over(span: Array, begin: Linearization, state: State) -> Sensitivities:
        derivatives = _derivatives(system, freedom, steps, method, state, span, begin)
        status = Status(int(derivatives.solution.status))
        if status is not Status.OK:
            raise ValueError(f"The motion over one period ended with the status {status}.")
        return derivatives

    lin = linearized(system, freedom, NOTHING, state, W)
    period_sensitivities = sensitivities_over(span, lin, state)
    closure = _closure(system, period_sensitivities.solution, params, advance or {})
    _require_periodic_equations(system, freedom, period_sensitivities.solution, params)
    first = sensitivities_over(span / 2, lin, state)
    half = State(first.solution.q[-1], first.solution.v[-1], first.solution.ts[-1], params)
    middle = linearized(system, freedom, NOTHING, half, W)
    if not middle.regular:
        raise ValueError(
            "Argument `q` must not lead to a singular pose after half a period, but does; start at "
            "another point of the motion."
        )
    second = sensitivities_over(span / 2, middle, half)
    monodromy = _coordinates(lin, second) @ _coordinates(middle, first)
    multipliers, errors = _compared(monodromy, _coordinates(lin, period_sensitivities))
    exponents = jnp.log(multipliers) / period
    return Floquet(multipliers, monodromy, exponents, errors, closure, float(period), lin)


@jit_of("system", "freedom", "steps", "method")
def _derivatives(
    system: System, freedom: Freedom, steps: int, method: AbstractMethod, state: State,
    span: Array, begin: Linearization,
) -> Sensitivities:  # fmt: skip
    q, v, t, params = state

    def start(z: Array) -> tuple[Array, Array, Params]:
        dq, dv = begin.deviation(z)
        return q + dq, v + dv, params

    ts = t + jnp.linspace(0.0, 1.0, steps + 1, dtype=q.dtype) * span
    z = jnp.zeros(sum(freedom[:2]), q.dtype)
    return sensitivities(system, start, z, ts, method=method, steps=FixedSteps(1))


def _coordinates(lin: Linearization, derivatives: Sensitivities) -> Array:
    """The deviations at the end of a motion, in the coordinates (x, u) there, shape (j, j)."""
    small = lin.reduced
    x = small.Z.T @ derivatives.q[-1]
    return jnp.concatenate([x, small.Y.T @ (derivatives.v[-1] - small.T @ x)])


def _compared(matrix: Array, rough: Array) -> tuple[Array, Array]:
    """The eigenvalues of a matrix, the largest first, and their distances from those of another."""
    values, rough_values = (
        np.linalg.eigvals(np.asarray(x)).astype(complex) for x in (matrix, rough)
    )
    values = values[np.argsort(-np.abs(values), kind="stable")]
    distances = np.abs(values[:, None] - rough_values)
    from scipy.optimize import linear_sum_assignment  # slow to import, and seldom needed

    return jnp.asarray(values), jnp.asarray(distances[linear_sum_assignment(distances)])


def _closure(system: System, sol: Solution, params: Params, advance: Mapping[str, float]) -> float:
    """How far q and v miss their start, relative to their ranges; an error if too far."""
    coordinate_indices("advance", advance, system.coordinates)
    turns = np.array([float(advance.get(name, 0.0)) for name in system.coordinates])
    q, v = np.asarray(sol.q), np.asarray(sol.v)
    missed = np.stack([_missed(q, turns), _missed(v, 0.0)])
    if not reads_integrals(system, sol.q[0], sol.v[0], sol.ts[0], params):
        missed[0, system.dynamics.mechanical :] = 0.0
    closure = float(missed.max())
    if not closure <= PERIODIC:
        name = system.coordinates[int(np.argmax(missed.max(0)))]
        raise ValueError(
            f"Argument `period` must be that of the motion, but after it q and v miss their start "
            f"by {closure:.2g} of their ranges, most in {name}; correct `q`, `v` or `period`, take "
            "more `steps`, or say in `advance` by how much an angle has turned."
        )
    return closure


def _missed(x: np.ndarray, advance: np.ndarray | float) -> np.ndarray:
    """Distances (n,) of the last of x (T, n) from the first, relative to the ranges of x."""
    ranges = np.ptp(x, axis=0)
    # Coordinates that barely move, or an equilibrium, deviate by round-off and errors of others.
    least = np.maximum(1e-2 * ranges.max(), 1e-6 * (1 + np.abs(x).max(0)))
    return np.abs(x[-1] - x[0] - advance) / np.maximum(ranges, least)


def _require_periodic_equations(
    system: System, freedom: Freedom, sol: Solution, params: Params
) -> None:
    period, zeros = sol.ts[-1] - sol.ts[0], jnp.zeros((system.n, system.n), sol.q.dtype)

    def matrices(k: int, t: Array) -> dict[str, np.ndarray]:
        state = State(sol.q[k], sol.v[k], t, params)
        full = linearized(system, freedom, NOTHING, state, zeros).full
        names = "M", "C", "K", "drift", "A_p", "A_v", "B", "forces"
        return {name: np.asarray(getattr(full, name)) for name in names}

    indices = [int(phase * (len(sol.ts) - 1)) for phase in PHASES]
    first = [matrices(k, sol.ts[k]) for k in indices]
    later = [matrices(k, sol.ts[k] + period) for k in indices]
    size = {name: max(np.abs(x[name]).max(initial=0.0) for x in first) for name in first[0]}
    # A matrix of round-off alone is small beside these.
    w = 2 * np.pi / abs(float(period))
    scales = {"C": w * size["M"], "K": w**2 * size["M"], "drift": w * size["forces"]}
    scales["B"] = w * size["A_v"]
    for k, first_matrices, later_matrices in zip(indices, first, later, strict=True):
        for name, matrix in first_matrices.items():
            least = size[name] + 1e-4 * scales.get(name, 0.0)
            if not np.abs(later_matrices[name] - matrix).max(initial=0.0) <= PERIODIC * least:
                raise ValueError(
                    "Argument `period` must be that of the forces and constraints, but the linear "
                    f"equations at t = {float(sol.ts[k]):.6g} differ from those one period later; "
                    "give a multiple of the period of everything that depends on time."
                )
