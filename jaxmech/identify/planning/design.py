"""`design`: the experiment from which a fit would learn most.

The `information` of its recording is added to what is known, and a criterion of the sum is
minimized within bounds and budgets, with exact derivatives by the experiment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.formulations import UdwadiaKalaba
from jaxmech.identify.data.inputs import numbers_besides_signals
from jaxmech.identify.identifiable import InitialStates
from jaxmech.identify.inference.information import percent
from jaxmech.identify.planning.budget import AbstractBudget, budgets
from jaxmech.identify.planning.criterion import AbstractCriterion, DOptimal
from jaxmech.identify.planning.information import (
    UNKNOWN,
    Experiment,
    PlannedRecording,
    known_before,
)
from jaxmech.identify.planning.search import Room, minimum
from jaxmech.identify.problem.body_inertia import bodies_of
from jaxmech.identify.problem.parameters import parameters
from jaxmech.identify.problem.setup import DefaultSensors
from jaxmech.identify.result import Fit
from jaxmech.integrate import AbstractMethod, AbstractSteps, Scheme
from jaxmech.stabilization import Projection
from jaxmech.subjects import Subject, with_params
from jaxmech.system import Params
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_positive_integer, require_seed

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
        observe=observe or DefaultSensors(len(system.states)),
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
