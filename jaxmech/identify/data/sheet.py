"""`Sheet`: the rows of one recording in a file, numbers in SI units and their locations.

Files hold sheets in named columns, or in arrays of an .npz file.
"""

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxmech.config import TableError, TableRows, numbers, seconds
from jaxmech.config.errors import refuse
from jaxmech.utils.text import not_one_of
from jaxmech.utils.units import si_unit, unit_in_name, unit_problem, with_unit

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
        titles = list(dict.fromkeys([*self.columns, self.clock]))
        for name in self.units:
            title = title_of(name, titles, self.path)
            if title is None:
                message = f"must belong to a column of {self.path}; Known: {', '.join(titles)}"
                raise refuse(("units", name), message)
            self._conversion(title)

    def numbers(self, columns: Sequence[str | int]) -> np.ndarray:
        """The numbers of existing columns, shape (T, len(columns)), NaN for empty cells."""
        names = [name for name in map(self.column, columns) if name is not None]
        values = [numbers(self.frame[x], self.location) * self._conversion(x)[0] for x in names]
        return np.stack(values, axis=1)

    def unit(self, title: str) -> str | None:
        """The unit of a column: as stated, or in its title."""
        stated = {title_of(key, [title], self.path): unit for key, unit in self.units.items()}
        return stated.get(title, unit_in_name(title)[1])

    def labels(self, columns: Sequence[str | int]) -> tuple[str, ...]:
        """The names of existing columns with the unit that their numbers have here."""
        titles = filter(None, map(self.column, columns))
        return tuple(
            with_unit(unit_in_name(title)[0], (si_unit(self.unit(title) or "") or (1.0, ""))[1])
            for title in titles
        )

    def _conversion(self, title: str) -> tuple[float, str]:
        """The factor that makes the numbers of a column those of SI units, and a note of it."""
        name, written = unit_in_name(title)
        unit = self.unit(title)
        if not unit:
            return 1.0, ""
        problem = unit_problem(unit)
        fault = f"{problem}, in {title!r}" if problem else ""
        if written and written != unit and si_unit(written) != si_unit(unit):
            fault = f"must agree with the column {title!r}, but is {unit!r}"
        if fault:
            raise refuse(("units", name), f'{fault}; with "" the numbers stay as they are')
        size, label = si_unit(unit) or (1.0, "")
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


def column_sheets(
    path: Path, rows: TableRows, recording: str | None, time: str | None, dt: float | None
) -> list[Sheet]:
    """The recordings in rows: a single one, or one for each value of the column `recording`."""
    import polars as pl  # imports slowly

    names, location = rows.frame.columns, f"{path}:{rows.lines[0]}" if rows.lines else path
    time, recording = (
        name and required_title(key, name, names, path)
        for key, name in (("time", time), ("recording", recording))
    )
    if time is None and dt is None:
        raise TableError(
            f"{location}: when were the samples taken? Name the column by `time`, or the time "
            f"between them by `dt`. Columns: {', '.join(names)}"
        )
    group = pl.lit(path.stem) if recording is None else pl.col(recording)
    name, row = "recording of jaxmech", "row of jaxmech"  # not those of other columns
    frame = rows.frame.with_columns(
        group.cast(pl.String).str.strip_chars().fill_null("").alias(name)
    )
    sheets = []
    for part in frame.with_row_index(row).partition_by(name, maintain_order=True):
        chosen = part.drop(name, row)
        ts = pl.Series("dt", (dt or 0.0) * np.arange(len(part))) if time is None else part[time]
        lines = [rows.lines[1 + k] for k in part[row]] if rows.lines else None
        sheets.append(Sheet(path, part[name][0], chosen, ts, lines))
    return sheets


def required_title(key: str, name: str, titles: Sequence[str], path: Path) -> str:
    """The title of a column with a name, or a StudyError of the key that holds the name."""
    if (title := title_of(name, titles, path)) is None:
        raise refuse(
            key, f"names {name!r}, which {not_one_of(name, titles, f'a column of {path}')}"
        )
    return title


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise TableError(f"{path}: is not an .npz file with arrays of numbers") from error


def array_sheets(
    path: Path, name: str, arrays: Mapping[str, np.ndarray], columns: Sequence[str],
    time: str | None, dt: float | None,
) -> list[Sheet]:  # fmt: skip
    """The segments of an array of an .npz file, without the rows at their ends that are all NaN."""
    import polars as pl  # imports slowly

    def require(is_met: Any, message: str) -> None:
        if not is_met:
            raise TableError(f"{path}: {message}")

    values = arrays[name]
    require(
        values.dtype.kind in "iuf" and values.ndim in (2, 3),
        f"the array {name!r} must hold numbers of shape (segments, samples, columns) or (samples, "
        f"columns), but has {values.dtype} of shape {values.shape}",
    )
    values = values if values.ndim == 3 else values[None]
    names = columns or [str(k) for k in range(values.shape[2])]
    require(
        len(names) == values.shape[2],
        f"the array {name!r} has {values.shape[2]} columns, but `columns` names {len(names)}: "
        f"{', '.join(names)}",
    )
    if time is not None:
        ts = arrays[time]
        shapes = values.shape[1:2], values.shape[:2]
        require(
            ts.shape in shapes,
            f"the times {time!r} must have shape {shapes[0]} or {shapes[1]} as the array {name!r}, "
            f"but have {ts.shape}",
        )
    else:
        require(
            dt or "dt" in arrays,
            "when were the samples taken? Name an array by `time`, or the time between them by "
            f"`dt`. Arrays: {', '.join(arrays)}",
        )
        step = np.ravel(dt or arrays["dt"])
        require(step.size == 1 and (step > 0).all(), "the array `dt` must be one positive number")
        ts = float(step[0]) * np.arange(values.shape[1])
    sheets = []
    for number, rows in enumerate(values):
        count = 1 + max(np.flatnonzero(~np.isnan(rows).all(axis=1)), default=-1)
        require(count, f"segment {number} of the array {name!r} is NaN throughout")
        cells = {column: rows[:count, k].astype(float) for k, column in enumerate(names)}
        times = np.broadcast_to(ts, values.shape[:2])[number, :count].astype(float)
        title = f"{name} {number}" if len(values) > 1 else name
        sheets.append(Sheet(path, title, pl.DataFrame(cells), pl.Series(time or "dt", times)))
    return sheets
