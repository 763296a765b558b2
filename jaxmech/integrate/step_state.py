"""States between steps: `StepState`, and with accelerations `EvaluatedState`."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.checks import check_dependent_rows, first_that_holds, unless
from jaxmech.integrate.scheme import Scheme
from jaxmech.status import Status
from jaxmech.system import Params


class StepState(eqx.Module):
    """The state and the time at which a step begins, and the next one does."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    t: Float[Array, ""]


class EvaluatedState(eqx.Module):
    """A state on the constraints with its accelerations, which steps with an error estimate need.

    Its time is that of the run (`RunSetting.time`).
    """

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    qdd: Float[Array, " k"]  # the rates of v
    independent_rows: Bool[Array, " m"]  # which rows were taken as independent
    rank: Int[Array, ""]
    status: Int[Array, ""]  # failure of the law of motion there, a `Status`


def evaluated_state(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> EvaluatedState:
    """A state with its accelerations; all rows may count as independent."""
    yes = jnp.asarray(True)
    all_rows = jnp.ones(sum(scheme.system.sizes(q, v, t, params)), bool)
    with jax.named_scope("law_of_motion"):
        eom, law = scheme.law(q, v, t, params, all_rows)
    status = first_that_holds(
        (~law.definite, Status.SINGULAR_MASS),
        *unless(law.converged, Status.NONIDEAL_FAILED),
        check_dependent_rows(eom, law, v, all_rows, yes, yes),
    )
    return EvaluatedState(
        q, v, law.qdd, all_rows if law.independent is None else law.independent, law.rank, status
    )
