"""`Solution`: a trajectory with its status and its audit, its columns by name and as a dataset."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmech.integrate import Events, Run, StepWarning, states_at
from jaxmech.status import Status, succeeded
from jaxmech.utils.caller import USE_FLOAT64, warn_caller
from jaxmech.utils.checks import is_known
from jaxmech.utils.probing import actual
from jaxmech.utils.text import DRAWINGS
from jaxmech.utils.trees import Digests
from jaxmech.utils.units import Named, Units, columns, shown_coordinates, unit_of, units_of

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
    count, ts = np.ndim(sol.status), _times(sol)
    batch = ("trajectory",) if count == 1 else tuple(f"batch_{k}" for k in range(count))
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


def _times(sol: Any) -> np.ndarray:
    """The save times, shape (T,) where all trajectories share them."""
    ts = np.asarray(sol.ts)
    rows = ts.reshape(-1, ts.shape[-1])
    return rows[0] if len(rows) and (rows == rows[0]).all() else ts


MOST_NUMBERS = 1000  # of parameters that a solution keeps where `vmap` copies them
MOST_NAMES = 8  # that a printed solution lists
TOO_COARSE = 1e-3  # integration error above which a step is reported as too coarse
_REMEDY = (
    "give a larger `FixedSteps(per_save=...)` (`steps.per_save`) or a smaller `rtol` in `Adaptive`"
)


_MISSED = (
    "event {!r} was missed {}{}: its function crosses zero within steps that are too long for it. "
    "Give a larger `FixedSteps(per_save=...)`, a shorter `max_step`, or the `times` of a pulse."
)
_NUMBERS = 18  # fields of a solution that are arrays


class Solution(Columns):
    """The result of `simulate`. Under `jax.vmap` every array gets a leading batch axis.

    Attributes:
        ts: save times [s], shape (T,).
        q: coordinates, shape (T, n); NaN after a failure.
        v: velocities, shape (T, n), with the states of first order last, or (T, k) with k
            quasi-velocities, in the order of `System.velocity_names`; NaN after a failure.
        memory: what the controllers of a `controlled` system keep, shape (T, c): their outputs and
            memories, and the numbers of their samples; NaN after a failure.
        status: the outcome, a `Status` as int32.
        t_failed: time [s] of the last good state before a failure; NaN without a failure.
        energy: v . dL/dv - L at the save times [J], shape (T,).
        energy_drift: largest |energy - energy[0]| [J] if the system conserves energy, else NaN.
        position_residual: largest |phi| at the save times, shape (T,). Between save times the
            projection either converges in every step or ends the run; without a projection, and
            with events, the residual is the largest over all steps since the previous save.
        velocity_residual: largest |dphi/dt| or |psi|, likewise, shape (T,).
        rank: smallest number of independent constraint equations during the motion.
        step: longest step of the integration [s].
        integration_error: estimate of the integration error at the end, relative to the motion: the
            largest over coordinates and velocities, each relative to its range and to its largest
            speed (at least 1 % of the widest range and of the highest speed). It is the sum of the
            errors of the steps, estimated from differences of the states, without rounding errors
            and without the growth of errors in chaotic motion. NaN if there were fewer than three
            steps before the end or a failure. With `Adaptive` it adds up the errors that control
            the step size, those of the less accurate method of the pair, and is mostly too large.
            If constraints contain the time, it includes the corrections by the projection.
        resolution: the smallest integration error, likewise, that could be told from round-off of
            the states; `integration_error` is not below it.
        accepted: number of steps before the end or a failure.
        rejected: number of attempted steps that were repeated with a smaller size.
        evaluations: number of evaluations of the law of motion in all attempts.
        t_stiff: time [s] from which stability, instead of the tolerance, seemed to limit the steps
            of `Adaptive`; NaN if it never did.
        coordinates: names of the coordinates.
        velocities: names of the entries of v: the names of the coordinates whose rates they are, or
            of the quasi-velocities, and then of the states of first order.
        units: the units given to the `System`, as pairs of a name and a unit.
        events: recorded events, by name; None without events.
        digests: a digest of the value of each parameter, by name, with which `observe` and
            `animate` check that they are given the parameters of the simulation.
        run: what the motion was computed from, for `at`.
        memory_names: names of the entries of the memory.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> sol = jm.simulate(model.system, *model.initial(), jnp.linspace(0, 1, 101), model.params)
        >>> Status(int(sol.status)).name, sol.q.shape
        ('OK', (101, 2))
        >>> sol.names
        ('x1', 'x2', 'x1.rate', 'x2.rate')
        >>> print(f"{sol['x2'].min():.3f} m")
        -1.000 m
    """

    ts: Float[Array, " T"]
    q: Float[Array, " T n"]
    v: Float[Array, " T k"]
    memory: Float[Array, " T c"]
    status: Int[Array, ""]
    t_failed: Float[Array, ""]
    energy: Float[Array, " T"]
    energy_drift: Float[Array, ""]
    position_residual: Float[Array, " T"]
    velocity_residual: Float[Array, " T"]
    rank: Int[Array, ""]
    step: Float[Array, ""]
    integration_error: Float[Array, ""]
    resolution: Float[Array, ""]
    accepted: Int[Array, ""]
    rejected: Int[Array, ""]
    evaluations: Int[Array, ""]
    t_stiff: Float[Array, ""]
    coordinates: tuple[str, ...] = eqx.field(static=True)
    velocities: tuple[str, ...] = eqx.field(static=True)
    units: Units = eqx.field(static=True, default=())
    events: Events | None = None
    digests: Digests | None = None
    run: Run | None = None
    memory_names: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def ok(self) -> Array:
        """Whether the trajectory was computed to its end, or to a terminal event."""
        return succeeded(self.status)

    def at(self, t: Any) -> States:
        """The states at any times of the run: dense output.

        From the last save before a time, the motion is computed again up to that time, with the
        method, the steps and the projection of the run. So a state is on the constraints, and as
        accurate as the saves, however far apart they are. It can be differentiated with respect to
        everything, and a batch gives a batch of states.

        Transitions before a time are taken from `events`, as far as these keep them; at the time
        of a transition, the state is the one before it. After a terminal event the state stays as
        it is. After a failure it is NaN.

        Args:
            t: times [s], a number or an array of any shape, the same for all of a batch. With
                respect to a time equal to the first one, the derivative is zero.

        Returns:
            The `States`, of which `states["crank"]` is a column in the shape of t.

        Raises:
            ValueError: if a time lies outside the run, or after more transitions than the events
                keep (NaN where the values are not known, as under `jit`); or if the parameters are
                too many to be kept in a batch.
        """
        if self.run is None:
            raise ValueError(
                "Argument `t` must go with kept parameters, but in a batch parameters of more than "
                f"{MOST_NUMBERS:,} numbers are not kept; save the times with `ts`, or simulate one "
                "trajectory alone."
            )
        saves = self.ts, self.q, self.v, self.memory
        at = states_at
        for _ in range(self.status.ndim):
            at = jax.vmap(at, (0, 0, 0, 0, None))
        t, q, v, memory = at(self.run, saves, self.t_failed, self.events, t)
        names = self.coordinates, self.velocities, self.units, self.memory_names
        return States(t, q, v, memory, *names)

    def to_xarray(self) -> Any:
        """Convert to an `xarray.Dataset` with a variable for each of `names` and for the audit.

        The attribute `units` of a variable is the unit that was given to the `System`.

        The last dimension is `time`; batches have the dimension `trajectory` before it, or
        `batch_0`, `batch_1` and so on if they are nested.

        Raises:
            ImportError: if xarray is not installed.
        """
        return dataset(self)

    def plot(
        self, *names: str | tuple[str, ...], event: str | None = None, figure: Any = None
    ) -> Any:
        """Draw the motion: by default all columns over time, the energy and the residuals.

        Columns of the same unit share a panel. Up to 12 trajectories of a batch are drawn as lines,
        and of more the quantiles; those that failed are left out.

        Args:
            *names: columns to draw over time, each in a panel of its own. A pair of columns is
                drawn one over the other: `("x", "y")` is a path, and `("angle", "angle.rate")` a
                phase portrait.
            event: the name of an event, at which the columns are drawn as dots; pairs are then
                Poincaré sections.
            figure: a matplotlib figure to draw into; by default a new one, which
                `matplotlib.pyplot.show` shows.

        Returns:
            The `Panels`: `save("motion.png")` writes them; their `axes` can be changed, by name.

        Raises:
            KeyError: if there is no such column or event.
            ValueError: if all trajectories failed, or there are no events.
        """
        return DRAWINGS["Solution"](self, names, event, figure)

    def _is_concrete(self) -> bool:
        leaves = [getattr(self, field.name) for field in fields(self)[:_NUMBERS]]
        arrays = (jax.Array, np.ndarray, np.generic)
        concrete = is_known(leaves) and all(isinstance(leaf, arrays) for leaf in leaves)
        return concrete and bool(np.size(self.status))

    def __repr__(self) -> str:
        if not self._is_concrete():
            return f"Solution(coordinates={self.coordinates}, without values)"
        return "\n".join(_card(self))


def _card(sol: Solution) -> list[str]:
    status = np.atleast_1d(np.asarray(sol.status).ravel())
    count = f"{status.size} trajectories, " if np.ndim(sol.status) else ""
    ts = np.atleast_1d(np.asarray(sol.ts))
    span = f"t = {ts.min():g} ... {ts.max():g} s, {ts.shape[-1]} saved"
    return [
        f"Solution: {count}{span}, coordinates {_shortened(shown_coordinates(sol.coordinates))}",
        f"  status             {_statuses(sol, status)}",
        f"  position residual  {_largest(sol.position_residual)}",
        f"  velocity residual  {_largest(sol.velocity_residual)}",
        f"  energy drift       {_largest(sol.energy_drift, unit=' J', absent='not conserved')}",
        f"  smallest rank      {np.min(np.asarray(sol.rank))}",
        f"  steps              {_steps(sol)}",
        f"  longest step       {_largest(sol.step, unit=' s')}",
        f"  integration error  {_largest(sol.integration_error, ' of the motion', 'unknown')}",
        *_event_lines(sol),
        *_hints(sol),
    ]


def _shortened(names: Sequence[str]) -> str:
    """All names, or the first ones and how many there are."""
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"


def _event_lines(sol: Solution) -> Iterator[str]:
    """A line for each event, of many events for each that occurred."""
    if sol.events is None:
        return
    counts = {name: int(np.asarray(sol.events[name].count).sum()) for name in sol.events}
    shown = [name for name, count in counts.items() if count or len(counts) <= MOST_NAMES]
    width = max([18, *map(len, shown)])
    for name in shown:
        t, times = np.asarray(sol.events[name].t)[..., 0], "time" if counts[name] == 1 else "times"
        first_time = f", first at t = {np.nanmin(t):g} s" if np.isfinite(t).any() else ""
        yield f"  {name:<{width}} {counts[name]} {times}{first_time}"
    if len(shown) < len(counts):
        yield f"  {'other events':<{width}} {len(counts) - len(shown)}, none of which occurred"


def _hints(sol: Solution) -> Iterator[str]:
    errors, resolution = map(np.atleast_1d, (sol.integration_error, sol.resolution))
    if (errors > TOO_COARSE).any():
        yield f"  {_of_large_errors(errors, resolution, sol.q.dtype)}"
    elif np.isnan(errors[succeeded(np.atleast_1d(np.asarray(sol.status)))]).any():
        yield "  too few steps to estimate the error: give a larger `FixedSteps(per_save=...)`"


def _share(concerned: np.ndarray) -> str:
    return f" for {concerned.sum()} of {concerned.size} trajectories" if concerned.size > 1 else ""


def warn_of_coarse_steps(sol: Solution) -> None:
    """Warn if the integration error of a trajectory is large; under `jit` it is unknown."""
    values = actual((sol.integration_error, sol.resolution), sys.maxsize)
    if values is None or not (values[0] > TOO_COARSE).any():
        return
    errors, resolution = values
    largest = np.max(errors, initial=0.0, where=errors > TOO_COARSE)
    reason = _of_large_errors(errors, resolution, sol.q.dtype)
    warn_caller(
        f"the integration error is about {largest:.0e} of the motion: {reason}.", StepWarning
    )


def _of_large_errors(errors: np.ndarray, resolution: np.ndarray, dtype: Any) -> str:
    """What large integration errors come from, and what helps."""
    is_large = errors > TOO_COARSE
    is_coarse = is_large & (errors > resolution)
    if is_coarse.any():
        return f"the step is too coarse{_share(is_coarse)}; {_REMEDY}"
    remedy = USE_FLOAT64 if dtype == np.float32 else "measure coordinates from a nearer origin"
    return f"round-off hides the errors of so small a motion{_share(is_large)}; {remedy}"


def warn_of_missed_events(sol: Solution) -> None:
    """Warn of events that a denser look shows in steps that are too long; unknown under `jit`."""
    if sol.events is None:
        return
    missed = actual([sol.events[name].missed for name in sol.events], sys.maxsize)
    if missed is None:
        return
    for name, counts in zip(sol.events, missed, strict=True):
        if total := int(counts.sum()):
            times = "once" if total == 1 else f"{total:,} times"
            warn_caller(_MISSED.format(name, times, _share(counts > 0)), StepWarning)


def _statuses(sol: Solution, status: np.ndarray) -> str:
    if status.size > 1:
        codes, counts = np.unique(status, return_counts=True)
        return ", ".join(f"{n} {Status(int(c)).name}" for c, n in zip(codes, counts, strict=True))
    code = Status(int(status[0]))
    if code == Status.OK:
        return "OK"
    if code == Status.STOPPED and sol.events is not None:
        event = sol.events.names[int(np.ravel(sol.events.stopped_by)[0])]
        return f"STOPPED at t = {float(np.ravel(sol.events.t_end)[0]):g} s by {event!r}"
    return f"{code.name} at t = {float(np.ravel(sol.t_failed)[0]):g} s: {code.message}"


def _steps(sol: Solution) -> str:
    accepted, rejected = (np.asarray(x).ravel() for x in (sol.accepted, sol.rejected))
    low, high = accepted.min(), accepted.max()
    count = f"{high:,}" if low == high else f"{low:,} ... {high:,}"
    return f"{count}, {rejected.max():,} rejected" if rejected.any() else count


def _largest(values: Array | np.ndarray, unit: str = "", absent: str = "none") -> str:
    finite = np.asarray(values)[np.isfinite(np.asarray(values))]
    return f"{finite.max():.2e}{unit}" if finite.size else absent
