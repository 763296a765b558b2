"""The information that the recording of an experiment would have.

Of an experiment x it is

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

from jaxmech.assemble import begin
from jaxmech.identify.planning.budget import AbstractBudget
from jaxmech.identify.problem.least_squares import Observe
from jaxmech.identify.problem.parameters import ParameterLayout
from jaxmech.identify.result import Fit
from jaxmech.integrate import MEMBERS, ForwardMode, Scheme, resolved
from jaxmech.simulate import simulate
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
