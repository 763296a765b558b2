"""A stage of an explicit Runge-Kutta method: the law of motion there, and the checks of it."""

import jax
from jaxtyping import Array, Bool

from jaxmech.formulations import AbstractChart, Law
from jaxmech.integrate.checks import check_dependent_rows, unless
from jaxmech.integrate.scheme import Scheme
from jaxmech.status import Status
from jaxmech.system import Params

Failures = list[tuple[Array, Status | Array]]  # flags and statuses, of which the first counts


def evaluate_stage(
    scheme: Scheme, chart: AbstractChart | None, q: Array, v: Array, t: Array, params: Params,
    kept: Bool[Array, " m"], *, is_start: Array, is_end: Array,
) -> tuple[Array, Array, Law, Failures]:  # fmt: skip
    """The state completed by the chart, the law of motion there, and its possible failures.

    Only the `kept` rows count; `is_start` and `is_end` flag the stages at which dependent rows are
    checked.
    """
    q, v, complete = scheme.completed(chart, q, v, t, params)
    with jax.named_scope("law_of_motion"):
        eom, law = scheme.law(q, v, t, params, kept)
    failures: Failures = [
        (~law.definite, Status.SINGULAR_MASS),
        *unless(law.converged, Status.NONIDEAL_FAILED),
        *unless(complete, Status.PROJECTION_FAILED),
        check_dependent_rows(eom, law, kept, is_start, is_end),
    ]
    return q, v, law, failures
