"""Controllers with a sample time, and closed loops of a system with some.

A `Controller` is a function of the motion that is computed at sample times, and its held output.
What controllers remember and give out is the memory of a run, beside q and v, one vector. The
numbers of a controller follow each other in it: its output, its own memory, the number k of its
last sample at the time phase + k period, and its last outputs, which do not hold yet. It changes
only where a step ends, by the `ControllerSet`; there the number of the last sample tells which
controllers are due, and one that has computed is not asked again. The functions of the system find
the outputs among their parameters.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.system import Subject, System, with_params
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import is_known, naming_missing, require_function, require_kind
from jaxmech.utils.probing import actual


@dataclass(frozen=True)
class Numbers:
    """The structure of a pytree of numbers, and the values that it has at the start of a run."""

    structure: Any
    leaves: tuple[np.ndarray, ...]
    names: list[str]
    start: list[float]

    @staticmethod
    def of(argument: str, tree: Any, name: str) -> "Numbers":
        """The structure of a tree of that name, or an error that names the argument."""
        if not is_known(tree):
            raise TypeError(
                f"Argument `{argument}` must hold known numbers, but a part of it is traced; give "
                "traced values in the `memory` of `simulate`."
            )
        leaves: list[np.ndarray] = []
        names: list[str] = []
        for path, x in jax.tree.leaves_with_path(tree):
            leaf = np.asarray(x)
            if leaf.dtype.kind not in "fiub" or not np.isfinite(leaf.astype(float)).all():
                raise ValueError(
                    f"Argument `{argument}` must hold finite real numbers, but holds {x!r}."
                )
            leaves.append(leaf)
            keys = jax.tree_util.keystr(path, simple=True, separator=".")
            whole = f"{name}.{keys}" if keys else name
            names += [whole + "".join(f"[{k}]" for k in index) for index in np.ndindex(leaf.shape)]
        start = [float(x) for leaf in leaves for x in leaf.ravel()]
        return Numbers(jax.tree.structure(tree), tuple(leaves), names, start)

    @property
    def size(self) -> int:
        return len(self.names)

    def tree(self, x: Float[AnyArray, " s"]) -> Any:
        """The tree of a vector; integers and truth values are what they were."""
        parts, first = [], 0
        for leaf in self.leaves:
            part = x[first : first + leaf.size].reshape(leaf.shape)
            first += leaf.size
            if leaf.dtype.kind != "f":
                part = part > 0.5 if leaf.dtype.kind == "b" else part.round().astype(leaf.dtype)
            parts.append(part)
        return jax.tree.unflatten(self.structure, parts)

    def vector(self, what: str, tree: Any, dtype: Any) -> Float[Array, " s"]:
        """The vector of a tree that a function returned, or an error for another structure."""
        leaves, structure = jax.tree.flatten(tree)
        shapes, own = [np.shape(x) for x in leaves], [x.shape for x in self.leaves]
        if structure != self.structure or shapes != own:
            raise ValueError(
                f"{what} must have the structure and the shapes with which it starts, "
                f"{jax.tree.unflatten(self.structure, own)}, but has "
                f"{jax.tree.unflatten(structure, shapes)}."
            )
        if wrong := [x for x in leaves if jnp.result_type(x).kind not in "fiubV"]:
            kind = jnp.result_type(wrong[0])
            raise TypeError(f"{what} must hold real numbers, but is of type {kind}.")
        parts = [jnp.ravel(jnp.asarray(x)).astype(dtype) for x in leaves]
        return jnp.concatenate([jnp.zeros(0, dtype), *parts])


@dataclass(frozen=True, eq=False)
class Controller:
    """A controller with a sample time, whose output is held between its samples.

    At every time `phase + k period`, for whole numbers k, it measures the motion and computes its
    next output, which holds from `delay` later on until the following one takes its place
    (zero-order hold). The functions of a `controlled` system read the output as a parameter with
    the name of the controller, `params["torque"]`. Steps end at these times, so that no sample is
    missed and none is in a step, however long the steps are. At the start of a run a controller
    computes if that is one of its times; until it has, its output is `output`.

    Args:
        update: `update(measured, memory, t, params)`, which returns the next output and the next
            memory. `params` also holds the present outputs of all controllers; of several that
            compute at the same time, each one reads the new outputs of those listed before it.
        period: time from one sample to the next [s].
        memory: what the first `update` is given, any pytree of numbers, such as an integral or the
            last measurement; None for a controller without memory.
        output: the output before the first one: a number, a vector, or any pytree of them; all
            others have its structure.
        delay: time from a sample to its output [s], also of several periods; or the name of a
            parameter that holds it, which may then be differentiated, fitted and drawn.
        measure: `measure(q, v, t, params)`, what `update` is given as `measured`; by default q and
            v. v are the velocities of a `Solution`.
        phase: one of the sample times [s].
        longest_delay: the longest delay [s] where it is a parameter; by default one period.
        name: name of the output; by default that of `update`.

    Raises:
        TypeError: if a function is not callable.
        ValueError: if a time is not finite, the period is not positive, the delay is
            negative, or a number is not finite.

    Example:
        >>> def torque(measured, memory, t, params):
        ...     q, v = measured
        ...     return -params["gain"] * q[0] - 2.0 * v[0], memory
        >>> Controller(torque, 0.01, delay=0.004)
        Controller('torque', period=0.01, delay=0.004)
    """

    update: Callable[..., tuple[Any, Any]]
    period: float
    memory: Any = None
    output: Any = 0.0
    delay: float | str = 0.0
    measure: Callable[..., Any] | None = None
    phase: float = 0.0
    longest_delay: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        require_function("update", self.update, "measured, memory, t, params")
        if self.measure is not None:
            require_function("measure", self.measure, "q, v, t, params")
        name = self.name or getattr(self.update, "__name__", "")
        if not isinstance(name, str) or name in ("", "<lambda>"):
            raise ValueError(
                "Argument `name` must be a name, by which the output is read, but is "
                f"{self.name!r}; `update` has none of its own."
            )
        object.__setattr__(self, "name", name)
        if self.longest_delay is not None and not isinstance(self.delay, str):
            raise ValueError("Argument `longest_delay` must be left out where `delay` is a number.")
        for argument in ("period", "phase", "delay", "longest_delay"):
            value = getattr(self, argument)
            if value is None or (isinstance(value, str) and argument == "delay"):
                continue
            try:
                number = float(value)
            except (TypeError, ValueError, jax.errors.ConcretizationTypeError) as error:
                hint = "; a traced delay is given by the name of a parameter"
                raise TypeError(
                    f"Argument `{argument}` must be a known number, but is "
                    f"{value!r}{hint * (argument == 'delay')}."
                ) from error
            is_allowed = {"phase": True, "delay": number >= 0}.get(argument, number > 0)
            if not (math.isfinite(number) and is_allowed):
                need = {"phase": "finite", "delay": "0 or more"}.get(argument, "positive")
                raise ValueError(f"Argument `{argument}` must be {need}, but is {number:g}.")
            object.__setattr__(self, argument, number)
        if isinstance(self.output, list | tuple):
            object.__setattr__(self, "output", np.asarray(self.output))
        _, outputs = self.memories, self.outputs  # which check what is stated
        if not outputs.size:
            raise ValueError("Argument `output` must hold a number, but holds none.")

    def __repr__(self) -> str:
        late = f", delay={self.delay!r}" if self.delay else ""
        return f"Controller({self.name!r}, period={self.period:g}{late})"

    @cached_property
    def outputs(self) -> Numbers:
        return Numbers.of("output", self.output, self.name)

    @cached_property
    def memories(self) -> Numbers:
        return Numbers.of("memory", self.memory, f"{self.name}.memory")

    @property
    def most_delay(self) -> float:
        if not isinstance(self.delay, str):
            return self.delay
        return self.period if self.longest_delay is None else self.longest_delay

    @property
    def pending(self) -> int:
        """How many of the last outputs are kept until they hold."""
        if self.delay == 0:
            return 0
        return math.floor(self.most_delay / self.period * (1 + 1e-9)) + 1

    @property
    def memory_names(self) -> list[str]:
        """The names of its numbers: output, memory, number of the last sample, later outputs."""
        outputs = self.outputs.names
        later = [f"{output}.pending[{k}]" for k in range(self.pending) for output in outputs]
        return [*outputs, *self.memories.names, f"{self.name}.sample", *later]

    def computed(
        self, q: Array, v: Array, memory: Float[Array, " m"], t: Array, params: Any
    ) -> tuple[Float[Array, " o"], Float[Array, " m"]]:
        """The next output and memory, as vectors, of a motion that is measured."""
        part, measured = f"controller {self.name!r}", (q, v)
        if self.measure is not None:
            with naming_missing(f"`measure` of {part}", params):
                measured = self.measure(q, v, t, params)
        with naming_missing(f"`update` of {part}", params):
            result = self.update(measured, self.memories.tree(memory), t, params)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                f"`update` of {part} must return its output and its memory as a tuple of two, but "
                f"returned {type(result).__name__}; end it with `return output, memory`."
            )
        output = self.outputs.vector(f"The output of {part}", result[0], memory.dtype)
        following = self.memories.vector(f"The memory of {part}", result[1], memory.dtype)
        return output, following


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
    bare, _ = with_params(system, None)
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
        return tuple(name for c in self.controllers for name in c.memory_names)

    @cached_property
    def before(self) -> np.ndarray:
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
