"""Validate recordings and their initial states; every error says what to do about it."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import SegmentOrigin
from jaxmech.identify.problem.initial_states import InitialState, initial_state
from jaxmech.identify.problem.residuals import Data, FitProblem, runs
from jaxmech.integrate import AbstractFixedStep
from jaxmech.stabilization import violations
from jaxmech.status import Status
from jaxmech.system import Params

# by how much recorded initial states may be off the constraints:
FARTHEST = 1e-2  # relative to 1 + |q|, without further knowledge
A_GUESS = 0.5  # the same for coordinates that are only a guess to begin with
DEVIATIONS = 5  # in standard deviations, where these are known
_REMEDY = "check q0 and v0, and that the parameters at the start of the fit belong to them."


def require_same_sensors(recordings: tuple[Recording, ...]) -> tuple[Recording, ...]:
    """Require recordings of the same sensors, all or none of them with weights, and return them."""
    if not recordings:
        raise ValueError("Argument `recordings` must hold at least one Recording.")
    sensors = {one.observed.shape[1] for one in recordings}
    if len(sensors) > 1:
        raise ValueError(
            f"Argument `recordings` must have the same sensors, but there are recordings with "
            f"{' and '.join(map(str, sorted(sensors)))}; write NaN for a sensor that was missing."
        )
    if len({one.weights is None for one in recordings}) > 1:
        raise ValueError("Argument `recordings` must have `weights` in all of them or in none.")
    for column in range(sensors.pop()):
        seen = np.concatenate([one.observed[one.measured[:, column], column] for one in recordings])
        if seen.size and np.ptp(seen) == 0:
            raise ValueError(
                f"Argument `recordings` must hold measurements that change, but sensor {column} "
                f"shows {seen[0]:g} throughout; leave it out, or give it as NaN."
            )
    _require_once(recordings)
    return recordings


def _require_once(recordings: tuple[Recording, ...]) -> None:
    """Raise if a recording is repeated: its noise would count as an agreement of two."""
    for k, one in enumerate(recordings):
        columns = (column[np.isfinite(column)] for column in one.observed.T)
        varied = any(column.size and np.ptp(column) > 0 for column in columns)
        for other in recordings[:k] if varied else ():
            same = np.array_equal(one.observed, other.observed, equal_nan=True)
            if same and np.allclose(one.ts - one.ts[0], other.ts - other.ts[0], rtol=1e-9):
                raise ValueError(
                    f"Argument `recordings` must hold every recording once, but {one.name} has the "
                    f"same samples as {other.name}; leave one of them out."
                )


def consistent_start(
    problem: FitProblem, params: Params, one: Recording, *, free: bool
) -> InitialState:
    """The initial state, which must be recorded as consistently as its noise allows."""
    system = problem.system
    q0, v0 = (x if x.ndim == 1 else x[0] for x in (one.q0, one.v0))
    if problem.start is None and q0.shape != (system.n,):
        raise ValueError(
            f"Argument `q0` of {one.name} must have shape ({system.n},) for the coordinates "
            f"{', '.join(system.coordinates)}, but has shape {q0.shape}; other start variables "
            "need the argument `start` of fit."
        )
    t = jnp.asarray(one.ts[0])
    found = initial_state(problem, jnp.asarray(q0), jnp.asarray(v0), t, params)
    q, v = found.q, found.v
    sensors = one.observed.shape[1]
    shown = jax.eval_shape(problem.observe, q, v, t, params)
    if getattr(shown, "shape", None) != (sensors,):
        raise ValueError(
            f"Argument `observe` must return shape ({sensors},), one number for each sensor of "
            f"{one.name}, but returns {getattr(shown, 'shape', shown)}."
        )
    for violation in () if found.consistent else violations(system, q, v, t, params):
        raise ValueError(
            f"{_capital(one.name)} begins off the constraints: {violation.name!r} has a "
            f"{violation.level} residual of {violation.size:.3g}; "
            + ("`start` must return a consistent state." if problem.start else _REMEDY)
        )
    if problem.start is None:
        _require_near(one, (q0, v0), (np.asarray(q), np.asarray(v)), free=free)
    return found


def _require_near(
    one: Recording, given: Sequence[np.ndarray], reached: Sequence[np.ndarray], *, free: bool
) -> None:
    """Raise if the recorded start variables had to move far to meet the constraints."""
    sds = one.start_sd or (np.inf, np.inf)
    guesses = (A_GUESS, np.inf) if free else (FARTHEST, FARTHEST)
    for name, x, y, sd, guess in zip(("q0", "v0"), given, reached, sds, guesses, strict=True):
        limit = np.where(np.isfinite(sd), DEVIATIONS * sd, guess * (1 + np.abs(x)))
        worst = int(np.argmax(np.abs(y - x) / limit))
        if abs(y - x)[worst] > limit[worst]:
            raise ValueError(
                f"{_capital(one.name)} begins off the constraints by more than its noise: "
                f"{name}[{worst}] = {x[worst]:.6g} would have to move by "
                f"{abs(y - x)[worst]:.3g}, more than {limit[worst]:.3g}; {_REMEDY}"
            )


def require_runs(problem: FitProblem, y: Array, data: Data, origin: SegmentOrigin) -> None:
    """Raise unless every segment can be simulated with the given unknowns."""
    found = runs(problem, y, data)
    fixed = isinstance(problem.method, AbstractFixedStep)
    steps = "shorter steps (`step`, `method`) or " if fixed else ""
    status = np.asarray(found.status)
    lost = ~np.isfinite(np.asarray(found.residual)).all(axis=(1, 2))
    for k in np.flatnonzero((status != Status.OK) | lost):
        name = origin.recordings[origin.recording[k]].name
        what = Status(int(status[k]))
        if what == Status.OK:
            raise ValueError(f"Argument `observe` gives NaN along {name}.")
        raise ValueError(
            f"{_capital(name)} cannot be simulated with the parameters at the start of the fit: "
            f"{what.name}, {what.message}; begin nearer, take {steps}shorter segments (`horizon`)."
        )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
