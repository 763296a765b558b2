"""A table of draws: a CSV or Parquet file with a row for each trajectory."""

import csv
from pathlib import Path

import numpy as np

from jaxmech.config.errors import Key, refuse
from jaxmech.config.frames import parquet_columns

_TABLE = ("sampling", "table")


def read_table(path: Path, key: Key = _TABLE) -> dict[str, np.ndarray]:
    """The columns of a file by name, or a StudyError of the key that describes the problem."""
    if not path.is_file():
        raise refuse(key, f"must name a file, but there is none at {path}")
    if path.suffix == ".parquet":
        return _parquet(path, key)
    with path.open(newline="", encoding="utf-8") as file:
        names = next(csv.reader(file), [])
    names = [name.strip() for name in names]
    if not names or len(set(names)) < len(names):
        raise refuse(
            key, f"must begin with a line of different names, but {path} begins with {names}"
        )
    try:
        values = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2, encoding="utf-8")
    except ValueError as error:
        raise refuse(key, f"must hold numbers below its first line: {path}: {error}") from error
    if values.shape[1] != len(names) or not len(values):
        message = f"must hold {len(names)} numbers in each line below the first, but {path} "
        raise refuse(key, f"{message} holds an array of shape {values.shape}")
    return _finite(dict(zip(names, values.T, strict=True)), path, key)


def _parquet(path: Path, key: Key) -> dict[str, np.ndarray]:
    try:
        columns = parquet_columns(path)
        return _finite({name: x.astype(float) for name, x in columns.items()}, path, key)
    except ImportError as error:
        raise refuse(key, f"must be a CSV file, or one that can be read: {error}") from error
    except (OSError, TypeError, ValueError) as error:
        raise refuse(key, f"must be a Parquet file of numbers: {path}: {error}") from error


def _finite(columns: dict[str, np.ndarray], path: Path, key: Key) -> dict[str, np.ndarray]:
    for name, values in columns.items():
        if bad := np.flatnonzero(~np.isfinite(values)).tolist():
            raise refuse(
                key, f"must hold finite numbers, but {name} is not in row {bad[0]} of {path}"
            )
    return columns
