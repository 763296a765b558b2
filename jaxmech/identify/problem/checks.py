"""Recordings and starts that cannot be meant are refused, each with what to do about it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.assemble import begin
from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import SegmentOrigin
from jaxmech.identify.problem.parameters import Parameters
from jaxmech.identify.problem.residuals import Data, FitProblem, runs
from jaxmech.stabilization import constraint_jacobians, near, violations
from jaxmech.status import Status
from jaxmech.system import Params
from jaxmech.utils.jit_cache import jit_of

FARTHEST = 1e-2  # by how much of 1 + |q| a start may be off the constraints if nobody says more
A_GUESS = 0.5  # the same for coordinates that are only where a fit begins
DEVIATIONS = 5  # standard deviations by which it may be off where they are known


def alike(recordings: tuple[Recording, ...]) -> tuple[Recording, ...]:
    """The recordings, which must have the same sensors, all with weights or none."""
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
    """Raise if one is there twice: the same noise would count as an agreement."""
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


def require_starts(
    problem: FitProblem, found: Parameters, given: Sequence[Recording], *, free: bool
) -> None:
    """Raise unless every recording begins on the constraints, as far as its noise allows.

    Args:
        problem: what is compared.
        found: the parameters.
        given: the recordings.
        free: whether starts are fitted, so that those without `start_sd` are no more than a guess.
    """
    system = problem.system
    params = found.layout.params(jnp.zeros(found.layout.size), found.leaves)
    for one in given:
        q0, v0 = (x if x.ndim == 1 else x[0] for x in (one.q0, one.v0))
        if problem.start is None and q0.shape != (system.n,):
            raise ValueError(
                f"Argument `q0` of {one.name} must have shape ({system.n},) for the coordinates "
                f"{', '.join(system.coordinates)}, but has shape {q0.shape}; other start variables "
                "need the argument `start` of fit."
            )
        t = jnp.asarray(one.ts[0])
        q, v, consistent = _begun(problem, jnp.asarray(q0), jnp.asarray(v0), t, params)
        _require_observed(problem, one, q, v, t, params)
        for violation in () if consistent else violations(system, q, v, t, params):
            raise ValueError(
                f"{_capital(one.name)} begins off the constraints: {violation.name!r} has a "
                f"{violation.level} residual of {violation.size:.3g}; "
                + ("`start` must return a consistent state." if problem.start else _REMEDY)
            )
        if problem.start is None:
            _require_near(one, (q0, v0), (np.asarray(q), np.asarray(v)), free=free)


_REMEDY = "check q0 and v0, and that the parameters at the start of the fit belong to them."


def _require_near(one: Recording, given: Any, reached: Any, *, free: bool) -> None:
    """How far the start had to be moved onto the constraints."""
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


@jit_of("problem")
def _begun(problem: FitProblem, q0: Array, v0: Array, t: Array, params: Params) -> Any:
    """The state at the beginning, and whether it is consistent."""
    system = problem.system
    q, v = begin(system, problem.start, q0, v0, t, params)
    if q.shape != (system.n,) or v.shape != (system.n,):
        raise ValueError(
            f"Argument `start` must return q and v of shape ({system.n},), but returns {q.shape} "
            f"and {v.shape}."
        )
    A_position, A_velocity = constraint_jacobians(system, q, v, t, params)
    consistent = near(system.position_level(q, t, params), A_position, q)
    return q, v, consistent & near(system.velocity_level(q, v, t, params), A_velocity, v)


def _require_observed(
    problem: FitProblem, one: Recording, q: Any, v: Any, t: Any, params: Any
) -> None:
    sensors = one.observed.shape[1]
    shown = jax.eval_shape(problem.observe, q, v, t, params)
    if getattr(shown, "shape", None) != (sensors,):
        raise ValueError(
            f"Argument `observe` must return shape ({sensors},), one number for each sensor of "
            f"{one.name}, but returns {getattr(shown, 'shape', shown)}."
        )


def require_runs(problem: FitProblem, y: Array, data: Data, origin: SegmentOrigin) -> None:
    """Raise unless every piece can be simulated with the unknowns as they are."""
    found = runs(problem, y, data)
    status = np.asarray(found.status)
    lost = ~np.isfinite(np.asarray(found.residual)).all(axis=(1, 2))
    for piece in np.flatnonzero((status != Status.OK) | lost):
        name = origin.recordings[origin.recording[piece]].name
        what = Status(int(status[piece]))
        if what == Status.OK:
            raise ValueError(f"Argument `observe` gives NaN along {name}.")
        raise ValueError(
            f"{_capital(name)} cannot be simulated with the parameters at the start of the fit: "
            f"{what.name}, {what.message}; begin nearer, take shorter steps (`step`, `method`) or "
            "shorter pieces (`horizon`)."
        )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
