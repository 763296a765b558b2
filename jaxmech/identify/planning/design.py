"""`design`: the experiment from which a fit would learn most.

Of an experiment x the recording would have the information

    H(x) = J_p^T J_p - J_p^T J_s (J_s^T J_s)^-1 J_s^T J_p

about the parameters p, with the derivatives J of the sensors in units of their noise by p and by
the initial state s, which is fitted too. It is added to what is known, and a criterion of the sum
is minimized within bounds, with exact derivatives by x.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.assemble import begin
from jaxmech.identify.inference.information import Numbers, percent
from jaxmech.identify.planning.criterion import AbstractCriterion, DOptimal
from jaxmech.identify.problem.body_inertia import bodies_of
from jaxmech.identify.problem.parameters import ParameterLayout, parameters
from jaxmech.identify.result import Fit
from jaxmech.integrate import AbstractMethod, AbstractSteps, ForwardMode
from jaxmech.simulate import simulate
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_positive_integer, require_seed

Experiment = Callable[[Array, Params], tuple[Array, Array, Params]]
_RIDGE = 1e-12  # of initial states that nothing determines, relative to their own information
_REFINED = 3  # random experiments from which the criterion is minimized, besides x0
_UNKNOWN = 1e-8  # information about a relative change that counts as none: an error of 10^4


@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """A designed experiment; prints itself as a table.

    The result of `design`.

    Attributes:
        x: the experiment, shape (k,).
        names: names of the fitted numbers, p in all.
        values: their assumed values, shape (p,).
        errors: standard errors that a fit would have, with what was known before, shape (p,).
        before: those of the experiment `x0` in its place, shape (p,).
        information: the information of the recording alone about the numbers, shape (p, p).
    """

    x: Numbers
    names: tuple[str, ...]
    values: Numbers
    errors: Numbers
    before: Numbers
    information: Numbers

    def __repr__(self) -> str:
        width = max(14, *(len(name) + 2 for name in self.names))
        x = ", ".join(f"{value:.4g}" for value in self.x)
        heads = f"{'value':>12}{'error, x0':>18}{'error, x':>18}"
        lines = [f"Design: x = ({x})", f"  {'':<{width}}{heads}"]
        for k, name in enumerate(self.names):
            errors = self.before[k], self.errors[k]
            cells = "".join(f"{_error(error, self.values[k]):>18}" for error in errors)
            lines.append(f"  {name:<{width}}{self.values[k]:>12.6g}{cells}")
        return "\n".join(lines)


def design(
    system: System,
    experiment: Experiment,
    x0: Any,
    ts: Any,
    params: Params,
    *,
    bounds: Any,
    noise: Any,
    free: Sequence[str] | None = None,
    observe: Any = None,
    known: Fit | None = None,
    criterion: AbstractCriterion = DOptimal(),
    points: int = 64,
    seed: int = 0,
    method: AbstractMethod | None = None,
    steps: AbstractSteps | None = None,
) -> Design:
    """Choose the experiment from which a fit would learn most: what to measure next.

    Args:
        system: the system, with n coordinates.
        experiment: experiment(x, params) returns the initial state q0 (n,), v0 (n,), and the
            parameters, with those of the inputs set by x; plain `jnp`. The state is projected onto
            the constraints.
        x0: an experiment to begin and to compare with, shape (k,).
        ts: sample times [s], shape (T,).
        params: assumed values of the parameters: those of a fit, or a guess.
        bounds: (low, high) of x, numbers or arrays (k,).
        noise: standard deviations of the sensors, a number or shape (d,).
        free: names of the parameters to be known, as for `fit`; by default all numbers.
        observe: observe(q, v, t, params) returns the sensor values, (d,), as for `fit`.
        known: a fit of the same numbers, whose recordings count too. What they leave undetermined,
            the next experiment is made for.
        criterion: `DOptimal()`, `AOptimal()`, or `COptimal(direction)` for one combination.
        points: random experiments that are compared first, as one batch.
        seed: seed of these.
        method: how a step is made, as for `simulate`.
        steps: how long the steps are.

    Raises:
        ValueError: a shape or a bound is wrong, `known` has other numbers, or no experiment can be
            simulated.

    Example:
        >>> import jaxmech as jm
        >>> def pendulum(q, v, t, p):
        ...     return v @ v / 2 + p["w2"] * jnp.cos(q[0])
        >>> def release(x, p):
        ...     return x, jnp.zeros(1), p
        >>> best = design(
        ...     jm.System(pendulum, coordinates=("angle",)), release, [0.2], np.linspace(0, 2, 21),
        ...     {"w2": 9.0}, bounds=(0.1, 1.0), noise=1e-3, steps=jm.FixedSteps(4), points=4,
        ... )
        >>> print(best.x.round(3))
        [1.]
    """
    require_positive_integer("points", points, "give the number of random experiments")
    require_seed(seed)
    x0, low, high = _checked(x0, bounds)
    chosen = parameters(params, free=free, bodies=bodies_of(system))
    layout, leaves = chosen.layout, chosen.leaves
    ts, sizes = jnp.asarray(ts, float), jnp.asarray(noise, float)
    sensors = observe or (lambda q, v, t, params: q)

    def observed(unknowns: Array, x: Array) -> Array:
        z, change = unknowns[: layout.size], unknowns[layout.size :]
        q, v, p = experiment(x, layout.params(z, leaves))
        dq, dv = jnp.split(change, [system.n])
        q, v = begin(system, None, q + dq, v + dv, ts[0], p)
        sol = simulate(
            system, q, v, ts, p, method=method, steps=steps, derivative=ForwardMode(), throw=False
        )
        values = jax.vmap(lambda q, v, t: sensors(q, v, t, p))(sol.q, sol.v, ts)
        return (values / jnp.broadcast_to(sizes, values.shape)).ravel()

    def information(x: Array) -> Float[Array, "p p"]:
        J = jax.jacfwd(observed)(jnp.zeros(layout.size + system.n + system.n_velocities), x)
        return _without_starts(J, layout.size)

    before = jnp.asarray(_before(known, layout, leaves))

    def loss(x: Array) -> Array:
        value = criterion.loss(information(x) + before)
        return jnp.where(jnp.isfinite(value), value, jnp.inf)

    x = _minimized(loss, x0, low, high, points, seed)
    both = np.asarray(jax.jit(jax.vmap(information))(jnp.stack([jnp.asarray(x0), jnp.asarray(x)])))
    numbers = np.asarray(layout.numbers(jnp.zeros(layout.size), leaves))
    units = np.asarray(layout.units(leaves))
    errors = [units * np.sqrt(np.diag(np.linalg.inv(H + before))) for H in both]
    return Design(
        x=x,
        names=layout.names,
        values=numbers,
        errors=np.asarray(errors[1]),
        before=np.asarray(errors[0]),
        information=both[1] / units / units[:, None],
    )


def _checked(x0: Any, bounds: Any) -> tuple[Numbers, Numbers, Numbers]:
    x0 = np.asarray(x0, float)
    if x0.ndim != 1:
        raise ValueError(f"Argument `x0` must have shape (k,), but has shape {x0.shape}.")
    try:
        low, high = (np.broadcast_to(np.asarray(end, float), x0.shape) for end in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `bounds` must hold (low, high), numbers or arrays of shape {x0.shape}."
        ) from error
    if not ((low < high).all() and np.isfinite(high - low).all()):
        raise ValueError("Argument `bounds` must hold finite ends with low < high.")
    if not ((low <= x0) & (x0 <= high)).all():
        raise ValueError("Argument `x0` must lie within the bounds.")
    return x0, low, high


def _without_starts(J: Float[Array, "m pi"], p: int) -> Float[Array, "p p"]:
    """The information about the first p unknowns, the others eliminated."""
    H = J.T @ J
    sizes = jnp.sqrt(jnp.where(jnp.diag(H) > 0, jnp.diag(H), 1.0))
    H = H / jnp.outer(sizes, sizes)
    starts = H[p:, p:] + _RIDGE * jnp.eye(len(H) - p)
    reduced = H[:p, :p] - H[:p, p:] @ jnp.linalg.solve(starts, H[p:, :p])
    return reduced * jnp.outer(sizes[:p], sizes[:p])


def _before(known: Fit | None, layout: ParameterLayout, leaves: Sequence[Array]) -> Numbers:
    """What is known before about relative changes of the numbers, (p, p)."""
    units = np.asarray(layout.units(leaves))
    little = _UNKNOWN * np.eye(layout.size)
    if known is None:
        return little
    if known.names != layout.names:
        raise ValueError(
            f"Argument `known` must be a fit of {', '.join(layout.names)}, but is one of "
            f"{', '.join(known.names)}; say by `free` what is to be known."
        )
    return known.information / known.residual_unit**2 * units * units[:, None] + little


def _minimized(
    loss: Callable[[Array], Array], x0: Numbers, low: Numbers, high: Numbers, points: int, seed: int
) -> Numbers:
    """The best x (k,) within the bounds, from the best of random points and from x0."""
    from scipy.optimize import minimize  # slow to import, and seldom needed

    span = high - low
    xs = np.random.default_rng(seed).uniform(low, high, (points, x0.size))
    xs[0] = x0
    values = np.asarray(jax.jit(jax.vmap(loss))(jnp.asarray(xs)))
    if not np.isfinite(values).any():
        raise ValueError(
            "Argument `experiment` must give motions that can be simulated, but none of "
            f"{points} within the bounds can; narrow the bounds or take shorter steps (`steps`)."
        )
    slope = jax.jit(lambda x: (loss(x), jax.jacfwd(loss)(x)))

    def scaled(u: Numbers) -> tuple[float, Numbers]:
        value, by_x = slope(jnp.asarray(low + span * u))
        good = np.isfinite(value) & np.isfinite(by_x).all()
        return (float(value), np.asarray(by_x) * span) if good else (1e6, np.zeros(u.size))

    unit = [(0.0, 1.0)] * x0.size
    ends = [
        minimize(scaled, (xs[k] - low) / span, jac=True, method="L-BFGS-B", bounds=unit)
        for k in dict.fromkeys((*np.argsort(values)[:_REFINED].tolist(), 0))
        if np.isfinite(values[k])
    ]
    best = min(ends, key=lambda end: end.fun)
    return np.clip(low + span * best.x, low, high)


def _error(error: float, value: float) -> str:
    if error >= abs(value) / np.sqrt(_UNKNOWN) / 2:
        return "not determined"
    share = f" ({percent(error / abs(value))})" if value else ""
    return f"{error:.2g}{share}"
