"""The inputs of a study read from their files, in the places of parameters.

Where an input has several files, the number of the file is a variable of the study, which is drawn
like others. A study with inputs imports this file, and with it what stacks the signals of fits.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.config import Process, Rows, Subject, SubjectInputs, TableError
from jaxmech.config.errors import Problem, StudyError, refuse, refuse_all
from jaxmech.ensemble.draws.distributions import Discrete, Fixed
from jaxmech.ensemble.draws.inputs import (
    Inputs,
    RecordedInput,
    TimeRange,
    WhiteNoise,
    numbers_of,
)
from jaxmech.ensemble.study import Study
from jaxmech.identify import signal_rows
from jaxmech.system import Signal
from jaxmech.utils.digests import arrays_digest

_BEYOND = 1e-6  # share of the distance of samples that may lack at the ends


def with_inputs(
    study: Study, subject: Subject, folder: Path, times: TimeRange
) -> tuple[Study, Subject]:
    """The study with all files and numbers of its inputs, and its system with their samples."""
    inputs: dict[str, Any] = {}
    for name, item in study.inputs.items():
        inputs[name] = item
        try:  # the names of the files in place of a pattern
            if isinstance(item, RecordedInput) and item.is_numbered:
                inputs[name] = replace(item, file=item.files(folder))
        except StudyError as error:
            raise error.within("inputs", name) from None
    rules = _number_rules(study, inputs, subject)
    read = read_inputs(inputs, folder, times)
    rules |= {name: study.parameters.get(name, x.rule) for name, x in read.processes.items()}
    study = replace(study, inputs=inputs, parameters={**study.parameters, **rules})
    return study, replace(subject, inputs=read)


def _number_rules(study: Study, inputs: Inputs, subject: Subject) -> dict[str, Any]:
    """The distribution of each number: as given, or each file of the inputs equally likely."""
    counts, rules = dict[str, int](), dict[str, Any]()
    for name, number in numbers_of(inputs).items():
        count = len(inputs[name].file)
        if subject.model and number in {*subject.model.params} - {*inputs}:
            message = f"must have another name: {number} is a parameter of the model"
            raise refuse(("inputs", name, "number"), message)
        if count != counts.setdefault(number, count):
            message = f"must name {counts[number]} files, as other inputs of the number {number}"
            raise refuse(("inputs", name, "file"), f"{message}, but names {count}")
        equal = Discrete(tuple(map(float, range(count))))
        rules[number] = study.parameters.get(number, equal)
        _require_numbers(("parameters", number), rules[number], count)
    return rules


def _require_numbers(key: tuple[str, ...], rule: Any, files: int) -> None:
    """Raise a StudyError unless all values of a distribution are numbers of files."""
    values = rule.value if isinstance(rule, Fixed) else getattr(rule, "values", np.nan)
    wrong = np.setdiff1d(values, np.arange(files))
    if wrong.size:
        shown = wrong[0] if isinstance(rule, Fixed | Discrete) else type(rule).__name__
        raise refuse(key, f"must be the number of a file, from 0 to {files - 1}, but is {shown}")


def read_inputs(inputs: Inputs, folder: Path, times: TimeRange) -> SubjectInputs:
    """The samples of inputs, whose files are seen from a folder and must cover the times."""
    signals, digests, files, notes = {}, {}, {}, {}
    processes: dict[str, Process] = {}
    problems: list[Problem] = []
    for name, item in inputs.items():
        if isinstance(item, WhiteNoise):
            processes[name] = item.process(times)
            continue
        files[name] = item.files(folder)
        try:
            tables = [_rows(item, folder / file) for file in files[name]]
            samples = [_signal(item, rows) for rows in tables]
        except StudyError as error:
            raise error.within("inputs", name) from None
        except TableError as error:
            raise refuse(("inputs", name, "file"), f"must hold a signal: {error}") from error
        for file, signal in zip(files[name], samples, strict=True):
            key = f"input {name} from {file}" if item.is_numbered else f"input {name}"
            digests[key] = arrays_digest(signal.ts, signal.values, signal.delay)
            if message := _uncovered(file, signal, times):
                problems.append(Problem(("inputs", name, "file"), message))
        signals[name] = signal_rows(samples) if item.is_numbered else samples[0]
        words = (note for rows in tables for note in rows.notes(item.time, item.column))
        notes[name] = tuple(dict.fromkeys(words))
    refuse_all(problems)
    signals |= {name: process.signal for name, process in processes.items()}
    return SubjectInputs(signals, numbers_of(inputs), files, digests, processes, notes)


def _rows(item: RecordedInput, path: Path) -> Rows:
    """The rows of a file, which have both columns of an input."""
    if not path.is_file():
        raise refuse("file", f"must name a file, but there is none at {path}")
    rows = Rows.read(path, item.units)
    rows.notes(rows.required("column", item.column), rows.required("time", item.time))
    return rows


def _signal(item: RecordedInput, rows: Rows) -> Signal:
    """The samples of an input, in SI units."""
    values = rows.numbers(item.column)[:, 0]
    for row in np.flatnonzero(np.isnan(values)).tolist()[:1]:
        message = f"`{item.column}` is missing; it must be known at every sample, interpolate it, "
        raise TableError(f"{rows.location(row)}: {message}or leave the row out")
    return Signal(rows.times(item.time, None), values, item.interpolation, item.delay)


def _uncovered(file: str, signal: Signal, covered: TimeRange) -> str:
    """What is wrong with a signal that does not cover the times."""
    times = np.asarray(signal.ts) + float(signal.delay)
    spacing = float(np.diff(times).max())
    end = times[-1] + spacing * (signal.interpolation == "hold")
    if times[0] <= covered.first + _BEYOND * spacing and end >= covered.last - _BEYOND * spacing:
        return ""
    known = f"those of {file} are known from {times[0]:g} s to {end:g} s"
    return f"must hold samples {covered}, but {known}"
