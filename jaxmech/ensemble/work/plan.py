"""A study that was checked without tracing: its sizes, system, draws and functions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxmech.analysis.states import State
from jaxmech.analysis.unused import unused_parameters
from jaxmech.config.errors import Problem, StudyError, refuse
from jaxmech.config.load import Subject, load
from jaxmech.ensemble.device_size import sized
from jaxmech.ensemble.draws import Sampler
from jaxmech.ensemble.estimate import StudyEstimate, require_possible
from jaxmech.ensemble.kernel import Block, BlockProgram, Inputs
from jaxmech.ensemble.layout import Layout
from jaxmech.ensemble.quantities import loaded, name_problems_of
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.trajectory import save_times


@dataclass(frozen=True, eq=False)
class Planned:
    """A study that can be computed.

    Attributes:
        study: with its sizes.
        subject: its system.
        sampler: its draws.
        forecast: what it needs.
        observe: its quantities with functions in place of names.
        statistics: likewise.
        files: Python files that hold those functions.
    """

    study: Study
    subject: Subject
    sampler: Sampler
    forecast: StudyEstimate
    observe: dict[str, Any]
    statistics: dict[str, Any]
    files: list[Path]


def planned(study: Study, out: Path, folder: Path = Path()) -> Planned:
    """The study with its sizes, its system, draws and estimate: all checks without tracing."""
    _require_precision(study)
    subject = load(study.model, study.model_options, folder)
    coordinates = subject.system.coordinates
    problems = name_problems_of(study.observe, study.statistics, study.store, coordinates)
    if problems:
        raise StudyError(problems)
    observe, statistics, files = loaded(study.observe, study.statistics, folder)
    sampler = Sampler(study, subject, study.sampling, folder)
    study = sized(study, subject.system.n, sampler.points.group)
    forecast = require_possible(study, subject.system.n, out)
    return Planned(study, subject, sampler, forecast, observe, statistics, files)


def layout_of(study: Study, kernel: BlockProgram, shapes: Block, state_bytes: int) -> Layout:
    """The arrays of the run folder."""
    last = min(kernel.block, study.size)
    ts = save_times(study)
    return Layout(
        size=study.size,
        coordinates=tuple(kernel.trajectory.system.coordinates),
        ts=ts[-1:] if study.store == "final" else ts,
        shapes=shapes.arrays,
        variables=kernel.sampler.rows(0, last),
        block=kernel.block,
        dimensions={
            name: () if quantity.keep != "all" else (f"time_every_{quantity.every}",)
            for name, quantity in study.observe.items()
            if quantity.keep != "all" or (quantity.every > 1 and study.store != "final")
        },
        state_bytes=state_bytes if study.statistics else 0,
        compression=study.compression,
        attributes={"model": study.model},
    )


def require_use(subject: Subject, inputs: Inputs) -> None:
    """Raise a StudyError for parameters that a bare `System` does not use."""
    first = {name: values[0] for name, values in inputs.varying["parameters"].items()}
    require_used(subject, first | inputs.same["parameters"])


def require_used(subject: Subject, params: dict[str, Any]) -> None:
    """Raise a StudyError for parameters that a bare `System` does not use."""
    if subject.model:
        return
    zero = jnp.zeros(subject.system.n)
    state = State(zero, zero, zero[0], params)
    unused = unused_parameters(subject.system, state, energy=True)
    known = ", ".join(sorted(params.keys() - set(unused))) or "none"
    problems = [
        Problem(("parameters", name), f"is not used by the system; it uses {known}")
        for name in unused
    ]
    if problems:
        raise StudyError(problems)


def _require_precision(study: Study) -> None:
    if study.precision == "float64" and not jax.config.read("jax_enable_x64"):
        advice = 'call jax.config.update("jax_enable_x64", True) first, or ask for float32'
        raise refuse("precision", f"must be float32, as this process computes; {advice}")
