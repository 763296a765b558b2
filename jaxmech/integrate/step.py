"""One step of one trajectory: the stages of the method, then back onto the constraints."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.constraints import Acceleration
from jaxmech.equations import EquationsOfMotion
from jaxmech.formulations import AbstractChart, AbstractFormulation, Law, solve_law
from jaxmech.integrate.methods import AbstractMethod, Tableau
from jaxmech.linalg import LDL, times
from jaxmech.properties import singular_mass
from jaxmech.stabilization import AbstractStabilization, Projection, RowsBefore
from jaxmech.status import Status
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of


@dataclass(frozen=True)
class Scheme:
    """All that is fixed before a trajectory is computed.

    Attributes:
        system: the system, its `singular_mass` set.
        method: Runge-Kutta method and number of substeps.
        formulation: law of motion.
        stabilization: what is done against drift.
    """

    system: System
    method: AbstractMethod
    formulation: AbstractFormulation
    stabilization: AbstractStabilization

    @staticmethod
    def of(
        system: System,
        method: AbstractMethod,
        formulation: AbstractFormulation,
        stabilization: AbstractStabilization,
        *state: Any,
    ) -> "Scheme":
        """The scheme for states of these shapes: q, v, t and params."""
        found = formulation.takes_as_singular(singular_mass(system, *state))
        return Scheme(system.with_singular_mass(found), method, formulation, stabilization)

    def law(
        self, q: Array, v: Array, t: Array, params: Params, kept: Array | None = None
    ) -> tuple[EquationsOfMotion, Law]:
        """The equations at a state, feedback included, and what the law of motion makes of them.

        Only rows in `kept` count as independent, by default all.
        """
        eom = self.formulation.equations(self.system, q, v, t, params)
        feedback = self.stabilization.feedback(self.system, q, v, t, params)
        eom = replace(eom, b=eom.b + feedback)
        return eom, solve_law(self.formulation, self.system, eom, (q, v, t, params), kept=kept)

    def completed(
        self, chart: AbstractChart | None, q: Array, v: Array, t: Array, params: Params
    ) -> tuple[Array, Array, Array | None]:
        """The state with what follows from a chart, and whether it was found; None without one."""
        return (q, v, None) if chart is None else chart.complete(self.system, q, v, t, params)

    def after_step(
        self,
        chart: AbstractChart | None,
        q: Array,
        v: Array,
        t: Array,
        params: Params,
        before: RowsBefore,
    ) -> tuple[Array, Array, Array]:
        """The state to go on from, and whether it could be reached.

        With a chart: projected if the step was done without it, and in the chart of the next step.
        """
        some_are_not_projected = any(isinstance(c, Acceleration) for c in self.system.constraints)
        known = None if some_are_not_projected else before

        def moved(by: AbstractStabilization) -> tuple[Array, Array, Array]:
            return by.after_step(self.system, q, v, t, params, known)

        state = moved(self.stabilization)
        if chart is None:
            return state
        if not isinstance(self.stabilization, Projection):
            state = jax.tree.map(partial(jnp.where, chart.usable), state, moved(Projection()))
        q, v, reached = state
        following = self.formulation.chart(self.system, q, v, t, params)
        q, v, found = self.completed(following, q, v, t, params)
        return q, v, reached if found is None else reached & found


class Health(eqx.Module):
    """What a step says about itself.

    Attributes:
        good: whether nothing went wrong.
        status: `Status` of this step alone, int32.
        rank: smallest number of independent constraint equations seen.
        computed: whether the law of motion gave numbers, so that `rank` means something.
    """

    good: Bool[Array, ""]
    status: Int[Array, ""]
    rank: Int[Array, ""]
    computed: Bool[Array, ""]


@jit_of("scheme")
def step(
    scheme: Scheme, q: Array, v: Array, t: Array, h: Array, params: Params
) -> tuple[Array, Array, Health]:
    """q and v after one step of size h, and how it went.

    Args:
        scheme: what to integrate and how.
        q: coordinates (n,) at time t.
        v: velocities (n,) at time t.
        t: time, scalar.
        h: step, scalar.
        params: parameters.
    """
    stages = _stages(scheme.method.tableau, q.dtype)
    chart = scheme.formulation.chart(scheme.system, q, v, t, params)

    def stage(carry: _Carry, own: _Stage) -> tuple[_Carry, None]:
        speeds, accelerations, good, independent, status, rank, first_rank, kept = carry
        stage_q, stage_v, stage_t = q + h * speeds[0], v + h * accelerations[0], t + own.node * h
        stage_q, stage_v, complete = scheme.completed(chart, stage_q, stage_v, stage_t, params)
        eom, law = scheme.law(stage_q, stage_v, stage_t, params, kept)
        failures: list[tuple[Array, Status | Array]] = [
            (~law.definite, Status.SINGULAR_MASS),
            *_failures(law.converged, Status.NONIDEAL_FAILED),
            *_failures(complete, Status.PROJECTION_FAILED),
            _misled(eom, law, kept, own),
        ]
        status = jnp.where(status == Status.OK, _first_that_holds(*failures), status)
        for failed, _ in failures:
            good &= ~failed
        speeds, accelerations = own.added(speeds, stage_v), own.added(accelerations, law.qdd)
        independent &= law.rank == rows
        rank = jnp.minimum(rank, law.rank)
        first_rank = jnp.where(own.is_start, law.rank, first_rank)
        if law.kept is not None:  # what depends on others on the constraints does so near them
            kept = jnp.where(own.is_start, law.kept, kept)
        return (speeds, accelerations, good, independent, status, rank, first_rank, kept), None

    # A loop, so that the law of motion is compiled once and not once per stage.
    none = jnp.zeros((stages.weights.shape[1], q.size), q.dtype)
    m = sum(scheme.system.sizes(q, v, t, params))
    rows = jnp.asarray(m, jnp.int32)
    true, ok = jnp.asarray(True), jnp.asarray(Status.OK, jnp.int32)
    start = none, none, true, true, ok, rows, rows, jnp.ones(m, bool)
    sums, _ = jax.lax.scan(stage, start, stages)
    speeds, accelerations, good, independent, status, rank, first_rank, _ = sums
    new_q, new_v = q + h * speeds[-1], v + h * accelerations[-1]
    judged = RowsBefore(~independent, first_rank)
    new_q, new_v, reached = scheme.after_step(chart, new_q, new_v, t + h, params, judged)
    finite = jnp.isfinite(new_q.sum() + new_v.sum())
    good &= finite & reached

    def bad() -> tuple[Array, Array]:
        definite = status != Status.SINGULAR_MASS
        ended = _first_that_holds((~finite, Status.NONFINITE), (~reached, Status.PROJECTION_FAILED))
        first = definite & (~finite | (status == Status.OK))
        return jnp.where(first, ended, status), definite & finite

    status, computed = jax.lax.cond(~good, bad, lambda: (ok, true))
    rank = jax.lax.cond(~independent, lambda: rank, lambda: rows)
    return new_q, new_v, Health(good, status, rank, computed)


# Sums of speeds and of accelerations; whether all is good, and all rows independent; status; rank,
# and that of the first stage; which rows may be taken as independent.
_Carry = tuple[Array, Array, Array, Array, Array, Array, Array, Array]


class _Stage(eqx.Module):
    """One stage of a method, and all of them with one more axis in front.

    A rate enters the sums of the stages that follow it, up to the farthest that any rate of the
    method reaches, and the sum of the step, which is the last.

    Attributes:
        node: at what fraction of the step it is taken.
        weights: of its rate in each of the sums.
        is_start: whether it is the first stage.
        is_end: whether it is the first or the last stage.
    """

    node: Array
    weights: Float[Array, " *S sums"]
    is_start: Bool[Array, " *S"]
    is_end: Bool[Array, " *S"]

    def added(self, sums: Float[Array, " sums n"], rate: Array) -> Float[Array, " sums n"]:
        """The sums as the next stage finds them, its own first."""
        moved = jnp.concatenate([sums[1:-1], jnp.zeros_like(sums[:1]), sums[-1:]])
        return moved + self.weights[:, None] * rate[None]


def _stages(tableau: Tableau, dtype: Any) -> _Stage:
    """The stages of a method, their weights padded with zeros."""
    count = len(tableau.nodes)
    table = np.zeros((count, count))
    for j, row in enumerate(tableau.stages):
        table[j, : len(row)] = row
    farthest = max(j - i for j, i in zip(*np.nonzero(table), strict=True))
    weights = np.zeros((count, farthest + 1))
    for k in range(1, farthest + 1):
        weights[: count - k, k - 1] = np.diagonal(table, -k)
    weights[:, -1] = tableau.weights
    which = np.arange(count)
    return _Stage(
        node=jnp.asarray(tableau.nodes, dtype),
        weights=jnp.asarray(weights, dtype),
        is_start=jnp.asarray(which == 0),
        is_end=jnp.asarray(np.isin(which, (0, count - 1))),
    )


def _misled(eom: EquationsOfMotion, law: Law, kept: Array, own: _Stage) -> tuple[Array, Array]:
    """Whether the rows taken as dependent make the accelerations wrong, and the status for that.

    It is asked only where there are such rows, at the first and at the last stage of a step.
    """
    eom, law = jax.lax.stop_gradient((eom, law))
    no = jnp.asarray(False)

    def look() -> tuple[Array, Array]:
        lost = jax.lax.cond(own.is_start, lambda: _is_lost(eom.A, law.rank), lambda: no)
        return lost | _contradicts(eom, law, kept), lost

    are_dependent = law.rank < eom.b.size
    failed, lost = jax.lax.cond(own.is_end & are_dependent, look, lambda: (no, no))
    code = jnp.where(lost, int(Status.ILL_CONDITIONED), int(Status.CONTRADICTORY))
    return failed, code.astype(jnp.int32)


def _is_lost(A: Array, rank: Array) -> Bool[Array, ""]:
    """Whether more rows are independent by more than eps^(1/4) of their length than were kept.

    Here lengths are those of A itself. In the metric of M a light body between heavy ones makes
    independent rows nearly parallel, to within the root of the ratio of the masses.
    """
    squared = float(jnp.finfo(A.dtype).eps) ** 0.5
    return LDL(tolerance=squared).factor(A).rank > rank


def _contradicts(eom: EquationsOfMotion, law: Law, kept: Array) -> Bool[Array, ""]:
    """Whether A qdd misses b by more than eps^(1/4) of the accelerations that are at play.

    Independent rows cannot contradict each other. The last stage lies only near the constraints,
    so it counts if it has more dependent rows than the first.
    """
    tolerance = float(jnp.finfo(eom.b.dtype).eps) ** 0.25
    miss = jnp.abs(times(eom.A, law.qdd) - eom.b)
    at_play = jnp.max(jnp.abs(law.qdd)) + jnp.max(jnp.abs(law.free))
    too_much = tolerance * (jnp.abs(eom.A).sum(1) * at_play + jnp.abs(eom.b))
    return (miss > too_much).any() & (law.rank < kept.sum())


def _failures(good: Array | None, status: Status) -> list[tuple[Array, Status]]:
    """The case that something has not come out well, if the law has such a thing."""
    return [] if good is None else [(~good.all(), status)]


def _first_that_holds(*cases: tuple[Array, Status | Array]) -> Int[Array, ""]:
    status = jnp.asarray(Status.OK, jnp.int32)
    for condition, code in reversed(cases):
        status = jnp.where(condition, jnp.asarray(code, jnp.int32), status)
    return status
