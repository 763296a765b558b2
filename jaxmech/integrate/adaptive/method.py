"""`Adaptive`: a method with an error estimate, whose step size follows from a tolerance."""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.integrate.methods import AbstractMethod, AbstractPair, DormandPrince8, Policies
from jaxmech.system import System
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.checks import require_kind, require_positive_integer
from jaxmech.utils.field_docs import setting
from jaxmech.utils.precision import USE_FLOAT64, PrecisionWarning

_LEAST = 8  # smallest `rtol`, in units of round-off

MOST_STEPS = 10**9


class Tolerance(eqx.Module):
    """The tolerances and the longest step of `Adaptive`, which all share one compiled program."""

    rtol: Float[Array, ""]
    atol: Float[Array, ""]
    max_step: Float[Array, ""] | None = None


@dataclass(frozen=True, repr=False)
class Adaptive(AbstractMethod):
    """Adaptive step sizes, chosen by an error estimate for each trajectory independently.

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
        pair: the method with its error estimate: `DormandPrince5()`, `Tsitouras5()` or
            `DormandPrince8()`, which needs the fewest evaluations at tolerances below about 1e-6;
            for stiff systems `Rodas5P()` or `RadauIIA5()`.
        rtol: tolerance for the error of a step, relative to the state; in float32 at least 1e-6,
            with a `PrecisionWarning`.
        atol: absolute tolerance, in the units of the coordinates and velocities.
        max_steps: maximal number of attempted steps, rejected ones included. A trajectory that
            needs more ends with the status `MAX_STEPS` or `STIFF`. Derivatives need memory in
            proportion to it.
        max_step: longest step [s]; by default any.
        times: times [s] at which a step ends, shape (K,), such as those of kinks, jumps and pulses
            of a force; the functions of the system are evaluated on the side of each step. Kinks
            that are visible in the functions are found by themselves.

    Raises:
        ValueError: a tolerance or `max_step` is not positive, `max_steps` is not a positive
            integer, `times` are not finite, or `pair` has settings of steps.
        TypeError: `pair` has no error estimate.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> ts = jnp.linspace(0.0, 10.0, 101)
        >>> method = jm.Adaptive(jm.DormandPrince8(), rtol=1e-10, atol=1e-12)
        >>> sol = jm.simulate(model.system, *model.initial(), ts, model.params, method=method)
        >>> print(sol.energy_drift < 1e-8, sol.position_residual.max() < 1e-14)
        True True
    """

    pair: AbstractPair = setting(DormandPrince8(), "Runge-Kutta method with an error estimate")
    rtol: float = setting(1e-8, "error of a step relative to the state")
    atol: float = setting(1e-10, "absolute error of a step, in units of the coordinates")
    max_steps: int = setting(10_000, "maximum number of steps, including rejected ones")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_kind("pair", self.pair, AbstractPair, "DormandPrince5()")
        if self.pair.substeps is not None:
            raise ValueError(
                "Argument `pair` must not have `substeps`, because the tolerance chooses the "
                f"steps; write {type(self.pair).__name__}()."
            )
        for name in ("max_step", "times"):
            if getattr(self.pair, name) not in (None, ()):
                raise ValueError(
                    f"Argument `pair` must not have `{name}`, which belongs to the steps; write "
                    f"Adaptive({type(self.pair).__name__}(), {name}=...)."
                )
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
    def order(self) -> int:
        """The order of accuracy."""
        return self.pair.order

    def require(self, system: System, policies: Policies, *state: Any) -> None:
        """Raise a ValueError unless the pair suits the system and the other policies."""
        self.pair.require(system, policies, *state)

    def tolerance(self, dtype: Any) -> Tolerance:
        """The tolerances to which the estimate of the pair is held.

        A tolerance below 8 eps would hold round-off, which no step is small enough to reduce.
        """
        least, control = _LEAST * float(jnp.finfo(dtype).eps), self.pair.control
        wanted = max(self.rtol, least)
        if self.rtol < least:
            warn_caller(
                f"`rtol` = {self.rtol:g} is below what {jnp.dtype(dtype).name} resolves, so the "
                f"error of a step is held to {wanted:.2g}; {USE_FLOAT64}, or give `Adaptive` "
                f"(`method`) a larger `rtol`.",
                PrecisionWarning,
            )
        rtol = control.scale * wanted**control.power
        longest = None if self.max_step is None else jnp.asarray(self.max_step, dtype)
        return Tolerance(
            jnp.asarray(rtol, dtype), jnp.asarray(rtol / self.rtol * self.atol, dtype), longest
        )

    def without_tolerance(self) -> "Adaptive":
        """The same method for any tolerances, and for any longest step."""
        return replace(self, rtol=1.0, atol=1.0, max_step=None)
