"""`ControllerSet`: all controllers of a system, their states, their sample times and their effect.

The states of a controller follow each other at the end of v: its output, its memory, the number k
of its last sample at the time phase + k period, and its last outputs, which do not hold yet. Their
rates are zero. At a time at which a step ends, the number of the last sample until then tells
whether one is due; a state that has it already is not changed again.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.control.sampled.controller import Controller
from jaxmech.control.sampled.reading import reading_event, reading_outputs
from jaxmech.integrate import Event
from jaxmech.utils.checks import is_known
from jaxmech.utils.tracers import actual

_KEPT = 4  # runs whose times are known
_MEMBERS = 1024  # of a batch, of which times and delays are known
_APART = 8.0  # units of round-off of the largest time, within which times are the same
_LATE = 3.0  # distances within which times are the same, from the end of a delay
_MOST_SAMPLES = 1e8  # of a run, whose times are kept
_NEVER = -(2.0**20)  # number of the last sample before a run


@dataclass(frozen=True)
class ControllerSet:
    """All controllers of a system, in the order in which they compute."""

    controllers: tuple[Controller, ...]
    n: int  # coordinates of the system without them
    k: int  # its velocities
    longest_run: float | None = None  # a time that no run exceeds, where times are traced
    is_late: bool = False  # whether outputs begin to hold right after the end of their delay

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.controllers))})"

    @cached_property
    def ends(self) -> list[int]:
        """Where the numbers of each controller begin among the states, and where the last end."""
        return np.cumsum([0, *(len(c.state_names) for c in self.controllers)]).tolist()

    @property
    def size(self) -> int:
        """The number of states."""
        return self.ends[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the states."""
        return tuple(name for c in self.controllers for name in c.state_names)

    def bare(self, x: Array) -> Array:
        """q, v or an acceleration without the entries of the controllers."""
        return x[..., : x.shape[-1] - self.size]

    def completed(self, q: Any, v: Any) -> tuple[Any, Any]:
        """A state of the system without controllers with their states before a run."""
        if np.shape(q)[-1:] != (self.n,) or np.shape(v)[-1:] != (self.k,):
            return q, v
        start: list[float] = []
        for c in self.controllers:
            start += [*c.outputs.start, *c.memories.start, _NEVER, *c.outputs.start * c.pending]
        dtype = jnp.result_type(float, *(x for x in (q, v) if not isinstance(x, list | tuple)))

        def longer(x: Any, states: Any) -> Array:
            x = jnp.asarray(x)
            kind = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else dtype
            rows = jnp.broadcast_to(jnp.asarray(states, kind), (*x.shape[:-1], self.size))
            return jnp.concatenate([x.astype(kind), rows], axis=-1)

        return longer(q, np.zeros(self.size)), longer(v, start)

    def of_run(self, params: Any) -> "ControllerSet":
        """The controllers for these parameters, of which delays and periods may be differentiated.

        An output that begins to hold at the time of a sample then does so right after it, in a step
        of its own, the size of which has a derivative by the delay; and so does a sample at the
        time of a save.
        """
        names = [x for c in self.controllers for x in (c.delay, c.period) if isinstance(x, str)]
        values = [params.get(name) for name in names] if isinstance(params, Mapping) else []
        return self if is_known(values) else replace(self, is_late=True)

    def start(self, v: Array, ts: Float[Array, " T"], params: Any) -> Array:
        """v at the start of a run, at which a sample may be due."""
        for c, end in zip(self.controllers, self.ends[1:], strict=True):
            column = v.size - self.size + end - 1 - c.outputs.size * c.pending
            last = jnp.ceil((ts[0] - _apart(ts, ts.dtype) - c.phase) / _period(c, params)) - 1
            number = jnp.where(v[column] <= _NEVER, last.astype(v.dtype), v[column])
            v = v.at[column].set(jax.lax.stop_gradient(number))
        return v

    def times(self, ts: Any, params: Any, dtype: Any) -> Array | np.ndarray:
        """The times (K,) at which a controller computes or its output changes.

        They are numpy arrays where the times of the run and the delays are known, even under `jit`;
        those that coincide are one, and equal to a save time where they coincide with one.
        """
        duration = self._duration(ts, dtype)
        saves = np.asarray(ts, float) if is_known(ts) else jax.lax.stop_gradient(ts)
        late = _LATE * _apart(saves, dtype) if self.is_late else 0.0
        times = []
        for c in self.controllers:
            delay, period, is_named = _delay(c, params), _period(c, params), c.has_named_period
            xp: Any = np if is_known((saves, period)) else jnp
            count = math.floor(duration / c.least_period * (1 + 1e-6)) + 2
            first = xp.ceil((saves[0] - c.phase) / period - 1e-6)
            # By a product and not by a sum of periods, so that no error adds up.
            samples = c.phase + period * (first + np.arange(-c.pending, count))
            times.append(samples[c.pending :] + late * is_named)
            if c.pending:
                times.append(samples + delay + late * (1 + is_named))
        if is_known(times):
            known, saves = np.concatenate(times).astype(dtype), np.asarray(ts, dtype)
            return _distinct(known.tobytes(), saves.tobytes(), known.dtype)
        return jnp.concatenate([jnp.asarray(x, dtype) for x in times])

    def _duration(self, ts: Any, dtype: Any) -> float:
        """The longest time that a run, or any of a batch, takes."""
        values = actual(ts, _MEMBERS)
        if values is None and self.longest_run is None:
            raise ValueError(
                "Argument `ts` must have known values for a system with controllers, since their "
                "number of samples follows from them, but is traced; give it as a NumPy array, or "
                "give `controlled` the argument `longest_run`."
            )
        rounding, duration = 0.0, self.longest_run
        if values is not None:
            if (values[:, -1] < values[:, 0]).any():
                raise ValueError(
                    "Argument `ts` must increase for a system with controllers, but decreases; "
                    "what a controller has computed cannot be undone backwards in time."
                )
            rounding = float(np.abs(values).max()) * float(np.finfo(dtype).eps)
            duration = float((values[:, -1] - values[:, 0]).max())
        assert duration is not None
        for c in self.controllers:
            if rounding * 4 * _APART > c.least_period:
                raise ValueError(
                    f"Argument `ts` must be so close to zero that {np.dtype(dtype)} tells samples "
                    f"of controller {c.name!r} apart, but its times are rounded by {rounding:.1g} "
                    f"s and the period is {c.least_period:g} s; subtract the first time, or use "
                    "float64."
                )
            if duration / c.least_period > _MOST_SAMPLES:
                raise ValueError(
                    f"Argument `ts` must span at most {_MOST_SAMPLES:.0e} periods of controller "
                    f"{c.name!r}, {c.least_period:g} s each, but spans {duration:g} s; run it in "
                    "parts."
                )
        return duration

    def event(self, event: Event) -> Event:
        """An event whose functions read the outputs."""
        return reading_event(event, self)

    def reading(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function of q, v, t and parameters that reads the outputs, such as a sensor."""
        return reading_outputs(fn, self)

    def read(self, v: Array, params: Any) -> dict[str, Any]:
        """The parameters with the outputs at the end of v, by the names of their controllers."""
        if params is not None and not isinstance(params, Mapping):
            raise TypeError(
                "Argument `params` must be a dictionary, in which the outputs of controllers can "
                f"be read by name, but is {type(params).__name__}."
            )
        found = dict(params or {})
        first = v.shape[-1] - self.size
        for c, begin in zip(self.controllers, self.ends, strict=False):
            if c.name in found:
                raise ValueError(
                    f"Argument `params` must not hold {c.name!r}, which is the output of a "
                    "controller; leave it out, or give the controller another name."
                )
            begin += first
            found[c.name] = c.outputs.tree(v[..., begin : begin + c.outputs.size])
        return found

    def __call__(self, q: Array, v: Array, t: Array, params: Any, apart: Any = 0.0) -> Array:
        """v after all controllers have computed that are due at a time.

        The time is that of a step that begins, moved by `apart` into the step.
        """
        bare_q, bare_v, first = self.bare(q), self.bare(v), v.size - self.size
        # Samples and ends of delays that are late begin so many distances into their steps.
        late = [0.0, 2 * apart, 5 * apart] if self.is_late else [0.0, 0.0, 0.0]
        for c, begin, end in zip(self.controllers, self.ends, self.ends[1:], strict=False):
            begin, end = begin + first, end + first
            sizes = np.cumsum([c.outputs.size, c.memories.size, 1])
            output, memory, last, pending = jnp.split(v[begin:end], sizes.tolist())
            period, is_named = _period(c, params), c.has_named_period
            number = jnp.floor((t - late[is_named] - c.phase) / period)
            number = jax.lax.stop_gradient(number)
            time = c.phase + number * period
            following, new_memory = c.computed(bare_q, bare_v, memory, time, self.read(v, params))
            queue = jnp.concatenate([following, pending])
            is_due = number > last
            memory = jnp.where(is_due, new_memory, memory)
            if c.pending:
                pending = jnp.where(is_due, queue[: pending.size], pending)
                delay = jax.lax.stop_gradient(_delay(c, params))
                age = jnp.floor((t - late[1 + is_named] - delay - c.phase) / period)
                output = _held(output, pending, number - jax.lax.stop_gradient(age))
            else:
                output = jnp.where(is_due, following, output)
            last = jnp.where(is_due, number, last)
            v = v.at[begin:end].set(jnp.concatenate([output, memory, last, pending]))
        return v


def _delay(controller: Controller, params: Any) -> Any:
    """The delay of a controller, a number."""
    if not isinstance(controller.delay, str):
        return controller.delay
    part = f"the delay of controller {controller.name!r}"
    delay = _parameter(params, controller.delay, part)
    values, longest = actual(delay, _MEMBERS), controller.most_delay
    if values is not None and not ((values >= 0) & (values <= longest * (1 + 1e-6))).all():
        wrong = np.ravel(values)[np.argmax(np.abs(values - longest / 2))]
        hint = "; give the controller a larger `longest_delay`" if wrong > longest else ""
        raise ValueError(
            f"Argument `params` must hold {part}, {controller.delay!r}, from 0 to {longest:g} s, "
            f"but it is {wrong:g} s{hint}."
        )
    return delay


def _period(controller: Controller, params: Any) -> Any:
    """The period of a controller, a number."""
    if not isinstance(controller.period, str):
        return controller.period
    part = f"the period of controller {controller.name!r}"
    period = _parameter(params, controller.period, part)
    values, least = actual(period, _MEMBERS), controller.least_period
    if values is not None and not (values >= least * (1 - 1e-6)).all():
        raise ValueError(
            f"Argument `params` must hold {part}, {controller.period!r}, of {least:g} s at least, "
            f"but it is {values.min():g} s; give a smaller `shortest_period`."
        )
    return period


def _parameter(params: Any, name: str, part: str) -> Any:
    if not isinstance(params, Mapping) or name not in params:
        raise ValueError(f"Argument `params` must hold {name!r}, {part}.")
    if np.shape(params[name]):
        raise ValueError(
            f"Argument `params` must hold {part}, {name!r}, as one number, but it has shape "
            f"{np.shape(params[name])}; for several of them use `jax.vmap`."
        )
    return params[name]


def _held(output: Array, pending: Array, age: Array) -> Float[Array, " o"]:
    """The output that holds, so many samples after it was computed; NaN if it is lost."""
    rows = jnp.concatenate([pending, output]).reshape(-1, output.size)
    is_row = jnp.arange(len(rows))[:, None] == age
    held = jnp.where(is_row, rows, 0.0).sum(axis=0)
    # The oldest one holds until the next one comes. A delay is longer than it may be after that.
    return jnp.where(age < len(rows), held, jnp.nan)


def _apart(ts: Any, dtype: Any) -> Any:
    # As far as times within a span are from its ends.
    ends: Any = ts[0], ts[-1]
    if is_known(ends):
        largest: Any = np.abs(ends).max()
    else:
        largest = jax.lax.stop_gradient(jnp.maximum(*map(jnp.abs, ends)))
    return _APART * float(np.finfo(dtype).eps) * largest


@lru_cache(maxsize=_KEPT)
def _distinct(known: bytes, saves: bytes, dtype: np.dtype) -> np.ndarray:
    """The times of a run in their order, without those that differ by round-off."""
    times, ts = np.frombuffer(known, dtype), np.frombuffer(saves, dtype)
    apart = _apart(ts, ts.dtype)
    times = np.sort(times[(times >= ts[0] - apart) & (times <= ts[-1] + apart)])
    if times.size:
        nearest = np.clip(np.searchsorted(ts, times), 1, len(ts) - 1)
        nearest -= times - ts[nearest - 1] < ts[nearest] - times
        times = np.where(np.abs(ts[nearest] - times) <= apart, ts[nearest], times)
        times = times[np.diff(times, prepend=-np.inf) > apart]
    times.flags.writeable = False
    return times
