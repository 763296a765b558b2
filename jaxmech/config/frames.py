"""Tables of measurements: CSV and Parquet files and data frames, read by polars.

`Rows` are named columns, which give numbers in SI units. Whatever is wrong is told with the file,
the line and the column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmech.config.errors import TableError, refuse
from jaxmech.utils.text import not_one_of
from jaxmech.utils.units import si_unit, unit_in_name, unit_problem, with_unit

if TYPE_CHECKING:
    from polars import DataFrame

_MISSING = ("", "nan", "nat", "na", "<na>", "n/a", "null", "none", "-")


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a file or a frame, or those of one recording in it."""

    path: Path
    name: str  # of the recording
    frame: "DataFrame"
    lines: Sequence[int] = ()  # of each row, where a file has lines
    units: Mapping[str, str] = field(default_factory=dict)  # beside those at the end of their names

    @classmethod
    def of_file(cls, path: Path, units: Mapping[str, str] = {}) -> "Rows":
        """The rows of a Parquet file, or else of a CSV file.

        Lines of a CSV file that are empty or begin with `#` are left out; cells are separated by
        commas, semicolons or tabs, and those of one line are as many as there are columns.

        Raises:
            TableError: if the file cannot be read.
        """
        import polars as pl  # imports slowly

        try:
            if path.suffix.lower() == ".parquet":
                return cls(path, path.stem, pl.read_parquet(path.read_bytes()), units=units)
            text = path.read_text(encoding="utf-8-sig")
            numbered = [
                (number, line)
                for number, line in enumerate(text.splitlines(), start=1)
                if line.strip() and not line.lstrip().startswith("#")
            ]
            if len(numbered) < 2:
                message = "must hold a line with the names of the columns, and samples"
                raise TableError(f"{path}: {message}")
            lines, texts = zip(*numbered, strict=True)
            separator = max(",;\t", key=texts[0].count)

            def cells(text: str) -> "DataFrame":
                options: Any = {"separator": separator, "has_header": False, "infer_schema": False}
                return pl.read_csv(text.encode(), **options)

            titles = [(cell or "").strip() for cell in cells(texts[0]).row(0)]
            for title in titles:
                if title.replace(".", "").lstrip("+-").isdigit():
                    raise TableError(f"{path}:{lines[0]}: must name the columns, but holds numbers")
                if not title or titles.count(title) > 1:
                    message = f"column {title!r} appears twice" if title else "a column has no name"
                    raise TableError(f"{path}:{lines[0]}: {message}")
            for line, row in numbered:  # polars would fill short rows
                count = 1 + row.count(separator)
                if '"' not in row and count != len(titles):
                    message = f"has {count} cells, but there are {len(titles)} columns"
                    raise TableError(f"{path}:{line}: {message}: {', '.join(titles)}")
            rest = cells("\n".join(texts[1:]))
            if rest.shape != (len(texts) - 1, len(titles)):
                message = "cannot be read: quotation marks must enclose whole cells"
                raise TableError(f"{path}: {message}")
            rest.columns = titles
            return cls(path, path.stem, rest, lines[1:], units)
        except OSError as error:
            raise TableError(f"{path}: cannot be read: {error.strerror or error}") from error
        except pl.exceptions.PolarsError as error:
            raise TableError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
        except UnicodeDecodeError as error:
            raise TableError(f"{path}: cannot be read: it is not a text file") from error

    @classmethod
    def of_frame(cls, data: Any, units: Mapping[str, str] = {}) -> "Rows":
        """The rows of a frame of pandas or polars, or of a mapping from names to arrays.

        An index of pandas that has a name is a column, too.

        Raises:
            TypeError: if there are no named columns.
            TableError: if their lengths differ.
        """
        from polars import DataFrame, exceptions  # imports slowly

        if getattr(getattr(data, "index", None), "name", None) is not None:
            data = data.reset_index()
        try:
            arrays = {str(name): np.asarray(data[name]) for name in getattr(data, "columns", data)}
            texts = {k: list(map(str, x)) if x.dtype == object else x for k, x in arrays.items()}
            return cls(Path("frame"), "frame", DataFrame(texts), units=units)
        except exceptions.PolarsError as error:
            message = "its columns must have the same number of values"
            raise TableError(f"frame: {message}: {error}") from error
        except (TypeError, IndexError, KeyError) as error:
            raise TypeError(
                "Argument `frame` must have named columns, as a frame of pandas or polars, but is "
                f"of type {type(data).__name__}."
            ) from error

    def location(self, row: int) -> str:
        """The location of a row, for messages."""
        return f"{self.path}:{self.lines[row]}" if self.lines else f"{self.path}, row {row}"

    def title(self, column: str | int) -> str | None:
        """The title of a column by its title, its name without unit or its index, if it exists.

        Raises:
            TableError: if there are several.
        """
        titles = self.frame.columns
        if isinstance(column, int) and 0 <= column < len(titles):
            return titles[column]
        if str(column) in titles:
            return str(column)
        same = [title for title in titles if unit_in_name(title)[0] == str(column)]
        if len(same) > 1:
            either = " or ".join(same)
            raise TableError(f"{self.path}: {column!r} may be {either}; write one of them in full")
        return same[0] if same else None

    def required(self, key: str, column: str | int) -> str:
        """The title of a column, or a StudyError of the key that names it."""
        if (title := self.title(column)) is None:
            reason = not_one_of(str(column), self.frame.columns, f"a column of {self.path}")
            raise refuse(key, f"names {column!r}, which {reason}")
        return title

    def numbers(self, *titles: str) -> np.ndarray:
        """The numbers of columns in SI units, (T, len(titles)), NaN for cells without one.

        Raises:
            TableError: if a cell holds anything else.
        """
        from polars import Float64, String  # imports slowly

        arrays = [np.zeros((len(self.frame), 0))]
        for title in titles:
            cells = self.frame[title]
            text = cells.cast(String).str.strip_chars()
            values = (cells if cells.dtype.is_numeric() else text).cast(Float64, strict=False)
            missing = text.is_null() | text.str.to_lowercase().is_in(_MISSING)
            for row in (values.is_null() & ~missing).arg_true()[:1]:
                hint = "; write a decimal point, not a comma" if "," in text[row] else ""
                message = f"column `{title}` must hold numbers, but holds {text[row]!r}{hint}"
                raise TableError(f"{self.location(row)}: {message}")
            for row in values.is_infinite().arg_true()[:1]:
                message = "is infinite; leave the cell empty where nothing was measured"
                raise TableError(f"{self.location(row)}: column `{title}` {message}")
            numbers = values.fill_null(np.nan).to_numpy() * self._conversion(title)[0]
            arrays.append(numbers[:, None])
        return np.concatenate(arrays, axis=1)

    def times(self, time: str | None, dt: float | None) -> np.ndarray:
        """The times of the rows [s], which must increase: those of a column, or every `dt`.

        Dates and durations count from the first one.
        """
        from polars import Duration, Float64  # imports slowly

        if len(self.frame) < 2:
            location = self.location(0) if len(self.frame) else self.path
            text = f"{self.name} has {len(self.frame)} samples, but needs at least two"
            raise TableError(f"{location}: {text}")
        if time is None:
            if dt is None:
                raise TableError(
                    f"{self.path}: when were the samples taken? Name the column by `time`, or the "
                    f"time between them by `dt`. Columns: {', '.join(self.frame.columns)}"
                )
            return dt * np.arange(len(self.frame))
        cells = self.frame[title := self.required("time", time)]
        if cells.dtype.is_temporal():
            since = cells if isinstance(cells.dtype, Duration) else cells - cells[0]
            ts = since.dt.total_nanoseconds().cast(Float64).fill_null(np.nan).to_numpy() / 1e9
        else:
            ts = self.numbers(title)[:, 0]
        for row in np.flatnonzero(~np.isfinite(ts)).tolist()[:1]:
            raise TableError(f"{self.location(row)}: the time `{title}` is missing")
        for row in np.flatnonzero(np.diff(ts) <= 0).tolist()[:1]:
            raise TableError(
                f"{self.location(row + 1)}: the time `{title}` must increase, but "
                f"{cells[row + 1]} follows {cells[row]}"
            )
        return np.asarray(ts)

    def parts(self, by: str | None) -> "list[Rows]":
        """The recordings in the rows, one for each value of a column."""
        if by is None:
            return [self]
        title = self.required("recording", by)
        name = self.frame[title].cast(str, strict=False).str.strip_chars().fill_null("")
        parts = []
        for value in name.unique(maintain_order=True):
            rows = (name == value).arg_true().to_list()
            lines = [self.lines[k] for k in rows] if self.lines else ()
            parts.append(replace(self, name=value, frame=self.frame[rows], lines=lines))
        return parts

    def unit(self, title: str) -> str | None:
        """The unit of a column: as stated, or in its title."""
        name, written = unit_in_name(title)
        return self.units.get(title, self.units.get(name, written))

    def labels(self, *titles: str) -> tuple[str, ...]:
        """The names of columns with the units that their numbers have here."""
        return tuple(
            with_unit(unit_in_name(x)[0], (si_unit(self.unit(x) or "") or (1.0, ""))[1])
            for x in titles
        )

    def notes(self, *titles: str) -> list[str]:
        """What was converted to SI units; a StudyError if a unit is of no column, or wrong."""
        for name in self.units:
            if (title := self.title(name)) is None:
                known = ", ".join(self.frame.columns)
                message = f"must belong to a column of {self.path}; Known: {known}"
                raise refuse(("units", name), message)
            self._conversion(title)
        return [note for _, note in map(self._conversion, dict.fromkeys(titles)) if note]

    def _conversion(self, title: str) -> tuple[float, str]:
        """The factor that makes the numbers of a column those of SI units, and a note of it."""
        name, written = unit_in_name(title)
        unit = self.unit(title)
        if self.frame[title].dtype.is_temporal():
            return 1.0, f"{title} was converted to s since the first sample"
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
