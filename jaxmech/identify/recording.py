"""`Recording`: measurements of one motion and its initial state, and the columns of a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaxmech.config import Rows
from jaxmech.config.errors import Problem, TableError, out_of_range, refuse, refuse_all
from jaxmech.system import Interpolation, Signal
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_positive_integer
from jaxmech.utils.text import doc, setting
from jaxmech.utils.units import si_unit, unit_problem

_WIDTHS = (5, 9, 17, 33, 65)  # samples under a parabola
_JUDGED = 100  # samples at which the widths are compared
_AT_ONCE = 4096  # samples whose parabolas are fitted in one batch, to bound the memory


def rates(values: HostArray, ts: HostArray) -> HostArray:
    """Time derivatives (T, k) of samples (T, k) at times (T,); NaN where one is unknown.

    They are slopes of local parabolas. Differences of neighbouring samples amplify their noise by
    one over the time between them. A parabola over more samples is less noisy, until it no longer
    follows the motion; the width is chosen by leave-one-out cross-validation (Fan and Gijbels 1996,
    section 4.10). It is a number of samples, which may have any number of times without one between
    them.
    """
    slopes = np.full(values.shape, np.nan)
    for k, column in enumerate(values.T):
        seen = np.isfinite(column)
        if not seen.any():
            continue
        samples, times = column[seen], ts[seen]
        judged = np.unique(np.linspace(0, len(times) - 1, min(len(times), _JUDGED)).astype(int))
        widths = [width for width in _WIDTHS if width <= len(times)] or [len(times)]
        # Without noise all may fit to round-off, which must not choose: then the widest is taken.
        rounding = (64 * np.finfo(float).eps * np.abs(samples).max()) ** 2
        errors = [max(_error(samples, times, width, judged), rounding) for width in widths[::-1]]
        width = widths[::-1][int(np.argmin(errors))]
        parts = np.array_split(ts, -(-len(ts) // _AT_ONCE))
        slopes[:, k] = np.concatenate([_parabolas(samples, times, width, x)[1] for x in parts])
    return slopes


def _error(values: HostArray, ts: HostArray, width: int, indices: NDArray[np.int_]) -> float:
    """Mean squared error of the parabolas at samples that they were not fitted to."""
    if width < _WIDTHS[0]:
        return 0.0
    value, _, leverage = _parabolas(values, ts, width, ts[indices])
    with np.errstate(invalid="ignore", divide="ignore"):
        # the error without the sample, from the fit with it: no second fit is needed
        missed = (values[indices] - value) / (1 - leverage)
    missed = missed[np.isfinite(missed)]
    return float(np.mean(missed**2)) if missed.size else np.inf


def _parabolas(
    values: HostArray, ts: HostArray, width: int, at: HostArray
) -> tuple[HostArray, HostArray, HostArray]:
    """Value and slope at some times of the parabola around each, and the leverage of a sample."""
    first = np.clip(np.searchsorted(ts, at) - width // 2, 0, len(ts) - width)
    near = first[:, None] + np.arange(width)
    away = ts[near] - at[:, None]
    scale = np.abs(away).max(axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    X = (away / scale[:, None])[..., None] ** np.arange(min(width, 3))  # two samples make a line
    inverse = np.linalg.pinv(X.swapaxes(1, 2) @ X, rcond=1e-10, hermitian=True)
    coefficients = inverse @ (X.swapaxes(1, 2) @ values[near][..., None])
    slope = coefficients[:, 1, 0] / scale if width > 1 else np.full(len(at), np.nan)
    return coefficients[:, 0, 0], slope, inverse[:, 0, 0]


Inputs = Mapping[str, Signal]


def checked_inputs(inputs: Any, ts: np.ndarray, origin: float) -> dict[str, Signal]:
    """The inputs as signals, with an `origin` subtracted from their times; they must cover the ts.

    Raises:
        ValueError: if an input is not a signal, or ends too early; the message says which.
    """
    if not isinstance(inputs, Mapping):
        raise ValueError(f"signals by name, such as {{'torque': (tu, u)}}, but is {short(inputs)}")
    signals = {}
    for name, given in inputs.items():
        try:
            if not isinstance(given, Signal):
                times, values = given
                signal = Signal(np.asarray(times, float) - origin, values)
            elif origin:
                times = np.asarray(given.ts) - origin
                signal = Signal(times, given.values, given.interpolation, given.delay)
            else:
                signal = given
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"a pair (times, values) or a Signal for {name!r}, but it is neither: {error}"
            ) from error
        signals[name] = signal
        if missing := signal.missing(ts[0], ts[-1]):
            raise ValueError(f"in {name!r} {missing}")
    return signals


Column = str | int
_FIRST = "finite numbers at the first sample"
_ROUND_OFF = 1e-7  # share of an interval between samples; a fit resolves parts in 1e8


@dataclass(frozen=True, eq=False)
class Recording:
    """Samples of one motion, at any times, with gaps if need be.

    Args:
        ts: sample times [s], shape (T,), strictly increasing; they need not be evenly spaced. If
            times are so large that their round-off would affect the steps, such as seconds since
            1970, the first one is subtracted, and kept as `origin`.
        observed: measurements, shape (T, d), or (T,) for a single sensor; NaN marks missing ones.
        q0: initial state at ts[0], shape (k,): the coordinates of the system, or the variables from
            which the `start` of `fit` computes a state. Shape (T, k) gives a guess at every sample,
            for the initial states of multiple shooting.
        v0: the rates of q0, of the same shape; for quasi-velocities u there may be fewer.
        weights: 1 / (standard deviation of the noise): a number, (d,) or (T, d). Without weights
            the noise of each sensor is estimated from the residuals of the fit.
        start_sd: standard deviations of q0 and v0, two numbers or arrays (k,), with inf for a
            guess, if they were measured independently of `observed`. They define a prior for free
            initial states. Without them q0 and v0 are only a first guess.
        name: name for tables and pictures.
        inputs: the inputs that drove the motion, by name: a `Signal`, or (times, values), which are
            interpolated linearly. They may have any sampling rates; all recordings of a fit need
            the same names. A signal replaces the parameter of that name: the functions call
            `params["torque"](t)`. It must cover the ts, and use the same clock.
        origin: the time that has been subtracted from the times [s].
        notes: text that describes how the samples were processed, such as a conversion of units; a
            fit prints it.
        sensors: names of the sensors with their units, such as "angle [rad]", for pictures. Units
            must be those of the coordinates where these are observed.
        starts: the same of q0 and of v0, two tuples.

    Raises:
        ValueError: if a shape is wrong, the times do not increase, q0, v0 or a weight is not
            finite, nothing was measured, or an input does not cover the times.

    Example:
        >>> swing = Recording([0.0, 0.1, 0.2], [[0.3], [float("nan")], [0.1]], [0.3], [0.0])
        >>> swing
        Recording(3 samples of 1 sensor in 0.2 s, 1 missing)
    """

    ts: Any
    observed: Any
    q0: Any
    v0: Any
    weights: Any = None
    start_sd: tuple[Any, Any] | None = None
    name: str = ""
    origin: float = 0.0
    inputs: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    sensors: tuple[str, ...] = ()
    starts: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def __post_init__(self) -> None:

        def require(is_met: Any, argument: str, requirement: str) -> None:
            if not is_met:  # false for NaN, too
                location = f" of recording {self.name!r}" if self.name else ""
                raise ValueError(f"Argument `{argument}`{location} must have {requirement}.")

        def array(argument: str, value: Any) -> np.ndarray:
            try:
                return np.asarray(value, float)
            except (TypeError, ValueError) as error:
                raise TypeError(f"Argument `{argument}` must hold numbers: {error}.") from error

        ts, observed, q0, v0 = (array(x, getattr(self, x)) for x in ("ts", "observed", "q0", "v0"))
        is_row = ts.ndim == 1 and ts.size >= 2
        require(is_row, "ts", f"shape (T,) with T >= 2, but has shape {ts.shape}")
        rises = np.isfinite(ts).all() and (np.diff(ts) > 0).all()
        require(rises, "ts", "finite and strictly increasing times; sort them, drop repeated ones")
        observed = observed[:, None] if observed.ndim == 1 else observed
        fits = observed.ndim == 2 and len(observed) == len(ts) and observed.shape[1]
        require(
            fits, "observed", f"shape (T, d) with T = {len(ts)}, but has shape {observed.shape}"
        )
        infinite = np.isinf(observed).any()
        require(not infinite, "observed", "no infinite value; write NaN for what is missing")
        is_seen = np.isfinite(observed)
        require(is_seen.any(), "observed", "at least one number, but all are missing")
        for name, x in (("q0", q0), ("v0", v0)):
            fits = x.ndim == 1 or (x.ndim == 2 and len(x) == len(ts))
            shapes = f"(k,), or (T, k) with T = {len(ts)}"
            require(fits, name, f"shape {shapes}, but has shape {x.shape}")
            require(np.isfinite(x[0] if x.ndim == 2 else x).all(), name, _FIRST)
        fits = q0.shape[:-1] == v0.shape[:-1] and q0.shape[-1] >= v0.shape[-1]
        require(fits, "v0", f"the shape of `q0`, {q0.shape}, but has shape {v0.shape}")

        weights, start_sd = self.weights, self.start_sd
        if weights is not None:
            weights = array("weights", weights)
            fits = weights.shape in ((), observed.shape[1:], observed.shape)
            shapes = f"a number, (d,) or (T, d) as `observed` {observed.shape}"
            require(fits, "weights", f"{shapes}, but has {weights.shape}")
            counts = np.isfinite(weights).all() and (weights >= 0).all() and weights.any()
            requirement = (
                "finite numbers from 0 on, not all zero; write NaN into `observed` for a gap"
            )
            require(counts, "weights", requirement)
            weighs = (is_seen & (weights > 0)).any()
            require(weighs, "weights", "a positive number where something was measured")
        if start_sd is not None:
            of_q0, of_v0 = q0.shape[-1], v0.shape[-1]
            shapes = f"({of_q0},)" if of_q0 == of_v0 else f"({of_q0},) and ({of_v0},)"
            requirement = f"two standard deviations, of q0 and v0, numbers or of shape {shapes}"
            try:
                of_q, of_v = (array("start_sd", sd) for sd in start_sd)
                start_sd = (np.broadcast_to(of_q, (of_q0,)), np.broadcast_to(of_v, (of_v0,)))
            except (TypeError, ValueError):
                require(False, "start_sd", requirement)
            positive = all((sd > 0).all() for sd in start_sd)
            require(positive, "start_sd", "positive numbers, inf for what is only a guess")
        # whether the round-off of the times is a part of the intervals between them
        loses_digits = np.finfo(float).eps * np.abs(ts).max() > _ROUND_OFF * np.median(np.diff(ts))
        origin = float(ts[0]) if loses_digits else 0.0
        try:
            inputs = checked_inputs(self.inputs, ts - origin, origin)
        except ValueError as error:
            require(False, "inputs", str(error))
        fields = {
            "ts": ts - origin, "observed": observed, "q0": q0, "v0": v0, "weights": weights,
            "start_sd": start_sd, "origin": self.origin + origin, "inputs": inputs,
            "notes": tuple(self.notes),
        }  # fmt: skip
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def count(self) -> int:
        """The number of measurements with a positive weight."""
        return int(self.measured.sum())

    @property
    def measured(self) -> np.ndarray:
        """Flags of the measurements with a positive weight, (T, d)."""
        weighs = True if self.weights is None else self.weights > 0
        is_measured: np.ndarray = np.isfinite(self.observed) & weighs
        return is_measured

    @classmethod
    def from_frame(
        cls, frame: Any, *, observed: Any, by: str | None = None, **columns: Any
    ) -> tuple["Recording", ...]:
        """The recordings of a data frame: one, or one for each value of the column `by`.

        Args:
            frame: a data frame of pandas or polars, or a mapping from names to arrays. A pandas
                index with a name counts as a column, too; dates become seconds from the first one.
            observed: the column that was measured, or several.
            by: the column that names the recording of each row.
            **columns: `time` or `dt`, `q0`, `v0`, `units`, `noise_sd`, `start_sd`, `wraps`,
                `inputs`, `interpolation`, `stride`, as the fields of a `Table`.

        Raises:
            TypeError: if there is no such field, or `frame` has no columns.
            StudyError: if a field does not match the columns.
            TableError: if a column holds no numbers, or the times do not increase.

        Example:
            >>> frame = {"t [ms]": [0, 100, 200], "theta [deg]": [9.0, 8.0, 5.0]}
            >>> Recording.from_frame(frame, observed="theta", time="t")
            (Recording(frame: 3 samples of 1 sensor in 0.2 s),)
        """
        for key in ("observed", "q0", "v0", "wraps", "start_sd"):
            value = observed if key == "observed" else columns.get(key)
            if value is not None:
                columns[key] = (value,) if isinstance(value, str | int) else tuple(value)
        meaning = Columns(**columns)
        rows = Rows.of_frame(frame, meaning.units)
        return tuple(meaning.of_rows(part) for part in rows.parts(by))

    def every(self, stride: int) -> "Recording":
        """Every `stride`-th sample, beginning with the first.

        Raises:
            ValueError: if `stride` is not a positive integer.
        """
        require_positive_integer("stride", stride, "keep every 1st, 2nd, ... sample")
        fields = {name: getattr(self, name) for name in ("q0", "v0", "weights")}
        arrays = {name: x[::stride] for name, x in fields.items() if np.ndim(x) == 2}
        return replace(self, ts=self.ts[::stride], observed=self.observed[::stride], **arrays)

    def __repr__(self) -> str:
        samples, sensors = self.observed.shape
        missing = int(np.isnan(self.observed).sum())
        name = f"{self.name}: " if self.name else ""
        since = f", times since {self.origin:.15g} s" if self.origin else ""
        return (
            f"Recording({name}{samples} samples of {sensors} sensor{'s' * (sensors > 1)} in "
            f"{self.ts[-1] - self.ts[0]:g} s{f', {missing} missing' if missing else ''}{since})"
        )


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The meaning of the columns of a table or a data frame."""

    observed: tuple[Column, ...] = field(metadata=doc("columns that were measured"))
    q0: tuple[Column, ...] = setting((), "columns of the start variables; `observed` by default")
    v0: tuple[Column, ...] = setting(
        (), "columns of their velocities; derivatives of `q0` by default"
    )
    time: str | None = setting(None, "column, or array of an .npz, of the sample times")
    dt: float | None = setting(
        None, "time between samples [s]; the array `dt` of an .npz by default", positive=True
    )
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
        (), "observed angles that jump back after a turn, such as from pi to -pi, and are unwrapped"
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
        refuse_all([*self.problems(), *out_of_range(self)])

    def problems(self) -> Iterator[Problem]:
        count, starts = len(self.observed), self.q0 or self.observed
        if not count:
            yield Problem(("observed",), "must name at least one column")
        for key in ("observed", "q0", "v0", "wraps"):  # a repeated column would be two sensors
            columns = getattr(self, key)
            if len({*columns}) < len(columns):
                yield Problem((key,), f"must name every column once, but is {list(columns)}")
        if len(self.v0) > len(starts):
            message = f"must name as many columns as `q0`, {len(starts)}, or none"
            yield Problem(("v0",), f"{message}, but names {len(self.v0)}")
        noise, start = self.noise_sd, self.start_sd
        sds = np.asarray(1.0 if noise is None else noise)
        is_number = sds.dtype.kind in "iuf" and sds.shape in ((), (count,))
        if not (is_number and (sds > 0).all() and np.isfinite(sds).all()):
            message = f"must be positive, one for all or one for each of {count} columns"
            yield Problem(("noise_sd",), f"{message}, but is {noise}")
        if start is not None and (len(start) != 2 or not all(sd > 0 for sd in start)):
            yield Problem(("start_sd",), f"must be two positive numbers, but is {list(start)}")
        if self.time is not None and self.dt is not None:
            yield Problem(("dt",), "must be left out where `time` is given")
        for name, unit in self.units.items():
            if message := unit_problem(unit):
                yield Problem(("units", name), message)

    def of_rows(self, rows: Rows) -> Recording:
        """The recording in these rows, or a StudyError or TableError that says what is wrong."""
        observed = [rows.required("observed", column) for column in self.observed]
        q_titles = [rows.required("q0", column) for column in self.q0] or observed
        v_titles = [rows.required("v0", column) for column in self.v0]
        inputs = {name: rows.required("inputs", column) for name, column in self.inputs.items()}
        wraps = [rows.required("wraps", column) for column in self.wraps]
        for title in wraps:
            if title not in observed or (si_unit(rows.unit(title) or "rad") or "?")[-1] != "rad":
                raise refuse("wraps", f"must be angles in `observed`, but has {title!r}")
        clock = [] if self.time is None else [rows.required("time", self.time)]
        notes = rows.notes(*clock, *observed, *q_titles, *v_titles, *inputs.values())

        ts = rows.times(self.time, self.dt)
        samples, q0 = rows.numbers(*observed), rows.numbers(*q_titles)
        for titles, values in ((observed, samples), (q_titles, q0)):
            for k in (k for k, title in enumerate(titles) if title in wraps):
                seen = np.isfinite(values[:, k])
                values[seen, k] = np.unwrap(values[seen, k])
        v0 = rows.numbers(*v_titles) if v_titles else rates(q0, ts)
        for titles, first in ((q_titles, q0[0]), (v_titles or q_titles, v0[0])):
            for k in np.flatnonzero(~np.isfinite(first))[:1]:
                raise TableError(
                    f"{rows.location(0)}: column `{titles[k]}` is missing where {rows.name} "
                    "begins; the start must be known, cut the rows before it"
                )
        # what is observed as well counts once, as its first sample
        sds = self.start_sd or (np.inf, np.inf)
        of_q0, of_v0 = (
            np.array([np.inf if title in observed else sd for title in titles])
            for titles, sd in ((q_titles, sds[0]), (v_titles or q_titles, sds[1]))
        )
        try:
            recording = Recording(
                ts, samples, q0, v0,
                weights=None if self.noise_sd is None else 1 / np.asarray(self.noise_sd, float),
                start_sd=(of_q0, of_v0) if np.isfinite([*of_q0, *of_v0]).any() else None,
                name=rows.name, notes=notes,
                inputs={
                    name: Signal(ts, rows.numbers(title)[:, 0], self.interpolation)
                    for name, title in inputs.items()
                },
                sensors=rows.labels(*observed),
                starts=(rows.labels(*q_titles), rows.labels(*v_titles)),
            )  # fmt: skip
            return recording.every(self.stride)
        except ValueError as error:
            raise TableError(f"{rows.path}: {error}") from error


def named(recordings: Any, argument: str) -> tuple[Recording, ...]:
    """Return one recording or several as a tuple; those without a name are numbered from 1."""
    sequence = tuple(recordings) if isinstance(recordings, Iterable) else (recordings,)
    for recording in sequence:
        if not isinstance(recording, Recording):
            raise TypeError(
                f"Argument `{argument}` must hold Recording objects, but holds {short(recording)}."
            )
    return tuple(
        recording if recording.name else replace(recording, name=f"recording {number}")
        for number, recording in enumerate(sequence, start=1)
    )


def require_same_sensors(recordings: tuple[Recording, ...]) -> tuple[Recording, ...]:
    """Require recordings of the same sensors and inputs, all or none with weights; return them."""
    if not recordings:
        raise ValueError("Argument `recordings` must hold at least one Recording.")
    sensors = {recording.observed.shape[1] for recording in recordings}
    if len(sensors) > 1:
        raise ValueError(
            f"Argument `recordings` must have the same sensors, but there are recordings with "
            f"{' and '.join(map(str, sorted(sensors)))}; write NaN for a sensor that was missing."
        )
    if len({recording.weights is None for recording in recordings}) > 1:
        raise ValueError("Argument `recordings` must have `weights` in all of them or in none.")
    first = recordings[0]
    for other in recordings[1:]:
        for name in {*first.inputs, *other.inputs}:
            if name not in other.inputs or name not in first.inputs:
                lacking = first if name in other.inputs else other
                raise ValueError(
                    "Argument `inputs` must have the same names in all recordings, but "
                    f"{lacking.name} has no {name!r}; write zeros for an input that was off."
                )
            a, b = first.inputs[name], other.inputs[name]
            if (a.interpolation, a.values.shape[1:]) != (b.interpolation, b.values.shape[1:]):
                raise ValueError(
                    f"Argument `inputs` must have {name!r} with the same interpolation and shape "
                    f"in all recordings, but {first.name} and {other.name} differ."
                )
    for column in range(sensors.pop()):
        samples = np.concatenate(
            [recording.observed[recording.measured[:, column], column] for recording in recordings]
        )
        if samples.size and np.ptp(samples) == 0:
            raise ValueError(
                f"Argument `recordings` must hold measurements that change, but sensor {column} "
                f"shows {samples[0]:g} throughout; leave it out, or give it as NaN."
            )
    return recordings
