"""`LimitState`: the margins of motions, and their gradients, at points of standard normal space.

A margin is positive in a safe motion and at most 0 in a failure. The extreme value of a quantity is
that of the dense output at the peak of the parabola through the largest value at a step and its two
neighbours. Its derivative is the one at a fixed time, since the time of an extreme value does not
matter to first order.

A drawn variable is x = F⁻¹(Φ(z)), where z = L u is normal with the correlations of the study (its
Gaussian copula) and u is independent: as in `draws`, but with all digits in the upper tail, where
Φ(z) rounds to one, and with derivatives. All calls have one of two shapes, some lanes of margins or
of margins with gradients, so that two programs are compiled.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf, log, pi
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import batched_closure
from jaxmech.config.errors import StoppedError, refuse
from jaxmech.ensemble.distributions import Law
from jaxmech.ensemble.draws import Sampler, at_normal
from jaxmech.ensemble.member import StudyTrajectory, Tree, merged
from jaxmech.ensemble.plan import Plan, errors_as_problems, inputs_of, planned, with_steps
from jaxmech.ensemble.study import Failure, Observed, Study, StudyEvent, Times
from jaxmech.integrate import FixedSteps
from jaxmech.laws import observed_at
from jaxmech.run import Solution
from jaxmech.status import succeeded
from jaxmech.utils.text import not_one_of

GRADIENT_LANES = 16  # margins with gradients in one call
_LANES = 64  # margins in one call on a CPU, where more are no faster
_BLOCK = 512  # trajectories that are computed at a time by default
_LOG_ROOT = log(2 * pi) / 2
_LONG = 1e6  # margin of a motion without a single value, in units of the threshold


class ExhaustedError(Exception):
    """As many trajectories are computed as are allowed."""


@dataclass(eq=False)
class LimitState:
    """The margin as a function of points u, shape (N, n); it counts its trajectories."""

    plan: Plan  # with its steps
    failure: Failure
    most: int  # trajectories that may be computed
    stop: Callable[[], bool] = lambda: False  # whether to end before the next call
    trajectories: int = 0  # including those with gradients
    gradients: int = 0
    lost: int = 0  # trajectories that could not be computed to their end
    nearest: float = inf  # the smallest margin of all trajectories

    @property
    def study(self) -> Study:
        return self.plan.study

    @property
    def sampler(self) -> Sampler:
        return self.plan.sampler

    @property
    def size(self) -> int:
        """The number of variables."""
        return len(self.sampler.drawn)

    @property
    def block(self) -> int:
        """The number of points that a method draws at a time."""
        return self.study.block or _BLOCK

    @property
    def left(self) -> int:
        """How many more trajectories may be computed."""
        return self.most - self.trajectories

    def values(self, u: np.ndarray) -> np.ndarray:
        """The margins of some points, shape (N,)."""
        return np.asarray(self._computed(u, False)["margin"], float)

    def with_gradients(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The margins of some points and their gradients, shapes (N,) and (N, n)."""
        values = self._computed(u, True)
        self.gradients += len(u)
        drawn, z = self.sampler.drawn, self.correlated(u)
        slopes = np.zeros((len(u), self.size))
        for k, (section, variable, index) in enumerate(self.sampler.entries.values()):
            entry: Any = (slice(None), *index)
            slopes[:, k] = values["gradient"][section][variable][entry]
        slopes[values["lost"]] = 0.0
        slopes *= np.stack([_slope(law, z[:, k]) for k, law in enumerate(drawn.values())], 1)
        factor = self.sampler.factor
        return values["margin"].astype(float), slopes if factor is None else slopes @ factor

    def motion(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """The initial state and parameters of the motion of a point, shape (n,)."""
        # By the program of the gradients, which is compiled already where there are such points.
        q, v, params = jax.tree.map(lambda x: x[0], self._evaluated(u[None], True)["motion"])
        return q, v, params

    def correlated(self, u: np.ndarray) -> np.ndarray:
        """The points z, whose entries have the correlations of the study."""
        return u if self.sampler.factor is None else u @ self.sampler.factor.T

    def columns(self, u: np.ndarray) -> dict[str, np.ndarray]:
        """The drawn variables of some points, by full name, shape (N,) each."""
        z, laws = self.correlated(u), self.sampler.drawn.items()
        return {name: at_normal(law, z[:, k]) for k, (name, law) in enumerate(laws)}

    def nearest_text(self) -> str:
        """How near to the failure a trajectory came."""
        failure = self.failure
        if failure.threshold is None:
            return f"the function of {failure.of} comes within {self.nearest:.4g} of its event"
        extreme = "largest" if failure.below is None else "smallest"
        value = failure.threshold + failure.margin_sign * self.nearest
        return (
            f"the {extreme} {failure.of} was {value:.6g}, and the threshold is "
            f"{failure.threshold:g}: can it be reached?"
        )

    def _computed(self, u: np.ndarray, with_gradient: bool) -> dict[str, Any]:
        """What a program computes of some points, which are counted."""
        if self.left < len(u):
            raise ExhaustedError
        values = self._evaluated(u, with_gradient)
        self.trajectories += len(u)
        self.lost += int(values["lost"].sum())
        finite = values["margin"][np.abs(values["margin"]) < self.scale]
        self.nearest = min(self.nearest, float(finite.min(initial=inf)))
        return values

    def _evaluated(self, u: np.ndarray, with_gradient: bool) -> dict[str, Any]:
        member, lanes = self.member, GRADIENT_LANES
        if not with_gradient:
            lanes = _LANES if jax.default_backend() == "cpu" else self.block
        variables = self.sampler.variables(self.columns(u), len(u))
        varying, shared = inputs_of(variables, member.dtype, -len(u) % lanes)
        parts = []
        for first in range(0, len(u), lanes):
            if self.stop():
                raise StoppedError
            part = jax.tree.map(lambda x, k=first: x[k : k + lanes], varying)
            with errors_as_problems():
                quick = member.may_skip_assembly
                values = self._program(part, shared, with_gradient, not quick)
                if quick and not np.asarray(values["met"]).all():
                    values = self._program(part, shared, with_gradient, True)
            parts.append(jax.device_get(values))
        whole: dict[str, Any] = jax.tree.map(lambda *x: np.concatenate(x)[: len(u)], *parts)
        return whole

    @cached_property
    def _program(self) -> Callable[..., Any]:
        """The compiled function of the draws of some lanes."""

        def compute(varying: Any, shared: Any, with_gradient: bool, assembled: bool) -> Any:
            def margin_of(draws: Any) -> Any:
                return self._margin(merged(shared, draws), assembled)

            def one(draws: Any) -> Any:
                if not with_gradient:
                    margin, known = margin_of(draws)
                    return {"margin": margin, "lost": known["lost"], "met": known["met"]}
                (margin, known), gradient = jax.value_and_grad(margin_of, has_aux=True)(draws)
                return {"margin": margin, "gradient": gradient, **known}

            return jax.vmap(one)(varying)

        return jax.jit(compute, static_argnums=(2, 3))

    @cached_property
    def member(self) -> StudyTrajectory:
        """The trajectory, saved at every step, without the event that is the failure."""
        study, steps = self.study, self.study.steps
        if isinstance(steps, FixedSteps) and self.failure.when == "ever":
            assert steps.per_save is not None
            saves = (study.times.saves - 1) * steps.per_save + 1
            times = Times(start=study.times.start, end=study.times.end, saves=saves)
            study = replace(study, times=times, steps=replace(steps, per_save=1))
        events = {name: x for name, x in study.events.items() if name != self.failure.of}
        study = replace(study, events=events, statistics={}, store="all", failure=None)
        return StudyTrajectory(study, self.plan.subject)

    def _margin(self, inputs: Tree, assembled: bool) -> tuple[Array, dict[str, Any]]:
        """The margin, and what else is known of the motion.

        That is whether it was `lost` numerically, whether its start was `met`, and its `motion`:
        initial coordinates, velocities and parameters.
        """
        member = self.member
        q, v, met = member.start(inputs, assembled)
        params = member.params(inputs)
        sol = member.motion(q, v, params)
        margin = self._along(sol, params)
        is_lost = ~jnp.asarray(succeeded(sol.status))
        forced = -1.0 if self.failure.unfinished == "failure" else 1.0
        # A trajectory that has failed before it is lost is a failure by any rule.
        margin = jnp.where(is_lost & (margin > 0), forced * self.scale, margin)
        return margin, {"lost": is_lost, "met": met, "motion": (q, v, params)}

    @property
    def scale(self) -> float:
        """A margin that is far from 0."""
        return _LONG * max(abs(self.failure.threshold or 0.0), 1.0)

    def _along(self, sol: Solution, params: Any) -> Array:
        excess = self._excess

        # In native code the derivative of `jnp.max` is right, by XLA it is lost at some states.
        rows, differ = (sol.q, sol.v, sol.memory, sol.ts), (True, True, True, False)

        def beyond(q: Array, v: Array, memory: Array, t: Array) -> Array:
            return excess(q, v, t, self.member.system.with_outputs(params, memory))

        at = batched_closure(beyond, *(x[0] for x in rows), differ=differ)
        if self.failure.when == "end":
            return -at(*(x[-1] for x in rows))
        values = jax.vmap(at)(*rows)
        if self.event is not None and self.event.direction == 0:
            start = jnp.where(values[0] > 0, -1.0, 1.0)
            values = start * values
            at = partial(_times, start, at)
        values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
        largest = _largest(values)
        if sol.run is None:  # the parameters are too many to be kept for dense output
            return -largest
        peak = sol.at(jax.lax.stop_gradient(_peak(sol.ts, values)))
        between = at(peak.q, peak.v, peak.memory, peak.t)
        return -jnp.where(between > largest, between, largest)

    @cached_property
    def event(self) -> StudyEvent | None:
        """The event that is the failure, if it is one."""
        return self.study.events.get(self.failure.of)

    @cached_property
    def _excess(self) -> Callable[..., Array]:
        """The quantity by how much it is beyond the threshold, as a function of a state."""
        study, failure, system = self.study, self.failure, self.plan.subject.system
        names = self.plan.member.entries
        event, sign = self.event, -float(failure.margin_sign)
        if event is not None:
            fn = event.event(failure.of, names, study.observe).fn
            sign, level = float(event.direction or 1), 0.0
        else:
            assert failure.threshold is not None
            level, of_state = failure.threshold, StudyEvent(of=failure.of)
            is_state = failure.of in names
            fn = of_state.event("", names, {}).fn if is_state else study.observe[failure.of].size
        quantity = Observed(fn)

        def excess(q: Array, v: Array, t: Array, params: Any) -> Array:
            reactions = None
            if quantity.needs_reactions:
                reactions = observed_at(system, study.formulation, q, v, t, params)
            return _largest((sign * (quantity.at(q, v, t, params, reactions) - level)).ravel())

        return excess


def _largest(values: Array) -> Array:
    # Not `max`, whose derivative compares numbers with those that XLA may have rounded otherwise
    # (fused multiply-add): where none is equal to the largest one, the derivative is lost.
    return values[jnp.argmax(values)]


def _times(sign: Array, at: Callable[..., Array], *state: Array) -> Array:
    return sign * at(*state)


def _peak(ts: Array, values: Array) -> Array:
    """The time of the peak of the parabola through the largest value and its neighbours."""
    k = jnp.argmax(values)
    first = jnp.clip(k - 1, 0, max(len(ts) - 3, 0))
    if len(ts) < 3:
        return ts[k]
    t0, t1, t2 = (ts[first + i] for i in range(3))
    f0, f1, f2 = (values[first + i] for i in range(3))
    rise, fall = (f1 - f0) / (t1 - t0), (f2 - f1) / (t2 - t1)
    bend = (fall - rise) / (t2 - t0)
    middle = (t0 + t1) / 2 - rise / (2 * jnp.where(bend < 0, bend, -1.0))
    inside = (bend < 0) & (t0 < middle) & (middle < t2)
    return jnp.where(inside, middle, ts[k])


def _slope(law: Law, z: np.ndarray) -> np.ndarray:
    """Derivatives of the quantiles with respect to z: φ(z) / f(x), zero for discrete values."""
    if law.is_discrete:
        return np.zeros_like(z)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.exp(-(z**2) / 2 - _LOG_ROOT - law.logpdf(at_normal(law, z)))
    return np.where(np.isfinite(values), values, 0.0)


def limit_state_of(study: Study, folder: Path) -> LimitState:
    """The limit state of a study that has a failure, after all checks."""
    failure = study.failure
    assert failure is not None
    bare = replace(study, statistics={}, store="all")
    plan = planned(bare, folder)
    _require_quantity(failure, plan)
    if not plan.sampler.drawn:
        message = "must draw a variable: without one, a failure is certain or impossible"
        raise refuse("parameters", message)
    return LimitState(with_steps(plan), failure, failure.most)


def _require_quantity(failure: Failure, plan: Plan) -> None:
    """Raise a StudyError unless the failure is one of this study."""
    study = plan.study
    known = (*plan.member.entries, *study.observe, *study.events)
    if failure.of not in known:
        kind = "a coordinate, a velocity, an observed quantity or an event"
        raise refuse(("failure", "of"), not_one_of(failure.of, known, kind))
    if failure.of in study.events:
        if failure.threshold is not None or failure.when == "end":
            message = "must be an event alone, which has a `level`, without a threshold or `when`"
            raise refuse(("failure", "of"), message)
        return
    if failure.threshold is None:
        raise refuse(("failure", "above"), f"or `below` must be given for {failure.of}")
    quantity = study.observe.get(failure.of)
    sides = ("all", "min") if failure.above is None else ("all", "max", "largest")
    if quantity is not None and quantity.keep not in sides:
        message = f"must have a value at all times, but {failure.of} has keep = {quantity.keep!r}"
        raise refuse(("failure", "of"), f"{message}; observe it without `keep` too")
    if quantity is not None and quantity.keep != "all" and failure.when == "end":
        message = f'must be "ever", since {failure.of} has keep = {quantity.keep!r}'
        raise refuse(("failure", "when"), message)
