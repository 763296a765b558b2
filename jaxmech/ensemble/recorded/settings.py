"""`RecordedInput`: what drives the trajectories of a study, such as a road, from files."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from glob import glob
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from jaxmech.config.errors import Problem, refuse, refuse_all
from jaxmech.signal import Interpolation
from jaxmech.utils.text import doc, setting
from jaxmech.utils.units import unit_problem


@dataclass(frozen=True, kw_only=True)
class RecordedInput:
    r"""A recorded input of a study: a column of a file, or of several, in place of a parameter.

    The functions of the system call it, `params["road"](t)`. It is a `Signal` that must cover the
    times of the study. Numbers of columns with a unit, such as `height [mm]` or `t (ms)`, are
    converted to SI units, which the summary says; a column may be named without its unit.

    A single file drives all trajectories. Of several ones, which may differ in length and sampling,
    each trajectory has one, whose number from 0 is a parameter of the study and drawn like others;
    by default each file is equally likely.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "road_b.csv").write_text("t,height\n0.0,0.0\n1.0,0.02\n")
        >>> _ = (folder / "road_a.csv").write_text("t,height\n0.0,0.0\n0.5,0.01\n1.0,0.0\n")
        >>> RecordedInput(file="road_*.csv", column="height").files(folder)
        ('road_a.csv', 'road_b.csv')
    """

    is_drawn: ClassVar[bool] = False  # whether a trajectory has a variant of its own

    file: str | tuple[str, ...] = field(
        metadata=doc(
            "a .csv or .parquet file with the names of its columns; several ones are a list, or a "
            "pattern such as roads/*.csv, in the order of their names"
        )
    )
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
    number: str | None = setting(
        None,
        "parameter that holds the number of the file, from 0; the name of the input by default, "
        "and the same for inputs from the same files",
    )

    def __post_init__(self) -> None:
        if not isinstance(self.file, str):
            object.__setattr__(self, "file", tuple(self.file))
        if not self.file:
            raise refuse("file", "must name a file, but names none")
        if not isfinite(self.delay):
            raise refuse("delay", f"must be a finite number, but is {self.delay}")
        refuse_all(
            Problem(("units", name), message)
            for name, unit in self.units.items()
            if (message := unit_problem(unit))
        )
        if self.number is not None and not self.is_numbered:
            raise refuse("number", f"must be left out: {self.file} is a single file for all")

    @property
    def is_numbered(self) -> bool:
        """Whether each trajectory has a file of its own, by its number."""
        return not isinstance(self.file, str) or any(letter in self.file for letter in "*?[")

    def renamed(self, rename: Callable[[str], str]) -> "RecordedInput":
        """The input from files with other names; it has no pattern."""
        file = self.file
        names = rename(file) if isinstance(file, str) else tuple(map(rename, file))
        return replace(self, file=names)

    def files(self, folder: Path) -> tuple[str, ...]:
        """The names of the files, seen from a folder, by their numbers."""
        if not isinstance(self.file, str):
            return self.file
        if not self.is_numbered:
            return (self.file,)
        # Not by `Path.glob`, which refuses the pattern of an absolute path.
        files = sorted(glob(self.file, root_dir=folder, recursive=True))  # noqa: PTH207
        if not files:
            raise refuse("file", f"must match a file, but {folder / self.file} matches none")
        return tuple(files)


class TimeRange(NamedTuple):
    """The times [s] that inputs must cover, and the word for them in messages."""

    first: float
    last: float
    name: str

    def __str__(self) -> str:
        return f"from {self.first:g} s to {self.last:g} s, {self.name}"


Inputs = Mapping[str, Any]  # those of `processes`, too


def numbers_of(inputs: Inputs) -> dict[str, str]:
    """The parameters that hold the number of the file, by the names of the inputs with several."""
    return {name: item.number or name for name, item in inputs.items() if item.is_numbered}


def input_problems(inputs: Inputs, parameters: Mapping[str, object]) -> Iterator[Problem]:
    """The inputs that take the places of parameters that are drawn, and are not their numbers."""
    drawn = {key.partition("[")[0] for key in parameters} - {*numbers_of(inputs).values()}
    for name in sorted({name for name, item in inputs.items() if not item.is_drawn} & drawn):
        yield Problem(("inputs", name), "must have another name: `parameters` gives it, too")
