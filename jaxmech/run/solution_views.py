"""Views of a `Solution`: columns by name, states at some times, datasets and tables, HTML."""

from collections.abc import Iterator
from html import escape
from importlib import import_module
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxmech.status import Status
from jaxmech.utils.text import html_table, sparkline
from jaxmech.utils.units import Named, Units, columns, unit_of, units_of, with_unit

AUDIT = ("energy", "position_residual", "velocity_residual")  # at every save time
OUTCOME = ("status", "t_failed", "energy_drift", "rank", "integration_error")
MOST_LINES = 12  # sparklines of a card


class States(eqx.Module):
    """The states of a motion at some times; batches have leading axes.

    Attributes:
        t: the times [s], of any shape.
        q: coordinates, with a last axis n.
        v: velocities, with a last axis like that of the v of the `Solution`.
        memory: what controllers keep, with a last axis like that of the memory of the `Solution`.
        coordinates: names of the coordinates.
        velocities: names of the entries of v.
        units: the units given to the `System`, as pairs of a name and a unit.
        memory_names: names of the entries of the memory.
    """

    t: Float[Array, " *T"]
    q: Float[Array, " *T n"]
    v: Float[Array, " *T k"]
    memory: Float[Array, " *T c"]
    coordinates: tuple[str, ...] = eqx.field(static=True)
    velocities: tuple[str, ...] = eqx.field(static=True)
    units: Units = eqx.field(static=True, default=())
    memory_names: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `states[name]` knows, as those of a `Solution`."""
        return tuple(columns(self.coordinates, self.velocities, self.memory_names))

    def __getitem__(self, name: str) -> Array:
        """A column of q, v or the memory by its name, in the shape of the times."""
        indices = columns(self.coordinates, self.velocities, self.memory_names)
        arrays = {"q": self.q, "v": self.v, "memory": self.memory}
        return Named(indices, arrays, "the states")[name]

    def unit(self, name: str) -> str:
        """The unit of a column, such as `"rad/s"`; empty if the `System` states none."""
        return unit_of(self.units, name)


def dataset(sol: Any) -> Any:
    """The columns and the audit of a solution as an `xarray.Dataset`."""
    try:
        xarray = import_module("xarray")
    except ImportError as error:
        raise ImportError("`to_xarray` needs xarray: pip install xarray") from error
    batch, ts = _batch(sol), _times(sol)
    over_time = (*batch, "time")
    values = {name: (over_time, np.asarray(sol[name])) for name in sol.names}
    values |= {name: (over_time, np.asarray(getattr(sol, name))) for name in AUDIT}
    values |= {name: (batch, np.asarray(getattr(sol, name))) for name in OUTCOME}
    times = ("time", ts) if ts.ndim == 1 else (over_time, ts)
    data = xarray.Dataset(values, coords={"t": times})
    for name, unit in units_of(sol.units, sol.names).items():
        data[name].attrs["units"] = unit
    for name in ("energy", "energy_drift"):
        data[name].attrs["units"] = "J"
    data["t"].attrs["units"] = "s"
    data["status"].attrs["meanings"] = ", ".join(f"{s.value} {s.name}" for s in Status)
    return data.swap_dims(time="t") if ts.ndim == 1 else data


def frame(sol: Any) -> Any:
    """The columns of a solution as a `pandas.DataFrame`."""
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise ImportError("`to_pandas` needs pandas: pip install pandas") from error
    batch, ts = _batch(sol), np.asarray(sol.ts)
    columns_by_name = {name: np.asarray(sol[name]).ravel() for name in sol.names}
    shape = np.shape(sol.q)[:-1]
    times = np.broadcast_to(ts, shape)
    index = pandas.Index(times.ravel(), name="t")
    if batch:
        members = np.indices(shape)[:-1]
        levels = [*(member.ravel() for member in members), times.ravel()]
        index = pandas.MultiIndex.from_arrays(levels, names=[*batch, "t"])
    table = pandas.DataFrame(columns_by_name, index=index)
    table.attrs["units"] = units_of(sol.units, sol.names)
    return table


def _batch(sol: Any) -> tuple[str, ...]:
    """The names of the batch axes."""
    count = np.ndim(sol.status)
    return ("trajectory",) if count == 1 else tuple(f"batch_{k}" for k in range(count))


def _times(sol: Any) -> np.ndarray:
    """The save times, shape (T,) where all trajectories share them."""
    ts = np.asarray(sol.ts)
    rows = ts.reshape(-1, ts.shape[-1])
    return rows[0] if len(rows) and (rows == rows[0]).all() else ts


def card_as_html(sol: Any, card: str) -> str:
    """The printed card, with a line of each coordinate over time; in a batch of the first ones."""
    rows = list(_rows(sol))
    return f"<div><pre>{escape(card)}</pre>{html_table(rows) if rows else ''}</div>"


def _rows(sol: Any) -> Iterator[tuple[str, str, str]]:
    shown = [name for name in sol.names if name in sol.coordinates][:MOST_LINES]
    for name in shown:
        values = np.asarray(sol[name])
        values = values.reshape(-1, values.shape[-1])[0]
        if np.isfinite(values).any():
            span = f"{np.nanmin(values):.4g} ... {np.nanmax(values):.4g}"
            yield with_unit(name, sol.unit(name)), sparkline(values), span
