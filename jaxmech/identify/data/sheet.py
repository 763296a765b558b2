"""The rows of one recording in a file: numbers in cells, in SI units, and their locations."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxmech.config import TableError, numbers, seconds
from jaxmech.config.errors import refuse
from jaxmech.utils.units import si_unit, unit_in_name

if TYPE_CHECKING:
    from polars import DataFrame, Series


class Sheet(NamedTuple):
    """One recording in a file."""

    path: Path
    name: str
    frame: "DataFrame"
    ts: "Series"  # the times, under their name in messages
    lines: Sequence[int] | None = None  # line of each row; None where a file has no lines
    units: Mapping[str, str] = {}  # stated in addition to those in the names of the columns

    @property
    def columns(self) -> list[str]:
        """The titles of the columns."""
        return self.frame.columns

    @property
    def clock(self) -> str:
        """The name of the times."""
        return self.ts.name

    def location(self, row: int) -> str:
        """The location of a row in the file, for messages."""
        if self.lines is None:
            return f"{self.path}, {self.name}, sample {row}"
        return f"{self.path}:{self.lines[row]}"

    def column(self, column: str | int) -> str | None:
        """The title of a column given by title, name or index, or None if it does not exist."""
        if isinstance(column, int) and 0 <= column < len(self.columns):
            return self.columns[column]
        return title_of(str(column), self.columns, self.path)

    def notes(self, columns: Sequence[str | int]) -> list[str]:
        """What the units of existing columns and of the times mean for their numbers, in words."""
        titles = dict.fromkeys([self.clock, *filter(None, map(self.column, columns))])
        notes = [note for _, note in map(self._conversion, titles) if note]
        if self.ts.dtype.is_temporal():
            notes.insert(0, f"{self.clock} was converted to s since the first sample")
        return notes

    def require_units_of_columns(self) -> None:
        """Raise a StudyError if a unit is stated for no column, or against its title."""
        for name in self.units:
            if title_of(name, [*self.columns, self.clock], self.path) is None:
                known = ", ".join(dict.fromkeys([*self.columns, self.clock]))
                raise refuse(
                    ("units", name), f"must belong to a column of {self.path}; Known: {known}"
                )
        for title in {*self.columns, self.clock}:
            self._conversion(title)

    def numbers(self, columns: Sequence[str | int]) -> np.ndarray:
        """The numbers of existing columns, shape (T, len(columns)), NaN for empty cells."""
        names = [name for name in map(self.column, columns) if name is not None]
        return np.stack([self._in_si(name) for name in names], axis=1)

    def _in_si(self, title: str) -> np.ndarray:
        return numbers(self.frame[title], self.location) * self._conversion(title)[0]

    def unit(self, title: str) -> str | None:
        """The unit of a column: as stated, or in its title."""
        stated = {title_of(key, [title], self.path): unit for key, unit in self.units.items()}
        return stated.get(title, unit_in_name(title)[1])

    def _conversion(self, title: str) -> tuple[float, str]:
        """The factor that makes the numbers of a column those of SI units, and a note of it."""
        name, written = unit_in_name(title)
        unit = self.unit(title)
        if not unit:
            return 1.0, ""
        if written and written != unit and si_unit(written) != si_unit(unit):
            raise refuse(
                ("units", name),
                f'must agree with the column {title!r}, but is {unit!r}; with "" the numbers '
                "stay as they are",
            )
        size, label = si_unit(unit) or (1.0, "")
        if si_unit(unit) is None:
            return 1.0, f"{name} [{unit}] stays as it is: {unit} is not a known unit"
        return size, "" if size == 1 else f"{name} [{unit}] was converted to {label}"

    def times(self) -> np.ndarray:
        """The sample times, which must increase."""
        count = len(self.frame)
        if count < 2:
            location = self.location(0) if count else str(self.path)
            raise TableError(f"{location}: {self.name} has {count} samples, but needs at least two")
        ts = seconds(self.ts) if self.ts.dtype.is_temporal() else numbers(self.ts, self.location)
        for row in np.flatnonzero(~np.isfinite(ts)).tolist():
            raise TableError(f"{self.location(row)}: the time `{self.clock}` is missing")
        for row in np.flatnonzero(np.diff(ts) <= 0).tolist():
            raise TableError(
                f"{self.location(row + 1)}: the time `{self.clock}` must increase, but "
                f"{ts[row + 1]:g} follows {ts[row]:g}"
            )
        return ts * self._conversion(self.clock)[0]


def title_of(name: str, titles: Iterable[str], path: Path) -> str | None:
    """The title of a column with a name, such as `theta [deg]` of `theta`; None without any.

    Raises:
        TableError: if there are several.
    """
    titles = list(dict.fromkeys(titles))
    if name in titles:
        return name
    same = [title for title in titles if unit_in_name(title)[0] == name]
    if len(same) > 1:
        raise TableError(f"{path}: {name!r} may be {' or '.join(same)}; write one of them in full")
    return same[0] if same else None
