"""`Identifiable`, the subject of a fit, and `Settings`, its settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jaxmech.identify.data.segments import Shooting
from jaxmech.identify.optimize.trust_region import TrustRegion
from jaxmech.identify.problem.least_squares import Observe
from jaxmech.identify.problem.noise import Huber
from jaxmech.integrate import AbstractMethod, AbstractSteps, FixedSteps, method_and_steps
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.state import AbstractStabilization, Projection, Start
from jaxmech.system import Params, Subject, with_params
from jaxmech.utils.checks import require_function, require_kind
from jaxmech.utils.text import setting
from jaxmech.utils.traces import first_equal

InitialStates = Literal["fixed", "free"] | Shooting


@dataclass(frozen=True, eq=False)
class Identifiable:
    """A system, its unknown parameters, and its sensors, in the place of the system in `fit`.

    Its arguments are the arguments of `fit` with the same names; `params` are the initial values of
    the parameters, which `fit` calls `params0`.

    Raises:
        TypeError: if an argument is of the wrong kind.
    """

    system: Subject
    params: Params = None
    observe: Observe | None = None
    start: Start | None = None
    free: Sequence[str] | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)
    prior: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        system, params = with_params(self.system, self.params)
        object.__setattr__(self, "system", system)
        object.__setattr__(self, "params", params)
        for name in ("observe", "start"):
            if getattr(self, name) is not None:
                require_function(name, getattr(self, name))
                object.__setattr__(self, name, first_equal(getattr(self, name)))


@dataclass(frozen=True, eq=False)
class Settings:
    """The policies of `fit` in one object: its arguments, and keys of its configuration files."""

    optimizer: TrustRegion = setting(TrustRegion(), "optimizer")
    initial_states: InitialStates = setting(
        "free", "whether the initial states of the recordings are fitted too"
    )
    method: AbstractMethod | None = setting(
        None, "how a step is made; RK4, or DormandPrince8 for adaptive steps, by default"
    )
    steps: AbstractSteps | None = setting(FixedSteps(), "how long the steps are")
    projection: AbstractStabilization | None = setting(Projection(), "control of drift")
    formulation: AbstractFormulation = setting(UdwadiaKalaba(), "law of motion")
    loss: Huber | None = setting(None, "a robust loss, against outliers")

    def __post_init__(self) -> None:
        require_kind("optimizer", self.optimizer, TrustRegion, "TrustRegion()")
        if self.loss is not None:
            require_kind("loss", self.loss, Huber, "Huber()")
        if self.initial_states not in ("fixed", "free"):
            example = '"fixed", "free" or Shooting(0.5)'
            require_kind("initial_states", self.initial_states, Shooting, example)
        method, steps = method_and_steps(self.method, self.steps)
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "steps", steps)

    @property
    def horizon(self) -> Shooting | None:
        """The segments into which recordings are cut, if they are."""
        return self.initial_states if isinstance(self.initial_states, Shooting) else None

    @property
    def free_starts(self) -> bool:
        """Whether the initial states of the recordings are fitted."""
        first = self.horizon.first if self.horizon else self.initial_states
        return first == "free"
