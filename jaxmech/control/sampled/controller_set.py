"""`ControllerSet`: all controllers of a system, their states, their sample times and their effect.

The states of a controller follow each other at the end of v: its output, its memory, the number k
of its last sample at the time phase + k period, and its last outputs, which do not hold yet. Their
rates are zero. At a time at which a step ends, the number of the last sample until then tells
whether one is due; a state that has it already is not changed again.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.control.sampled.controller import Controller
from jaxmech.control.sampled.reading import reading_event, reading_outputs
from jaxmech.integrate import Event
from jaxmech.utils.checks import is_known
from jaxmech.utils.tracers import actual

_MEMBERS = 1024  # of a batch, of which times and delays are known
_APART = 8.0  # units of round-off of the largest time, within which times are the same
_LATE = 3.0  # distances within which times are the same, from the end of a delay
_MOST_SAMPLES = 1e8  # of a run, whose times are kept
_NEVER = -(2.0**20)  # number of the last sample before a run


class StateSlices(NamedTuple):
    """Where the numbers of a controller are among the states."""

    output: slice
    memory: slice
    sample: int
    pending: slice


@dataclass(frozen=True)
class ControllerSet:
    """All controllers of a system, in the order in which they compute."""

    controllers: tuple[Controller, ...]
    n: int  # coordinates of the system without them
    k: int  # its velocities
    is_late: bool = False  # whether outputs begin to hold right after the end of their delay

    @cached_property
    def slices(self) -> tuple[StateSlices, ...]:
        """The slices of the controllers."""
        slices, first = [], 0
        for c in self.controllers:
            memory = first + c.outputs.size
            sample = memory + c.memories.size
            end = sample + 1 + c.pending * c.outputs.size
            slices.append(
                StateSlices(
                    slice(first, memory), slice(memory, sample), sample, slice(sample + 1, end)
                )
            )
            first = end
        return tuple(slices)

    @property
    def size(self) -> int:
        """The number of states."""
        return self.slices[-1].pending.stop

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the states."""
        return tuple(name for c in self.controllers for name in _names(c))

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.controllers))})"

    def completed(self, q: Any, v: Any) -> tuple[Any, Any]:
        """A state of the system without controllers with their states before a run."""
        if np.shape(q)[-1:] != (self.n,) or np.shape(v)[-1:] != (self.k,):
            return q, v
        start: list[float] = []
        for c in self.controllers:
            start += [*c.outputs.start, *c.memories.start, _NEVER, *c.outputs.start * c.pending]
        dtype = jnp.result_type(float, *(x for x in (q, v) if not isinstance(x, list | tuple)))
        states = {"q": np.zeros(self.size), "v": np.array(start)}
        completed = []
        for x, of in ((q, states["q"]), (v, states["v"])):
            x = jnp.asarray(x)
            kind = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else dtype
            rows = jnp.broadcast_to(jnp.asarray(of, kind), (*x.shape[:-1], self.size))
            completed.append(jnp.concatenate([x.astype(kind), rows], axis=-1))
        return completed[0], completed[1]

    def start(self, v: Array, ts: Float[Array, " T"], params: Any) -> Array:
        """v at the start of a run, at which a sample may be due."""
        first, apart = ts[0], _apart(ts)
        states = v[v.size - self.size :]
        for c, columns in zip(self.controllers, self.slices, strict=True):
            last = jnp.ceil((first - apart - c.phase) / self.period(c, params)) - 1
            is_new = states[columns.sample] <= _NEVER
            number = jnp.where(is_new, last.astype(v.dtype), states[columns.sample])
            states = states.at[columns.sample].set(jax.lax.stop_gradient(number))
        return jnp.concatenate([v[: v.size - self.size], states])

    def times(
        self, ts: Any, params: Any, dtype: Any, longest_run: float | None = None
    ) -> Array | np.ndarray:
        """The times (K,) at which a controller computes or its output changes.

        They are numpy arrays where the times of the run and the delays are known, even under `jit`;
        those that coincide are one, and equal to a save time where they coincide with one.
        """
        duration = _duration(ts, longest_run)
        self._require_resolved(ts, dtype)
        saves = np.asarray(ts, float) if is_known(ts) else jax.lax.stop_gradient(ts)
        samples, later = [], []
        for c in self.controllers:
            delay, period = self.delay(c, params), self.period(c, params)
            xp: Any = np if is_known((ts, period)) else jnp
            if duration / c.least_period > _MOST_SAMPLES:
                raise ValueError(
                    f"Argument `ts` must span at most {_MOST_SAMPLES:.0e} periods of controller "
                    f"{c.name!r}, {c.least_period:g} s each, but spans {duration:g} s; run "
                    "it in parts."
                )
            count = math.floor(duration / c.least_period * (1 + 1e-6)) + 2
            first = xp.ceil((saves[0] - c.phase) / period - 1e-6)
            # By a product and not by a sum of periods, so that no error adds up.
            at = c.phase + period * (first + np.arange(-c.pending, count))
            samples.append(at[c.pending :])
            if c.pending:
                later.append(at + (np.float64(delay) if is_known(delay) else delay))
        if is_known((samples, later)):
            times = np.concatenate([*samples, *later]).astype(dtype)
            return _distinct(times, np.asarray(ts, dtype))
        parts = [jnp.asarray(x, dtype) for x in (*samples, *later)]
        late = _LATE * _apart(jnp.asarray(saves, dtype)) if self.is_late else 0.0
        named = [isinstance(c.period, str) for c in self.controllers]
        shifts = [
            *named,
            *(1 + x for x, c in zip(named, self.controllers, strict=True) if c.pending),
        ]
        parts = [x + late * shift for x, shift in zip(parts, shifts, strict=True)]
        return jnp.concatenate(parts)

    def of_run(self, params: Any) -> "ControllerSet":
        """The controllers for these parameters, of which delays and periods may be differentiated.

        An output that begins to hold at the time of a sample then does so right after it, in a step
        of its own, the size of which has a derivative by the delay; and so does a sample at the
        time of a save.
        """
        names = [x for c in self.controllers for x in (c.delay, c.period) if isinstance(x, str)]
        values = [params.get(name) for name in names] if isinstance(params, Mapping) else []
        return self if is_known(values) else replace(self, is_late=True)

    def delay(self, controller: Controller, params: Any) -> Any:
        """The delay of a controller, a number."""
        if not isinstance(controller.delay, str):
            return controller.delay
        part = f"the delay of controller {controller.name!r}"
        delay = _parameter(params, controller.delay, part)
        values = actual(delay, _MEMBERS)
        longest = controller.longest_delay or controller.least_period
        if values is not None and not ((values >= 0) & (values <= longest * (1 + 1e-6))).all():
            wrong = np.ravel(values)[np.argmax(np.abs(values - longest / 2))]
            hint = "; give the controller a larger `longest_delay`" if wrong > longest else ""
            raise ValueError(
                f"Argument `params` must hold {part}, {controller.delay!r}, from 0 to {longest:g} "
                f"s, but it is {wrong:g} s{hint}."
            )
        return delay

    def period(self, controller: Controller, params: Any) -> Any:
        """The period of a controller, a number."""
        if not isinstance(controller.period, str):
            return controller.period
        part = f"the period of controller {controller.name!r}"
        period = _parameter(params, controller.period, part)
        values, least = actual(period, _MEMBERS), controller.least_period
        if values is not None and not (values >= least * (1 - 1e-6)).all():
            raise ValueError(
                f"Argument `params` must hold {part}, {controller.period!r}, of {least:g} s at "
                f"least, but it is {values.min():g} s; give a smaller `shortest_period`."
            )
        return period

    def without_states(self, x: Array) -> Array:
        """q, v or an acceleration without the entries of the controllers."""
        return x[..., : x.shape[-1] - self.size]

    def read(self, v: Array, params: Any) -> dict[str, Any]:
        """The parameters with the outputs by the names of their controllers."""
        return self.with_outputs(params, v[..., v.shape[-1] - self.size :])

    def event(self, event: Event) -> Event:
        """An event whose functions read the outputs."""
        return reading_event(event, self)

    def reading(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function of q, v, t and parameters that reads the outputs, such as a sensor."""
        return reading_outputs(fn, self)

    def with_outputs(self, params: Any, states: Float[Array, " s"]) -> dict[str, Any]:
        """The parameters with the outputs among these states."""
        if params is not None and not isinstance(params, Mapping):
            raise TypeError(
                "Argument `params` must be a dictionary, in which the outputs of controllers can "
                f"be read by name, but is {type(params).__name__}."
            )
        outputs = {}
        for c, columns in zip(self.controllers, self.slices, strict=True):
            if params is not None and c.name in params:
                raise ValueError(
                    f"Argument `params` must not hold {c.name!r}, which is the output of a "
                    "controller; leave it out, or give the controller another name."
                )
            outputs[c.name] = c.outputs.tree(states[columns.output])
        return {**(params or {}), **outputs}

    def __call__(self, q: Array, v: Array, t: Array, params: Any, apart: Any = 0.0) -> Array:
        """v after all controllers have computed that are due at a time.

        The time is that of a step that begins, moved by `apart` into the step.
        """
        mechanical = v.size - self.size
        bare_q, bare_v, states = self.without_states(q), v[:mechanical], v[mechanical:]
        for c, columns in zip(self.controllers, self.slices, strict=True):
            params_with_outputs = self.with_outputs(params, states)
            period, is_named = self.period(c, params), isinstance(c.period, str)
            # Samples and ends of delays that are late begin so many distances into their steps.
            began = [t - (2 + 3 * k) * apart if self.is_late else t for k in range(2)]
            number = jnp.floor(((began[0] if is_named else t) - c.phase) / period)
            number = jax.lax.stop_gradient(number)
            sample_time = c.phase + number * period
            measured = c.measured(bare_q, bare_v, sample_time, params_with_outputs)
            output, memory = c.computed(
                measured, states[columns.memory], sample_time, params_with_outputs
            )
            is_due = number > states[columns.sample]
            changes = [(columns.memory, memory), (columns.sample, number)]
            if c.pending:
                kept = jnp.concatenate([output, states[columns.pending]])[: c.pending * output.size]
                changes.append((columns.pending, kept))
            else:
                changes.append((columns.output, output))
            for where, new in changes:
                states = states.at[where].set(jnp.where(is_due, new, states[where]))
            if c.pending:
                delay = jax.lax.stop_gradient(self.delay(c, params))
                beginning = began[is_named] - delay - c.phase
                age = number - jax.lax.stop_gradient(jnp.floor(beginning / period))
                held = _held(states[columns.output], states[columns.pending], age)
                states = states.at[columns.output].set(held)
        return jnp.concatenate([v[:mechanical], states])

    def _require_resolved(self, ts: Any, dtype: Any) -> None:
        values = actual(ts, _MEMBERS)
        if values is None:
            return
        rounding = float(np.abs(values).max()) * float(np.finfo(dtype).eps)
        for c in self.controllers:
            if rounding * 4 * _APART > c.least_period:
                raise ValueError(
                    f"Argument `ts` must be so close to zero that {np.dtype(dtype)} tells samples "
                    f"of controller {c.name!r} apart, but its times are rounded by {rounding:.1g} "
                    f"s and the period is {c.least_period:g} s; subtract the first time, or use "
                    "float64."
                )


def _parameter(params: Any, name: str, part: str) -> Any:
    if not isinstance(params, Mapping) or name not in params:
        raise ValueError(f"Argument `params` must hold {name!r}, {part}.")
    if np.shape(params[name]):
        raise ValueError(
            f"Argument `params` must hold {part}, {name!r}, as one number, but it has shape "
            f"{np.shape(params[name])}; for several of them use `jax.vmap`."
        )
    return params[name]


def _names(controller: Controller) -> Iterator[str]:
    name = controller.name
    outputs = [name + _below(part) for part in controller.outputs.names]
    yield from outputs
    yield from (f"{name}.memory{_below(part)}" for part in controller.memories.names)
    yield f"{name}.sample"
    for k in range(controller.pending):
        yield from (f"{output}.pending[{k}]" for output in outputs)


def _below(part: str) -> str:
    return part if not part or part.startswith("[") else f".{part}"


def _held(output: Array, pending: Array, age: Array) -> Float[Array, " o"]:
    """The output that holds, so many samples after it was computed; NaN if it is lost."""
    rows = jnp.concatenate([pending, output]).reshape(-1, output.size)
    is_row = jnp.arange(len(rows))[:, None] == age
    held = jnp.where(is_row, rows, 0.0).sum(axis=0)
    # The oldest one holds until the next one comes. A delay is longer than it may be after that.
    return jnp.where(age < len(rows), held, jnp.nan)


def _duration(ts: Any, longest_run: float | None) -> float:
    """The longest time that a run, or any of a batch, takes."""
    values = actual(ts, _MEMBERS)
    if values is not None:
        if (values[:, -1] < values[:, 0]).any():
            raise ValueError(
                "Argument `ts` must increase for a system with controllers, but decreases; what a "
                "controller has computed cannot be undone backwards in time."
            )
        return float((values[:, -1] - values[:, 0]).max())
    if longest_run is None:
        raise ValueError(
            "Argument `ts` must have known values for a system with controllers, since their "
            "number of samples follows from them, but is traced; give it as a NumPy array, or "
            "give `controlled` the argument `longest_run`."
        )
    return longest_run


def _apart(ts: Array) -> Array:
    # As far as times within a span are from its ends.
    largest = jnp.maximum(jnp.abs(ts[0]), jnp.abs(ts[-1]))
    return jax.lax.stop_gradient(_APART * jnp.finfo(ts.dtype).eps * largest)


def _distinct(times: np.ndarray, ts: np.ndarray) -> np.ndarray:
    """The times of a run in their order, without those that differ by round-off."""
    apart = _APART * float(np.finfo(ts.dtype).eps) * float(np.abs(ts[[0, -1]]).max())
    times = np.sort(times[(times >= ts[0] - apart) & (times <= ts[-1] + apart)])
    if not times.size:
        return times
    nearest = np.clip(np.searchsorted(ts, times), 1, len(ts) - 1)
    nearest -= times - ts[nearest - 1] < ts[nearest] - times
    times = np.where(np.abs(ts[nearest] - times) <= apart, ts[nearest], times)
    return times[np.diff(times, prepend=-np.inf) > apart]
