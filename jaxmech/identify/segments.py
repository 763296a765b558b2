"""Recordings as segments: where they start, what may change there, and their steps.

Recorded of an initial state are start variables and their rates (`jaxmech.state.begin`). With a
`start` they may change in every direction, without one along the constraints. Recordings are cut
into segments and stacked as one batch; missing and padded samples weigh zero.

The number of fixed steps is chosen from the motion where the fit begins. Where it ends the motion
may need more, as it may with a number that was given: the error of a trial with step doubling
tells. An error d of the predicted samples moves the estimates by (J^T J)^-1 J^T d, in units of the
noise, that is by |d| standard errors at most, and by as much where d lies in the span of J, as an
error of a period does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.identify.problem import FitProblem, Point, SegmentOrigin, Segments, Task, with_inputs
from jaxmech.identify.recording import Inputs, Recording, rates
from jaxmech.integrate import MEMBERS, FixedSteps, members_error, members_need
from jaxmech.run import simulate
from jaxmech.state import begin
from jaxmech.system import KnownState, Params, Signal, System, extents_at, on_constraints
from jaxmech.utils.checks import naming_missing, require_positive
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import evenly_spaced
from jaxmech.utils.text import capital, doc, setting
from jaxmech.utils.trees import unread
from jaxmech.utils.units import RATE, dimension, shown_coordinates, si_unit, unit_in_name

_MOST_DOUBLED = 1024  # times up to which their number is a power of two
_ROUND_OFF = 6.0  # distance of times that count as equal, in units of round-off
_PADDING = 1e-9  # spacing of the times that pad a segment, relative to its duration


@dataclass(frozen=True)
class Shooting:
    """Multiple shooting (Bock 1983): cuts each recording into segments with free initial states.

    After some seconds the state of a chaotic motion depends too strongly on the parameters to be
    followed numerically; over short segments it does not. In the solution each segment begins where
    the previous one ends (Gauss-Newton steps with the states between segments eliminated). The
    first guesses of the initial states are the samples if the sensors are the coordinates, and
    otherwise a simulation or the guesses of a `Recording`.

    Args:
        length: length of a segment [s], about the time in which a deviation grows tenfold.
        first: "free" fits the initial states of the recordings too, "fixed" keeps those recorded.

    Raises:
        ValueError: if the length is not positive.
    """

    length: float = field(metadata=doc("length of a segment [s]"))
    first: Literal["fixed", "free"] = setting(
        "free", "whether the initial states of the recordings are fitted too"
    )

    def __post_init__(self) -> None:
        require_positive("length", self.length)


def signal_rows(signals: Sequence[Signal], size: int | None = None) -> Signal:
    """Signals of one interpolation as the rows of a batch, padded to so many samples.

    Evenly spaced ones keep the bits of their values, unless others are not evenly spaced.
    """
    if any(signal.times is not None for signal in signals):
        where, is_none = (lambda x: (x.start, x.spacing, x.times)), (lambda x: x is None)
        signals = [eqx.tree_at(where, x, (None, None, x.ts), is_leaf=is_none) for x in signals]
    most = max(len(signal.values) for signal in signals)
    padded = [_padded_signal(signal, size or most) for signal in signals]
    # By numpy, which compiles no program for each number of segments.
    stack: Signal = jax.tree.map(lambda *rows: jnp.asarray(np.stack(rows)), *padded)
    return stack


def _padded_signal(signal: Signal, size: int) -> Signal:
    """A signal with more samples, beyond the last one, whose value it keeps."""
    values = np.asarray(signal.values)
    count = len(values)
    values = np.concatenate([values, np.repeat(values[-1:], size - count, axis=0)])
    times: Any = signal.times
    if times is not None:
        times = np.asarray(times)
        more = np.arange(1, size - count + 1, dtype=times.dtype)
        times = np.concatenate([times, times[-1] + more * (times[-1] - times[-2])])
    # The slope of a cubic at its last sample depends on how many there are.
    is_cubic = signal.interpolation == "cubic"
    changed: Signal = eqx.tree_at(
        lambda s: (s.times, s.values, s.count),
        signal,
        (times, values, np.asarray(count, values.dtype) if is_cubic else None),
        is_leaf=lambda x: x is None,
    )
    return changed


class _Segment(NamedTuple):
    recording: int
    ts: np.ndarray
    rows: np.ndarray
    samples: np.ndarray
    counts: np.ndarray  # false for the first sample of a later segment, the last of the one before


def segments(
    recordings: Sequence[Recording], *, horizon: Shooting | None = None, step: float | None = None
) -> tuple[Segments, SegmentOrigin]:
    """Cut recordings at the horizon, divide intervals longer than `step` [s], and pad."""
    pieces: list[_Segment] = []
    for number, recording in enumerate(recordings):
        intervals = len(recording.ts) - 1
        duration = recording.ts[-1] - recording.ts[0]
        # 1 - 1e-9: a duration of 3 * 0.1 is three segments of 0.1 in spite of round-off
        count = 1 if horizon is None else int(np.ceil(duration / horizon.length * (1 - 1e-9)))
        ends = np.unique(np.linspace(0, intervals, min(max(count, 1), intervals) + 1).round())
        for first, last in pairwise(ends.astype(int)):
            samples = np.arange(first, last + 1)
            knots = ends_of_steps(recording.inputs, *recording.ts[[first, last]])
            ts, rows = merged(recording.ts[samples], knots)
            if step is not None:  # no interval is longer
                parts = np.maximum(1, np.ceil(np.diff(ts) / step * (1 - 1e-9)).astype(int))
                places = np.concatenate([[0], np.cumsum(parts)])
                ts, rows = np.interp(np.arange(places[-1] + 1), places, ts), places[rows]
            counts = (samples > first) | (first == 0)
            pieces.append(_Segment(number, ts, rows, samples, counts))
    # A number of times that recordings of similar lengths share, so that they share programs.
    count = max(len(s.ts) for s in pieces)
    size = 1 << (count - 1).bit_length()
    if count > _MOST_DOUBLED:
        size = -(-count // _MOST_DOUBLED) * _MOST_DOUBLED
    columns = zip(*(_padded(s, recordings[s.recording], size) for s in pieces), strict=True)
    numbers = np.array([s.recording for s in pieces])
    following = np.arange(len(pieces))
    following[:-1] += numbers[1:] == numbers[:-1]
    inputs = dict[str, Signal]()
    for name in recordings[0].inputs:
        signals = [recordings[number].inputs[name] for number in numbers]
        # A power of two, so that signals of other lengths share what was compiled.
        longest = max(len(x.values) for x in signals)
        inputs[name] = signal_rows(signals, 1 << (longest - 1).bit_length())
    times, observed, weights, q0, v0, last = (jnp.asarray(np.stack(x)) for x in columns)
    counted = (tuple(getattr(s, x)[s.counts] for s in pieces) for x in ("rows", "samples"))
    return (
        Segments(times, observed, weights, q0, v0, last, jnp.asarray(following), inputs),
        SegmentOrigin(tuple(recordings), numbers, *counted),
    )


def ends_of_steps(inputs: Inputs, first: float, last: float) -> np.ndarray:
    """The times between two times at which an input jumps, or has a corner."""
    knots = (
        np.asarray(signal.ts) + float(signal.delay)
        for signal in inputs.values()
        if signal.interpolation != "cubic"
    )
    times = np.unique(np.concatenate([np.zeros(0), *knots]))
    return times[(times > first) & (times < last)]


def merged(ts: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times with others between them, and the indices of the former; equal ones count once."""
    if not others.size:
        return ts, np.arange(len(ts))
    eps = float(np.finfo(jnp.result_type(float)).eps)
    near = _ROUND_OFF * eps * np.abs(ts).max()
    after = np.searchsorted(ts, others)
    distances = [np.abs(ts[np.clip(k, 0, len(ts) - 1)] - others) for k in (after - 1, after)]
    new = others[np.minimum(*distances) > near]
    new = new[np.diff(new, prepend=-np.inf) > near]
    times = np.sort(np.concatenate([ts, new]))
    return times, np.searchsorted(times, ts)


def _padded(segment: _Segment, recording: Recording, size: int) -> tuple[Any, ...]:
    """The row of `Segments` for a segment, all but `following` and `inputs`."""
    ts = segment.ts
    # times must increase, so the padding moves on a little: more than round-off, too little to cost
    gap = max(_PADDING * (ts[-1] - ts[0]), 64 * np.finfo(float).eps * abs(ts[-1]))
    times = np.concatenate([ts, ts[-1] + gap * np.arange(1, size - len(ts) + 1)])
    samples = recording.observed[segment.samples]
    stated = 1.0 if recording.weights is None else recording.weights
    sample_weights = np.broadcast_to(stated, recording.observed.shape)[segment.samples]
    observed, weights = np.zeros((2, size, samples.shape[1]))
    observed[segment.rows] = np.nan_to_num(samples)
    weights[segment.rows] = sample_weights * np.isfinite(samples) * segment.counts[:, None]
    q0, v0 = recording.q0, recording.v0
    if q0.ndim == 2:
        guessed = np.flatnonzero(np.isfinite(q0).all(1) & np.isfinite(v0).all(1))
        nearest = guessed[np.abs(guessed - segment.samples[0]).argmin()]
        q0, v0 = q0[nearest], v0[nearest]
    return times, observed, weights, q0, v0, len(ts) - 1


# by how much recorded initial states may be off the constraints:
FARTHEST = 2e-2  # relative to the extents of the mechanism, without further knowledge
A_GUESS = 1.0  # the same for coordinates that are only a guess to begin with
DEVIATIONS = 5  # in standard deviations, where these are known
_FEWEST = 3  # samples of a coordinate from which it has a rate
_REMEDY = "check q0 and v0, and that the parameters at the start of the fit belong to them."


@dataclass(frozen=True)
class DefaultSensors:
    """The default of `observe`: the coordinates, and the states of first order."""

    system: System

    def __call__(self, q: Array, v: Array, t: Array, params: Params) -> Array:
        return self.system.values(q, v)


def _require_units(problem: FitProblem, recording: Recording) -> None:
    """Raise if a column has another unit than what it stands for: its dimension, or its size."""
    system, pairs = problem.system, list[tuple[str, str]]()
    names = (*shown_coordinates(system.coordinates), *system.states)
    if isinstance(problem.observe, DefaultSensors):
        pairs += zip(recording.sensors, names, strict=False)
    if problem.start is None:
        pairs += zip(recording.starts[0], system.coordinates, strict=False)
        rates = [
            x if x in (*system.states, *system.velocities) else f"{x}{RATE}"
            for x in system.velocity_names
        ]
        pairs += zip(recording.starts[1], rates, strict=False)
    for label, name in pairs:
        column, unit = unit_in_name(label)
        stated = system.unit(name)
        known = si_unit(stated), si_unit(unit or "")
        same = known[0] and known[1] and known[0][0] == known[1][0]
        if unit and stated and not (same and dimension(unit) == dimension(stated)):
            raise ValueError(
                f"Argument `recordings` must have the units of the coordinates, but {column!r} of "
                f"{recording.name} is in {unit}, and {name!r} in {stated}; correct one of them, or "
                "give `observe`."
            )


class InitialState(NamedTuple):
    """The state for recorded start variables."""

    q: Float[Array, " n"]
    v: Float[Array, " m"]  # the velocities, m = n unless they are quasi-velocities
    consistent: Bool[Array, ""]  # whether it meets the constraints
    extents: Float[Array, " n"]  # of the coordinates
    velocity_extents: Float[Array, " m"]  # velocities at which none moves more in a second
    A_position: Float[Array, "k n"]  # invariants included
    A_velocity: Float[Array, "l m"]


@jit_of("problem", is_frame=True, is_brief=True)
def initial_state(
    problem: FitProblem, q0: Array, v0: Array, t: Array, params: Params
) -> InitialState:
    """The state for start variables (k,) and their velocities (l,)."""
    system = problem.system
    params = system.with_outputs(params)
    q, v = begin(system, problem.start, q0, v0, t, params)
    shapes = (system.n,), (system.n_velocities,)
    if (q.shape, v.shape) != shapes:
        required = " and ".join(dict.fromkeys(map(str, shapes)))
        raise ValueError(
            f"Argument `start` must return q and v of shape {required}, but returns {q.shape} and "
            f"{v.shape}."
        )
    A_position, A_velocity = system.dynamics.jacobians(q, v, t, params)
    extents = extents_at(system, q, v, t, params)
    velocity_extents = extents
    if system.velocities:
        A_position = system.plain.dynamics.position_jacobian(q, t, params)
        T = jnp.abs(system.dynamics.kinematics.matrix(q, t, params))
        per_velocity = jnp.where(T > 0, extents[:, None] / jnp.where(T > 0, T, 1.0), jnp.inf)
        velocity_extents = per_velocity.min(0)
    consistent = on_constraints(system, q, v, t, params, extents)
    return InitialState(q, v, consistent, extents, velocity_extents, A_position, A_velocity)


def consistent_start(
    problem: FitProblem, params: Params, recording: Recording, *, free: bool
) -> InitialState:
    """The initial state, which must be recorded as consistently as its noise allows."""
    _require_units(problem, recording)
    system, name = problem.system, recording.name
    q0, v0 = (x if x.ndim == 1 else x[0] for x in (recording.q0, recording.v0))
    if not system.velocities and q0.shape != v0.shape:
        raise ValueError(
            f"Argument `v0` of {name} must have the shape of `q0`, {q0.shape}, but has shape "
            f"{v0.shape}."
        )
    if problem.start is None:
        remedy = "other start variables need the argument `start` of fit."
        rates = "rates of coordinates, such as differences of samples, are not these: give them, or"
        for argument, x, size, names, kind, hint in (
            ("q0", q0, system.n, system.coordinates, "coordinates", ""),
            ("v0", v0, system.n_velocities, system.velocity_names, "velocities", f"{rates} "),
        ):
            if x.shape != (size,):
                raise ValueError(
                    f"Argument `{argument}` of {name} must have shape ({size},) for the "
                    f"{kind} {', '.join(names)}, but has shape {x.shape}; {hint}{remedy}"
                )
    params, t = with_inputs(params, recording.inputs), jnp.asarray(recording.ts[0])
    params = system.with_outputs(params)
    state = initial_state(problem, jnp.asarray(q0), jnp.asarray(v0), t, params)
    q, v = state.q, state.v
    sensors = recording.observed.shape[1]
    with naming_missing("`observe`", params):
        predicted = jax.eval_shape(problem.observe, q, v, t, params)
    if getattr(predicted, "shape", None) != (sensors,):
        raise ValueError(
            f"Argument `observe` must return shape ({sensors},), one number for each sensor of "
            f"{name}, but returns {getattr(predicted, 'shape', predicted)}."
        )
    known = KnownState(system, q, v, t, params)
    for violation in () if state.consistent else known.violations():
        raise ValueError(
            f"{capital(name)} begins off the constraints: {violation.name!r} has a "
            f"{violation.level} residual of {violation.size:.3g}; "
            + ("`start` must return a consistent state." if problem.start else _REMEDY)
        )
    if problem.start is not None:
        return state
    sds = recording.start_sd or (np.inf, np.inf)
    guess_q, guess_v = (A_GUESS, np.inf) if free else (FARTHEST, FARTHEST)
    # Of velocities relative to themselves, and to the extents per second.
    fast = np.asarray(state.velocity_extents) + np.abs(v0)
    for argument, x, y, sd, far in (
        ("q0", q0, np.asarray(q), sds[0], guess_q * np.asarray(state.extents)),
        ("v0", v0, np.asarray(v), sds[1], guess_v * fast),
    ):
        limit = np.where(np.isfinite(sd), DEVIATIONS * sd, far)
        worst = int(np.argmax(np.abs(y - x) / limit))
        if abs(y - x)[worst] > limit[worst]:
            raise ValueError(
                f"{capital(name)} begins off the constraints by more than its noise: "
                f"{argument}[{worst}] = {x[worst]:.6g} would have to move by "
                f"{abs(y - x)[worst]:.3g}, more than {limit[worst]:.3g}; {_REMEDY}"
            )
    return state


def free_directions(
    problem: FitProblem, s: Segments, states: Sequence[InitialState], first: np.ndarray
) -> np.ndarray:
    """The directions of the start variables and their velocities, (S, k + l, i).

    The integrals of states of first order keep their starts, which no one measures, in segments
    with which a recording begins (`first`, flags (S,)), and have to join in others.
    """
    if problem.start is not None:
        return np.tile(np.eye(s.start_size), (len(s.q0), 1, 1))
    from scipy.linalg import block_diag, null_space  # slow to import, and seldom needed

    n = problem.system.dynamics.mechanical
    levels = [(state.A_position[:, :n], state.A_velocity) for state in states]
    bases = [tuple(null_space(A, rcond=1e-8) for A in pair) for pair in levels]
    if len({(of_q.shape, of_v.shape) for of_q, of_v in bases}) > 1:
        raise ValueError(
            "Free initial states need starts with the same number of degrees of freedom, but the "
            "rank of the constraints differs from one to another; give `start`, which makes a "
            'state of independent variables, or hold exact starts by `initial_states="fixed"`.'
        )
    integrals = np.eye(problem.system.n - n)[:, : 0 if first.all() else None]
    directions = np.stack([block_diag(of_q, integrals, of_v) for of_q, of_v in bases])
    directions[first, n : problem.system.n] = 0.0
    return directions


def require_inputs_are_read(
    problem: FitProblem, params: Params, recording: Recording, state: InitialState
) -> None:
    """Raise if no function reads an input."""
    if not recording.inputs:
        return
    q, v, t = state.q, state.v, jnp.asarray(recording.ts[0])

    def read(inputs: Any) -> Any:
        motion_params = problem.system.with_outputs(with_inputs(params, inputs))
        results = [problem.system.function_values(q, v, t, motion_params)]
        results.append(problem.observe(q, v, t, motion_params))
        if problem.start is not None:
            q0, v0 = (jnp.asarray(np.atleast_2d(x)[0]) for x in (recording.q0, recording.v0))
            results.append(problem.start(q0, v0, motion_params))
        return results

    idle = unread(read, recording.inputs)
    for name in recording.inputs:
        if f"{name}.values" in idle:
            raise ValueError(
                f"Argument `inputs` of {recording.name} holds {name!r}, which no function reads; "
                f"call `params[{name!r}](t)` in a function of the system, correct the name, or "
                "leave it out."
            )


def with_guesses(
    problem: FitProblem, params: Params, recording: Recording, state: InitialState
) -> Recording:
    """Complete a recording with start variables at every sample: the samples, or a simulation."""
    if recording.q0.ndim == 2:
        return recording
    if problem.start is not None:
        raise ValueError(
            f"Argument `q0` of {recording.name} must have shape (T, {recording.q0.size}), and `v0` "
            "too: multiple shooting with `start` needs a guess of both at every sample."
        )
    plain = not problem.system.velocities and not problem.system.states
    if isinstance(problem.observe, DefaultSensors) and plain:
        samples = np.where(recording.measured, recording.observed, np.nan)
        if (np.isfinite(samples).sum(axis=0) >= _FEWEST).all():
            v = rates(samples, recording.ts)
            samples[0], v[0] = recording.q0, recording.v0
            return replace(recording, q0=samples, v0=v)
    params, ts = with_inputs(params, recording.inputs), recording.ts
    sol = simulate(problem.system, state.q, state.v, ts, params, **problem.scheme.policies)
    return replace(recording, q0=np.asarray(sol.q), v0=np.asarray(sol.v))


_NEAR = 8.0  # distance of corners from the ends of a segment, in units of round-off
EXACT = 1e-6  # share of the motion below which residuals are numerical errors
_LONGER = 1.5  # an interval longer than the usual one by this factor is divided
_SLACK = 1.25  # factor by which fewer steps may be made than the target needs
_COARSE = 16.0  # targets from which on an error may call for more steps
_SHIFT = 1.0  # standard errors by which an integration error may move the estimates


def motion(s: Segments) -> np.ndarray:
    """The standard deviation of the samples of each sensor that count, (d,)."""
    weights, observed = np.asarray(s.weights, float), np.asarray(s.observed, float)
    seen = weights > 0
    count = np.maximum(seen.sum((0, 1)), 1)
    mean = np.where(seen, observed, 0).sum((0, 1)) / count
    sd = np.sqrt((np.where(seen, observed - mean, 0) ** 2).sum((0, 1)) / count)
    return np.where(sd > 0, sd, 1.0)


def with_chosen_steps(
    problem: FitProblem, params: Params, given: Sequence[Recording], s: Segments,
    states: Sequence[InitialState],
) -> tuple[FitProblem, float | None]:  # fmt: skip
    """The problem with the number of its steps, and the longest time for them [s], if any.

    Times between samples that are longer are divided.
    """
    policy = problem.scheme.steps
    jumps = any(signal.interpolation != "cubic" for signal in given[0].inputs.values())
    if jumps and not np.size(policy.times):
        # The times of a segment have the samples of its inputs among them.
        policy = replace(policy, times="saves")
        problem = replace(problem, scheme=replace(problem.scheme, steps=policy))
    if not isinstance(policy, FixedSteps):
        return problem, None
    per_save, longest = policy.per_save, np.inf
    if per_save is None:
        longest = _LONGER * _usual(s)
        starts = np.stack([np.concatenate([state.q, state.v]) for state in states])
        per_save = _needed(problem, params, s, starts)
    if policy.max_step is not None:
        longest = min(longest, float(policy.max_step) * per_save)
    policy = replace(policy, per_save=per_save, max_step=None)
    problem = replace(problem, scheme=replace(problem.scheme, steps=policy))
    return problem, longest if np.isfinite(longest) else None


def needed_steps(task: Task, at: Point) -> int:
    """The number of steps that the motion needs."""
    return _needed(task.problem, task.params(at), task.data.segments, np.asarray(at.run.begin))


def integration_error(task: Task, at: Point) -> float:
    """The largest integration error, of a few segments with fixed steps, by their motion."""
    scheme, s = task.problem.scheme, task.data.segments
    if not isinstance(scheme.steps, FixedSteps):
        return float(np.max(np.asarray(at.run.error)))
    params, starts, count = task.params(at), np.asarray(at.run.begin), scheme.steps.count
    return max(
        members_error(scheme, _member(task.problem, params, s, starts, k), int(s.last[k]) * count)
        for k in evenly_spaced(len(starts), MEMBERS)
    )


def is_too_coarse(task: Task, at: Point, error: float, *, converged: bool) -> bool:
    """Whether an integration error may move the estimates, or has stopped the fit."""
    dtype = task.data.segments.ts.dtype
    if not error > _COARSE * task.problem.scheme.method.target_error(dtype):
        return False
    return not converged or largest_shift(task, at, error) > _SHIFT


def largest_shift(task: Task, at: Point, error: float) -> float:
    """The standard errors by which an integration error may move the estimates, at most."""
    s = task.data.segments
    weights, residual, seen = np.asarray(s.weights, float), at.run.residual, task.seen
    count = seen.sum((0, 1))
    unweighted = np.where(seen, residual, 0.0) / np.where(seen, weights, 1.0)
    noise = np.sqrt((unweighted**2).sum((0, 1)) / np.maximum(count, 1))
    share = noise / motion(s)
    # the steps that made the recordings, if they are a simulation, fit to round-off
    inexact = share > EXACT
    return float(error * np.sqrt((count[inexact] / share[inexact] ** 2).sum()))


def _needed(problem: FitProblem, params: Params, s: Segments, starts: np.ndarray) -> int:
    """The steps between samples that are accurate enough for a few segments from starts (S, nm).

    A power of two, so that fits to other recordings seldom compile other programs.
    """
    smallest, usual = np.inf, _usual(s)
    for k in evenly_spaced(len(starts), MEMBERS):
        member = _member(problem, params, s, starts, k)
        first, last = member[2][0]
        smallest = min(smallest, float(last - first) / members_need(problem.scheme, member))
    return 1 << max(0, math.ceil(math.log2(usual / smallest / _SLACK)))


def _usual(s: Segments) -> float:
    """The longest of nine in ten intervals between samples [s]; longer ones are divided instead."""
    rows = zip(np.asarray(s.ts), np.asarray(s.last), strict=True)
    intervals = np.concatenate([np.diff(ts[: last + 1]) for ts, last in rows])
    return float(np.quantile(intervals, 0.9))


def _member(
    problem: FitProblem, params: Params, s: Segments, starts: np.ndarray, k: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Params, np.ndarray]:
    """A segment as a batch of one: its start, its ends, its parameters and its corners."""
    ts = np.asarray(s.ts)[k, [0, int(s.last[k])]]
    q, v = np.split(starts[k].astype(ts.dtype), [problem.system.n])
    # The corners and jumps of the inputs; those at the ends count, since the last step is on the
    # side before a jump there.
    near = _NEAR * np.finfo(ts.dtype).eps * np.abs(np.asarray(s.ts)[k]).max()
    corners = ends_of_steps(s.inputs_of(k), ts[0] - near, ts[1] + near)[None].astype(ts.dtype)
    run_params = jax.tree.map(lambda x: np.asarray(x)[None], with_inputs(params, s.inputs_of(k)))
    return q[None], v[None], ts[None], run_params, corners
