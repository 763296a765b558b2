"""One stage of an explicit Runge-Kutta method: the law of motion there, and its checks."""

import jax
from jaxtyping import Array, Bool

from jaxmech.formulations import Law, Partition
from jaxmech.integrate.checks import check_dependent_rows, unless
from jaxmech.integrate.scheme import Scheme
from jaxmech.status import Status
from jaxmech.system import Params

Failures = list[tuple[Array, Status | Array]]  # flags and statuses, of which the first counts


def evaluate_stage(
    scheme: Scheme, chart: Partition | None, q: Array, v: Array, t: Array, params: Params,
    independent_rows: Bool[Array, " m"], *, is_start: Array, is_end: Array,
) -> tuple[Array, Array, Law, Failures]:  # fmt: skip
    """The state completed by the chart, the law of motion there, and its possible failures.

    Only the `independent_rows` count; `is_start` and `is_end` flag the stages at which dependent
    rows are checked.
    """
    q, v, complete = scheme.completed(chart, q, v, t, params)
    with jax.named_scope("law_of_motion"):
        eom, law = scheme.law(q, v, t, params, independent_rows)
    failures: Failures = [
        (~law.definite, Status.SINGULAR_MASS),
        *unless(law.converged, Status.NONIDEAL_FAILED),
        *unless(complete, Status.PROJECTION_FAILED),
        check_dependent_rows(eom, law, v, independent_rows, is_start, is_end),
    ]
    return q, v, law, failures
