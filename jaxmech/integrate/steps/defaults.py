"""The method and the steps of a run where a caller leaves one of them out."""

from typing import Any

from jaxmech.integrate.methods.runge_kutta import AbstractMethod
from jaxmech.integrate.steps.fixed import FixedSteps
from jaxmech.integrate.steps.policy import AbstractSteps
from jaxmech.utils.checks import require_kind


def method_and_steps(
    method: AbstractMethod | None, steps: AbstractSteps | None
) -> tuple[AbstractMethod, AbstractSteps]:
    """The policies with their defaults, if they go together.

    Steps are `FixedSteps()` by default; the method is `RK4()` for these, and `DormandPrince8()` for
    `Adaptive`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if steps are adaptive and the method has no error estimate.
    """
    _require_place("method", method, AbstractSteps, "steps")
    _require_place("steps", steps, AbstractMethod, "method")
    steps = FixedSteps() if steps is None else steps
    require_kind("steps", steps, AbstractSteps, "FixedSteps(per_save=5) or Adaptive(rtol=1e-8)")
    method = steps.default_method if method is None else method
    require_kind("method", method, AbstractMethod, "RK4()")
    steps.require(method)
    return method, steps


def _require_place(argument: str, value: Any, wrong_type: type, place: str) -> None:
    if isinstance(value, wrong_type):
        raise TypeError(
            f"Argument `{argument}` must not be {value!r}, which belongs to `{place}`: "
            f"write {place}={value!r}."
        )
