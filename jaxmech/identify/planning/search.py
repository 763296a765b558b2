"""The minimum of a criterion over the experiments within bounds and budgets.

The information that the recording of an experiment x would have is

    H(x) = J_p^T J_p - J_p^T J_s (J_s^T J_s)^-1 J_s^T J_p

about the parameters p, with the derivatives J of the sensors in units of their noise by p and by
the initial state s where that is fitted too, and J_p^T J_p where it is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.identify.planning.criterion import AbstractBudget
from jaxmech.identify.problem.least_squares import Observe
from jaxmech.identify.problem.parameters import ParameterLayout
from jaxmech.identify.result import Fit
from jaxmech.integrate import MEMBERS, ForwardMode, Scheme, resolved
from jaxmech.run import simulate
from jaxmech.state import begin
from jaxmech.system import Params
from jaxmech.utils.arrays import HostArray

Experiment = Callable[[Array, Params], tuple[Array, Array, Params]]
UNKNOWN = 1e-8  # information about a relative change that counts as none: an error of 10^4
_RIDGE = 1e-12  # of initial states that nothing determines, relative to their own information


@dataclass(frozen=True, eq=False)
class PlannedRecording:
    """The recording of an experiment that is not made yet.

    Attributes:
        scheme: the system and how it is simulated.
        experiment: experiment(x, params) returns q0 (n,), v0 (n,) and the parameters.
        observe: the sensors, as for `fit`.
        ts: sample times, (T,).
        noise: standard deviations of the sensors, () or (d,).
        layout: the numbers that are to be known, p in all.
        leaves: the assumed parameters.
        free_starts: whether the initial state is fitted too.
    """

    scheme: Scheme
    experiment: Experiment
    observe: Observe
    ts: Array
    noise: Array
    layout: ParameterLayout
    leaves: tuple[Array, ...]
    free_starts: bool = True

    def start(self, x: Array, unknowns: Array | None = None) -> tuple[Array, Array, Params]:
        """The initial state and the parameters, for changes of the numbers and of the state."""
        p, n = self.layout.size, self.scheme.system.n
        z = jnp.zeros(p) if unknowns is None else unknowns[:p]
        q, v, params = self.experiment(x, self.layout.params(z, self.leaves))
        if unknowns is not None and self.free_starts:
            q, v = q + unknowns[p : p + n], v + unknowns[p + n :]
        q, v = jnp.asarray(q, float), jnp.asarray(v, float)
        q, v = begin(self.scheme.system, None, q, v, self.ts[0], params)
        return q, v, params

    def with_steps(self, xs: HostArray) -> "PlannedRecording":
        """The same with steps that are short enough for a few experiments (k, d)."""
        # where the experiments are known: under `jit` no motion has values to choose steps by
        states = jax.jit(jax.vmap(self.start))(jnp.asarray(xs[:MEMBERS]))
        schemes: list[Scheme] = []

        def choose(q: Array, v: Array, params: Params) -> Array:
            schemes.append(resolved(self.scheme, q, v, self.ts, params))
            return jnp.zeros(())

        jax.vmap(choose)(*states)
        return replace(self, scheme=schemes[0])

    def sensors(self, unknowns: Array, x: Array) -> Array:
        """What would be recorded in units of the noise, (T d,)."""
        q, v, params = self.start(x, unknowns)
        sol = simulate(
            self.scheme.system, q, v, self.ts, params, **self.scheme.policies,
            derivative=ForwardMode(), throw=False,
        )  # fmt: skip
        values = jax.vmap(lambda q, v, t: self.observe(q, v, t, params))(sol.q, sol.v, self.ts)
        return (values / jnp.broadcast_to(self.noise, values.shape)).ravel()

    def information(self, x: Array) -> Float[Array, "p p"]:
        """H(x) about relative changes of the numbers."""
        system, p = self.scheme.system, self.layout.size
        starts = system.n + system.n_velocities if self.free_starts else 0
        J = jax.jacfwd(self.sensors)(jnp.zeros(p + starts), x)
        return _without_starts(J, p) if starts else J.T @ J

    def shares(self, budgets: Sequence[AbstractBudget], x: Array) -> Array:
        """What the experiment spends of each budget, in units of it, (m,)."""
        params = self.experiment(x, self.layout.params(jnp.zeros(self.layout.size), self.leaves))[2]
        return jnp.concatenate([jnp.zeros(0), *(one.shares(self.ts, params) for one in budgets)])

    def spent(self, budgets: Sequence[AbstractBudget], x: Array) -> HostArray:
        """What the experiment spends of each budget, (b,)."""
        params = self.experiment(x, self.layout.params(jnp.zeros(self.layout.size), self.leaves))[2]
        return np.array([one.spent(self.ts, params) for one in budgets], float)


def known_before(known: Fit | None, layout: ParameterLayout, leaves: Sequence[Any]) -> HostArray:
    """What is known before about relative changes of the numbers, (p, p)."""
    units = np.asarray(layout.units(leaves))
    little = UNKNOWN * np.eye(layout.size)
    if known is None:
        return little
    if known.names != layout.names:
        raise ValueError(
            f"Argument `known` must be a fit of {', '.join(layout.names)}, but is one of "
            f"{', '.join(known.names)}; say by `free` what is to be known."
        )
    return known.information.total / known.noise.unit**2 * units * units[:, None] + little


def _without_starts(J: Float[Array, "m pi"], p: int) -> Float[Array, "p p"]:
    """The information about the first p unknowns, the others eliminated."""
    H = J.T @ J
    sizes = jnp.sqrt(jnp.where(jnp.diag(H) > 0, jnp.diag(H), 1.0))
    H = H / jnp.outer(sizes, sizes)
    starts = H[p:, p:] + _RIDGE * jnp.eye(len(H) - p)
    reduced = H[:p, :p] - H[:p, p:] @ jnp.linalg.solve(starts, H[p:, :p])
    return reduced * jnp.outer(sizes[:p], sizes[:p])


Slope = Callable[[Array], tuple[Array, Array]]
_REFINED = 3  # random experiments from which the criterion is minimized, besides x0
_HALVINGS = 40  # of the way from x0 to an experiment that spends too much
_WITHIN = 1e-9  # share by which a budget may be exceeded
_LOST = 1e6  # criterion of an experiment that cannot be simulated


@dataclass(frozen=True, eq=False)
class Room:
    """The experiments x (k,) that are allowed.

    Attributes:
        low: lower bounds, (k,).
        high: upper bounds, (k,).
        x0: one within them, (k,).
        shares: shares(x) is what x spends in units of the budgets, (m,).
    """

    low: HostArray
    high: HostArray
    x0: HostArray
    shares: Callable[[Array], Array]

    @staticmethod
    def of(x0: Any, bounds: Any, shares: Callable[[Array], Array]) -> "Room":
        """The room of checked arguments."""
        x0, low, high = _checked(x0, bounds)
        most = np.asarray(shares(jnp.asarray(x0)))
        if not (most <= 1 + _WITHIN).all():
            raise ValueError(
                "Argument `x0` must lie within the budget, but spends "
                f"{100 * most.max():.3g} % of it, or of one of them; begin with a smaller input."
            )
        return Room(low, high, x0, shares)

    @property
    def is_limited(self) -> bool:
        """Whether there are budgets."""
        return self.shares(jnp.asarray(self.x0)).size > 0

    def drawn(self, count: int, seed: int) -> HostArray:
        """x0, both ends of the bounds, random experiments, within the budgets, (3 + count, k)."""
        random = np.random.default_rng(seed).uniform(self.low, self.high, (count, self.x0.size))
        return self.affordable(np.stack([self.x0, self.low, self.high, *random]))

    def affordable(self, xs: HostArray) -> HostArray:
        """Of each x the last experiment on the way from x0 that is within the budgets, (j, k)."""
        x0 = jnp.asarray(self.x0)
        if not self.is_limited:
            return xs

        def last(x: Array) -> Array:
            def fits(share: Array) -> Array:
                return jnp.all(self.shares(x0 + share * (x - x0)) <= 1 + _WITHIN)

            def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
                low, high = ends
                middle = (low + high) / 2
                good = fits(middle)
                return jnp.where(good, middle, low), jnp.where(good, high, middle)

            one = jnp.ones((), x0.dtype)
            share = jax.lax.fori_loop(0, _HALVINGS, halve, (0 * one, one))[0]
            return jnp.where(fits(one), x, x0 + share * (x - x0))

        return np.asarray(jax.jit(jax.vmap(last))(jnp.asarray(xs)), float)


def minimum(loss: Callable[[Array], Array], room: Room, xs: HostArray) -> HostArray:
    """The best x (k,), from the best of some experiments (j, k) and from the first of them."""
    values = np.asarray(jax.jit(jax.vmap(loss))(jnp.asarray(xs)))
    if not np.isfinite(values).any():
        raise ValueError(
            "Argument `experiment` must give motions that can be simulated, but none of "
            f"{len(xs)} within the bounds can; narrow the bounds or take shorter steps (`steps`)."
        )
    begins = list(dict.fromkeys((*np.argsort(values)[:_REFINED].tolist(), 0)))
    slope = jax.jit(lambda x: (loss(x), jax.jacfwd(loss)(x)))
    ends = [_improved(slope, room, xs[k]) for k in begins if np.isfinite(values[k])]
    # an end may have lost by what was too much for a budget; the beginnings have not
    rivals = np.concatenate([room.affordable(np.stack(ends)), xs[begins]])
    return rivals[int(np.argmin([float(slope(jnp.asarray(x))[0]) for x in rivals]))]


def _improved(slope: Slope, room: Room, x: HostArray) -> HostArray:
    """The minimum that is reached from an experiment, in units of the bounds."""
    from scipy.optimize import minimize  # slow to import, and seldom needed

    span = room.high - room.low

    def scaled(u: HostArray) -> tuple[float, HostArray]:
        value, by_x = slope(jnp.asarray(room.low + span * u))
        good = np.isfinite(value) & np.isfinite(by_x).all()
        return (float(value), np.asarray(by_x) * span) if good else (_LOST, np.zeros(u.size))

    options = _within_budgets(room, span) if room.is_limited else {"method": "L-BFGS-B"}
    unit = [(0.0, 1.0)] * span.size
    end = minimize(scaled, (x - room.low) / span, jac=True, bounds=unit, **options)
    return np.clip(room.low + span * end.x, room.low, room.high)


def _within_budgets(room: Room, span: HostArray) -> dict[str, Any]:
    """The options of `minimize` under the budgets."""
    shares, by_x = jax.jit(room.shares), jax.jit(jax.jacfwd(room.shares))
    inside = {
        "type": "ineq",
        "fun": lambda u: 1 - np.asarray(shares(jnp.asarray(room.low + span * u)), float),
        "jac": lambda u: -np.asarray(by_x(jnp.asarray(room.low + span * u)), float) * span,
    }
    limits = {"maxiter": 500, "ftol": 1e-12}
    return {"method": "SLSQP", "constraints": [inside], "options": limits}


def _checked(x0: Any, bounds: Any) -> tuple[HostArray, HostArray, HostArray]:
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
