"""Growth of small changes of the initial state along a motion.

With Phi the derivative of the state at a save time by the initial state, restricted to changes on
the constraints, the growth is the largest singular value of Phi: the factor by which the worst
small change has grown. Phi is a product of one matrix per save interval; the product is kept as a
matrix of unit size and a logarithm, so that it cannot overflow (Benettin, Galgani, Giorgilli and
Strelcyn 1980; Dieci and Van Vleck 1995 for the QR form).
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import batched
from jaxmech.formulations import AbstractFormulation, UdwadiaKalaba
from jaxmech.integrate import AbstractMethod, AbstractSteps, Adaptive, ForwardMode, Scheme
from jaxmech.integrate.steps.default_steps import resolved
from jaxmech.sensitivity.differences import Numbers
from jaxmech.sensitivity.tangents import Tangents, geometry, tangents
from jaxmech.simulate import simulate
from jaxmech.solution import Solution
from jaxmech.stabilization import AbstractStabilization, Projection
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_kind, require_positive
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.text import titled_lines
from jaxmech.velocities.quasi import IN_RATES, require_plain_velocities

_FIRST_STEPS = 30  # attempts by which an interval alone may take more than its part of a motion


@dataclass(frozen=True, eq=False, repr=False)
class Growth:
    """The growth of small changes of the initial state along one motion; prints itself.

    The result of `sensitivity_growth`.

    Attributes:
        ts: save times [s], shape (T,).
        logarithm: natural logarithm of the growth at the save times, shape (T,), 0 at the start.
        rate: factor that makes changes of coordinates comparable with those of velocities [1/s];
            None where the sizes of both were given.
        eps: the relative round-off of the computation.
    """

    ts: Numbers
    logarithm: Numbers
    rate: float | None
    eps: float

    @property
    def factor(self) -> Numbers:
        """The growth as a factor, shape (T,), infinite where it overflows."""
        with np.errstate(over="ignore"):
            return np.exp(self.logarithm)

    @property
    def span(self) -> float:
        """The time from the first to the last save [s]."""
        return float(abs(self.ts[-1] - self.ts[0]))

    @property
    def exponent(self) -> float:
        """The finite-time Lyapunov exponent [1/s]: logarithm of the growth over the whole time."""
        return float(self.logarithm[-1] / self.span)

    @property
    def doubling_time(self) -> float:
        """Time in which a change doubles on average [s]; infinite if it does not grow."""
        return float(np.log(2) / self.exponent) if self.exponent > 0 else float("inf")

    def horizon(self, sd: float, tolerance: float) -> float:
        """The time from the start [s] at which an initial uncertainty has grown to a tolerance.

        Interpolated between save times; infinite if the tolerance is not reached.

        Args:
            sd: the uncertainty of the initial state, in any unit.
            tolerance: the uncertainty allowed later, in the same unit.

        Raises:
            ValueError: if one of them is not positive.

        Example:
            >>> ts = np.linspace(0.0, 4.0, 5)
            >>> Growth(ts, 2 * ts, rate=1.0, eps=2e-16).horizon(1e-3, 1e-3 * np.exp(3.0))
            1.5
        """
        require_positive("sd", sd)
        require_positive("tolerance", tolerance)
        level = float(np.log(tolerance) - np.log(sd))
        exceeding = np.flatnonzero(self.logarithm >= level)
        if not exceeding.size:
            return float("inf")
        k, since = int(exceeding[0]), np.abs(self.ts - self.ts[0])
        if k == 0:
            return 0.0
        return float(np.interp(level, self.logarithm[k - 1 : k + 1], since[k - 1 : k + 1]))

    def __repr__(self) -> str:
        scaling = "as given" if self.rate is None else f"by mass, dq times {self.rate:.3g} 1/s"
        digits = -(np.log(self.eps) + self.logarithm[-1]) / np.log(10)
        doubles = f"; doubles every {self.doubling_time:.3g} s" if self.exponent > 0 else ""
        lines = [
            ("time", f"{self.ts[0]:g} to {self.ts[-1]:g} s"),
            ("at the end", f"{power(self.logarithm[-1])}, at most {power(self.logarithm.max())}"),
            ("exponent", f"{self.exponent:.3g} 1/s{doubles}"),
            ("scaling", scaling),
            ("round-off", f"leaves about {max(digits, 0.0):.0f} digits of the end"),
        ]
        return "\n".join(["Growth", *titled_lines(lines, 12)])


def sensitivity_growth(
    system: System,
    q0: Any,
    v0: Any,
    ts: Any,
    params: Params = None,
    *,
    scale: Any = None,
    method: AbstractMethod | None = None,
    steps: AbstractSteps | None = None,
    projection: AbstractStabilization | None = Projection(),
    formulation: AbstractFormulation = UdwadiaKalaba(),
) -> Growth:
    """The largest growth of a small consistent change of the initial state at each save time.

    Changes dq and dv are measured as far as they are free under the constraints (what follows from
    dq for dv on a curved constraint is not counted), by default in the mass metric, so that metres
    and radians count by the energy that they carry: |(dq, dv)|^2 = w^2 dq^T M dq + dv^T M dv. The
    rate w makes both comparable: with it dq changes dv, over all save intervals together, as much
    as dv changes dq. For an oscillator it is the frequency; it is at least one over the whole time.

    Args:
        system: the system, with n coordinates.
        q0: coordinates at ts[0], shape (n,).
        v0: velocities at ts[0], shape (n,).
        ts: save times [s], shape (T,); many of them show the growth in detail at no extra cost.
        params: the parameters that the functions of the system expect.
        scale: sizes of dq and dv that count as one, numbers or (n,) each, instead of the mass.
        method: as for `simulate`.
        steps: as for `simulate`; `Adaptive` chooses its steps anew in each save interval.
        projection: as for `simulate`.
        formulation: as for `simulate`.

    Raises:
        ValueError: if `scale` is not positive, the system has no freedom left, a function has no
            derivative along the motion, or an argument of `simulate` is invalid.
        SimulationError: if the motion failed.

    Example:
        >>> upright = System(  # grows by exp(3 t)
        ...     lambda q, v, t, p: 0.5 * v @ v + 4.5 * q @ q, coordinates=("angle",)
        ... )
        >>> found = sensitivity_growth(upright, [0.1], [0.0], np.linspace(0.0, 2.0, 101))
        >>> print(f"{found.factor[-1]:.2f}, twice as much every {found.doubling_time:.4f} s")
        403.43, twice as much every 0.2310 s
    """
    require_kind("system", system, System, "System(...)")
    require_plain_velocities(system.velocities, "Argument `system`", IN_RATES)
    sizes = None if scale is None else _sizes(scale, system.n)
    scheme = resolved(Scheme.of(system, method, steps, projection, formulation), q0, v0, ts, params)
    solution = simulate(system, q0, v0, ts, params, **scheme.policies)
    _, _, _, params = system.arguments(solution.q[0], solution.v[0], solution.ts[0], params)
    eps = float(jnp.finfo(solution.q.dtype).eps)
    geometries = geometry(system, solution.q, solution.v, solution.ts, params)
    bases = [tangents(geometries, k, eps**0.5, sizes) for k in range(len(solution.ts))]
    if not bases[0].q.size:
        raise ValueError(
            "Argument `system` must have a degree of freedom, but its constraints alone determine "
            "the motion."
        )
    steps = scheme.steps
    if isinstance(steps, Adaptive):
        # memory for no more steps than the whole motion took
        taken_steps = int(solution.accepted + solution.rejected)
        enough = 2 ** int(np.ceil(np.log2(taken_steps + _FIRST_STEPS)))
        steps = replace(steps, max_steps=min(steps.max_steps, enough))
    policies = scheme.policies | {"steps": steps}
    matrices = _transitions(system, policies, solution, bases, params)
    times = np.asarray(solution.ts, dtype=float)
    rate = None
    if scale is None:
        rate = _rate(matrices, bases, abs(times[-1] - times[0]))
        scales = [np.repeat([rate, 1.0], [len(b.by_q), len(b.by_v)]) for b in bases]
        pairs = zip(matrices, scales[:-1], scales[1:], strict=True)
        matrices = [next_metric[:, None] * matrix / metric for matrix, metric, next_metric in pairs]
    return Growth(times, _logarithms(matrices), rate, eps)


def _sizes(scale: Any, n: int) -> list[Numbers]:
    try:
        sizes = [np.broadcast_to(np.asarray(x, float), n) for x in scale]
    except (TypeError, ValueError):
        sizes = []
    if len(sizes) != 2 or not all(np.all((x > 0) & np.isfinite(x)) for x in sizes):
        raise ValueError(
            f"Argument `scale` must be a pair of positive numbers or arrays of shape ({n},), the "
            f"sizes of changes of q and of v, but is {scale!r}."
        )
    return sizes


def _transitions(
    system: System, policies: dict[str, Any], solution: Solution, bases: list[Tangents],
    params: Params,
) -> list[Numbers]:  # fmt: skip
    counts = [basis.q.shape[1] for basis in bases[:-1]]
    interval = np.repeat(np.arange(len(counts)), counts)
    changes = (np.concatenate([getattr(b, x).T for b in bases[:-1]]) for x in ("q", "v"))
    states = solution.q[interval], solution.v[interval]
    times = solution.ts[interval], solution.ts[interval + 1]
    along = tuple(jnp.asarray(x, solution.q.dtype) for x in changes)
    ways = policies | {"derivative": ForwardMode(), "throw": False}
    ends = _ends(system, tuple(ways.items()), states, times, along, params)
    moved_q, moved_v = (np.asarray(x, dtype=float) for x in ends)
    bad = ~np.isfinite(moved_q.sum(1) + moved_v.sum(1))
    if bad.any():
        t = float(solution.ts[interval[np.argmax(bad)]])
        raise ValueError(
            f"The motion has no derivative in the save interval from t = {t:g} s; "
            "`check_gradients` finds the function of the system that causes it."
        )
    cuts = np.cumsum(counts)[:-1]
    split = zip(np.split(moved_q, cuts), np.split(moved_v, cuts), bases[1:], strict=True)
    return [basis.coordinates(q.T, v.T) for q, v, basis in split]


@jit_of("system", "ways")
def _ends(
    system: System, ways: tuple[Any, ...], states: Any, times: Any, changes: Any, params: Params
) -> tuple[Array, Array]:
    """Changes (N, n) of N states, carried from the first of two times of each to the second."""

    def end_state(state: Any, times: Any, change: Any, params: Params) -> Any:
        def run(q: Array, v: Array) -> Any:
            solution = simulate(system, q, v, jnp.stack(times), params, **dict(ways))
            return solution.q[-1], solution.v[-1]

        return jax.jvp(run, state, change)[1]

    return jax.vmap(batched(end_state), (0, 0, 0, None))(states, times, changes, params)


def _rate(matrices: list[Numbers], bases: list[Tangents], span: float) -> float:
    """The rate w at which dq changes dv as much as dv changes dq, over all intervals."""
    stiffness = inertia = 0.0
    for matrix, basis, next_basis in zip(matrices, bases[:-1], bases[1:], strict=True):
        rows, columns = len(next_basis.by_q), len(basis.by_q)
        # Only the ratio of the blocks counts, and a chaotic motion would overflow.
        squares = (matrix / np.abs(matrix).max()) ** 2
        stiffness += float(squares[rows:, :columns].sum())
        inertia += float(squares[:rows, columns:].sum())
    # dq counts w times: the sums become stiffness / w^2 and inertia w^2, which are equal at this w.
    return max((stiffness / inertia) ** 0.25 if inertia else 0.0, 1 / span)


def _logarithms(matrices: list[Numbers]) -> Numbers:
    # After Q R = matrix times the Q before it, the product is that Q times a product of triangular
    # R; only the latter is kept, divided by its own size.
    orthogonal = np.eye(matrices[0].shape[1])
    product, logarithm, logarithms = orthogonal, 0.0, [0.0]
    for matrix in matrices:
        orthogonal, triangular = np.linalg.qr(matrix @ orthogonal)
        product = triangular @ product
        size = np.linalg.norm(product, 2)
        product, logarithm = product / size, logarithm + float(np.log(size))
        logarithms.append(logarithm)
    return np.array(logarithms)


def power(logarithm: float) -> str:
    """exp(logarithm) in three digits, however large."""
    tens, fraction = divmod(logarithm / np.log(10), 1.0)
    return (
        f"{10.0**fraction * 10.0**tens:.3g}"
        if abs(tens) < 5
        else f"{10.0**fraction:.2f}e{tens:+03.0f}"
    )


def growth_warning(growth: Growth, *, change: float = 1e-3, accuracy: float = 1e-3) -> str:
    """A warning if a motion is too long for its gradient, or an empty text.

    Example:
        >>> ts = np.linspace(0.0, 4.0, 5)
        >>> growth_warning(Growth(ts, 3.0 * ts, rate=1.0, eps=2.2e-16)).split(":")[0]
        'Gradients through this motion are meaningful only for the first 2.3 of its 4 s'
    """
    # A gradient predicts changes in proportion. When a change of the size that matters has grown to
    # the motion itself, the true change stays bounded while the predicted one goes on growing: the
    # loss has many minima. When round-off has grown to the accuracy that is wanted, the motion
    # depends on the order of the operations.
    predicted = growth.horizon(change, 1.0)
    computed = growth.horizon(growth.eps, accuracy)
    first = min(predicted, computed)
    if np.isinf(first):
        return ""
    if predicted <= computed:
        part = f"{change:.1g} of the motion"
        reason = f"a change of the initial state by {part} has grown as large as the motion"
    else:
        reason = f"round-off has grown to {accuracy:.1g} of the motion"
    length = min(growth.horizon(1.0, 10.0), 0.5 * first)
    return (
        f"Gradients through this motion are meaningful only for the first {first:.3g} of its "
        f"{growth.span:.3g} s: then {reason} (changes grow by {power(growth.logarithm[-1])} to the "
        f"end, doubling every {growth.doubling_time:.2g} s). Use shorter segments, such as "
        f"`horizon=Shooting(length={length:.2g})`."
    )
