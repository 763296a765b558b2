"""Columns of data frames, and of Parquet files, as NumPy arrays by name."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def frame_columns(frame: Any) -> dict[str, np.ndarray]:
    """The columns of a frame of pandas or polars, or of a mapping of names to arrays.

    An index of pandas that has a name is a column, too.

    Example:
        >>> frame_columns({"t": [0, 1], "x": [0.5, 0.7]})
        {'t': array([0, 1]), 'x': array([0.5, 0.7])}
    """
    if getattr(getattr(frame, "index", None), "name", None) is not None:
        frame = frame.reset_index()
    names = frame.columns if hasattr(frame, "columns") else frame
    return {str(name): np.asarray(frame[name]) for name in names}


def parquet_columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a Parquet file.

    Raises:
        ImportError: if neither pyarrow nor polars is installed.
        OSError: if the file cannot be read.
        ValueError: if it is not a Parquet file.
    """
    try:
        table = import_module("pyarrow.parquet").read_table(path)  # not a dependency
        return {name: np.asarray(table[name]) for name in table.column_names}
    except ImportError:
        return _by_polars(path)


def _by_polars(path: Path) -> dict[str, np.ndarray]:
    try:
        polars = import_module("polars")
    except ImportError as error:
        raise ImportError(f"{path} needs pyarrow or polars: pip install pyarrow") from error
    try:
        return frame_columns(polars.read_parquet(path))
    except polars.exceptions.PolarsError as error:
        raise ValueError(str(error)) from error
