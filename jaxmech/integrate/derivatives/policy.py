"""`ReverseMode` and `ForwardMode`: the modes in which a trajectory can be differentiated."""

import abc
import math
from dataclasses import dataclass

from jaxmech.integrate.derivatives.adaptive_rule import adaptive_trajectory
from jaxmech.integrate.derivatives.run_rule import RolloutInputs
from jaxmech.integrate.derivatives.segment_rule import event_trajectory, plain_trajectory
from jaxmech.integrate.events.event_set import NO_EVENTS, EventSet
from jaxmech.integrate.rollout import rollout
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.steps import Adaptive
from jaxmech.integrate.trajectory import Trajectory
from jaxmech.utils.checks import require_positive_integer


@dataclass(frozen=True)
class AbstractDerivative(abc.ABC):
    """The modes of automatic differentiation in which a trajectory can be differentiated."""

    @abc.abstractmethod
    def trajectory(
        self, scheme: Scheme, x: RolloutInputs, event_set: EventSet = NO_EVENTS
    ) -> Trajectory:
        """The rollout with its derivative rule, in adaptive steps if there is a tolerance.

        With an `event_set`, it has its events.
        """


@dataclass(frozen=True)
class ReverseMode(AbstractDerivative):
    """Both modes, efficient for `jax.grad` with respect to many parameters; the default.

    Args:
        segment: steps from one kept state to the next, a divisor of those per save interval; by
            default about the square root of the number of steps. Shorter segments need more memory,
            and in batches more time too: computing a step again is faster than loading it.

    Raises:
        ValueError: if `segment` is not a positive integer.
    """

    segment: int | None = None

    def __post_init__(self) -> None:
        if self.segment is not None:
            remedy = "leave it out for about the square root of all steps"
            require_positive_integer("segment", self.segment, remedy)

    def trajectory(
        self, scheme: Scheme, x: RolloutInputs, event_set: EventSet = NO_EVENTS
    ) -> Trajectory:
        """The rollout, whose derivatives recompute its steps."""
        if isinstance(scheme.steps, Adaptive):
            return adaptive_trajectory(scheme, x, event_set, self.segment)
        steps = self._steps(scheme.per_save, len(x.ts) - 1)
        if event_set:
            return event_trajectory(scheme, event_set, steps, x)
        return plain_trajectory(scheme, steps, x)

    def _steps(self, per_save: int, saves: int) -> int:
        # The divisor of the steps per save nearest to the root of all steps.
        # All segments have one shape, so that they are compiled once; hence a divisor.
        divisors = [k for k in range(1, per_save + 1) if per_save % k == 0]
        if self.segment is None:
            root = math.sqrt(per_save * saves)
            return min(divisors, key=lambda steps: abs(math.log(steps / root)))
        if self.segment not in divisors:
            raise ValueError(
                f"Argument `segment` must divide the {per_save} steps per save interval, but is "
                f"{self.segment}; take one of {', '.join(map(str, divisors))}."
            )
        return self.segment


@dataclass(frozen=True)
class ForwardMode(AbstractDerivative):
    """Forward mode only, for `jax.jvp` and `jax.jacfwd`, which then cost one run less.

    Reverse mode works too, but keeps every intermediate value of every step.
    """

    def trajectory(
        self, scheme: Scheme, x: RolloutInputs, event_set: EventSet = NO_EVENTS
    ) -> Trajectory:
        """The rollout as plain JAX operations; with a tolerance or events, in both modes."""
        if event_set or isinstance(scheme.steps, Adaptive):
            return ReverseMode().trajectory(scheme, x, event_set)
        return rollout(scheme, x.q0, x.v0, x.ts, x.params, x.memory, times=x.times)[0]
