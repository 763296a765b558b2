"""`RecordedInput`: what drives all trajectories of a study, such as a road, from a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

import numpy as np

from jaxmech.config.errors import Key, not_one_of, refuse
from jaxmech.ensemble.sampling.table import read_table
from jaxmech.signal import Interpolation, Signal
from jaxmech.utils.field_docs import doc, setting

_BEYOND = 1e-6  # share of the distance of samples that may lack at the ends


@dataclass(frozen=True, kw_only=True)
class RecordedInput:
    r"""A recorded input of a study: a column of a file, in the place of a parameter.

    The functions of the system call it, `params["road"](t)`. It is a `Signal`, the same for all
    trajectories, and must cover the times of the study.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "road.csv").write_text("t,height\n0.0,0.0\n1.0,0.02\n2.0,0.0\n")
        >>> print(RecordedInput(file="road.csv", column="height").signal(folder, "road")(0.5))
        0.01
    """

    file: str = field(metadata=doc("a .csv or .parquet file with the names of its columns"))
    column: str = field(metadata=doc("column of the values"))
    time: str = setting("t", "column of the times [s]")
    interpolation: Interpolation = setting(
        "linear", 'between two samples: "hold" (the first of them), "linear" or "cubic"'
    )
    delay: float = setting(0.0, "time by which it is late [s]")

    def __post_init__(self) -> None:
        if not isfinite(self.delay):
            raise refuse("delay", f"must be a finite number, but is {self.delay}")

    def signal(self, folder: Path, name: str) -> Signal:
        """The input, from a file whose path refers to a folder; errors are of `inputs.name`."""
        path, key = folder / self.file, ("inputs", name)
        columns = read_table(path, (*key, "file"))
        for part in ("column", "time"):
            if (column := getattr(self, part)) not in columns:
                message = not_one_of(column, columns, f"a column of {path}")
                raise refuse((*key, part), f"names {column!r}, which {message}")
        try:
            return Signal(columns[self.time], columns[self.column], self.interpolation, self.delay)
        except ValueError as error:
            raise refuse((*key, "file"), f"must hold a signal: {path}: {error}") from error


def signals(
    inputs: Mapping[str, RecordedInput], folder: Path, first: float, last: float
) -> dict[str, Signal]:
    """The inputs of a study by name, which cover the times from first to last [s]."""
    read = {name: item.signal(folder, name) for name, item in inputs.items()}
    for name, signal in read.items():
        _require_covered(("inputs", name, "file"), signal, first, last)
    return read


def _require_covered(key: Key, signal: Signal, first: float, last: float) -> None:
    times = np.asarray(signal.ts) + float(signal.delay)
    spacing = float(np.diff(times).max())
    end = times[-1] + spacing * (signal.interpolation == "hold")
    lacking = _BEYOND * spacing
    if times[0] > first + lacking or end < last - lacking:
        raise refuse(
            key,
            f"must hold samples from {first:g} s to {last:g} s, the times of the study, but they "
            f"are known from {times[0]:g} s to {end:g} s",
        )
