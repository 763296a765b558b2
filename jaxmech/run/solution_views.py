"""Views of a `Solution`: states at some times, and datasets."""

from importlib import import_module
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxmech.status import Status
from jaxmech.utils.units import Named, Units, columns, unit_of, units_of

AUDIT = ("energy", "position_residual", "velocity_residual")  # at every save time
OUTCOME = ("status", "t_failed", "energy_drift", "rank", "integration_error")


class Columns(eqx.Module):
    """The columns of states by their names; a subclass has the states and the names."""

    @property
    def names(self: Any) -> tuple[str, ...]:
        """The names of all columns: coordinates, rates, states, memory of controllers."""
        return tuple(columns(self.coordinates, self.velocities, self.memory_names))

    def __getitem__(self: Any, name: str) -> Array:
        """A column of q, v or the memory by its name, in the shape of the times.

        Args:
            name: one of `names`, such as `"crank"` for a coordinate, `"crank.rate"` for its rate.

        Raises:
            KeyError: if there is no such name.
            TypeError: if `name` is not a string, such as the index of a trajectory.
        """
        if not isinstance(name, str):
            raise TypeError(
                f"`sol[name]` takes the name of a column, but {name!r} is none; one trajectory of "
                f"a batch is `jax.tree.map(lambda x: x[{name}], sol)`."
            )
        entries = columns(self.coordinates, self.velocities, self.memory_names)
        arrays = {"q": self.q, "v": self.v, "memory": self.memory}
        return Named(entries, arrays, "the solution")[name]

    def unit(self: Any, name: str) -> str:
        """The unit of a column, such as `"rad/s"`; empty if the `System` states none."""
        return unit_of(self.units, name)


class States(Columns):
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


def _batch(sol: Any) -> tuple[str, ...]:
    """The names of the batch axes."""
    count = np.ndim(sol.status)
    return ("trajectory",) if count == 1 else tuple(f"batch_{k}" for k in range(count))


def _times(sol: Any) -> np.ndarray:
    """The save times, shape (T,) where all trajectories share them."""
    ts = np.asarray(sol.ts)
    rows = ts.reshape(-1, ts.shape[-1])
    return rows[0] if len(rows) and (rows == rows[0]).all() else ts
