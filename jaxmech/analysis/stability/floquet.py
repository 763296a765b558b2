"""`floquet`: stability of a periodic motion, from its monodromy matrix."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxmech.analysis.stability.freedom import freedom_at, require_consistent, require_regular
from jaxmech.analysis.stability.linearization import Linearization
from jaxmech.analysis.stability.linearize import NOTHING, linearized
from jaxmech.analysis.stability.reduction import Freedom
from jaxmech.analysis.states import State, checked_state
from jaxmech.integrate import RK4, AbstractFixedStep
from jaxmech.sensitivity.forward import Sensitivities, sensitivities
from jaxmech.status import Status
from jaxmech.system import Params, System
from jaxmech.utils.checks import (
    coordinate_indices,
    require_positive,
    require_positive_integer,
    with_standard_promotion,
)
from jaxmech.utils.jit_cache import jit_of

CIRCLE = 1e-6  # largest distance from the unit circle that counts as on it


class Floquet(eqx.Module):
    """Small deviations from a periodic motion after one period.

    Attributes:
        multipliers: eigenvalues of the monodromy matrix, the largest first, shape (j,).
        monodromy: the map of deviations z = (x, u) over one period, shape (j, j).
        exponents: log(multipliers) / period [1/s]; their imaginary part is known only up to whole
            multiples of 2 pi / period, shape (j,).
        closure: distance between end and start of the motion, relative to the sizes of q and v.
        period: the period [s].
        linearization: the linearization at the start, whose `deviation` turns z into (dq, dv).
    """

    multipliers: Complex[Array, " j"]
    monodromy: Float[Array, " j j"]
    exponents: Complex[Array, " j"]
    closure: float
    period: float
    linearization: Linearization

    @property
    def unstable(self) -> int:
        """The number of multipliers outside the unit circle."""
        return int((np.abs(np.asarray(self.multipliers)) > 1 + CIRCLE).sum())

    def __repr__(self) -> str:
        verdict = f"{self.unstable} outside the unit circle" if self.unstable else "none outside"
        lines = [f"Floquet: {len(self.multipliers)} multipliers over {self.period:g} s, {verdict}"]
        for x in np.asarray(self.multipliers):
            number = f"{x.real:.6g} + {x.imag:.6g}i" if abs(x.imag) > 1e-12 else f"{x.real:.6g}"
            if x.imag >= 0:
                lines.append(f"  {number}, size {abs(x):.6g}")
        return "\n".join(lines)


@with_standard_promotion
def floquet(
    system: System,
    q: Any,
    v: Any,
    period: Any,
    params: Params = None,
    *,
    t: Any = 0.0,
    advance: Mapping[str, float] | None = None,
    steps: int = 1000,
    method: AbstractFixedStep = RK4(substeps=1),
) -> Floquet:
    """The Floquet multipliers of a periodic motion with projected constraints.

    One period is simulated with its derivatives with respect to all admissible deviations of its
    start (`sensitivities`); a deviation at its end is expressed in the same coordinates. An
    autonomous system has a multiplier 1 along the motion, and another for its energy if that is
    conserved. A host function.

    Args:
        system: the system, with n coordinates.
        q: coordinates at the start, on the constraints, shape (n,).
        v: velocities at the start, on the constraints, shape (n,).
        period: the period [s]; that of the forces and constraints if these depend on time.
        params: the parameters.
        t: time at the start [s].
        advance: increments of named coordinates over one period, such as 2 pi for an angle that
            makes a turn.
        steps: number of steps in one period.
        method: as for `simulate`.

    Raises:
        TypeError: `system` is not a `System`.
        ValueError: an argument is invalid, the start is not on the constraints or a singular pose,
            the simulation fails, or the motion does not close.

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
    q, v, t, params = state = checked_state(system, q, v, t, params)
    require_positive_integer("steps", steps, "such as 1000")
    require_positive("period", period)
    require_consistent(system, state)
    freedom = freedom_at(system, state)
    require_regular(system, state, freedom)
    lin = linearized(system, freedom, NOTHING, state, jnp.zeros((system.n, system.n), q.dtype))
    found = _over_a_period(system, freedom, steps, method, state, jnp.asarray(period), lin)
    status = Status(int(found.solution.status))
    if status is not Status.OK:
        raise ValueError(f"The motion over one period ended with the status {status}.")
    closure = _closure(system, found.solution.q[-1], found.solution.v[-1], q, v, advance or {})
    small = lin.reduced
    x = small.Z.T @ found.q[-1]
    u = small.Y.T @ (found.v[-1] - small.T @ x)
    monodromy = jnp.concatenate([x, u])
    values = np.linalg.eigvals(np.asarray(monodromy)).astype(complex)
    multipliers = jnp.asarray(values[np.argsort(-np.abs(values), kind="stable")])
    return Floquet(
        multipliers, monodromy, jnp.log(multipliers) / period, closure, float(period), lin
    )


@jit_of("system", "freedom", "steps", "method")
def _over_a_period(
    system: System, freedom: Freedom, steps: int, method: AbstractFixedStep, state: State,
    period: Array, lin: Linearization,
) -> Sensitivities:  # fmt: skip
    q, v, t, params = state

    def start(z: Array) -> tuple[Array, Array, Params]:
        dq, dv = lin.deviation(z)
        return q + dq, v + dv, params

    ts = t + jnp.linspace(0.0, 1.0, steps + 1, dtype=q.dtype) * period.astype(q.dtype)
    return sensitivities(system, start, jnp.zeros(sum(freedom[:2]), q.dtype), ts, method=method)


def _closure(
    system: System, q_end: Array, v_end: Array, q: Array, v: Array, advance: Mapping[str, float]
) -> float:
    coordinate_indices("advance", advance, system.coordinates)
    more = np.array([float(advance.get(name, 0.0)) for name in system.coordinates])
    missed = np.abs(np.asarray(q_end - q) - more), np.abs(np.asarray(v_end - v))
    sizes = 1 + np.abs(np.asarray(q)).max(), 1 + np.abs(np.asarray(v)).max()
    closure = float(max(m.max() / s for m, s in zip(missed, sizes, strict=True)))
    if not closure <= 1e-4:
        name = system.coordinates[int(np.argmax(missed[0]))]
        raise ValueError(
            f"Argument `period` must be that of the motion, but after it q and v miss their start "
            f"by {closure:.2g}, most in {name}; correct `q`, `v` or `period`, take more `steps`, "
            "or say in `advance` by how much an angle has turned."
        )
    return closure
