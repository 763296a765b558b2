"""`Sheet`: the rows of one recording in a file, numbers in SI units and their locations.

Files hold sheets in named columns, or in arrays of an .npz file.
"""

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
        for name in self.units:
            if title_of(name, [*self.columns, self.clock], self.path) is None:
                known = ", ".join(dict.fromkeys([*self.columns, self.clock]))
                raise refuse(
                    ("units", name), f"must belong to a column of {self.path}; Known: {known}"
                )
            self._conversion(title_of(name, [*self.columns, self.clock], self.path) or "")

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
        if written and written != unit and si_unit(written) != si_unit(unit):
            raise refuse(
                ("units", name),
                f'must agree with the column {title!r}, but is {unit!r}; with "" the numbers '
                "stay as they are",
            )
        if problem := unit_problem(unit):
            raise refuse(
                ("units", name), f'{problem}, in {title!r}; with "" the numbers stay as they are'
            )
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


def npz_sheets(
    path: Path, requested: Sequence[str], columns: Sequence[str], time: str | None, dt: float | None
) -> tuple[tuple[str, ...], dict[str, list[Sheet]]]:
    """The names of all arrays of an .npz file, and the segments of the wanted ones that exist."""
    arrays = _arrays(path)
    if time is None and dt is None:
        if "dt" not in arrays:
            raise TableError(
                f"{path}: when were the samples taken? Name an array by `time`, or the time "
                f"between them by `dt`. Arrays: {', '.join(arrays)}"
            )
        if arrays["dt"].size != 1 or not np.all(arrays["dt"] > 0):
            raise TableError(f"{path}: the array `dt` must be one positive number")
        dt = float(arrays["dt"].ravel()[0])
    clock = (time or "dt", arrays.get(time or ""), dt or 0.0)
    names = [name for name in requested if name in arrays]
    return tuple(arrays), {name: _segments(path, name, arrays, columns, *clock) for name in names}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise TableError(f"{path}: is not an .npz file with arrays of numbers") from error


def _segments(
    path: Path, name: str, arrays: Mapping[str, np.ndarray], columns: Sequence[str],
    clock: str, ts: np.ndarray | None, dt: float,
) -> list[Sheet]:  # fmt: skip
    import polars as pl  # imports slowly

    values = arrays[name]
    if values.dtype.kind not in "iuf" or values.ndim not in (2, 3):
        raise TableError(
            f"{path}: the array {name!r} must hold numbers of shape (segments, samples, columns) "
            f"or (samples, columns), but has {values.dtype} of shape {values.shape}"
        )
    values = values if values.ndim == 3 else values[None]
    names = columns or [str(k) for k in range(values.shape[2])]
    if len(names) != values.shape[2]:
        raise TableError(
            f"{path}: the array {name!r} has {values.shape[2]} columns, but `columns` names "
            f"{len(names)}: {', '.join(names)}"
        )
    if ts is not None and ts.shape not in (values.shape[1:2], values.shape[:2]):
        raise TableError(
            f"{path}: the times {clock!r} must have shape {values.shape[1:2]} or "
            f"{values.shape[:2]} as the array {name!r}, but have {ts.shape}"
        )
    sheets = []
    for number, rows in enumerate(values):
        count = 1 + max(np.flatnonzero(~np.isnan(rows).all(axis=1)), default=-1)
        if not count:
            raise TableError(f"{path}: segment {number} of the array {name!r} is NaN throughout")
        cells = {column: rows[:count, k].astype(float) for k, column in enumerate(names)}
        sample_times = dt * np.arange(values.shape[1]) if ts is None else ts
        times = np.broadcast_to(sample_times, values.shape[:2])[number, :count].astype(float)
        title = f"{name} {number}" if len(values) > 1 else name
        sheets.append(Sheet(path, title, pl.DataFrame(cells), pl.Series(clock, times)))
    return sheets
