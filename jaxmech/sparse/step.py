"""One step by block elimination: the stages of a Runge-Kutta method, the projection, the checks."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate import AbstractRungeKutta
from jaxmech.sparse.consistency import Residuals
from jaxmech.sparse.law import accelerations, projected
from jaxmech.sparse.metric import place_at
from jaxmech.sparse.rows import most_rows
from jaxmech.sparse.structure import BodyGraph
from jaxmech.status import Status
from jaxmech.system import Params


@dataclass(frozen=True)
class SparsePlan:
    """What is the same in all steps: the structure, the method, and corrections in a projection."""

    structure: BodyGraph
    method: AbstractRungeKutta
    iterations: int  # zero without a projection


class SparseHealth(eqx.Module):
    """The checks of one step.

    Attributes:
        status: a `Status`, of this step alone.
        rank: smallest number of independent equations.
        first_rank: that at the start of the step.
        last_rank: that of the projection.
        position, velocity: largest residuals at the end.
    """

    status: Int[Array, ""]
    rank: Int[Array, ""]
    first_rank: Int[Array, ""]
    last_rank: Int[Array, ""]
    position: Float[Array, ""]
    velocity: Float[Array, ""]


class _Evaluations(eqx.Module):
    """The carry of the loop over the stages: their rates, and what the checks need."""

    speeds: Float[Array, "stages n"]
    accelerations: Float[Array, "stages n"]
    q: Float[Array, " n"]
    v: Float[Array, " n"]
    independent: Bool[Array, "b m"] | None
    definite: Bool[Array, ""]
    contradicts: Bool[Array, ""]
    audit: Residuals
    ranks: Int[Array, "3"]  # smallest, first, last


class _Evaluation(eqx.Module):
    """A stage, or the projection as the last one: its number, its node and its weights."""

    number: Array
    node: Array
    weights: Float[Array, "*S stages"]


def step(
    plan: SparsePlan,
    q: Array,
    v: Array,
    t: Array,
    h: Array,
    params: Params,
    extents: Float[Array, " n"],
) -> tuple[Array, Array, SparseHealth]:
    """q (n,) and v (n,) after one step of size h from time t, and the health of the step."""
    structure, tableau = plan.structure, plan.method.tableau
    count = len(tableau.nodes)

    def evaluate(so_far: _Evaluations, evaluation: _Evaluation) -> tuple[_Evaluations, None]:
        time = t + evaluation.node * h
        stage_q = q + h * (evaluation.weights @ so_far.speeds)
        stage_v = v + h * (evaluation.weights @ so_far.accelerations)
        is_stage = evaluation.number < count
        # The choice of the first stage stands: later ones lie only near the constraints, where
        # dependent rows seem independent. The projection decides again, since the step may have
        # started in a singular pose.
        is_free = (evaluation.number == 0) | ~is_stage
        independent = None if so_far.independent is None else so_far.independent | is_free
        place = place_at(structure, stage_q, stage_v, time, params, independent)
        rank = place.metric.rank

        def law() -> _Evaluations:
            motion = accelerations(place, stage_q, stage_v, time, params)
            first = evaluation.number == 0
            ranks = so_far.ranks.at[0].min(rank)
            return replace(
                so_far,
                speeds=so_far.speeds.at[evaluation.number].set(stage_v),
                accelerations=so_far.accelerations.at[evaluation.number].set(motion.qdd),
                independent=_chosen(first, motion.independent, so_far.independent),
                definite=so_far.definite & place.metric.definite,
                contradicts=so_far.contradicts | (first & motion.contradicts),
                ranks=jnp.where(first & (np.arange(3) == 1), rank, ranks),
            )

        def end() -> _Evaluations:
            state = place, stage_q, stage_v, time, params
            new_q, new_v, residuals = projected(*state, plan.iterations, extents)
            return replace(
                so_far, q=new_q, v=new_v, audit=residuals, ranks=so_far.ranks.at[2].set(rank)
            )

        return jax.lax.cond(is_stage, law, end), None

    # One loop for all evaluations, so that elimination is compiled once.
    zeros, true = jnp.zeros((count, q.size), q.dtype), jnp.asarray(True)
    rows = (most_rows(structure, q, v, t, params), structure.nodes)
    zero = jnp.zeros((), q.dtype)
    start = _Evaluations(
        zeros, zeros, q, v, jnp.ones(rows, bool) if rows[1] else None, true, ~true,
        Residuals(true, zero, zero), jnp.full(3, jnp.iinfo(jnp.int32).max, jnp.int32),
    )  # fmt: skip
    stages = _Evaluation(
        jnp.arange(count + 1),
        jnp.asarray([*tableau.nodes, 1.0], q.dtype),
        jnp.asarray(np.concatenate([tableau.matrix, [tableau.weights]]), q.dtype),
    )
    evaluations = jax.lax.scan(evaluate, start, stages)[0]
    return evaluations.q, evaluations.v, _health(evaluations)


def _chosen(first: Array, flags: Array | None, earlier: Array | None) -> Array | None:
    """The independent rows of the first stage."""
    return earlier if flags is None or earlier is None else jnp.where(first, flags, earlier)


def _health(evaluations: _Evaluations) -> SparseHealth:
    finite = jnp.isfinite(evaluations.q.sum() + evaluations.v.sum())
    status = jnp.asarray(Status.OK, jnp.int32)
    for failed, code in (  # the last one counts
        (~evaluations.audit.met, Status.PROJECTION_FAILED),
        (evaluations.contradicts, Status.CONTRADICTORY),
        (~finite, Status.NONFINITE),
        (~evaluations.definite, Status.SINGULAR_MASS),
    ):
        status = jnp.where(failed, int(code), status).astype(jnp.int32)
    least, first, last = evaluations.ranks
    return SparseHealth(
        status, least, first, last, evaluations.audit.position, evaluations.audit.velocity
    )
