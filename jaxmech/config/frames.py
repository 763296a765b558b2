"""Tables of numbers: CSV and Parquet files and data frames, read by polars, with lines of rows.

A column is a polars Series, of text if it comes from a CSV file. `numbers` converts it, and names
the place of a cell that holds no number.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxmech.config.errors import InputError

if TYPE_CHECKING:
    from polars import DataFrame, Series

_MISSING = ("", "nan", "nat", "na", "<na>", "n/a", "null", "none", "-")
_SEPARATORS = ",;\t"


class TableError(InputError):
    """An unusable file of measurements; the text names the file, the line, and the problem."""


class TableRows(NamedTuple):
    """The rows of a table."""

    frame: "DataFrame"
    lines: Sequence[int] = ()  # of the titles and of each row, where a file has lines


def read_rows(path: Path) -> TableRows:
    r"""The rows of a Parquet file, or else of a CSV file.

    Lines of a CSV file that are empty or begin with `#` are left out; cells are separated by
    commas, semicolons or tabs.

    Raises:
        TableError: if the file cannot be read.
    """
    import polars as pl  # imports slowly

    try:
        if path.suffix.lower() == ".parquet":
            return TableRows(pl.read_parquet(path.read_bytes()))
        return _csv(path, path.read_text(encoding="utf-8-sig"))
    except TableError:
        raise
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        raise TableError(f"{path}: cannot be read: {error}") from error
    except ValueError as error:  # not UTF-8, or not a file name
        raise TableError(f"{path}: cannot be read: it is not a text file") from error


def frame_of(data: Any) -> "DataFrame":
    """The columns of a frame of pandas or polars, or of a mapping from names to arrays.

    An index of pandas that has a name is a column, too.
    """
    from polars import DataFrame  # imports slowly

    if getattr(getattr(data, "index", None), "name", None) is not None:
        data = data.reset_index()
    arrays = {str(name): np.asarray(data[name]) for name in getattr(data, "columns", data)}
    counts = {name: array.shape[:1] for name, array in arrays.items()}
    if len({*counts.values()}) > 1:
        told = ", ".join(f"{name} has {count[0]}" for name, count in counts.items() if count)
        raise TableError(f"frame: its columns must have the same number of values, but {told}")
    return DataFrame(
        {
            name: list(map(str, array)) if array.dtype == object else array
            for name, array in arrays.items()
        }
    )


def numbers(cells: "Series", location: Callable[[int], str]) -> np.ndarray:
    """The numbers of a column, NaN for cells without one.

    Args:
        cells: the column.
        location: the location of a row, for messages.

    Raises:
        TableError: if a cell holds anything else.
    """
    from polars import Float64, String  # imports slowly

    is_number = cells.dtype.is_numeric()
    text = cells.cast(String).str.strip_chars()
    values = (cells if is_number else text).cast(Float64, strict=False)
    missing = text.is_null() | text.str.to_lowercase().is_in(_MISSING)
    for row in (values.is_null() & ~missing).arg_true()[:1]:
        hint = "; write a decimal point, not a comma" if "," in text[row] else ""
        message = f"column `{cells.name}` must hold numbers, but holds {text[row]!r}{hint}"
        raise TableError(f"{location(row)}: {message}")
    for row in values.is_infinite().arg_true()[:1]:
        message = "is infinite; leave the cell empty where nothing was measured"
        raise TableError(f"{location(row)}: column `{cells.name}` {message}")
    return values.fill_null(np.nan).to_numpy()


def seconds(dates: "Series") -> np.ndarray:
    """Durations in seconds, of dates since the first one; NaN where there is none."""
    from polars import Duration, Float64  # imports slowly

    since = dates if isinstance(dates.dtype, Duration) else dates - dates[0]
    return since.dt.total_nanoseconds().cast(Float64).fill_null(np.nan).to_numpy() / 1e9


def _csv(path: Path, text: str) -> TableRows:
    numbered = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if len(numbered) < 2:
        raise TableError(f"{path}: must hold a line with the names of the columns, and samples")
    lines, rows = zip(*numbered, strict=True)
    separator = max(_SEPARATORS, key=rows[0].count)
    names = _titles(f"{path}:{lines[0]}", rows[0], separator)
    for number, row in numbered:
        # polars fills short rows, and reads a quotation that is open on in the next line
        outside = row if '"' not in row else "".join(row.split('"')[::2])
        count = 1 + outside.count(separator)
        if outside is not row and row.count('"') % 2:
            raise TableError(f"{path}:{number}: has a quotation mark without its partner")
        if count != len(names):
            message = f"has {count} cells, but there are {len(names)} columns"
            raise TableError(f"{path}:{number}: {message}: {', '.join(names)}")
    frame = _cells("\n".join(rows[1:]), separator)
    if frame.shape != (len(rows) - 1, len(names)):
        raise TableError(f"{path}: cannot be read: quotation marks must enclose whole cells")
    frame.columns = names
    return TableRows(frame, lines)


def _cells(text: str, separator: str) -> "DataFrame":
    from polars import read_csv

    return read_csv(
        text.encode(), separator=separator, has_header=False, infer_schema=False, glob=False
    )


def _titles(location: str, row: str, separator: str) -> list[str]:
    """The names of the columns."""
    names = [(cell or "").strip() for cell in _cells(row, separator).row(0)]
    if any(map(_is_number, names)):
        raise TableError(f"{location}: must name the columns, but holds numbers")
    for name in names:
        if not name or names.count(name) > 1:
            message = f"column {name!r} appears twice" if name else "a column has no name"
            raise TableError(f"{location}: {message}")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
