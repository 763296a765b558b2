"""`Study`: everything that defines a Monte Carlo study, as a tree of frozen dataclasses.

The schema of a configuration file, the text of `jaxmech ensemble --help` and the resolved
configuration in a run folder all come from this tree. Tables of it are, for instance:

[inputs]
road = { file = "road.csv", column = "height" }
[observe]
height = { function = "pendulum.py:height", unit = "m" }       # at every saved time
peak = { function = "pendulum.py:height", keep = "max" }       # one number per trajectory
[events]
lands = { function = "ball.py:height", direction = -1, terminal = true }
fast = { of = "speed", level = 6.0, direction = 1 }      # an observed quantity, or a coordinate
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from math import isfinite
from typing import Annotated, Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.config import OneOf, plain
from jaxmech.config.errors import Problem, out_of_range, refuse, refuse_all
from jaxmech.control import MEMORY
from jaxmech.ensemble.distributions import Distribution
from jaxmech.ensemble.statistics import STATISTICS, AbstractStatistic
from jaxmech.integrate import (
    AbstractMethod,
    AbstractSteps,
    Event,
    FixedSteps,
    Transition,
    method_and_steps,
)
from jaxmech.laws import UdwadiaKalaba
from jaxmech.state import AbstractStabilization, Projection
from jaxmech.system import Interpolation, System
from jaxmech.utils.checks import argument_count
from jaxmech.utils.text import doc, setting
from jaxmech.utils.units import unit_problem

SECTIONS = ("start", "coordinates", "velocities", "parameters")
LANES = 64  # a block is a whole number of these by default
_LONGEST = 200  # bytes of a name; file systems allow 255, some of which "_count" and so on need
Design = Literal["random", "latin-hypercube", "sobol"]
Keep = Literal["all", "final", "max", "min", "mean", "largest"]
Series = Literal[
    "q", "v", "energy", "position_residual", "velocity_residual", "qdd", "multipliers",
    "constraint_force", "rates",
]  # fmt: skip
SERIES = get_args(Series)
SAVED: tuple[Series, ...] = ("q", "v", "energy", "position_residual", "velocity_residual")
Store = Literal["all", "final", "statistics"]
Method = Literal["auto", "form", "importance", "subset", "monte-carlo"]
Statistic = Annotated[AbstractStatistic, OneOf(STATISTICS, tag="statistic")]


@dataclass(frozen=True)
class Correlation:
    """The correlation of two variables, of the normal variables behind them (Gaussian copula)."""

    of: tuple[str, ...] = field(metadata=doc('two names, such as "m1" or "parameters.m1"'))
    value: float = field(metadata=doc("correlation, between -1 and 1"))

    def __post_init__(self) -> None:
        if len(self.of) != 2 or self.of[0] == self.of[1]:
            raise refuse("of", f"must hold two different names, but is {list(self.of)}")
        if not -1 < self.value < 1:
            raise refuse("value", f"must be between -1 and 1, but is {self.value}")


@dataclass(frozen=True)
class Sampling:
    """The joint distribution of the variables of a study.

    The design "sobol" spreads the points of all variables evenly in their joint space. Means then
    converge faster than with random points, and intervals, which assume independent points, are too
    wide. Correlated variables keep their distributions.
    """

    design: Design = setting("random", "how points are spread")
    correlation: tuple[Correlation, ...] = setting(
        (), "correlations of pairs of variables (Gaussian copula)"
    )


@dataclass(frozen=True, kw_only=True)
class RecordedInput:
    """A recorded input of a study: a column of a file, in place of a parameter.

    The functions of the system call it, `params["road"](t)`. It is a `Signal` that must cover the
    times of the study. Numbers of columns with a unit, such as `height [mm]` or `t (ms)`, are
    converted to SI units, which the summary says; a column may be named without its unit. It drives
    all trajectories.
    """

    file: str = field(metadata=doc("a .csv or .parquet file with the names of its columns"))
    column: str = field(metadata=doc("column of the values, with or without the unit in its name"))
    time: str = setting("t", "column of the times")
    units: Mapping[str, str] = setting(
        {},
        'units of columns whose names do not end in one, such as { height = "mm", t = "ms" }; '
        'numbers are converted to SI units, with "" they stay as they are',
    )
    interpolation: Interpolation = setting(
        "linear", 'between two samples: "hold" (the first of them), "linear" or "cubic"'
    )
    delay: float = setting(0.0, "time by which it is late [s]")

    def __post_init__(self) -> None:
        if not isfinite(self.delay):
            raise refuse("delay", f"must be a finite number, but is {self.delay}")
        refuse_all(
            Problem(("units", name), message)
            for name, unit in self.units.items()
            if (message := unit_problem(unit))
        )


@dataclass(frozen=True, kw_only=True)
class WhiteNoise:
    """White noise that is held for intervals of equal length, as an input of a study.

    The functions of the system call it, `params["gust"](t)`. It stands for noise w with
    E[w(t) w(t + τ)] = intensity δ(τ), in the place of which each interval has a normal number of
    variance intensity / interval. With a two-sided spectral density S of the angular frequency,
    the intensity is 2 π S. Motions that are slow compared with the interval do not depend on it.

    The numbers of the intervals, in units of their standard deviation, are a parameter of the
    study with the name of the input, such as `gust[17]`.
    """

    intensity: float = field(
        metadata=doc("integral of the correlation function [unit^2 s]", positive=True)
    )
    interval: float = field(metadata=doc("time for which a number is held [s]", positive=True))

    def __post_init__(self) -> None:
        refuse_all(out_of_range(self))


StudyInput = Annotated[
    RecordedInput | WhiteNoise,
    OneOf({"recorded": RecordedInput, "white-noise": WhiteNoise}, tag="kind", default="recorded"),
]


_KEPT: dict[str, Callable[[Array], Array]] = {
    "final": lambda x: x[-1],
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(0),
    "mean": lambda x: x.mean(0),
    "largest": lambda x: jnp.abs(x).max(0),
}


@dataclass(frozen=True)
class Observed:
    """A quantity of the motion: a function of q, v, t and params, at every saved time.

    The function is `fn(q, v, t, params)` with q and v of shape (n,), or `fn(q, v, t, params,
    reactions)`, where reactions are the `Observation` of `observe` at that time; it returns
    an array of fixed shape. In a file it is named "path/file.py:name", seen from its folder. With
    `keep` there is one value per trajectory; "largest" is that of the absolute value.
    """

    function: str | Callable[..., Any] = field(
        metadata=doc('"path/file.py:name" of a function of q, v, t, params', short=True)
    )
    keep: Keep = setting("all", "saved times, or one value of them")
    unit: str | None = setting(None, "unit of its values, such as m/s, which results show")

    @property
    def needs_reactions(self) -> bool:
        """Whether the function has an argument for reactions."""
        return callable(self.function) and argument_count(self.function) == 5

    @property
    def size(self) -> Callable[..., Any]:
        """The function at a state: its absolute value where the largest one is kept."""
        assert callable(self.function)
        return composed(jnp.abs, self.function) if self.keep == "largest" else self.function

    def at(self, q: Array, v: Array, t: Array, params: Any, reactions: Any) -> Array:
        """Evaluate the quantity at one state."""
        assert callable(self.function)
        arguments = (reactions,) if self.needs_reactions else ()
        return jnp.asarray(self.function(q, v, t, params, *arguments))

    def along(
        self, system: System, states: tuple[Array, Array, Array, Array], params: Any, reactions: Any
    ) -> Array:
        """The quantity along one trajectory of q, v, memory and ts, shape (T, ...) or (...)."""

        def at_save(q: Array, v: Array, memory: Array, t: Array, reactions: Any) -> Array:
            return self.at(q, v, t, system.with_outputs(params, memory), reactions)

        values = jax.vmap(at_save)(*states, reactions)
        return values if self.keep == "all" else _KEPT[self.keep](values)


@dataclass(frozen=True)
class StudyEvent:
    """An event of a study: something goes through zero, or through a level.

    Functions are `fn(q, v, t, params)`, and the one that goes through zero may have a fifth
    argument for reactions, as in `jaxmech.Event`; in a file they are named "path/file.py:name".
    """

    function: str | Callable[..., Any] | None = setting(
        None, '"path/file.py:name" of a function of q, v, t, params', short=True
    )
    of: str | None = setting(None, "a coordinate or an observed quantity, in place of `function`")
    level: float = setting(0.0, "value that it crosses")
    direction: int = setting(0, "1 for rising only, -1 for falling only, 0 for both")
    terminal: bool = setting(False, "whether the trajectory ends there")
    jump: str | Callable[..., Any] | None = setting(
        None, '"path/file.py:name" of a function that gives the new q and v'
    )
    restitution: float | str | None = setting(
        None, "of an impact: a number, or the name of a parameter"
    )
    on: tuple[str, ...] = setting((), "constraints that are switched on")
    off: tuple[str, ...] = setting((), "constraints that are switched off")
    keep: int = setting(8, "number of occurrences whose times and states are stored", least=1)

    def __post_init__(self) -> None:
        if (self.function is None) == (self.of is None):
            condition = "neither is" if self.of is None else "both are"
            raise refuse("function", f"or `of` must be given, one of the two, but {condition}")
        if self.direction not in (-1, 0, 1):
            raise refuse("direction", f"must be -1, 0 or 1, but is {self.direction}")
        refuse_all(out_of_range(self))

    def event(
        self, name: str, entries: Mapping[str, tuple[str, int]], observe: Mapping[str, Observed]
    ) -> Event:
        """The event, with functions in place of names, of which some are entries of q and v."""
        e, jump = self.restitution, self.jump
        transition = None
        if callable(jump) or e is not None or self.on or self.off:
            factor = (lambda p: p[e]) if isinstance(e, str) else e
            transition = Transition(jump if callable(jump) else None, factor, self.on, self.off)
        quantity, level = self.of, self.level
        fn: Any = self.function
        if quantity is not None and quantity in entries:
            array, k = entries[quantity]
            arrays: Any = {"q": lambda q, v, p: q, "v": lambda q, v, p: v}
            read = arrays.get(array, lambda q, v, p: p[MEMORY])
            fn = lambda q, v, t, p: read(q, v, p)[k] - level  # noqa: E731
        elif quantity is not None or level:
            size = fn if quantity is None else observe[quantity].size
            fn = composed(lambda value: value - level, size)
        return Event(
            fn, direction=self.direction, terminal=self.terminal, transition=transition, name=name,
            keep=self.keep,
        )  # fmt: skip


def composed(outer: Callable[[Any], Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function outer(fn(...)), with the arguments of `fn`, which say what it needs."""

    @wraps(fn)
    def composition(*arguments: Any) -> Any:
        return outer(fn(*arguments))

    return composition


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The failure of a motion: a quantity beyond a threshold, or an event.

    A quantity is a coordinate, a velocity, or an observed quantity of the study. It fails "ever"
    where its largest value (`above`) or its smallest one (`below`) at any time is at or beyond the
    threshold: at all steps, whatever times are saved, and between them near the extreme one. It
    fails at the "end" where its last value is. An observed quantity may have the `keep` that is the
    extreme value on the side of the threshold: "max" or "largest" with `above`, "min" with `below`.
    An event fails where
    it occurs at least once, or its function is beyond the level at the start; the motion goes on as
    if it did nothing, so that there is a measure of how far it was from occurring.
    """

    of: str = field(metadata=doc("a coordinate, a velocity, an observed quantity, or an event"))
    above: float | None = setting(None, "threshold, if large values are failures")
    below: float | None = setting(None, "threshold, if small values are failures")
    when: Literal["ever", "end"] = setting("ever", "at any time, or at the last one")
    unfinished: Literal["failure", "safe"] = setting(
        "failure",
        "what a trajectory counts as that cannot be computed to its end and has not failed before",
    )
    method: Method = setting("auto", "how the probability is computed")
    coefficient_of_variation: float = setting(
        0.05, "standard deviation of the estimate, relative to it, to be reached", between=(0, 1)
    )
    most: int = setting(200_000, "trajectories after which no more are begun", least=1000)
    confidence: float = setting(0.95, "confidence of the interval", between=(0, 1))

    def __post_init__(self) -> None:
        if self.above is not None and self.below is not None:
            raise refuse("above", "or `below` must be given, not both")
        for name in ("above", "below"):
            if not isfinite(getattr(self, name) or 0.0):
                raise refuse(name, f"must be finite, but is {getattr(self, name)}")
        refuse_all(out_of_range(self))

    @property
    def threshold(self) -> float | None:
        """The threshold; None for an event."""
        return self.below if self.above is None else self.above

    @property
    def margin_sign(self) -> int:
        """The sign with which the quantity enters the margin, which is at most 0 in a failure."""
        return 1 if self.above is None else -1


@dataclass(frozen=True, kw_only=True)
class Times:
    """The save times of a motion: `saves` equally spaced times from `start` to `end`."""

    end: float = field(metadata=doc("last saved time [s]"))
    start: float = setting(0.0, "first saved time, where the state is drawn [s]")
    saves: int = setting(101, "number of saved times, both ends included", least=2)

    def __post_init__(self) -> None:
        if not self.start < self.end or not isfinite(self.end - self.start):
            raise refuse("end", f"must be after `start`, but {self.end} is not after {self.start}")
        refuse_all(out_of_range(self))


@dataclass(frozen=True, kw_only=True)
class Study:
    """A Monte Carlo study of motions: a model, its random inputs, and the settings of the runs.

    Example:
        >>> from jaxmech.ensemble import Normal, Study, Times
        >>> masses = {"m": Normal(sd=0.02, relative=True)}
        >>> study = Study(model="pendulum", size=100, times=Times(end=1.0), parameters=masses)
        >>> study.precision
        'float64'
    """

    model: str | Any = field(
        metadata=doc(
            'a name of `jaxmech models`, or next to this file "path/file.py:attribute" or the path '
            "of an MJCF or URDF file"
        )
    )
    size: int = field(metadata=doc("number of members", least=1))
    model_options: Mapping[str, Any] = setting({}, "options of the model, such as { links = 10 }")
    seed: int = setting(0, "seed of all random numbers, at least 0", least=0)
    block: int | None = setting(
        None,
        "members compiled and stored together; by default as many as are good for the device",
        least=1,
    )
    failed_allowed: float = setting(
        0.0, "fraction of failed members up to which the exit code is 0", least=0, most=1
    )
    fixed: tuple[str, ...] = setting((), "coordinates that keep their drawn value")
    start: Mapping[str, Distribution] = setting({}, "start variables of the model, by name")
    coordinates: Mapping[str, Distribution] = setting(
        {}, "initial coordinates, in place of the model's"
    )
    velocities: Mapping[str, Distribution] = setting(
        {}, "initial velocities, in place of the model's"
    )
    inputs: Mapping[str, StudyInput] = setting(
        {}, "recorded and random inputs, by the name of the parameter whose place they take"
    )
    parameters: Mapping[str, Distribution] = setting(
        {}, "parameters; `m` draws all entries of an array, `m[3]` a single one"
    )
    sampling: Sampling = setting(Sampling(), "design and correlations of the drawn variables")
    statistics: Mapping[str, Statistic] = setting({}, "reductions over all members, by name")
    failure: Failure | None = setting(
        None, "what counts as failure, for `jaxmech failure`; `jaxmech ensemble` ignores it"
    )

    times: Times = field(metadata=doc("times at which the motion is saved"))
    precision: Literal["float64", "float32"] = setting(
        "float64", "floating-point type of the whole computation"
    )
    save: tuple[Series, ...] = setting(
        SAVED,
        "series of which all saved times are stored",
    )
    store: Store = setting(
        "all",
        "`save` and `observe` at all saved times or the last one, or only statistics, and of "
        "trajectories how they ended",
    )
    method: AbstractMethod | None = setting(
        None, "how a step is made; RK4, or DormandPrince8 for adaptive steps, by default"
    )
    steps: AbstractSteps = setting(FixedSteps(), "how long the steps are")
    projection: AbstractStabilization = setting(Projection(), "control of drift")
    formulation: UdwadiaKalaba = setting(UdwadiaKalaba(), "law of motion")
    controllers: tuple[str, ...] = setting(
        (), 'controllers of the system, each a `Controller` in a Python file, "file.py:name"'
    )
    observe: Mapping[str, Observed] = setting({}, "quantities of your own, by name")
    events: Mapping[str, StudyEvent] = setting({}, "events to locate along the motion, by name")
    inactive: tuple[str, ...] = setting(
        (), "constraints that are inactive unless an event activates them"
    )

    def __post_init__(self) -> None:
        method, _ = method_and_steps(self.method, self.steps)
        object.__setattr__(self, "method", method)
        refuse_all([*out_of_range(self), *self.problems()])
        plain(self)  # which refuses policies and distributions that have no name in a file

    def problems(self) -> Iterator[Problem]:
        """The settings that contradict each other, but for those of wrong ranges."""
        for section in ("observe", "events", "statistics"):  # which name arrays, that is files
            for name in getattr(self, section):
                is_taken = name in ("", ".", "..", "zarr.json") or name.startswith("__")
                is_text = name.isprintable() and not {"/", "\\"} & {*name}
                if is_taken or not is_text or len(name.encode()) > _LONGEST:
                    message = (
                        f"must be the name of a file, of at most {_LONGEST} bytes without / and "
                        "\\, but none that begins with __ or is taken, as . and zarr.json are"
                    )
                    yield Problem((section, name), message)
        for name, quantity in self.observe.items():
            if not isinstance(quantity, Observed):
                message = f"must be an Observed, such as Observed(function), but is {quantity!r}"
                yield Problem(("observe", name), message)
        drawn = {key.partition("[")[0] for key in self.parameters}
        for name, item in self.inputs.items():
            if isinstance(item, RecordedInput) and name in drawn:
                message = "must have another name: `parameters` gives it, too"
                yield Problem(("inputs", name), message)
        if self.store == "statistics" and not self.statistics:
            message = 'must not be "statistics" where the table `statistics` names none'
            yield Problem(("store",), message)
