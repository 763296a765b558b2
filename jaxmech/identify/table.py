"""`Table`: where recordings are in files, what the columns mean, and the recordings in them.

The files are `.npz` with arrays of segments, or CSV and Parquet with named columns. A mistake in
the table, such as a column that the file does not have, is a `StudyError` with the key; a mistake
in the file is a `TableError` with file, line and column.
"""

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxmech.config import Rows
from jaxmech.config.errors import Problem, TableError, refuse
from jaxmech.identify.recording import Columns, Recording
from jaxmech.utils.text import doc, not_one_of, setting


@dataclass(frozen=True, kw_only=True)
class Table(Columns):
    """The location of the recordings, and the meaning of their columns."""

    file: str = field(
        metadata=doc("an .npz, .csv or .parquet file; swings/*.csv is one recording in each")
    )
    train: tuple[str, ...] = setting(
        (),
        "recordings to fit: arrays of an .npz (`train` by default), or files or values of "
        "`recording` (all that are left)",
    )
    validation: tuple[str, ...] = setting(
        (), "recordings held out from fit and choice, named in the same way"
    )
    columns: tuple[str, ...] = setting(
        (), "names for the columns of an .npz, which else are 0, 1, ..."
    )
    recording: str | None = setting(None, "column that names the recording of each row")

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if shared := sorted({*self.train} & {*self.validation}):
            message = f"must hold other recordings than `train`, but both name {shared[0]!r}"
            yield Problem(("validation",), message)


class Recordings(NamedTuple):
    """The recordings of a table: those to fit, and those for validation."""

    train: tuple[Recording, ...]
    validation: tuple[Recording, ...]


def read_table(table: Table, folder: Path = Path()) -> Recordings:
    r"""Read the recordings of a table.

    Rows at the end of a segment of an .npz file that are all NaN are padding, and are left out; NaN
    and empty cells elsewhere are missing measurements. Columns with a unit, such as `theta [deg]`
    or `t (ms)`, are converted to SI units, as a fit says when it is printed; a column may be named
    without its unit. `noise_sd` and `start_sd` are in SI units.

    Args:
        table: the file and its columns.
        folder: the folder to which a relative path refers.

    Returns:
        The recordings to fit and those for validation, all with names.

    Raises:
        StudyError: if a key of the table does not match the content of the file.
        TableError: if the file cannot be read, or its content is invalid.
    """
    path = folder / table.file
    kind = Path(table.file).suffix.lower()
    if kind not in (".npz", ".csv", ".parquet"):
        raise refuse("file", f"must be an .npz, .csv or .parquet file, but is {table.file}")
    key = "recording" if kind == ".npz" else "columns"
    if getattr(table, key):
        raise refuse(key, f"must be left out: a {kind} file has none")
    of_name: Callable[[str], Iterable[Rows]]
    clock = () if kind != ".npz" or table.time is None else (table.time,)
    if kind == ".npz":
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except OSError as error:
            raise TableError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise TableError(f"{path}: is not an .npz file with arrays of numbers") from error
        names, category, train = [*arrays], f"an array of {path}", table.train or ("train",)
        if table.time is None and table.dt is None:
            step = arrays.get("dt", np.zeros(0))
            if step.size != 1 or not step.item() > 0:
                raise TableError(
                    f"{path}: when were the samples taken? Name an array by `time`, or the time "
                    "between them by `dt`, which may be one positive number in the file. Arrays: "
                    f"{', '.join(arrays)}"
                )
            table = replace(table, dt=float(step.item()))
        of_name = partial(_segments, path, arrays, table)
    else:
        files = sorted(path.parent.glob(path.name)) if set(path.name) & set("*?[") else [path]
        if not files:
            raise TableError(f"{path}: there is no such file")
        rows: dict[str, Rows] = {}
        for part in (x for f in files for x in Rows.of_file(f, table.units).parts(table.recording)):
            if (first := rows.setdefault(part.name, part)) is not part:
                message = f"{part.name!r} is in {first.path} too; give every recording its own name"
                raise TableError(f"{part.location(0)}: {message}")
        names, category = [*rows], "a recording"
        train = table.train or tuple(name for name in rows if name not in table.validation)
        if not train:
            raise refuse("validation", "must leave recordings to fit, but names all of them")
        of_name = lambda name: [rows[name]]  # noqa: E731
    for key, chosen in (("train", train), ("validation", table.validation), ("time", clock)):
        for name in chosen:
            if name not in names:
                raise refuse(key, f"names {name!r}, which {not_one_of(name, names, category)}")
    parts = (
        tuple(table.of_rows(part) for name in chosen for part in of_name(name))
        for chosen in (train, table.validation)
    )
    return Recordings(*parts)


def _segments(path: Path, arrays: dict[str, np.ndarray], table: Table, name: str) -> Iterator[Rows]:
    """The segments of an array, without the rows at their ends that are all NaN."""
    import polars as pl  # imports slowly

    values = arrays[name]
    if values.dtype.kind not in "iuf" or values.ndim not in (2, 3):
        raise TableError(
            f"{path}: the array {name!r} must hold numbers of shape (segments, samples, columns) "
            f"or (samples, columns), but has {values.dtype} of shape {values.shape}"
        )
    values = values.astype(float).reshape(-1, *values.shape[-2:])
    titles = table.columns or tuple(str(k) for k in range(values.shape[2]))
    if len(titles) != values.shape[2]:
        message = f"has {values.shape[2]} columns, but `columns` names {len(titles)}"
        raise TableError(f"{path}: the array {name!r} {message}: {', '.join(titles)}")
    ts = None if table.time is None else arrays[table.time]
    if ts is not None and ts.shape not in (values.shape[1:2], values.shape[:2]):
        raise TableError(
            f"{path}: the times {table.time!r} must have shape {values.shape[1:2]} or "
            f"{values.shape[:2]} as the array {name!r}, but have {ts.shape}"
        )
    for number, samples in enumerate(values):
        count = 1 + max(np.flatnonzero(~np.isnan(samples).all(axis=1)), default=-1)
        if not count:
            raise TableError(f"{path}: segment {number} of the array {name!r} is NaN throughout")
        cells = {title: samples[:count, k] for k, title in enumerate(titles)}
        if ts is not None:
            cells[table.time or ""] = np.broadcast_to(ts, values.shape[:2])[number, :count]
        title = f"{name} {number}" if len(values) > 1 else name
        yield Rows(path, title, pl.DataFrame(cells), units=table.units)
