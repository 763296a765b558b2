"""The samples of recorded inputs, from their files.

A study with inputs imports it, and with it what reads the recordings of fits.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxmech.config import Process, Subject, SubjectInputs, TableError, read_rows
from jaxmech.config.errors import Problem, StudyError, refuse, refuse_all
from jaxmech.ensemble.recorded.numbers import number_rules, proposal_problems
from jaxmech.ensemble.recorded.processes import RandomPhases, WhiteNoise
from jaxmech.ensemble.recorded.settings import Inputs, RecordedInput, TimeRange, numbers_of
from jaxmech.ensemble.study import Study
from jaxmech.identify import Sheet, column_sheets, required_title, signal_rows
from jaxmech.signal import Signal
from jaxmech.utils.digests import arrays_digest

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
        sheets = [_sheet(name, item, folder / file) for file in files[name]]
        rows = [_signal(name, item, sheet) for sheet in sheets]
        for file, signal in zip(files[name], rows, strict=True):
            key = f"input {name} from {file}" if item.is_numbered else f"input {name}"
            digests[key] = arrays_digest(signal.ts, signal.values, signal.delay)
            problems += _uncovered(name, file, signal, times)
        signals[name] = signal_rows(rows) if item.is_numbered else rows[0]
        if isinstance(item, RandomPhases):
            try:
                processes[name] = item.process(rows[0])
            except StudyError as error:
                raise error.within("inputs", name) from None
        words = (note for sheet in sheets for note in sheet.notes((item.column,)))
        notes[name] = tuple(dict.fromkeys(words))
    refuse_all(problems)
    signals |= {name: process.signal for name, process in processes.items()}
    return SubjectInputs(signals, numbers_of(inputs), files, digests, processes, notes)


def _sheet(name: str, item: RecordedInput, path: Path) -> Sheet:
    key = ("inputs", name, "file")
    if not path.is_file():
        raise refuse(key, f"must name a file, but there is none at {path}")
    try:
        sheets = column_sheets(path, read_rows(path), None, item.time, None)
        if not sheets:
            raise refuse("file", f"must hold a signal: {path} holds no samples")
        sheet = sheets[0]._replace(units=item.units)
        required_title("column", item.column, sheet.columns, path)
        sheet.require_units_of_columns()
    except StudyError as error:
        raise error.within("inputs", name) from None
    except TableError as error:
        raise refuse(key, f"must hold a signal: {error}") from error
    return sheet


def _signal(name: str, item: RecordedInput, sheet: Sheet) -> Signal:
    """The samples of a sheet, in SI units."""
    key = ("inputs", name, "file")
    try:
        values = sheet.numbers((item.column,))[:, 0]
        if missing := np.flatnonzero(np.isnan(values)).tolist():
            location = sheet.location(missing[0])
            message = f"`{item.column}` is missing; it must be known at every sample"
            raise TableError(f"{location}: {message}, interpolate it, or leave the row out")
        return Signal(sheet.times(), values, item.interpolation, item.delay)
    except TableError as error:
        raise refuse(key, f"must hold a signal: {error}") from error


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
