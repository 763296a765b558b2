"""Closed loops: a system with controllers that have a sample time, and what they keep in a run.

The memory of a run is one vector. The numbers of a controller follow each other in it: its output,
its own memory, the number k of its last sample at the time phase + k period, and its last outputs,
which do not hold yet. It changes only where a step ends, by the `ControllerSet`; there the number
of the last sample tells which controllers are due, and one that has computed is not asked again.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.control.sampled.controller import Controller
from jaxmech.system import Subject, System, system_of
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import is_known, require_kind
from jaxmech.utils.probing import actual

_KEPT = 4  # runs whose times are known
_MEMBERS = 1024  # of a batch, of which times and delays are known
_APART = 8.0  # units of round-off of the largest time, within which times are the same
_LATE = 3.0  # distances within which times are the same, from the end of a delay
_MOST_SAMPLES = 1e8  # of a run, whose times are kept
_NEVER = -(2.0**20)  # number of the last sample before a run
MEMORY = "memory of controllers"  # the name of the whole memory among the parameters of a run


def controlled(
    system: Subject,
    controllers: Controller | Iterable[Controller],
    *,
    longest_run: float | None = None,
) -> System:
    """A system whose forces read the outputs of controllers, for `simulate` and everything else.

    The functions of the system, of events and of sensors find the held output of each controller
    among their parameters, by its name. A constraint on positions must not read any: it would jump.

    What controllers keep is no part of q and v but the memory of the run, `Solution.memory`. At
    each saved time, `solution["torque"]`, `["torque.memory.integral"]` and `["torque.sample"]`, the
    number of the last sample, are those right after the controllers have computed; at the last time
    they have not yet. A run is continued with the memory of its last time, `simulate(...,
    memory=solution.memory[-1])`. Outside of runs, outputs are what `Controller.output` says, unless
    the parameters hold others.

    Args:
        system: the system; or a model or a mechanism, whose system it is.
        controllers: one `Controller`, or several in the order in which they compute.
        longest_run: a time that no run exceeds [s], only for runs whose times are traced.

    Returns:
        The `System` with controllers.

    Raises:
        TypeError: if `controllers` holds anything else.
        ValueError: if a name is used twice, or the system has controllers already.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> def push(measured, memory, t, params):
        ...     return -400.0 * measured[0] - 2.5 * measured[1], memory
        >>> cart = jm.System(
        ...     lambda q, v, t, p: (v @ v) / 2,
        ...     force=lambda q, v, t, p: p["push"],
        ...     coordinates=("x",),
        ... )
        >>> loop = controlled(cart, jm.Controller(push, 0.01, output=[0.0]))
        >>> sol = jm.simulate(loop, [0.1], [0.0], jnp.linspace(0.0, 1.0, 11))
        >>> print(sol["x"][-1].round(6))
        0.028569
    """
    bare = system_of(system)
    if bare.sampling is not None:
        raise ValueError(
            "Argument `system` must have no controllers yet, but has "
            f"{bare.sampling}; give all of them in one call."
        )
    several = (controllers,) if isinstance(controllers, Controller) else tuple(controllers)
    names = [*bare.value_names, *bare.velocity_names]
    for controller in several:
        require_kind("controllers", controller, Controller, "Controller(update, period=0.01)")
        if controller.name in names:
            raise ValueError(
                "Argument `controllers` must have names of their own, but "
                f"{controller.name!r} is also that of another one, or of a coordinate or a state; "
                "set `name`."
            )
        names.append(controller.name)
    return replace(bare, sampling=ControllerSet(several, longest_run)) if several else bare


@dataclass(frozen=True)
class ControllerSet:
    """All controllers of a system, in the order in which they compute."""

    controllers: tuple[Controller, ...]
    longest_run: float | None = None  # a time that no run exceeds, where times are traced
    is_late: bool = False  # whether outputs begin to hold right after the end of their delay

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.controllers))})"

    @cached_property
    def ends(self) -> list[int]:
        """Where the numbers of each controller begin in the memory, and where the last end."""
        return np.cumsum([0, *(len(c.memory_names) for c in self.controllers)]).tolist()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers."""
        return tuple(name for c in self.controllers for name in c.memory_names)

    @cached_property
    def before(self) -> np.ndarray:
        """The memory before a run."""
        numbers: list[float] = []
        for c in self.controllers:
            numbers += [*c.outputs.start, *c.memories.start, _NEVER, *c.outputs.start * c.pending]
        return np.array(numbers)

    def of_run(self, params: Any) -> "ControllerSet":
        """The controllers for these parameters, of which delays may be differentiated.

        An output that begins to hold at the time of a sample then does so right after it, in a step
        of its own, the size of which has a derivative by the delay.
        """
        names = [c.delay for c in self.controllers if isinstance(c.delay, str)]
        values = [params.get(name) for name in names] if isinstance(params, Mapping) else []
        return self if is_known(values) else replace(self, is_late=True)

    def start(
        self, ts: Float[AnyArray, " T"], params: Any, memory: Any = None
    ) -> Float[Array, " c"]:
        """The memory with which a run begins, or continues, when a sample may be due."""
        memory = self.before if memory is None else memory
        is_given = is_known((ts, memory))  # then JAX need not dispatch an operation
        xp: Any = np if is_given else jnp
        ts, memory = xp.asarray(ts), xp.array(memory, ts.dtype)
        if memory.shape != (self.ends[-1],):
            raise ValueError(
                f"Argument `memory` must have shape ({self.ends[-1]},), one number for each of "
                f"{', '.join(self.names)}, but has shape {memory.shape}."
            )
        for c, end in zip(self.controllers, self.ends[1:], strict=True):
            column = end - 1 - c.outputs.size * c.pending
            last = xp.ceil((ts[0] - _apart(ts, ts.dtype) - c.phase) / c.period) - 1
            number = xp.where(memory[column] <= _NEVER, last.astype(ts.dtype), memory[column])
            if is_given:
                memory[column] = number
            else:
                memory = memory.at[column].set(jax.lax.stop_gradient(number))
        return jnp.asarray(memory)

    def with_outputs(self, params: Any, memory: Any = None) -> dict[str, Any]:
        """The parameters with the outputs in a memory, by the names of their controllers.

        Without a memory, outside of runs, with those before a run that the parameters do not hold.
        """
        if params is not None and not isinstance(params, Mapping):
            raise TypeError(
                "Argument `params` must be a dictionary, in which the outputs of controllers can "
                f"be read by name, but is {type(params).__name__}."
            )
        rows = self.before if memory is None else memory
        outputs = {
            c.name: c.outputs.tree(rows[begin : begin + c.outputs.size])
            for c, begin in zip(self.controllers, self.ends, strict=False)
        }
        params = dict(params or {})
        return outputs | params if memory is None else params | outputs | {MEMORY: memory}

    def times(self, ts: Any, params: Any, dtype: Any) -> Array | np.ndarray:
        """The times (K,) at which a controller computes or its output changes.

        They are numpy arrays where the times of the run and the delays are known, even under `jit`;
        those that coincide are one, and equal to a save time where they coincide with one.
        """
        duration = self._duration(ts, dtype)
        delays = tuple(_delay(c, params) for c in self.controllers)
        if not is_known((ts, delays)):
            saves = jax.lax.stop_gradient(ts)
            return jnp.concatenate(
                [jnp.asarray(x, dtype) for x in self.samples(saves, delays, duration, dtype)]
            )
        numbers = tuple(map(float, delays))
        return _known_times(self, np.asarray(ts, float).tobytes(), numbers, duration, dtype)

    def samples(self, saves: Any, delays: Any, duration: float, dtype: Any) -> list[Any]:
        """The times of the samples of each controller, and those at which its outputs change."""
        late = _LATE * _apart(saves, dtype) if self.is_late else 0.0
        times: list[Any] = []
        xp: Any = np if is_known(saves) else jnp
        for c, delay in zip(self.controllers, delays, strict=True):
            count = math.floor(duration / c.period * (1 + 1e-6)) + 2
            first = xp.ceil((saves[0] - c.phase) / c.period - 1e-6)
            # By a product and not by a sum of periods, so that no error adds up.
            samples = c.phase + c.period * (first + np.arange(-c.pending, count))
            times.append(samples[c.pending :])
            if c.pending:
                times.append(samples + delay + late)
        return times

    def _duration(self, ts: Any, dtype: Any) -> float:
        """The longest time that a run, or any of a batch, takes."""
        values, duration, rounding = actual(ts, _MEMBERS), self.longest_run, 0.0
        if values is not None:
            spans = values[:, -1] - values[:, 0]
            duration = float(spans.max() if spans.min() >= 0 else spans.min())
            rounding = float(np.abs(values).max()) * float(np.finfo(dtype).eps)
        if duration is None or duration < 0:
            raise ValueError(
                "Argument `ts` must increase, and have known values, for a system with "
                "controllers, since their samples follow from them; where it is traced, give "
                "`controlled` the argument `longest_run`."
            )
        least = min(c.period for c in self.controllers)
        if rounding * 4 * _APART > least or duration / least > _MOST_SAMPLES:
            raise ValueError(
                f"Argument `ts` must be so near zero that {np.dtype(dtype)} tells samples of a "
                f"controller {least:g} s apart, and span at most {_MOST_SAMPLES:.0e} of them, but "
                f"spans {duration:g} s, rounded by {rounding:.1g} s; subtract the first time, use "
                "float64, or run it in parts."
            )
        return duration

    def __call__(
        self, memory: Array, q: Array, v: Array, t: Array, params: Any, apart: Any = 0.0
    ) -> Float[Array, " c"]:
        """The memory after all controllers have computed that are due at a time.

        The time is that of a step that begins, moved by `apart` into the step.
        """
        # Ends of delays that are late begin so many distances into their steps.
        late = 2 * apart if self.is_late else 0.0
        for c, begin, end in zip(self.controllers, self.ends, self.ends[1:], strict=False):
            sizes = np.cumsum([c.outputs.size, c.memories.size, 1])
            output, own, last, pending = jnp.split(memory[begin:end], sizes.tolist())
            number = jax.lax.stop_gradient(jnp.floor((t - c.phase) / c.period))
            time = c.phase + number * c.period
            following, new_own = c.computed(q, v, own, time, self.with_outputs(params, memory))
            queue = jnp.concatenate([following, pending])
            is_due = number > last
            own = jnp.where(is_due, new_own, own)
            if c.pending:
                pending = jnp.where(is_due, queue[: pending.size], pending)
                delay = jax.lax.stop_gradient(_delay(c, params))
                age = jnp.floor((t - late - delay - c.phase) / c.period)
                age = number - jax.lax.stop_gradient(age)
                rows = jnp.concatenate([pending, output]).reshape(-1, output.size)
                held = jnp.where(jnp.arange(len(rows))[:, None] == age, rows, 0.0).sum(axis=0)
                # The oldest one holds until the next one comes. A delay is longer than it may be
                # after that.
                output = jnp.where(age < len(rows), held, jnp.nan)
            else:
                output = jnp.where(is_due, following, output)
            last = jnp.where(is_due, number, last)
            memory = memory.at[begin:end].set(jnp.concatenate([output, own, last, pending]))
        return memory


def _delay(controller: Controller, params: Any) -> Any:
    """The delay of a controller, a number."""
    name, most = controller.delay, controller.most_delay
    if not isinstance(name, str):
        return name
    what = f"Argument `params` must hold {name!r}, the delay of controller {controller.name!r}"
    if not isinstance(params, Mapping) or name not in params or np.shape(params[name]):
        raise ValueError(f"{what}, one number; for several of them use `jax.vmap`.")
    values = actual(params[name], _MEMBERS)
    for time in [] if values is None else values.tolist():
        if not 0.0 <= time <= most * (1 + 1e-6):
            raise ValueError(
                f"{what}, from 0 to {most:g} s, but it is {time:g} s; give the controller a larger "
                "`longest_delay`."
            )
    return params[name]


def _apart(ts: Any, dtype: Any) -> Any:
    # As far as times within a span are from its ends.
    ends: Any = ts[0], ts[-1]
    if is_known(ends):
        largest: Any = np.abs(ends).max()
    else:
        largest = jax.lax.stop_gradient(jnp.maximum(*map(jnp.abs, ends)))
    return _APART * float(np.finfo(dtype).eps) * largest


@lru_cache(maxsize=_KEPT)
def _known_times(
    controllers: ControllerSet, saves: bytes, delays: tuple[float, ...],
    duration: float, dtype: Any,
) -> np.ndarray:  # fmt: skip
    """The times of a run in their order, without those that differ by round-off."""
    known = np.frombuffer(saves)
    ts = known.astype(dtype)
    apart = _apart(ts, ts.dtype)
    times = np.concatenate(controllers.samples(known, delays, duration, dtype)).astype(dtype)
    times = np.sort(times[(times >= ts[0] - apart) & (times <= ts[-1] + apart)])
    if times.size:
        nearest = np.clip(np.searchsorted(ts, times), 1, len(ts) - 1)
        nearest -= times - ts[nearest - 1] < ts[nearest] - times
        times = np.where(np.abs(ts[nearest] - times) <= apart, ts[nearest], times)
        times = times[np.diff(times, prepend=-np.inf) > apart]
    times.flags.writeable = False
    return times
