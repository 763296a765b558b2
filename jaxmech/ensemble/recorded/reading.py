"""The samples of recorded inputs, from their files.

A study with inputs imports it, and with it what reads the recordings of fits.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxmech.config.errors import Problem, StudyError, not_one_of, refuse, refuse_all
from jaxmech.config.inputs import SubjectInputs
from jaxmech.config.load import Subject
from jaxmech.ensemble.recorded.numbers import number_rules, proposal_problems
from jaxmech.ensemble.recorded.settings import Inputs, RecordedInput, TimeRange, numbers_of
from jaxmech.ensemble.sampling.table import read_table
from jaxmech.ensemble.study import AbstractStudy
from jaxmech.identify.data.inputs import signal_rows
from jaxmech.signal import Signal
from jaxmech.utils.digests import arrays_digest

_BEYOND = 1e-6  # share of the distance of samples that may lack at the ends


def with_inputs(
    study: AbstractStudy, subject: Subject, folder: Path, times: TimeRange
) -> tuple[AbstractStudy, Subject]:
    """The study with all files and numbers of its inputs, and its system with their samples."""
    inputs = _with_files(study.inputs, folder)
    taken = subject.model.params if subject.model else ()
    rules = number_rules(inputs, study.parameters, taken)
    refuse_all(proposal_problems(study.sampling.proposal, inputs))
    study = replace(study, inputs=inputs, parameters={**study.parameters, **rules})
    return study, replace(subject, inputs=read_inputs(inputs, folder, times))


def _with_files(inputs: Inputs, folder: Path) -> dict[str, RecordedInput]:
    """The inputs with the names of their files in place of patterns."""
    resolved = {}
    for name, item in inputs.items():
        if not item.is_numbered:
            resolved[name] = item
            continue
        try:
            resolved[name] = replace(item, file=item.files(folder))
        except StudyError as error:
            raise error.within("inputs", name) from None
    return resolved


def read_inputs(inputs: Inputs, folder: Path, times: TimeRange) -> SubjectInputs:
    """The samples of inputs, whose files are seen from a folder and must cover the times."""
    signals, digests, problems = {}, {}, []
    for name, item in inputs.items():
        rows = {file: _signal(name, item, folder / file) for file in item.files(folder)}
        for file, signal in rows.items():
            key = f"input {name} from {file}" if item.is_numbered else f"input {name}"
            digests[key] = arrays_digest(signal.ts, signal.values, signal.delay)
        problems += _uncovered(name, rows, times)
        first = next(iter(rows.values()))
        signals[name] = signal_rows([*rows.values()]) if item.is_numbered else first
    refuse_all(problems)
    files = {name: item.files(folder) for name, item in inputs.items()}
    return SubjectInputs(signals, numbers_of(inputs), files, digests)


def _signal(name: str, item: RecordedInput, path: Path) -> Signal:
    key = ("inputs", name)
    columns = read_table(path, (*key, "file"))
    for part in ("column", "time"):
        if (column := getattr(item, part)) not in columns:
            message = not_one_of(column, columns, f"a column of {path}")
            raise refuse((*key, part), f"names {column!r}, which {message}")
    try:
        return Signal(columns[item.time], columns[item.column], item.interpolation, item.delay)
    except ValueError as error:
        raise refuse((*key, "file"), f"must hold a signal: {path}: {error}") from error


def _uncovered(name: str, rows: dict[str, Signal], covered: TimeRange) -> Iterator[Problem]:
    for file, signal in rows.items():
        times = np.asarray(signal.ts) + float(signal.delay)
        spacing = float(np.diff(times).max())
        end = times[-1] + spacing * (signal.interpolation == "hold")
        lacking = _BEYOND * spacing
        if times[0] > covered.first + lacking or end < covered.last - lacking:
            yield Problem(
                ("inputs", name, "file"),
                f"must hold samples {covered}, but those of {file} are known from {times[0]:g} s "
                f"to {end:g} s",
            )
