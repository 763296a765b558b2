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
    kept: Bool[Array, "b m"] | None
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

    def one(so_far: _Evaluations, own: _Evaluation) -> tuple[_Evaluations, None]:
        now = t + own.node * h
        stage_q = q + h * (own.weights @ so_far.speeds)
        stage_v = v + h * (own.weights @ so_far.accelerations)
        is_stage = own.number < count
        # The choice of the first stage stands: later ones lie only near the constraints, where
        # dependent rows seem independent. The projection decides again, since the step may have
        # started in a singular pose.
        is_free = (own.number == 0) | ~is_stage
        kept = None if so_far.kept is None else so_far.kept | is_free
        place = place_at(structure, stage_q, stage_v, now, params, kept)
        rank = place.metric.rank

        def law() -> _Evaluations:
            found = accelerations(place, stage_q, stage_v, now, params)
            first = own.number == 0
            ranks = so_far.ranks.at[0].min(rank)
            return replace(
                so_far,
                speeds=so_far.speeds.at[own.number].set(stage_v),
                accelerations=so_far.accelerations.at[own.number].set(found.qdd),
                kept=_chosen(first, found.kept, so_far.kept),
                definite=so_far.definite & place.metric.definite,
                contradicts=so_far.contradicts | (first & found.contradicts),
                ranks=jnp.where(first & (np.arange(3) == 1), rank, ranks),
            )

        def end() -> _Evaluations:
            state = place, stage_q, stage_v, now, params
            new_q, new_v, found = projected(*state, plan.iterations, extents)
            return replace(
                so_far, q=new_q, v=new_v, audit=found, ranks=so_far.ranks.at[2].set(rank)
            )

        return jax.lax.cond(is_stage, law, end), None

    # One loop for all evaluations, so that elimination is compiled once.
    none, true = jnp.zeros((count, q.size), q.dtype), jnp.asarray(True)
    rows = (most_rows(structure, q, v, t, params), structure.nodes)
    zero = jnp.zeros((), q.dtype)
    start = _Evaluations(
        none, none, q, v, jnp.ones(rows, bool) if rows[1] else None, true, ~true,
        Residuals(true, zero, zero), jnp.full(3, jnp.iinfo(jnp.int32).max, jnp.int32),
    )  # fmt: skip
    stages = _Evaluation(
        jnp.arange(count + 1),
        jnp.asarray([*tableau.nodes, 1.0], q.dtype),
        jnp.asarray(np.concatenate([tableau.matrix, [tableau.weights]]), q.dtype),
    )
    found = jax.lax.scan(one, start, stages)[0]
    return found.q, found.v, _health(found)


def _chosen(first: Array, own: Array | None, before: Array | None) -> Array | None:
    """The independent rows of the first stage."""
    return before if own is None or before is None else jnp.where(first, own, before)


def _health(found: _Evaluations) -> SparseHealth:
    finite = jnp.isfinite(found.q.sum() + found.v.sum())
    status = jnp.asarray(Status.OK, jnp.int32)
    for failed, code in (  # the last one counts
        (~found.audit.met, Status.PROJECTION_FAILED),
        (found.contradicts, Status.CONTRADICTORY),
        (~finite, Status.NONFINITE),
        (~found.definite, Status.SINGULAR_MASS),
    ):
        status = jnp.where(failed, int(code), status).astype(jnp.int32)
    least, first, last = found.ranks
    return SparseHealth(status, least, first, last, found.audit.position, found.audit.velocity)
