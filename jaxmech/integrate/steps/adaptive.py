"""`Adaptive`: steps whose size follows from a tolerance."""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.integrate.methods.runge_kutta import AbstractMethod, AbstractPair, DormandPrince8
from jaxmech.integrate.steps.policy import AbstractSteps
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.checks import require_positive_integer
from jaxmech.utils.precision import USE_FLOAT64, PrecisionWarning
from jaxmech.utils.text import setting

_LEAST = 8  # smallest `rtol`, in units of round-off

MOST_STEPS = 10**9


class Tolerance(eqx.Module):
    """The tolerances and the longest step of `Adaptive`, which all share one compiled program."""

    rtol: Float[Array, ""]
    atol: Float[Array, ""]
    max_step: Float[Array, ""] | None = None


@dataclass(frozen=True, repr=False)
class Adaptive(AbstractSteps):
    """Adaptive step sizes, chosen by an error estimate for each trajectory independently.

    The method must have an error estimate: `DormandPrince8()`, the default with `Adaptive`, which
    needs the fewest evaluations at tolerances below about 1e-6, `DormandPrince5()` or
    `Tsitouras5()`; for stiff systems `Rodas5P()` or `RadauIIA5()`.

    The error of a step is the difference of the two methods of the pair, in the metric of the mass
    matrix at its end:

        |x|_M = sqrt(x^T M x / tr M),

    which for equal masses is the root mean square. A step is accepted if the root mean square of
    both errors, relative to atol + rtol |q|_M for positions and to atol + rtol |v|_M for
    velocities, is at most one. Where constraints contain the time, the displacement by the
    projection counts as well. A PI controller chooses the next size (Hairer, Norsett and Wanner,
    Solving Ordinary Differential Equations I, II.4, and II, IV.2). Save times do not shorten steps:
    the states there are interpolated within a step, and projected onto the constraints.

    Args:
        rtol: tolerance for the error of a step, relative to the state; in float32 at least 1e-6,
            with a `PrecisionWarning`.
        atol: absolute tolerance, in the units of the coordinates and velocities.
        max_steps: maximum number of attempted steps, including rejected ones. A trajectory that
            needs more ends with the status `MAX_STEPS` or `STIFF`. Derivatives need memory in
            proportion to it.
        max_step: longest step [s]; by default there is no limit.
        times: times [s] at which a step ends, shape (K,), such as those of kinks, jumps and pulses
            of a force; there the functions of the system are evaluated on the side on which each
            step lies. Kinks that are visible in the functions are found automatically.

    Raises:
        ValueError: if a tolerance or `max_step` is not positive, `max_steps` is not a positive
            integer, or `times` are not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> ts = jnp.linspace(0.0, 10.0, 101)
        >>> steps = jm.Adaptive(rtol=1e-10, atol=1e-12)
        >>> sol = jm.simulate(model.system, *model.initial(), ts, model.params, steps=steps)
        >>> print(sol.energy_drift < 1e-8, sol.position_residual.max() < 1e-14)
        True True
    """

    rtol: float = setting(1e-8, "error of a step relative to the state")
    atol: float = setting(1e-10, "absolute error of a step, in units of the coordinates")
    max_steps: int = setting(10_000, "maximum number of steps, including rejected ones")

    def __new__(cls, *args: Any, **settings: Any) -> Any:
        """Refuse a method, which is an argument of its own."""
        methods = [x for x in (*args, *settings.values()) if isinstance(x, AbstractMethod)]
        if methods or "pair" in settings:
            example = repr(methods[0]) if methods else "DormandPrince8()"
            raise TypeError(
                f"`Adaptive` takes no method: write `method=jm.{example}, steps=jm.Adaptive(...)`."
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and value > 0 and isfinite(value)):
                raise ValueError(
                    f"Argument `{name}` must be a positive number, but is {value!r}; 1e-8 is usual "
                    "for `rtol`, and 1e-10 for `atol`."
                )
        remedy = "give the most steps that a trajectory may take, such as 10_000"
        require_positive_integer("max_steps", self.max_steps, remedy)
        if self.max_steps > MOST_STEPS:
            raise ValueError(
                f"Argument `max_steps` must be at most {MOST_STEPS}, because steps are counted in "
                f"32 bits, but is {self.max_steps}."
            )

    @property
    def default_method(self) -> AbstractMethod:
        """The pair that needs the fewest evaluations at strict tolerances."""
        return DormandPrince8()

    def require(self, method: AbstractMethod) -> None:
        """Raise a ValueError unless the method estimates the error of a step."""
        if not isinstance(method, AbstractPair):
            raise ValueError(
                "Argument `method` must have an estimate of the error of a step for `Adaptive` "
                f"steps, but {method!r} has none; take DormandPrince8(), DormandPrince5() or "
                "Tsitouras5(), for stiff systems Rodas5P() or RadauIIA5(), or "
                "`steps=FixedSteps(...)`."
            )

    def tolerance(self, method: AbstractPair, dtype: Any) -> Tolerance:
        """The tolerances to which the estimate of a method is held.

        A tolerance below 8 eps would hold round-off, which no step is small enough to reduce.
        """
        least, control = _LEAST * float(jnp.finfo(dtype).eps), method.control
        clipped_rtol = max(self.rtol, least)
        if self.rtol < least:
            warn_caller(
                f"`rtol` = {self.rtol:g} is below what {jnp.dtype(dtype).name} resolves, so the "
                f"error of a step is held to {clipped_rtol:.2g}; {USE_FLOAT64}, or give `Adaptive` "
                f"(`steps`) a larger `rtol`.",
                PrecisionWarning,
            )
        rtol = control.scale * clipped_rtol**control.power
        longest = None if self.max_step is None else jnp.asarray(self.max_step, dtype)
        return Tolerance(
            jnp.asarray(rtol, dtype), jnp.asarray(rtol / self.rtol * self.atol, dtype), longest
        )

    def without_tolerance(self) -> "Adaptive":
        """The same policy for any tolerances, and for any longest step."""
        return replace(self, rtol=1.0, atol=1.0, max_step=None)
