"""A table of draws: a CSV or Parquet file with a row for each trajectory."""

from pathlib import Path

import numpy as np

from jaxmech.config import TableError, numbers, read_rows
from jaxmech.config.errors import Key, refuse

_TABLE = ("sampling", "table")


def read_table(path: Path, key: Key = _TABLE) -> dict[str, np.ndarray]:
    """The columns of a file by name, or a StudyError of the key that describes the problem."""
    if not path.is_file():
        raise refuse(key, f"must name a file, but there is none at {path}")
    try:
        frame, lines = read_rows(path)

        def location(row: int) -> str:
            return f"{path}:{lines[row + 1]}" if lines else f"{path}, row {row}"

        columns = {cells.name: numbers(cells, location) for cells in frame}
        for name, values in columns.items():
            for row in np.flatnonzero(np.isnan(values)).tolist():
                raise TableError(f"{location(row)}: column `{name}` has no number")
    except TableError as error:
        raise refuse(key, f"must hold a column of numbers for each variable: {error}") from error
    return columns
