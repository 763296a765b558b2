"""The inputs of a study read from their files, in the places of parameters.

Where an input has several files, the number of the file is a variable of the study, which is drawn
like others. A study with inputs imports this file, and with it what reads the recordings of fits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.config import Process, Rows, Subject, SubjectInputs, TableError, read_rows
from jaxmech.config.errors import Problem, StudyError, refuse, refuse_all
from jaxmech.ensemble.draws.distributions import Discrete, Distribution, Fixed, FromTable
from jaxmech.ensemble.draws.inputs import (
    Inputs,
    RandomPhases,
    RecordedInput,
    TimeRange,
    WhiteNoise,
    numbers_of,
)
from jaxmech.ensemble.study import Study
from jaxmech.identify import signal_rows
from jaxmech.system import Signal
from jaxmech.utils.digests import arrays_digest


def number_rules(
    inputs: Inputs, parameters: Mapping[str, Distribution], taken: Iterable[str]
) -> dict[str, Distribution]:
    """The distribution of each number: as given, or each file of the inputs equally likely.

    Args:
        inputs: with their files as tuples.
        parameters: the given distributions.
        taken: names of parameters of the model, which are no numbers of files.

    Raises:
        StudyError: if the values of a number differ from those of the files, or inputs do not
            agree.
    """
    counts = _counts(inputs, {*taken} - {*inputs})
    rules = {name: parameters.get(name, _uniform(count)) for name, count in counts.items()}
    refuse_all(
        Problem(("parameters", name), message)
        for name, rule in rules.items()
        if (message := _problem(rule, counts[name]))
    )
    return rules


def require_numbers(columns: Mapping[str, np.ndarray], inputs: SubjectInputs) -> None:
    """Raise a StudyError unless the columns of a table of draws hold numbers of files."""
    refuse_all(
        Problem(("parameters", number), message)
        for name, number in inputs.numbers.items()
        if (values := columns.get(f"parameters.{number}")) is not None
        and (message := _wrong(values, len(inputs.files[name])))
    )


def proposal_problems(rules: Mapping[str, Any], inputs: Inputs) -> Iterator[Problem]:
    """The proposals from which numbers of files would be drawn that do not exist."""
    for name, count in _counts(inputs, ()).items():
        for key in (name, f"parameters.{name}"):
            if key in rules and (message := _problem(rules[key], count)):
                yield Problem(("sampling", "proposal", key), message)


def _counts(inputs: Inputs, taken: Iterable[str]) -> dict[str, int]:
    """The number of files of each number, which is the same for all inputs that share it."""
    counts: dict[str, int] = {}
    problems = []
    earlier: dict[Any, str] = {}  # inputs without a number of their own, by their files
    for name, number in numbers_of(inputs).items():
        files = inputs[name].file
        twin = earlier.setdefault(files, name) if inputs[name].number is None else name
        if number in taken:
            message = f"must have another name: {number} is a parameter of the model"
            problems.append(Problem(("inputs", name, "number"), message))
        elif twin != name:
            message = (
                f'must be given, since {twin} is from the same files: "{twin}" draws one file for '
                f'both of them, "{name}" one for each'
            )
            problems.append(Problem(("inputs", name, "number"), message))
        elif len(files) != counts.setdefault(number, len(files)):
            message = f"must name {counts[number]} files, as other inputs of the number {number}"
            problems.append(Problem(("inputs", name, "file"), f"{message}, but names {len(files)}"))
    refuse_all(problems)
    return counts


def _uniform(count: int) -> Discrete:
    return Discrete(tuple(map(float, range(count))))


def _problem(rule: Distribution, files: int) -> str:
    if isinstance(rule, FromTable):
        return ""  # its values are known later
    if isinstance(rule, Fixed | Discrete):
        return _wrong(np.asarray(rule.value if isinstance(rule, Fixed) else rule.values), files)
    return (
        "must be the number of a file, which is fixed, discrete or from a table, but is "
        f"{type(rule).__name__}"
    )


def _wrong(values: np.ndarray, files: int) -> str:
    wrong = ~np.isin(values, np.arange(files))
    if not wrong.any():
        return ""
    return f"must be the number of a file, from 0 to {files - 1}, but is {values[wrong][0]:g}"


_BEYOND = 1e-6  # share of the distance of samples that may lack at the ends


def with_inputs(
    study: Study, subject: Subject, folder: Path, times: TimeRange
) -> tuple[Study, Subject]:
    """The study with all files and numbers of its inputs, and its system with their samples."""
    inputs = _with_files(study.inputs, folder)
    taken = subject.model.params if subject.model else ()
    rules = number_rules(inputs, study.parameters, taken)
    refuse_all(proposal_problems(study.sampling.proposal, inputs))
    read = read_inputs(inputs, folder, times)
    rules |= {name: study.parameters.get(name, x.rule) for name, x in read.processes.items()}
    study = replace(study, inputs=inputs, parameters={**study.parameters, **rules})
    return study, replace(subject, inputs=read)


def _with_files(inputs: Inputs, folder: Path) -> Inputs:
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
    signals, digests, files, notes = {}, {}, {}, {}
    processes: dict[str, Process] = {}
    problems: list[Problem] = []
    for name, item in inputs.items():
        if isinstance(item, WhiteNoise):
            processes[name] = item.process(times)
            continue
        files[name] = item.files(folder)
        tables = [_rows(name, item, folder / file) for file in files[name]]
        samples = [_signal(name, item, rows) for rows in tables]
        for file, signal in zip(files[name], samples, strict=True):
            key = f"input {name} from {file}" if item.is_numbered else f"input {name}"
            digests[key] = arrays_digest(signal.ts, signal.values, signal.delay)
            problems += _uncovered(name, file, signal, times)
        signals[name] = signal_rows(samples) if item.is_numbered else samples[0]
        if isinstance(item, RandomPhases):
            try:
                processes[name] = item.process(samples[0])
            except StudyError as error:
                raise error.within("inputs", name) from None
        words = (note for rows in tables for note in rows.notes(item.time, item.column))
        notes[name] = tuple(dict.fromkeys(words))
    refuse_all(problems)
    signals |= {name: process.signal for name, process in processes.items()}
    return SubjectInputs(signals, numbers_of(inputs), files, digests, processes, notes)


def _rows(name: str, item: RecordedInput, path: Path) -> Rows:
    """The rows of a file, with both columns of an input."""
    try:
        if not path.is_file():
            raise refuse("file", f"must name a file, but there is none at {path}")
        rows = read_rows(path, item.units)
        rows.notes(rows.required("column", item.column), rows.required("time", item.time))
    except StudyError as error:
        raise error.within("inputs", name) from None
    except TableError as error:
        raise refuse(("inputs", name, "file"), f"must hold a signal: {error}") from error
    return rows


def _signal(name: str, item: RecordedInput, rows: Rows) -> Signal:
    """The samples of an input, in SI units."""
    try:
        values = rows.numbers(item.column)[:, 0]
        for row in np.flatnonzero(np.isnan(values))[:1]:
            message = f"`{item.column}` is missing; it must be known at every sample"
            message += ", interpolate it, or leave the row out"
            raise TableError(f"{rows.location(row)}: {message}")
        return Signal(rows.times(item.time, None), values, item.interpolation, item.delay)
    except TableError as error:
        raise refuse(("inputs", name, "file"), f"must hold a signal: {error}") from error


def _uncovered(name: str, file: str, signal: Signal, covered: TimeRange) -> Iterator[Problem]:
    times = np.asarray(signal.ts) + float(signal.delay)
    spacing = float(np.diff(times).max())
    end = times[-1] + spacing * (signal.interpolation == "hold")
    lacking = _BEYOND * spacing
    if times[0] > covered.first + lacking or end < covered.last - lacking:
        yield Problem(
            ("inputs", name, "file"),
            f"must hold samples {covered}, but those of {file} are known from {times[0]:g} s to "
            f"{end:g} s",
        )
