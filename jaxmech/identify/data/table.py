"""`Table`: where recordings are in files, what the columns mean, and the recordings in them.

The files are `.npz` with arrays of segments, or CSV and Parquet with named columns. A mistake in
the table, such as a column that the file does not have, is a `StudyError` with the key; a mistake
in the file is a `TableError` with file, line and column.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxmech.config import TableError, TableRows, frame_of, read_rows
from jaxmech.config.errors import Problem, out_of_range, refuse, refuse_all
from jaxmech.identify.data.recording import Recording, unwrapped
from jaxmech.identify.data.sheet import Sheet, array_sheets, column_sheets, read_arrays
from jaxmech.identify.data.velocity_estimates import rates, without_outliers
from jaxmech.system import Interpolation, Signal
from jaxmech.utils.text import doc, not_one_of, setting
from jaxmech.utils.units import si_unit, unit_problem

Column = str | int


@dataclass(frozen=True, kw_only=True)
class Table:
    """The location of the recordings, and the meaning of their columns."""

    file: str = field(
        metadata=doc("an .npz, .csv or .parquet file; swings/*.csv is one recording in each")
    )
    observed: tuple[Column, ...] = field(metadata=doc("columns that were measured"))
    q0: tuple[Column, ...] = setting((), "columns of the start variables; `observed` by default")
    v0: tuple[Column, ...] = setting(
        (), "columns of their velocities; derivatives of `q0` by default"
    )
    time: str | None = setting(None, "column, or array of an .npz, of the sample times")
    dt: float | None = setting(
        None, "time between samples [s]; the array `dt` of an .npz by default", positive=True
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
    stride: int = setting(1, "keep every n-th sample", least=1)
    noise_sd: float | list[Any] | None = setting(
        None, "standard deviation of the noise in SI units, of all columns or of each"
    )
    units: Mapping[str, str] = setting(
        {},
        'units of columns whose names do not end in one, such as { theta = "deg", t = "ms" }; '
        'numbers are converted to SI units, with "" they stay as they are',
    )
    wraps: tuple[Column, ...] = setting(
        (), "observed angles that jump back after a turn, such as from pi to -pi"
    )
    inputs: Mapping[str, Column] = setting(
        {}, "columns of inputs, by the name of the parameter whose place they take"
    )
    interpolation: Interpolation = setting(
        "linear", 'inputs between two samples: "hold" (the first of them), "linear" or "cubic"'
    )
    start_sd: tuple[float, ...] | None = setting(
        None,
        "standard deviations of the recorded q0 and v0 in SI units, two numbers; a start variable "
        "that is also observed counts once, as its first sample",
    )

    def __post_init__(self) -> None:
        refuse_all(_problems(self))

    @property
    def start_columns(self) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """Columns of the start variables and of their rates."""
        return self.q0 or self.observed, self.v0


def _problems(table: Table) -> Iterator[Problem]:
    if not table.observed:
        yield Problem(("observed",), "must name at least one column")
    for key in ("observed", "q0", "v0", "wraps"):  # a repeated column would count as two sensors
        columns = getattr(table, key)
        if twice := [c for k, c in enumerate(columns) if c in columns[:k]]:
            yield Problem((key,), f"must name every column once, but names {twice[0]!r} twice")
    noise, count = table.noise_sd, len(table.observed)
    deviations = noise if isinstance(noise, list) else [1.0 if noise is None else noise] * count
    are_positive = all(
        isinstance(sd, int | float) and not isinstance(sd, bool) and 0 < sd < inf
        for sd in deviations
    )
    if len(deviations) != count or not are_positive:
        message = f"must be positive, one for all or one for each of {count} columns"
        yield Problem(("noise_sd",), f"{message}, but is {noise}")
    start = table.start_sd
    if start is not None and (len(start) != 2 or not all(sd > 0 for sd in start)):
        yield Problem(("start_sd",), f"must be two positive numbers, but is {list(start)}")
    if len(table.v0) > len(table.start_columns[0]):
        message = f"must name as many columns as `q0`, {len(table.start_columns[0])}, or none"
        yield Problem(("v0",), f"{message}, but names {len(table.v0)}")
    if shared := sorted({*table.train} & {*table.validation}):
        message = f"must hold other recordings than `train`, but both name {shared[0]!r}"
        yield Problem(("validation",), message)
    if table.time is not None and table.dt is not None:
        yield Problem(("dt",), "must be left out where `time` is given")
    for name, unit in table.units.items():
        if message := unit_problem(unit):
            yield Problem(("units", name), message)
    yield from out_of_range(table)


_LISTS = ("observed", "q0", "v0", "wraps", "train", "validation", "columns", "start_sd")


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
    if kind != ".npz":
        return Recordings(*_recordings(table, _parts(table, _files(table, path))))
    arrays, names = read_arrays(path), (table.train or ("train",), table.validation)
    times = (table.time,) if table.time else ()
    names_by_key = {"train": names[0], "validation": names[1], "time": times}
    _require_known(names_by_key, arrays, f"an array of {path}")
    clock = table.columns, table.time, table.dt
    parts = [[s for x in part for s in array_sheets(path, x, arrays, *clock)] for part in names]
    return Recordings(*_recordings(table, parts))


def read_frame(frame: Any, **columns: Any) -> tuple[Recording, ...]:
    """The recordings of a data frame: one, or one for each value of the column `recording`.

    Args:
        frame: a data frame of pandas or polars, or a mapping from names to arrays. A pandas index
            with a name counts as a column, too; dates become seconds from the first one.
        **columns: the meaning of its columns, as fields of a `Table`: `observed`, `time` or `dt`,
            `q0`, `v0`, `inputs`, `recording`, `units`, `noise_sd`, and so on.

    Raises:
        TypeError: if there is no such field, or `frame` has no columns.
        StudyError: if a field does not match the columns.
        TableError: if a column holds no numbers, or the times do not increase.
    """
    lists = {
        key: (value,) if isinstance(value, str | int) else tuple(value)
        for key, value in columns.items()
        if key in _LISTS and value is not None
    }
    table = Table(file="frame", **{**columns, **lists})
    if table.columns:
        raise refuse("columns", "must be left out: a frame has names for its columns")
    try:
        rows = TableRows(frame_of(frame))
    except (TypeError, IndexError, KeyError) as error:
        raise TypeError(
            f"Argument `frame` must have named columns, as a frame of pandas or polars, but is of "
            f"type {type(frame).__name__}."
        ) from error
    sheets = column_sheets(Path("frame"), rows, table.recording, table.time, table.dt)
    parts = _parts(table, {sheet.name: sheet for sheet in sheets})
    return sum(_recordings(table, parts), ())


def _recordings(
    table: Table, parts: Sequence[Sequence[Sheet]]
) -> tuple[tuple[Recording, ...], ...]:
    parts = [[sheet._replace(units=table.units) for sheet in part] for part in parts]
    problems = []
    for key in ("observed", "q0", "v0", "wraps", "inputs"):
        names = getattr(table, key)
        for column in names.values() if key == "inputs" else names:
            for sheet in (sheet for part in parts for sheet in part):
                title = sheet.column(column)
                clocks = [sheet.column(x) for x in (table.time, table.recording) if x is not None]
                if title is None:
                    message = not_one_of(str(column), sheet.columns, f"a column of {sheet.path}")
                    message = f"names {column!r}, which {message}"
                elif title in clocks:
                    reason = "which holds no measurements: `time` or `recording` names it"
                    message = f"names {column!r}, {reason}"
                elif key == "wraps" and title not in map(sheet.column, table.observed):
                    message = f"must be columns of `observed`, but has {column!r}"
                elif key == "wraps" and not _is_angle(unit := sheet.unit(title)):
                    message = f"must be angles, but {column!r} is in {unit}"
                else:
                    continue
                problems.append(Problem((key,), message))
                break
    refuse_all(problems)
    for part in parts:
        for sheet in part:
            sheet.require_units_of_columns()
    return tuple(tuple(_recording(table, sheet) for sheet in part) for part in parts)


def _is_angle(unit: str | None) -> bool:
    return not unit or (si_unit(unit) or (1.0, ""))[1] == "rad"


def _files(table: Table, path: Path) -> dict[str, Sheet]:
    """The sheets of a file, or of all files of a pattern, by name."""
    is_pattern = any(letter in path.name for letter in "*?[")
    files = sorted(path.parent.glob(path.name)) if is_pattern else [path]
    if not files:
        raise TableError(f"{path}: there is no such file")
    sheets: dict[str, Sheet] = {}
    for file in files:
        for sheet in column_sheets(file, read_rows(file), table.recording, table.time, table.dt):
            if (first := sheets.setdefault(sheet.name, sheet)) is not sheet:
                message = (
                    f"{sheet.name!r} is in {first.path} too; give every recording its own name"
                )
                raise TableError(f"{sheet.location(0)}: {message}")
    return sheets


def _parts(table: Table, sheets: Mapping[str, Sheet]) -> list[list[Sheet]]:
    """The sheets to fit, and those to look at afterwards."""
    train = table.train or tuple(name for name in sheets if name not in table.validation)
    _require_known({"train": train, "validation": table.validation}, sheets, "a recording")
    if not train:
        raise refuse("validation", "must leave recordings to fit, but names all of them")
    return [[sheets[name] for name in names] for names in (train, table.validation)]


def _require_known(
    names_by_key: Mapping[str, Sequence[str]], known: Collection[str], category: str
) -> None:
    refuse_all(
        Problem((key,), f"names {name!r}, which {not_one_of(name, known, category)}")
        for key, names in names_by_key.items()
        for name in names
        if name not in known
    )


def _recording(table: Table, sheet: Sheet) -> Recording:
    q_columns, v_columns = table.start_columns
    ts = sheet.times()
    observed, q0 = (sheet.numbers(c) for c in (table.observed, q_columns))
    titles = [sheet.column(column) for column in table.observed]
    turning = [sheet.column(column) for column in table.wraps]
    for column, samples in zip(q_columns, q0.T, strict=True):
        if sheet.column(column) in turning:
            samples[:] = unwrapped(samples, 2 * np.pi)
    notes = sheet.notes((*table.observed, *q_columns, *v_columns, *table.inputs.values()))
    if v_columns:
        v0 = sheet.numbers(v_columns)
    else:
        q0, moved = without_outliers(q0, ts)
        v0 = rates(q0, ts)
        notes += [
            f"{sheet.name}: the first sample of {q_columns[k]} is an outlier, and not the start"
            for k in np.flatnonzero(moved[0])
        ]
    start_sd = []
    for columns, values, sd in (
        (q_columns, q0, (table.start_sd or (np.inf,))[0]),
        (v_columns or q_columns, v0, (table.start_sd or (np.inf,))[-1]),
    ):
        for k in np.flatnonzero(~np.isfinite(values[0])):
            raise TableError(
                f"{sheet.location(0)}: column `{columns[k]}` is missing where {sheet.name} begins; "
                "the start must be known, cut the rows before it"
            )
        # What is observed as well counts once, as its first sample.
        start_sd.append(np.array([np.inf if sheet.column(c) in titles else sd for c in columns]))
    known = np.isfinite(np.concatenate(start_sd)).any()
    try:
        inputs = {
            name: Signal(ts, sheet.numbers((column,))[:, 0], table.interpolation)
            for name, column in table.inputs.items()
        }
        recording = Recording(
            ts, observed, q0, v0,
            weights=None if table.noise_sd is None else 1 / np.asarray(table.noise_sd, float),
            start_sd=(start_sd[0], start_sd[1]) if known else None,
            name=sheet.name, inputs=inputs, notes=notes,
            wraps={k: 2 * np.pi for k, title in enumerate(titles) if title in turning},
            sensors=sheet.labels(table.observed),
            starts=(sheet.labels(q_columns), sheet.labels(v_columns)),
        )  # fmt: skip
        return recording.every(table.stride)
    except ValueError as error:
        raise TableError(f"{sheet.location(0)}: {error}") from error
