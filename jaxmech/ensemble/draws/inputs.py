"""Recorded and random inputs of a study, as tables of its configuration.

A `RecordedInput` drives the motions by the samples of files, such as a road. `WhiteNoise` is a
function of numbers that are drawn like other parameters: its values at given times are a smooth
function of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, isfinite, sqrt
from pathlib import Path
from typing import Annotated

import numpy as np

from jaxmech.config import OneOf, Rows, SubjectInputs, TableError
from jaxmech.config.errors import Problem, StudyError, refuse, refuse_all
from jaxmech.system import Interpolation, Signal
from jaxmech.utils.digests import arrays_digest
from jaxmech.utils.text import doc, setting
from jaxmech.utils.units import unit_problem


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


_ROUND_OFF = 1e-9  # of an interval
_BEYOND = 1e-6  # share of the distance of samples that may lack at the ends


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

    intensity: float = field(metadata=doc("integral of the correlation function [unit^2 s]"))
    interval: float = field(metadata=doc("time for which a number is held [s]"))

    def __post_init__(self) -> None:
        for name in ("intensity", "interval"):
            value = getattr(self, name)
            if not 0 < value < np.inf:
                raise refuse(name, f"must be above 0, but is {value}")

    @property
    def deviation(self) -> float:
        """The standard deviation of the number of an interval."""
        return sqrt(self.intensity / self.interval)

    def signal(self, first: float, last: float) -> Signal:
        """No noise between two times [s], in the intervals of the noise."""
        intervals = (last - first) / self.interval
        count = max(ceil(intervals - _ROUND_OFF), 2)
        return Signal(first + self.interval * np.arange(count), np.zeros(count), "hold")


StudyInput = Annotated[
    RecordedInput | WhiteNoise,
    OneOf({"recorded": RecordedInput, "white-noise": WhiteNoise}, tag="kind", default="recorded"),
]


def input_problems(
    inputs: Mapping[str, StudyInput], parameters: Mapping[str, object]
) -> Iterator[Problem]:
    """The recorded inputs that take the places of parameters that are drawn."""
    drawn = {key.partition("[")[0] for key in parameters}
    for name, item in inputs.items():
        if isinstance(item, RecordedInput) and name in drawn:
            yield Problem(("inputs", name), "must have another name: `parameters` gives it, too")


def read_inputs(
    inputs: Mapping[str, StudyInput], folder: Path, first: float, last: float
) -> SubjectInputs:
    """The samples of inputs, whose files are seen from a folder and must cover the times [s]."""
    signals: dict[str, Signal] = {}
    deviations, digests, notes = {}, {}, {}
    problems: list[Problem] = []
    for name, item in inputs.items():
        if isinstance(item, WhiteNoise):
            signals[name], deviations[name] = item.signal(first, last), item.deviation
            continue
        try:
            path = folder / item.file
            if not path.is_file():
                raise refuse("file", f"must name a file, but there is none at {path}")
            rows = Rows.read(path, item.units)
            column, time = rows.required("column", item.column), rows.required("time", item.time)
            converted = rows.notes(time, column)
            values = rows.numbers(item.column)[:, 0]
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
        digests[f"input {name}"] = arrays_digest(signal.ts, signal.values, signal.delay)
        times = np.asarray(signal.ts) + float(signal.delay)
        spacing = float(np.diff(times).max())
        end = times[-1] + spacing * (signal.interpolation == "hold")
        if times[0] > first + _BEYOND * spacing or end < last - _BEYOND * spacing:
            message = f"must hold samples from {first:g} s to {last:g} s, the times of the study, "
            message += f"but those of {item.file} are known from {times[0]:g} s to {end:g} s"
            problems.append(Problem(("inputs", name, "file"), message))
        signals[name], notes[name] = signal, tuple(converted)
    refuse_all(problems)
    return SubjectInputs(signals, digests, deviations, notes)
