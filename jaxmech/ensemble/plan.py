"""A study that can be computed: `planned` reads its files, and makes all checks without tracing.

`origin` says what its results depend on, and `require_used` refuses what nothing reads.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis import State, unused_parameters
from jaxmech.config import (
    Rows,
    RunFolder,
    Subject,
    SubjectInputs,
    described,
    environment,
    find,
    load,
    plain,
    with_copies,
)
from jaxmech.config.errors import (
    FolderError,
    Key,
    Problem,
    StudyError,
    TableError,
    refuse,
    refuse_all,
)
from jaxmech.ensemble.distributions import Normal
from jaxmech.ensemble.draws import Sampler, Variable
from jaxmech.ensemble.member import (
    VELOCITY,
    StudyTrajectory,
    Tree,
    first_of,
    memory_names,
)
from jaxmech.ensemble.statistics import FirstPassage
from jaxmech.ensemble.study import SECTIONS, Observed, Study, WhiteNoise
from jaxmech.integrate import MEMBERS, FixedSteps, Gaps, choose_steps
from jaxmech.laws import observed_at
from jaxmech.system import DryFriction, Params, Signal, System
from jaxmech.utils.checks import MissingParameterError, argument_count
from jaxmech.utils.digests import arrays_digest, file_digest, sha256, traced_digest
from jaxmech.utils.probing import evenly_spaced
from jaxmech.utils.text import not_one_of
from jaxmech.utils.trees import is_within, leaf_names

STATES = "statistics"  # the array that holds the states of the statistics
_FUNCTIONS = {"observe": ("function",), "events": ("function", "jump")}  # fields of settings
_CALLABLE: Any = Callable
_ROUND_OFF = 1e-9  # of an interval of noise
_FIRST = 1024  # members whose draws are digested, whatever the size of a block


@dataclass(frozen=True, eq=False)
class Plan:
    """A study that can be computed."""

    named: Study  # as it is written
    member: StudyTrajectory  # of the study with functions in place of their names
    sampler: Sampler  # its draws
    folder: Path  # to which the names of files are relative

    @property
    def study(self) -> Study:
        return self.member.study

    @property
    def subject(self) -> Subject:
        return self.member.subject

    @cached_property
    def first(self) -> Tree:
        """The inputs of the first member."""
        return first_of(*self.inputs(0, 1))

    def inputs(self, first: int, last: int, padding: int = 0) -> tuple[Tree, Tree]:
        """The inputs of some members: those that vary, padded, and those that all share."""
        return inputs_of(self.sampler.rows(first, last), self.member.dtype, padding)

    @property
    def recorded(self) -> tuple[dict[str, Any], dict[Path, str]]:
        """The configuration that a run folder holds, and the names of its copies of files."""
        return with_copies(plain(self.named), self.folder)


def inputs_of(
    variables: Iterable[Variable], dtype: np.dtype[Any], padding: int = 0
) -> tuple[Tree, Tree]:
    """Split draws into varying ones, padded with copies of the last member, and shared ones."""
    varying: Tree = {section: {} for section in SECTIONS}
    shared: Tree = {section: {} for section in SECTIONS}
    for variable in variables:
        values = variable.values
        if variable.varies and padding:
            values = np.concatenate([values, np.repeat(values[-1:], padding, axis=0)])
        tree = varying if variable.varies else shared
        values = values.astype(dtype) if values.dtype.kind == "f" else values
        tree[variable.section][variable.name] = values
    return varying, shared


def planned(study: Study, folder: Path = Path(), run: Path | None = None) -> Plan:
    """The study with its system and draws: all checks without tracing.

    The sizes that it does not name are those of an existing run folder, if there is one.
    """
    study = study if run is None else with_stored_sizes(study, run)
    if study.precision == "float64" and not jax.config.read("jax_enable_x64"):
        advice = 'call jax.config.update("jax_enable_x64", True) first, or set it to float32'
        raise refuse("precision", f"must be float32, the precision of this process; {advice}")
    subject = load(
        study.model, study.model_options, folder,
        parameters=study.parameters, controllers=study.controllers,
    )  # fmt: skip
    with_functions = _with_functions(study, folder)
    if study.inputs:
        inputs = _read_inputs(study, folder)
        rules = {x: study.parameters.get(x, Normal(mean=0.0, sd=1.0)) for x in inputs.deviations}
        study, with_functions = (
            replace(x, parameters={**x.parameters, **rules}) for x in (study, with_functions)
        )
        subject = replace(subject, inputs=inputs)
    sampler = Sampler(study, subject)
    plan = Plan(study, StudyTrajectory(with_functions, subject), sampler, folder)
    refuse_all(_name_problems(plan))
    return plan


def _name_problems(plan: Plan) -> Iterator[Problem]:
    """Names of quantities that are taken, and events and statistics of unknown quantities."""
    study, sampler, member = plan.study, plan.sampler, plan.member
    crossed, taken = (*member.entries, *study.observe), {"multipliers"}
    if study.store != "statistics":  # arrays of the run folder
        taken |= {"t", "coordinate", STATES, *(x.stored_name for x in sampler.rows(0, 1))}
        taken |= {VELOCITY} if member.system.velocities else set()
    known = set[str]()
    for key, part in member.named_quantities():
        if clashes := part.keys() & (known | taken if key[:1] == ("observe",) else known):
            message = f"must have another name: there is a quantity `{min(clashes)}` already"
            yield Problem(key, message)
        known |= part.keys()
    for name, event in study.events.items():
        if event.of is not None and event.of not in crossed:
            message = not_one_of(event.of, crossed, "a coordinate or an observed quantity")
            yield Problem(("events", name, "of"), message)
    for name, statistic in study.statistics.items():
        valid, what = known, "a quantity"
        if isinstance(statistic, FirstPassage):
            valid, what = {*study.events}, "an event of this study"
        if statistic.of not in valid:
            yield Problem(("statistics", name, "of"), not_one_of(statistic.of, valid, what))


def with_stored_sizes(study: Study, path: Path) -> Study:
    """The study with the block and steps of an existing run folder, where it names none."""
    try:
        stored: Any = RunFolder(path).config
        chosen = stored.get("steps", {})
        sizes, times = (stored.get("block"), chosen.get("per_save")), chosen.get("times", ())
    except (FolderError, AttributeError):  # `open_run` reports it
        return study
    block, per_save = (x if isinstance(x, int) and x >= 1 else None for x in sizes)
    steps = study.steps
    if isinstance(steps, FixedSteps) and steps.per_save is None and per_save:
        steps = replace(steps, per_save=per_save, times=steps.times or times)
        study = replace(study, steps=steps)
    return replace(study, block=block) if study.block is None and block else study


def _with_functions(study: Study, folder: Path) -> Study:
    """The study with functions in place of their names, in quantities and events."""
    problems: list[Problem] = []

    def get(key: Key, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = find(value, folder, (_CALLABLE,), key).value
            except StudyError as error:
                problems.extend(error.problems)
                return value
        count = argument_count(value) if callable(value) else 0
        if key[0] == "observe" and count not in (4, 5):
            message = "must name a function of q, v, t, params, or of these and reactions, but it "
            problems.append(Problem(key, f"{message}takes {count} arguments"))
        return value

    sections: dict[str, Any] = {
        section: {
            name: replace(table, **{f: get((section, name, f), getattr(table, f)) for f in fields})
            for name, table in getattr(study, section).items()
        }
        for section, fields in _FUNCTIONS.items()
    }
    refuse_all(problems)
    return replace(study, **sections)


def _read_inputs(study: Study, folder: Path) -> SubjectInputs:
    """The samples of inputs, whose files must cover the times of the study."""
    first, last = study.times.start, study.times.end
    signals: dict[str, Signal] = {}
    deviations, notes = {}, {}
    problems: list[Problem] = []
    for name, item in study.inputs.items():
        if isinstance(item, WhiteNoise):  # none in the middle, in intervals of known deviation
            count = max(ceil((last - first) / item.interval - _ROUND_OFF), 2)
            starts = first + item.interval * np.arange(count)
            signals[name] = Signal(starts, np.zeros(count), "hold")
            deviations[name] = sqrt(item.intensity / item.interval)
            continue
        try:
            path = folder / item.file
            if not path.is_file():
                raise refuse("file", f"must name a file, but there is none at {path}")
            rows = Rows.of_file(path, item.units)
            column, time = rows.required("column", item.column), rows.required("time", item.time)
            converted = rows.notes(time, column)
            values = rows.numbers(column)[:, 0]
            for row in np.flatnonzero(np.isnan(values)).tolist()[:1]:
                raise TableError(
                    f"{rows.location(row)}: `{item.column}` is missing; it must be known at every "
                    "sample, interpolate it, or leave the row out"
                )
            signal = Signal(rows.times(item.time, None), values, item.interpolation, item.delay)
        except StudyError as error:
            raise error.within("inputs", name) from None
        except TableError as error:
            raise refuse(("inputs", name, "file"), f"must hold a signal: {error}") from error
        if missing := signal.missing(first, last):
            problems.append(Problem(("inputs", name, "file"), f"must hold {missing}"))
        signals[name], notes[name] = signal, tuple(converted)
    refuse_all(problems)
    return SubjectInputs(signals, deviations, notes)


@contextmanager
def errors_as_problems() -> Iterator[None]:
    """Raise errors of the model's functions as a StudyError."""
    try:
        yield
    except StudyError:
        raise
    except MissingParameterError as error:
        message = f"must give the parameter {error.name!r}, which {error.read_by} reads"
        if error.similar:
            message += f"; correct the name {error.similar!r} if it is meant"
        raise refuse("parameters", message) from error
    except KeyError as error:
        message = f"must give the parameter {error}, which the model reads"
        raise refuse("parameters", message) from error
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise refuse("model", f"cannot be computed: {described(error)}") from error


def system_digest(system: System, params: Params, dtype: Any = float) -> str:
    """The digest of all functions of a system, and of what else its motions depend on."""
    # numpy, so that JAX compiles nothing
    q, v, t = np.zeros(system.n, dtype), np.zeros(system.n_velocities, dtype), np.zeros((), dtype)
    state = system.arguments(q, v, t, params)
    names: list[Any] = [system.coordinates, system.velocities, system.sampling]
    names += [(type(c).__name__, c.name) for c in system.constraints]
    others = list[Any]()  # functions of parameters alone
    for contact in system.unilateral:
        rule = contact.normal if isinstance(contact, DryFriction) else contact.rest_speed
        names.append((type(contact).__name__, contact.name, None if callable(rule) else rule))
        others += [rule] if callable(rule) else []

    def functions(q: Any, v: Any, t: Any, params: Any) -> Any:
        equations = system.equations(q, v, t, params)  # with derivatives, by rules of the user's
        derived = equations.M, equations.Q, equations.A, equations.b
        values = system.function_values(q, v, t, params)
        return derived, values, [rule(params) for rule in others]

    return sha256(repr(names), traced_digest(functions, *state))


@errors_as_problems()
def origin(plan: Plan) -> dict[str, Any]:
    """The content of `environment.json` but the time: facts, digests of functions and draws."""
    study, subject, sampler = plan.study, plan.subject, plan.sampler
    system, dtype, inputs = subject.system, plan.member.dtype, plan.first
    params = plan.member.params(inputs)
    functions = {"system": system_digest(system, params, dtype)}
    if subject.model:
        functions["start"] = traced_digest(subject.model.state, inputs["start"], params)
    sizes = system.n, system.n_velocities, len(memory_names(system))
    states = [*(np.zeros((2, size), dtype) for size in sizes), np.zeros(2, dtype)]
    for name, quantity in study.observe.items():

        def along(q: Any, v: Any, memory: Any, t: Any, params: Any, it: Any = quantity) -> Array:
            return it.along(system, (q, v, memory, t), params, None)

        needs_more = quantity.needs_reactions
        code = (
            file_digest(quantity.function) if needs_more else traced_digest(along, *states, params)
        )
        functions[f"observe {name}"] = code
    for name, event in study.events.items():
        for suffix, fn in (("", event.function), (" jump", event.jump)):
            if callable(fn):
                functions[f"event {name}{suffix}"] = file_digest(fn)
    # Some at the beginning and the last member: another seed, size or rule changes one of them, and
    # all draws of a large study would take long.
    last = sampler.size - 1
    parts = sampler.rows(0, min(_FIRST, sampler.size)), sampler.rows(last, sampler.size)
    draws = {
        same[0].stored_name: arrays_digest(*(variable.values for variable in same))
        for same in zip(*parts, strict=True)
    }
    draws |= {
        f"input {name}": arrays_digest(signal.ts, signal.values, signal.delay)
        for name, signal in subject.inputs.signals.items()
        if name not in subject.inputs.deviations
    }
    facts = environment(subject.name, subject.sha256) | {"functions": functions, "draws": draws}
    notes = {name: list(words) for name, words in subject.inputs.notes.items() if words}
    return facts | ({"inputs": notes} if notes else {})


@errors_as_problems()
def require_used(plan: Plan) -> None:
    """Raise a StudyError for inputs, outputs of controllers and parameters that nothing reads.

    Parameters are checked for a bare `System` alone: a model has its own, whether used or not.
    """
    study, subject, system = plan.study, plan.subject, plan.subject.system
    controllers = () if system.sampling is None else system.sampling.controllers
    if subject.model and not subject.inputs.signals and not controllers:
        return
    drawn, before = plan.first, system.with_outputs({})
    q, v = jnp.zeros(system.n), jnp.zeros(system.n_velocities)
    # outputs as parameters, so that it is seen who reads them
    state = State(q, v, q[0], system.with_outputs(plan.member.params(drawn)))

    def also(q: Array, v: Array, t: Array, params: Any) -> Any:
        """What reads parameters beside the system."""
        start: list[Any] = [subject.model.state(drawn["start"], params)] if subject.model else []
        for c in controllers:  # which may read outputs of others
            memory = jnp.asarray(c.memories.start, q.dtype)
            start.append(c.computed(q, v, memory, t, {**params, c.name: before[c.name]}))
        if not (study.events or study.observe or study.statistics):
            return start
        if system.sampling is not None:  # as in a run
            memory = system.memory_at(t[None], params)
            params = {**system.with_outputs(params, memory), **params}
        gaps = Gaps.of(system, q, t, params)
        reactions = observed_at(gaps.system(system), study.formulation, q, v, t, params)
        reactions, events = gaps.joined(reactions), plan.member.event_set.events
        transitions = [event.transition for event in events if event.transition]
        return (
            start,
            [Observed(event.fn).at(q, v, t, params, reactions) for event in events],
            [x.at(q, v, t, params, reactions) for x in study.observe.values()],
            [x.fn(q, v, t, params) for x in transitions if x.fn],
            [x.restitution(params) for x in transitions if callable(x.restitution)],
        )

    unused = set(unused_parameters(system, state, energy=True, also=also))
    message = "is not read by the system; call it in one of its functions, as `params[name](t)`"
    idle = (name for name in subject.inputs.signals if f"{name}.values" in unused)
    problems = [Problem(("inputs", name), message) for name in idle]
    named = {x.of for table in (study.events, study.statistics) for x in table.values()}
    for c in controllers:
        outputs = {name for name in leaf_names(state.params) if is_within(name, [c.name])}
        if outputs and outputs <= unused and named.isdisjoint(c.memory_names):
            message = (
                f"have an output {c.name!r} that nothing reads; read it as `params[{c.name!r}]`, "
                "give the controller the `name` under which it is read, or observe it"
            )
            problems.append(Problem(("controllers",), message))
    params = {} if subject.model else drawn["parameters"]
    used_names = ", ".join(sorted(params.keys() - unused)) or "none"
    message = f"is not used by the system; it uses {used_names}"
    problems += [Problem(("parameters", name), message) for name in params if name in unused]
    refuse_all(problems)


def with_steps(plan: Plan) -> Plan:
    """The plan with its number of steps, chosen from some of its trajectories if not set."""
    study, steps, member = plan.study, plan.study.steps, plan.member
    if not isinstance(steps, FixedSteps) or steps.per_save is not None:
        return plan
    fixed = steps
    rows = evenly_spaced(study.size, MEMBERS)
    parts = [plan.inputs(row, row + 1) for row in rows.tolist()]
    varying = jax.tree.map(lambda *x: np.concatenate(x), *(draws for draws, _ in parts))
    chosen: list[FixedSteps] = []

    def choose(q: Array, v: Array, params: Any) -> Array:
        policy = choose_steps(
            member.system, q, v, member.ts, params,
            method=study.method, steps=fixed, projection=study.projection,
            formulation=study.formulation,
            events=member.event_set.events, inactive=study.inactive,
        )  # fmt: skip
        chosen.append(policy)
        return q

    with errors_as_problems():
        states = member.states(varying, parts[0][1], len(rows))
        jax.vmap(choose, axis_size=len(rows))(*states)
    fixed = replace(fixed, per_save=chosen[0].per_save, times=chosen[0].times)
    member = replace(member, study=replace(study, steps=fixed))
    return replace(plan, named=replace(plan.named, steps=fixed), member=member)
