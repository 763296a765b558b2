"""The recordings in the files of a table, in named columns, or in arrays of an .npz file."""

import csv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.config.frames import parquet_columns
from jaxmech.identify.data.sheet import Cells, Sheet, TableError, as_float, title_of
from jaxmech.utils.text import not_one_of

_SEPARATORS = ",;\t"


def csv_sheets(
    path: Path, recording: str | None, time: str | None, dt: float | None
) -> list[Sheet]:
    """The recordings of a CSV file: a single one, or separated by the column `recording`."""
    names, rows, lines = _rows(path)
    columns = {name: [row[j] for row in rows] for j, name in enumerate(names)}
    return column_sheets(path, columns, recording, time, dt, lines)


def parquet_sheets(
    path: Path, recording: str | None, time: str | None, dt: float | None
) -> list[Sheet]:
    """The recordings of a Parquet file, in the same way."""
    try:
        columns = parquet_columns(path)
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ImportError, ValueError) as error:
        raise TableError(f"{path}: cannot be read: {error}") from error
    return column_sheets(path, columns, recording, time, dt)


def column_sheets(
    path: Path, columns: Mapping[str, Cells], recording: str | None, time: str | None,
    dt: float | None, lines: Sequence[int] = (),
) -> list[Sheet]:  # fmt: skip
    """The recordings in columns, with the lines in a file of the titles and of all rows."""
    names = list(columns)
    time, recording = (
        name and required_title(key, name, names, path)
        for key, name in (("time", time), ("recording", recording))
    )
    if time is None and dt is None:
        raise TableError(
            f"{path}{f':{lines[0]}' if lines else ''}: when were the samples taken? Name the "
            f"column by `time`, or the time between them by `dt`. Columns: {', '.join(names)}"
        )
    groups: dict[str, list[int]] = {}
    for k in range(len(columns[names[0]]) if names else 0):
        name = path.stem if recording is None else str(columns[recording][k])
        groups.setdefault(name, []).append(k)
    sheets = []
    for name, rows in groups.items():
        chosen = {title: _chosen(cells, rows) for title, cells in columns.items()}
        ts = (dt or 0.0) * np.arange(len(rows)) if time is None else chosen[time]
        places = [lines[k + 1] for k in rows] if lines else None
        sheets.append(Sheet(path, name, chosen, time or "dt", ts, places))
    return sheets


def _chosen(cells: Cells, rows: list[int]) -> Cells:
    return cells[rows] if isinstance(cells, np.ndarray) else [cells[k] for k in rows]


def required_title(key: str, name: str, titles: Sequence[str], path: Path) -> str:
    """The title of a column with a name, or a StudyError of the key that holds the name."""
    if (title := title_of(name, titles, path)) is None:
        raise refuse(
            key, f"names {name!r}, which {not_one_of(name, titles, f'a column of {path}')}"
        )
    return title


def _rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """The names of the columns, the rows, and the line numbers of the names and all rows."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not a file name
        raise TableError(f"{path}: cannot be read: it is not a text file") from error
    numbered = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if len(numbered) < 2:
        raise TableError(f"{path}: must hold a line with the names of the columns, and samples")
    lines = [number for number, _ in numbered]
    separator = max(_SEPARATORS, key=numbered[0][1].count)
    names, *rows = [_cells(path, number, line, separator) for number, line in numbered]
    if any(as_float(name) is not None for name in names):
        raise TableError(f"{path}:{lines[0]}: must name the columns, but holds numbers")
    for name in names:
        if not name or names.count(name) > 1:
            text = f"column {name!r} appears twice" if name else "a column has no name"
            raise TableError(f"{path}:{lines[0]}: {text}")
    for number, row in zip(lines[1:], rows, strict=True):
        if len(row) != len(names):
            text = f"has {len(row)} cells, but there are {len(names)} columns"
            raise TableError(f"{path}:{number}: {text}: {', '.join(names)}")
    return names, rows, lines


def _cells(path: Path, number: int, line: str, separator: str) -> list[str]:
    if '"' not in line:  # so are most lines, and this is the fastest way
        return [cell.strip() for cell in line.split(separator)]
    try:
        # line by line, so that an open quotation mark does not swallow the rest of the file
        (row,) = csv.reader([line], delimiter=separator)
    except csv.Error as error:
        raise TableError(f"{path}:{number}: cannot be read: {error}") from error
    return [cell.strip() for cell in row]


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
    values = arrays[name]
    if not np.issubdtype(values.dtype, np.number) or values.ndim not in (2, 3):
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
        cells = {column: rows[:count, k] for k, column in enumerate(names)}
        sample_times = dt * np.arange(values.shape[1]) if ts is None else ts
        times = np.broadcast_to(sample_times, values.shape[:2])[number, :count]
        title = f"{name} {number}" if len(values) > 1 else name
        sheets.append(Sheet(path, title, cells, clock, times, None))
    return sheets
