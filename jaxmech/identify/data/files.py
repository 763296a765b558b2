"""The recordings in the files of a table, in named columns, or in arrays of an .npz file."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxmech.config import TableError, TableRows
from jaxmech.config.errors import refuse
from jaxmech.identify.data.sheet import Sheet, title_of
from jaxmech.utils.text import not_one_of


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
