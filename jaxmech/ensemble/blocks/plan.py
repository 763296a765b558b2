"""A study after all checks that need no tracing: its sizes, system, draws and functions."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis import State, unused_parameters
from jaxmech.config import Subject, closed_loop, load, plain, python_files, require_no_run_code
from jaxmech.config.errors import Problem, refuse, refuse_all
from jaxmech.ensemble.draws.distributions import Normal
from jaxmech.ensemble.draws.inputs import RecordedInput, read_inputs
from jaxmech.ensemble.draws.sampler import Sampler, stored_name
from jaxmech.ensemble.members.observed import Observed, loaded
from jaxmech.ensemble.members.quantities import VELOCITY, quantities_of, study_events
from jaxmech.ensemble.members.trajectory import first_of, inputs_of, params_of
from jaxmech.ensemble.store.results import STATES
from jaxmech.ensemble.study import Study
from jaxmech.integrate import Gaps
from jaxmech.laws import observed_at


@dataclass(frozen=True, eq=False)
class Planned:
    """A study that can be computed."""

    named: Study  # as it is written
    study: Study  # with functions in place of their names
    subject: Subject  # its system
    sampler: Sampler  # its draws
    files: list[Path]  # Python files that hold those functions, and those of inputs


def planned(study: Study, folder: Path = Path()) -> Planned:
    """The study with its system and draws: all checks without tracing."""
    require_no_run_code(python_files(plain(study), folder), folder)
    if study.precision == "float64" and not jax.config.read("jax_enable_x64"):
        advice = 'call jax.config.update("jax_enable_x64", True) first, or set it to float32'
        raise refuse("precision", f"must be float32, the precision of this process; {advice}")
    subject = load(study.model, study.model_options, folder, study.parameters)
    model = subject.model
    params = model.params if model else None
    system, params, controllers = closed_loop(subject.system, params, study.controllers, folder)
    model = replace(model, system=system, params=params) if model else None
    subject = replace(subject, system=system, model=model)
    quantities_of(study, subject.system)  # which have names of their own
    with_functions, files = loaded(study, folder)
    files = list(dict.fromkeys([*files, *controllers]))
    if study.inputs:
        read = read_inputs(study.inputs, folder, study.times.start, study.times.end)
        rules = {x: study.parameters.get(x, Normal(mean=0.0, sd=1.0)) for x in read.deviations}
        parameters = {**study.parameters, **rules}
        study, with_functions = (replace(x, parameters=parameters) for x in (study, with_functions))
        subject = replace(subject, inputs=read)
        recorded = (x for x in study.inputs.values() if isinstance(x, RecordedInput))
        files += list(dict.fromkeys((folder / item.file).resolve() for item in recorded))
    sampler = Sampler(study, subject)
    reserved = {"t", "coordinate", STATES, *map(stored_name, sampler.rows(0, 1))}
    reserved |= {VELOCITY} if subject.system.velocities else set()
    taken = reserved & study.observe.keys() if study.store != "statistics" else ()
    message = "must have another name: a run folder has an array `{}` already"
    refuse_all(Problem(("observe", name), message.format(name)) for name in taken)
    return Planned(study, with_functions, subject, sampler, files)


def require_used(subject: Subject, sampler: Sampler, study: Study) -> None:
    """Raise a StudyError for inputs, and parameters of a bare `System`, that nothing uses."""
    if subject.model and not subject.inputs.signals:
        return
    drawn = first_of(*inputs_of(sampler.rows(0, 1), np.dtype(study.precision)))
    system = subject.system
    q, v = jnp.zeros(system.n), jnp.zeros(system.n_velocities)
    state = State(q, v, q[0], params_of(subject, drawn))
    event_set = study_events(study, system)

    def also(q: Array, v: Array, t: Array, params: Any) -> Any:
        """What reads parameters beside the system."""
        start = subject.model.state(drawn["start"], params) if subject.model else ()
        if not (study.events or study.observe or study.statistics):
            return start
        if system.sampling is not None:  # as in a run
            memory = system.memory_at(t[None], params)
            params = system.with_outputs(params, memory)
        gaps = Gaps.of(system, q, t, params)
        reactions = observed_at(gaps.system(system), study.formulation, q, v, t, params)
        reactions, events = gaps.joined(reactions), event_set.events
        transitions = [event.transition for event in events if event.transition]
        return (
            start,
            [Observed(event.fn).at(q, v, t, params, reactions) for event in events],
            [x.at(q, v, t, params, reactions) for x in study.observe.values()],
            [x.fn(q, v, t, params) for x in transitions if x.fn],
            [x.restitution(params) for x in transitions if callable(x.restitution)],
        )

    unused = set(unused_parameters(system, state, energy=True, also=also))
    idle = [name for name in subject.inputs.signals if f"{name}.values" in unused]
    message = "is not read by the system; call it in one of its functions, as `params[name](t)`"
    refuse_all(Problem(("inputs", name), message) for name in idle)
    params = {} if subject.model else drawn["parameters"]
    used_names = ", ".join(sorted(params.keys() - unused)) or "none"
    message = f"is not used by the system; it uses {used_names}"
    idle = [name for name in params if name in unused]
    refuse_all(Problem(("parameters", name), message) for name in idle)
