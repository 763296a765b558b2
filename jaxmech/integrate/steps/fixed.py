"""`FixedSteps`: equal steps from one save time to the next."""

from dataclasses import dataclass
from typing import Any

from jaxmech.integrate.methods.runge_kutta import RK4, AbstractMethod
from jaxmech.integrate.steps.policy import AbstractSteps
from jaxmech.utils.checks import require_kind, require_positive_integer
from jaxmech.utils.text import setting


@dataclass(frozen=True, repr=False)
class FixedSteps(AbstractSteps):
    """Equal steps between save times; by default their number is chosen from the motion.

    Args:
        per_save: steps per save interval; the step is (ts[k + 1] - ts[k]) / per_save. By default
            chosen from the motion, the same for all trajectories of a batch.
        max_step, times: as for `Adaptive`.

    Raises:
        ValueError: if `per_save` is not a positive integer, `max_step` is not positive, or `times`
            are not finite.

    Example:
        >>> FixedSteps(per_save=10)
        FixedSteps(per_save=10)
    """

    per_save: int | None = setting(
        None, "steps from one saved time, or sample, to the next; by default chosen from the motion"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_save is not None:
            remedy = "give the steps per save interval, or leave it out to have them chosen"
            require_positive_integer("per_save", self.per_save, remedy)

    @property
    def default_method(self) -> AbstractMethod:
        """The classical Runge-Kutta method."""
        return RK4()

    @property
    def count(self) -> int:
        """The number of steps per save interval, or a ValueError while it is not chosen."""
        if self.per_save is None:
            raise ValueError("Argument `per_save` must be chosen by now; give it a number.")
        return self.per_save


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
    _require_argument("method", method, AbstractSteps, "steps")
    _require_argument("steps", steps, AbstractMethod, "method")
    steps = FixedSteps() if steps is None else steps
    require_kind("steps", steps, AbstractSteps, "FixedSteps(per_save=5) or Adaptive(rtol=1e-8)")
    method = steps.default_method if method is None else method
    require_kind("method", method, AbstractMethod, "RK4()")
    steps.require(method)
    return method, steps


def _require_argument(argument: str, value: Any, wrong_type: type, right_argument: str) -> None:
    if isinstance(value, wrong_type):
        raise TypeError(
            f"Argument `{argument}` must not be {value!r}, which belongs to `{right_argument}`: "
            f"write {right_argument}={value!r}."
        )
