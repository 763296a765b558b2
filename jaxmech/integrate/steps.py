"""The step size policies of a run, `FixedSteps` and `Adaptive`, and the times at which steps end.

These are given ones, the samples of inputs, and jumps, which are found by samples of the functions
of a system, at one state, for one member of a batch, where the values are known. A jump at a save
time becomes a time at which a step ends; of jumps and short pulses elsewhere a `TimesWarning` says
that steps may go over them.
"""

from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.integrate.methods.runge_kutta import RK4, AbstractMethod, AbstractPair, DormandPrince8
from jaxmech.integrate.spans import NO_TIMES
from jaxmech.system import Params, Signal, System
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.caller import USE_FLOAT64, PrecisionWarning, warn_caller
from jaxmech.utils.checks import (
    as_numbers,
    is_known,
    require_kind,
    require_positive,
    require_positive_integer,
)
from jaxmech.utils.jax_internals import Tracer
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import actual, cached_by_shapes, depends_on, outside_traces
from jaxmech.utils.text import setting


@dataclass(frozen=True, repr=False)
class AbstractSteps:
    """The step size policy of a run; `max_step` and `times` are those of `Adaptive`."""

    max_step: float | Any = setting(None, "longest step [s]", kw_only=True)
    times: tuple[float, ...] | Any = setting(
        (),
        "times at which a step ends [s], such as kinks, jumps and pulses of a force",
        kw_only=True,
    )

    def __post_init__(self) -> None:
        if self.max_step is not None and not isinstance(self.max_step, Tracer):
            require_positive("max_step", self.max_step)
        object.__setattr__(self, "times", _as_step_times(self.times))

    def __repr__(self) -> str:
        # `max_step` and `times` are shown only where they are set.
        ordered = sorted(fields(self), key=lambda f: bool(f.kw_only))
        values = (
            f"{f.name}={getattr(self, f.name)!r}"
            for f in ordered
            if getattr(self, f.name) is not f.default and getattr(self, f.name) is not None
        )
        return f"{type(self).__name__}({', '.join(values)})"

    def step_times(self, dtype: Any) -> Array:
        """The times at which steps end, (K,), besides all save times."""
        times = () if self.end_at_saves else self.times
        # By numpy, which compiles no program for the conversion of numbers.
        return jnp.asarray(np.asarray(times, dtype) if isinstance(times, tuple) else times, dtype)

    @property
    def end_at_saves(self) -> bool:
        """Whether the samples of inputs are save times."""
        return isinstance(self.times, str)


def _as_step_times(value: Any) -> Any:
    """The times as a tuple of numbers, or as an array (K,) if they are traced."""
    if isinstance(value, tuple) and all(type(x) is float and isfinite(x) for x in value):
        return value
    if isinstance(value, str):
        if value != "saves":
            raise ValueError(f'Argument `times` must hold times or be "saves", but is {value!r}.')
        return value
    leaves = jax.tree.leaves(value)
    if not is_known(leaves):
        is_sequence = isinstance(value, tuple | list)
        return jnp.stack(list(map(jnp.asarray, value))) if is_sequence else jnp.asarray(value)
    times = np.asarray(as_numbers("times", value if np.size(value) else np.zeros(0), half=True))
    if times.ndim != 1 or not np.isfinite(times).all():
        raise ValueError(
            "Argument `times` must be a sequence of finite times at which a step ends, but is "
            f"{value!r}; write (1.0,) for a single one."
        )
    return tuple(times.astype(float).tolist())


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
    steps = FixedSteps() if steps is None else steps
    require_kind("steps", steps, AbstractSteps, "FixedSteps(per_save=5) or Adaptive(rtol=1e-8)")
    if method is None:
        method = RK4() if isinstance(steps, FixedSteps) else DormandPrince8()
    require_kind("method", method, AbstractMethod, "RK4()")
    if isinstance(steps, Adaptive) and not isinstance(method, AbstractPair):
        raise ValueError(
            "Argument `method` must have an estimate of the error of a step for `Adaptive` steps, "
            f"but {method!r} has none; take DormandPrince8() or DormandPrince5(), for stiff "
            "systems Rodas5P(), or `steps=FixedSteps(...)`."
        )
    return method, steps


_LEAST = 8  # smallest `rtol`, in units of round-off

MOST_STEPS = 10**9


class Tolerance(eqx.Module):
    """The tolerances and the longest step of `Adaptive`, which all share one compiled program."""

    rtol: Float[Array, ""]
    atol: Float[Array, ""]
    max_step: Float[Array, " k"]  # one, or none

    def limited(self, size: Array) -> Array:
        return jnp.minimum(size, self.max_step[0]) if self.max_step.size else size


@dataclass(frozen=True, repr=False)
class Adaptive(AbstractSteps):
    """Adaptive step sizes, chosen by an error estimate for each trajectory independently.

    The method must have an error estimate: `DormandPrince8()`, the default with `Adaptive`, which
    needs the fewest evaluations at tolerances below about 1e-6, or `DormandPrince5()`; for stiff
    systems `Rodas5P()`.

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
            step lies. They may depend on traced parameters, and are differentiated. "saves" means
            all save times, if these include the samples of all inputs. Jumps at save times are
            found automatically.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rtol", self.rtol)
        require_positive("atol", self.atol)
        remedy = "give the most steps that a trajectory may take, such as 10_000"
        require_positive_integer("max_steps", self.max_steps, remedy)
        if self.max_steps > MOST_STEPS:
            raise ValueError(
                f"Argument `max_steps` must be at most {MOST_STEPS}, because steps are counted in "
                f"32 bits, but is {self.max_steps}."
            )

    def tolerance(self, dtype: Any) -> Tolerance:
        """The tolerances to which the estimate of a step is held.

        A tolerance below 8 eps would hold round-off, which no step is small enough to reduce.
        """
        least = _LEAST * float(jnp.finfo(dtype).eps)
        rtol = max(self.rtol, least)
        if self.rtol < least:
            warn_caller(
                f"`rtol` = {self.rtol:g} is below what {jnp.dtype(dtype).name} resolves, so the "
                f"error of a step is held to {rtol:.2g}; {USE_FLOAT64}, or give `Adaptive` "
                f"(`steps`) a larger `rtol`.",
                PrecisionWarning,
            )
        longest = jnp.asarray([] if self.max_step is None else [self.max_step], dtype)
        return Tolerance(
            jnp.asarray(rtol, dtype), jnp.asarray(rtol / self.rtol * self.atol, dtype), longest
        )


_MEMBERS = 1024  # of a batch, for which samples are counted


def step_times(
    system: System, given_times: Float[AnyArray, " G"], ts: Float[Array, " T"], params: Params,
    saves: Any,
) -> Any:  # fmt: skip
    """The times at which a step ends, shape (K,): given ones and the knots of inputs.

    Knots outside of the run are left out where the values are known. Last are the times of
    controllers, by the `saves`, which are the ts where these are not known under `jit`.
    """
    parts: list[Any] = [given_times]
    signals = [x for x in Signal.all_in(params) if x.interpolation != "cubic"]
    if signals:
        knots = _knots(signals, ts)
        parts.append(knots[_inside(ts, knots)])
    if system.sampling is not None:
        times = system.sampling.times(saves, params, ts.dtype)
        times = np.asarray(times) if is_known(times) else jnp.asarray(times[_inside(ts, times)])
        parts.append(times.astype(ts.dtype))
    parts = [times for times in parts if times.size] or [given_times]
    if len(parts) == 1:
        return parts[0]
    # Known times of controllers stay known under `jit`.
    xp: Any = np if system.sampling is not None and is_known((saves, parts)) else jnp
    return xp.concatenate(parts)


@jit_of()
def _knots(signals: list[Signal], ts: Float[Array, " T"]) -> Float[Array, " K"]:
    """The times at which the inputs jump, or have a corner."""
    times = [jax.lax.stop_gradient(signal.ts) + signal.delay for signal in signals]
    return jnp.concatenate(times).astype(ts.dtype)


def _inside(ts: Any, knots: Any) -> np.ndarray:
    """The numbers of the knots that are in the run, of any member of a batch."""
    values = actual((ts, knots), _MEMBERS)
    if values is None or len(values[0]) == _MEMBERS:
        return np.arange(knots.size)
    saves, times = values
    low, high = saves.min(1, keepdims=True), saves.max(1, keepdims=True)
    return np.flatnonzero(((low <= times) & (times <= high)).any(0))


_SAMPLES = 512  # intervals of a run
_APART = 8.0  # distance from a save time, in units of round-off of the largest time
_ABRUPT = 0.2  # second difference, relative to the range
_RARE = 0.05  # largest part of the run in which changes are abrupt
_ROUNDING = 1e3  # range of numbers that vary, in units of round-off of their size
_JUMP = 32.0  # at a save time, relative to the range, in units of the root of round-off
_NAMED = 3  # times in a message


class TimesWarning(UserWarning):
    """The functions of a system change abruptly at a time at which no step ends."""


def ending_at_jumps(
    system: System, steps: AbstractSteps, q: Array, v: Array, ts: Array, params: Params
) -> AbstractSteps:
    """The policy with steps that end at the save times at which a function jumps.

    Warns of abrupt changes elsewhere. A policy with `times` or `max_step` is returned as it is.
    """
    if system.sampling is not None:
        system = replace(system, sampling=None)  # steps end where controllers change anything
    is_set = steps.max_step is not None or steps.end_at_saves or np.size(steps.times)
    if is_set or not _depends_on_time(system, q, v, _time(ts), params):
        return steps
    values = actual((q, v, ts, params), 1)
    if values is None or not len(values[2]):
        return steps
    run = jax.tree.map(lambda rows: rows[0], values)
    samples = outside_traces(_sampled, system, *run)
    if samples is None:
        return steps
    sides, sample_times, numbers = (np.asarray(x, float) for x in samples)
    saves, eps = run[2], float(np.finfo(ts.dtype).eps)
    low, high = (x.min(0) for x in (sides, numbers)), (x.max(0) for x in (sides, numbers))
    low, high = np.minimum(*low), np.maximum(*high)
    width, size = high - low, np.maximum(np.abs(low), np.abs(high))
    varies = width > _ROUNDING * eps * size  # neither constant nor NaN
    sides, numbers = (x[:, varies] / width[varies] for x in (sides, numbers))
    jumps = (np.abs(np.diff(sides.reshape(2, len(saves), -1), axis=0)[0]) > _JUMP * eps**0.5).any(1)
    times = saves[jumps].astype(float)
    knots = step_times(system, NO_TIMES, jnp.asarray(saves), run[3], saves)
    ends = np.concatenate([times, np.asarray(knots, float)])
    abrupt = _abrupt(sample_times, numbers, ends)
    if abrupt.size:
        named = ", ".join(f"{t:.4g}" for t in abrupt[:_NAMED])
        more = ", ..." if abrupt.size > _NAMED else ""
        warn_caller(_BETWEEN.format(named + more), TimesWarning)
    return replace(steps, times=tuple(times.tolist())) if times.size else steps


def step_ends(
    system: System, steps: AbstractSteps, q: Array, v: Array, ts: Array, params: Params, saves: Any
) -> tuple[Any, int]:
    """The times at which a step ends, and how many of them, at their end, are no save times."""
    if steps.end_at_saves and system.sampling is None:
        return ts, 0
    times = step_times(system, steps.step_times(q.dtype), ts, params, saves)
    if not times.size:
        return times, 0
    known = ts if system.sampling is None else saves  # saves are known under `jit`, too
    # A corner of a constraint moves velocities, for which a save is repeated from its other side.
    if not is_known((known, times)) or _constraints_move(system, q, v, _time(ts), params):
        return times, times.size
    is_save = np.isin(np.asarray(times), np.asarray(known, times.dtype))
    if is_save.all():
        return times, 0
    if system.sampling is None:
        return times, times.size
    return np.concatenate([times[is_save], times[~is_save]]), int((~is_save).sum())


@cached_by_shapes
def _constraints_move(system: System, q: Any, v: Any, t: Any, params: Params) -> bool:
    return depends_on(lambda t: _residuals(system, q, v, t, params), (t,))


@cached_by_shapes
def _depends_on_time(system: System, q: Any, v: Any, t: Any, params: Params) -> bool:
    return depends_on(lambda t: system.function_values(q, v, t, params), (t,))


def _time(ts: Any) -> Any:
    # Of the type of the times: XLA would compile a program to take one of them.
    return np.zeros((), jnp.result_type(ts))


@jit_of("system")
def _sampled(
    system: System, q: Array, v: Array, ts: Float[Array, " T"], params: Params
) -> tuple[Float[Array, "B N"], Float[Array, " S"], Float[Array, "S N"]]:
    """The numbers before and after each save time, and at evenly spaced times of the run."""
    # Beside the start, where a stiffness exerts a force.
    q, v = (x + jnp.linspace(0.31, 0.57, x.size, dtype=x.dtype) for x in (q, v))
    first, last = ts[0], ts[-1]
    apart = _APART * jnp.finfo(ts.dtype).eps * jnp.maximum(jnp.abs(first), jnp.abs(last))
    sample_times = first + (last - first) * jnp.linspace(0.0, 1.0, _SAMPLES + 1, dtype=ts.dtype)

    def numbers(t: Array) -> Array:
        def levels(t: Array) -> Array:
            return _residuals(system, q, v, t, params)

        speeds = _rate(levels)
        parts = [*system.function_values(q, v, t, params), levels(t), speeds(t), _rate(speeds)(t)]
        return jnp.concatenate([jnp.ravel(x).astype(ts.dtype) for x in parts])

    sides = jnp.concatenate([ts - apart, ts + apart])
    return jax.vmap(numbers)(sides), sample_times, jax.vmap(numbers)(sample_times)


def _residuals(system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
    rows = [c.residual(q, v, v, t, params) for c in system.constraints]
    return jnp.concatenate([jnp.zeros(0, q.dtype), *rows])


def _rate(fn: Any) -> Any:
    return lambda t: jax.jvp(fn, (t,), (jnp.ones_like(t),))[1]


def _abrupt(sample_times: np.ndarray, numbers: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The times of abrupt changes, except those near a time at which a step ends."""
    change = np.abs(numbers[2:] - 2 * numbers[1:-1] + numbers[:-2])
    is_abrupt = (change > _ABRUPT).any(1)
    if is_abrupt.mean() > _RARE:
        return np.zeros(0)
    times, spacing = sample_times[1:-1][is_abrupt], abs(sample_times[1] - sample_times[0])
    far = (np.abs(times[:, None] - ends) > 2 * spacing).all(1)
    times = times[far]
    return times[np.abs(np.diff(times, prepend=np.inf)) > 2 * spacing]


_BETWEEN = (
    "the functions of the system change abruptly with time near t = {} s, between two save times, "
    "and a step may go over that. Give the times of jumps, and the start and the end of pulses, as "
    "times at which a step ends, such as `FixedSteps(times=(1.0, 2.0))` or `Adaptive(times=...)`, "
    "or a longest step `max_step`."
)
