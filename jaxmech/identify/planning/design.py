"""`design`: the experiment from which a fit would learn most; `choose_measurements`: its sensors.

The information of its recording is added to what is known, and a criterion of the sum is
minimized within bounds and budgets, with exact derivatives by the experiment.

Sensors or samples are chosen that are worth their cost. The information of independent measurements
adds up, H = sum of w_i H_i, with w_i = 1 for those that are made. The algorithm is greedy: it
repeatedly adds the measurement that improves the criterion most for its cost, among those that the
budget allows; then it tries single exchanges until none is better (Fedorov, "Theory of optimal
experiments", 1972), and spends what they leave of the budget. In general the result is not a global
optimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.data.inputs import numbers_besides_signals
from jaxmech.identify.identifiable import InitialStates
from jaxmech.identify.inference.information import percent, square
from jaxmech.identify.planning.criterion import AbstractBudget, AbstractCriterion, DOptimal, budgets
from jaxmech.identify.planning.search import (
    UNKNOWN,
    Experiment,
    PlannedRecording,
    Room,
    known_before,
    minimum,
)
from jaxmech.identify.problem.body_inertia import bodies_of
from jaxmech.identify.problem.parameters import parameters
from jaxmech.identify.problem.setup import DefaultSensors
from jaxmech.identify.result import Fit
from jaxmech.integrate import AbstractMethod, AbstractSteps, Scheme
from jaxmech.laws import UdwadiaKalaba
from jaxmech.state import Projection
from jaxmech.system import Params, Subject, with_params
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_finite, require_positive_integer, require_seed

_DETERMINED = 0.05  # of the error of a number without information, which several may share


@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """A designed experiment; prints itself as a table.

    The result of `design`.

    Attributes:
        x: the experiment, shape (k,).
        names: names of the fitted numbers, p in all.
        values: their assumed values, shape (p,).
        errors: standard errors that a fit with these `initial_states` would have, including what
            was known before, shape (p,).
        before: standard errors with the experiment `x0` instead, shape (p,).
        information: the information of the recording alone about the numbers, shape (p, p).
        budget: the limits of its input.
        spent: how much of each limit it uses, in its unit, shape (b,).
    """

    x: HostArray
    names: tuple[str, ...]
    values: HostArray
    errors: HostArray
    before: HostArray
    information: HostArray
    budget: tuple[AbstractBudget, ...] = ()
    spent: HostArray = field(default_factory=lambda: np.zeros(0))

    def __repr__(self) -> str:
        width = max(14, *(len(name) + 2 for name in self.names))
        x = ", ".join(f"{value:.4g}" for value in self.x)
        heads = f"{'value':>12}{'error, x0':>18}{'error, x':>18}"
        lines = [f"Design: x = ({x})", f"  {'':<{width}}{heads}"]
        for k, name in enumerate(self.names):
            errors = self.before[k], self.errors[k]
            cells = "".join(f"{_error(error, self.values[k]):>18}" for error in errors)
            lines.append(f"  {name:<{width}}{self.values[k]:>12.6g}{cells}")
        for budget, spent in zip(self.budget, self.spent, strict=True):
            lines.append(f"  {budget.title}: {spent:.4g} of {budget.limit:.4g}")
        return "\n".join(lines)


def design(
    system: Subject,
    experiment: Experiment,
    x0: Any,
    ts: Any,
    params: Params,
    *,
    bounds: Any,
    noise: Any,
    free: Sequence[str] | None = None,
    initial_states: InitialStates = "free",
    observe: Any = None,
    known: Fit | None = None,
    criterion: AbstractCriterion = DOptimal(),
    budget: AbstractBudget | Sequence[AbstractBudget] | None = None,
    points: int = 64,
    seed: int = 0,
    method: AbstractMethod | None = None,
    steps: AbstractSteps | None = None,
) -> Design:
    """Choose the experiment from which a fit would learn most.

    Args:
        system: the system, with n coordinates.
        experiment: experiment(x, params) returns the initial state q0 (n,), v0 (n,), and the
            parameters, in which x has set those of the inputs. It must be traceable by JAX. The
            state is projected onto the constraints.
        x0: the experiment to start from and to compare with, shape (k,).
        ts: sample times [s], shape (T,).
        params: assumed values of the parameters: those of a fit, or a guess.
        bounds: (low, high) of x, numbers or arrays (k,).
        noise: standard deviations of the sensors, a number or shape (d,).
        free: names of the parameters to be known, as for `fit`; by default all numbers.
        initial_states: whether the initial state that the experiment aims at will be fitted along
            with the numbers, "free", or is exact, "fixed", as for `fit`. It decides how much a
            recording tells, and often which experiment is best.
        observe: observe(q, v, t, params) returns the sensor values, (d,), as for `fit`.
        known: a fit of the same numbers, whose recordings count too, so that the experiment is
            designed for what they leave undetermined.
        criterion: `DOptimal()`, `AOptimal()`, or `COptimal(direction)` for one combination;
            `COptimal.undetermined(fit)` for the directions that a fit leaves undetermined.
        budget: limits of an input, one or several: `Energy("torque", 4.0)` for the integral of its
            square, `Peak("torque", 2.0)` for its largest value. `x0` must satisfy them.
        points: number of random experiments that are compared first, as one batch, with `x0` and
            the ends of the bounds.
        seed: seed of the random experiments.
        method: the integration method, as for `simulate`.
        steps: the step size policy; by default fixed steps that are short enough for a few random
            experiments.

    Raises:
        ValueError: if a shape or a bound is wrong, `x0` spends more than the budget, `known` has
            other numbers, or no experiment can be simulated.

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
    if initial_states not in get_args(InitialStates):
        raise ValueError(
            f'Argument `initial_states` must be "free" or "fixed", but is {initial_states!r}.'
        )
    system, params = with_params(system, params)
    free = numbers_besides_signals(params) if free is None else free
    chosen = parameters(params, free=free, bodies=bodies_of(system))
    layout, leaves = chosen.layout, chosen.leaves
    planned = PlannedRecording(
        scheme=Scheme.of(system, method, steps, Projection(), UdwadiaKalaba()),
        experiment=experiment,
        observe=observe or DefaultSensors(system.dynamics.n_states),
        ts=jnp.asarray(ts, float),
        noise=jnp.asarray(noise, float),
        layout=layout,
        leaves=leaves,
        free_starts=initial_states == "free",
    )
    limits = budgets(budget)
    room = Room.of(x0, bounds, lambda x: planned.shares(limits, x))
    xs = room.drawn(points, seed)
    planned = planned.with_steps(xs)
    before = jnp.asarray(known_before(known, layout, leaves))

    def loss(x: Array) -> Array:
        value = criterion.loss(planned.information(x) + before)
        return jnp.where(jnp.isfinite(value), value, jnp.inf)

    return _described(planned, room.x0, minimum(loss, room, xs), before, limits)


def _described(
    planned: PlannedRecording,
    x0: HostArray,
    x: HostArray,
    before: Array,
    limits: tuple[AbstractBudget, ...],
) -> Design:
    """The design x beside the experiment x0."""
    layout, leaves = planned.layout, planned.leaves
    both = np.asarray(jax.jit(jax.vmap(planned.information))(jnp.stack([x0, x])))
    units = np.asarray(layout.units(leaves))
    errors = [units * np.sqrt(np.diag(np.linalg.inv(H + before))) for H in both]
    return Design(
        x=x,
        names=layout.names,
        values=np.asarray(layout.numbers(jnp.zeros(layout.size), leaves)),
        errors=np.asarray(errors[1]),
        before=np.asarray(errors[0]),
        information=both[1] / units / units[:, None],
        budget=limits,
        spent=planned.spent(limits, jnp.asarray(x)),
    )


def _error(error: float, value: float) -> str:
    if error >= _DETERMINED * abs(value) / np.sqrt(UNKNOWN):
        return "not determined"
    share = f" ({percent(error / abs(value))})" if value else ""
    return f"{error:.2g}{share}"


_UNKNOWN = 1e-8  # share of the whole information that counts as none
_BETTER = 1e-10  # decrease of the criterion that counts


@dataclass(frozen=True, eq=False)
class MeasurementChoice:
    """The measurements that were chosen.

    The result of `choose_measurements`.

    Attributes:
        chosen: their indices, in increasing order; a measurement that is made twice occurs twice.
        cost: the sum of their costs.
        information: the sum of their information and of what was known, shape (p, p).
        loss: the criterion of this information.
    """

    chosen: tuple[int, ...]
    cost: float
    information: HostArray
    loss: float


def choose_measurements(
    sensitivities: Any,
    budget: float | int,
    *,
    costs: Any = 1.0,
    criterion: AbstractCriterion = DOptimal(),
    known: Any = None,
    repeats: bool = False,
) -> MeasurementChoice:
    """Choose sensors or samples by their information about p numbers, within a budget.

    Args:
        sensitivities: derivatives of each measurement with respect to the numbers, in units of its
            noise, shape (K, p), or (K, m, p) for measurements of m values, such as a sensor with
            all its samples.
        budget: largest sum of the costs; with the default costs, the number of measurements.
        costs: cost of each measurement, a number or shape (K,).
        criterion: `DOptimal()`, `AOptimal()`, or `COptimal(direction)` for a single combination.
        known: information that is already available, such as that of a fit, shape (p, p).
        repeats: whether a measurement may be made more than once.

    Raises:
        ValueError: if a shape is wrong, a cost is not positive, or no measurement is within the
            budget.

    Example:
        A straight line is known best from its ends:

        >>> x = np.linspace(-1.0, 1.0, 5)
        >>> choose_measurements(np.stack([np.ones(5), x], axis=1), 2).chosen
        (0, 4)
    """
    informations = _informations(sensitivities)
    count, p = informations.shape[:2]
    prices = _prices(costs, count, float(budget))
    whole = informations.sum(0)
    start = _UNKNOWN * np.diag(np.where(np.diag(whole) > 0, np.diag(whole), 1.0))
    if known is not None:
        start = start + square(known, p, "known")
    search = _ExchangeSearch(informations, prices, float(budget), start, criterion, repeats)
    chosen = search.solve()
    H = start + informations[chosen].sum(0)
    cost = float(prices[chosen].sum())
    return MeasurementChoice(tuple(sorted(chosen)), cost, H, float(search.losses(H[None])[0]))


def _informations(sensitivities: Any) -> HostArray:
    J = np.asarray(sensitivities, float)
    if J.ndim not in (2, 3):
        raise ValueError(
            "Argument `sensitivities` must have shape (K, p) or (K, m, p), but has shape "
            f"{J.shape}."
        )
    require_finite(sensitivities=J)
    J = J[:, None, :] if J.ndim == 2 else J
    return np.einsum("kmi,kmj->kij", J, J)


def _prices(costs: Any, count: int, budget: float) -> HostArray:
    costs = np.asarray(costs, float)
    if costs.shape not in ((), (count,)):
        raise ValueError(
            f"Argument `costs` must be a number or have shape ({count},), but has shape "
            f"{costs.shape}."
        )
    if not (np.isfinite(costs) & (costs > 0)).all():
        raise ValueError("Argument `costs` must be positive and finite.")
    if not costs.min() <= budget < np.inf:
        raise ValueError(
            f"Argument `budget` must allow the cheapest measurement, which costs {costs.min():g}, "
            f"but is {budget:g}."
        )
    return np.broadcast_to(costs, (count,))


@dataclass(frozen=True, eq=False)
class _ExchangeSearch:
    informations: HostArray
    prices: HostArray
    budget: float
    start: HostArray
    criterion: AbstractCriterion
    repeats: bool

    def losses(self, H: HostArray) -> HostArray:
        """The criterion of informations (k, p, p), infinite where it is not a number."""
        losses = np.asarray(jax.vmap(self.criterion.loss)(jnp.asarray(H)))
        return np.where(np.isfinite(losses), losses, np.inf)

    def affordable(self, chosen: Sequence[int], left: float) -> list[int]:
        """The measurements that may be added within what is left of the budget."""
        within = np.flatnonzero(self.prices <= left * (1 + 1e-12)).tolist()
        return within if self.repeats else [k for k in within if k not in chosen]

    def solve(self) -> list[int]:
        """What neither another measurement nor an exchange improves."""
        chosen, count = self.fill([]), -1
        while len(chosen) != count:
            count = len(chosen)
            chosen = self.fill(self.exchange(chosen))
        return chosen

    def fill(self, chosen: list[int]) -> list[int]:
        """The same and the best for their cost, one after the other, as far as the budget goes."""
        chosen, left = list(chosen), self.budget - self.prices[chosen].sum()
        H = self.start + self.informations[chosen].sum(0)
        while candidates := self.affordable(chosen, left):
            gains = self.losses(H[None])[0] - self.losses(H + self.informations[candidates])
            best = candidates[int(np.argmax(gains / self.prices[candidates]))]
            chosen.append(best)
            H, left = H + self.informations[best], left - self.prices[best]
        return chosen

    def exchange(self, chosen: list[int]) -> list[int]:
        """The same after all exchanges of one for another that improve the criterion."""
        loss = self.losses((self.start + self.informations[chosen].sum(0))[None])[0]
        improved = True
        while improved:
            improved = False
            for index in range(len(chosen)):
                rest = chosen[:index] + chosen[index + 1 :]
                left = self.budget - self.prices[rest].sum()
                candidates = self.affordable(rest, left)
                H = self.start + self.informations[rest].sum(0)
                losses = self.losses(H + self.informations[candidates])
                best = int(np.argmin(losses))
                if losses[best] < loss - _BETTER:
                    chosen, loss, improved = [*rest, candidates[best]], losses[best], True
        return chosen
