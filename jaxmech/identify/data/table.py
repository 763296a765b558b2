"""`Table`: where recordings are in files, and what the columns mean.

The files are `.npz` with arrays of segments, or CSV and Parquet with named columns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from jaxmech.config.errors import Problem, out_of_range, refuse_all
from jaxmech.signal import Interpolation
from jaxmech.utils.text import doc, setting
from jaxmech.utils.units import unit_problem

Column = str | int


@dataclass(frozen=True, kw_only=True)
class Table:
    """The location of the recordings, and the meaning of their columns.

    Example:
        >>> table = Table(file="swings.csv", observed=("theta",), time="t")
        >>> table.start_columns
        (('theta',), ())
    """

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
    yield from _not_positive(table)
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


def _not_positive(table: Table) -> Iterator[Problem]:
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
