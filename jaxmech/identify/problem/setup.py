"""From the arguments of `fit` to a problem; what cannot be meant is refused on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.assemble import Start, begin
from jaxmech.formulations import AbstractFormulation
from jaxmech.identify.data.recording import Recording, named
from jaxmech.identify.data.segments import SegmentOrigin, Segments, Shooting, segments
from jaxmech.identify.problem.checks import alike, require_runs, require_starts
from jaxmech.identify.problem.initial_states import bases
from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.parameters import Parameters, parameters
from jaxmech.identify.problem.residuals import Data, FitProblem, Observe
from jaxmech.identify.problem.step_size import with_chosen_steps
from jaxmech.integrate import AbstractMethod
from jaxmech.simulate import simulate
from jaxmech.stabilization import AbstractStabilization
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_function, require_kind

InitialStates = Literal["fixed", "free"]


def coordinates(q: Array, v: Array, t: Array, params: Params) -> Array:
    """What is observed if nobody says otherwise: the coordinates."""
    return q


@dataclass(frozen=True, eq=False)
class Task:
    """A fit that can begin.

    Attributes:
        problem: what is compared.
        data: the numbers of it.
        conditions: what else is asked.
        origin: where the pieces come from.
        parameters: what is fitted.
        y: the unknowns at the start.
        step: the largest step of integration [s], if there is one.
        hard: whether jumps between pieces must vanish.
        weighted: whether residuals are in standard deviations.
    """

    problem: FitProblem
    data: Data
    conditions: Conditions
    origin: SegmentOrigin
    parameters: Parameters
    y: Array
    step: float | None
    hard: bool
    weighted: bool


def prepare(
    system: System,
    recordings: Any,
    params0: Params,
    *,
    observe: Observe | None,
    start: Start | None,
    free: Sequence[str] | None,
    bounds: Mapping[str, Any] | None,
    prior: Mapping[str, Any] | None,
    initial_states: InitialStates,
    horizon: Shooting | None,
    step: float | None,
    method: AbstractMethod,
    projection: AbstractStabilization | None,
    formulation: AbstractFormulation,
) -> Task:
    """The task that the arguments of `fit` describe.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: names the argument, the recording or the parameter that cannot be meant.
    """
    _require_kinds(system, observe, start, initial_states, horizon, step)
    found = parameters(params0, free=free, bounds=bounds, prior=prior)
    problem = FitProblem(
        system, observe or coordinates, start, found.layout, method, projection, formulation
    )
    given = alike(named(recordings, "recordings"))
    require_starts(problem, found, given, free=initial_states == "free")
    if horizon is not None:
        given = _with_guesses(problem, found, given)
    problem, step = with_chosen_steps(problem, found, given, horizon, step)
    between = None if step is None else step * problem.method.count
    pieces, origin = segments(given, horizon=horizon, step=between)
    weighted = all(one.weights is not None for one in given)
    if not weighted:
        _require_no_noise(given, initial_states, prior)
    data = _data(problem, found, pieces, origin, initial_states, horizon)
    conditions = _conditions(problem, found, data, origin, initial_states, horizon)
    size = found.layout.size + len(origin.recording) * data.free_starts
    _require_enough(given, size)
    y = jnp.zeros(size)
    require_runs(problem, y, data, origin)
    hard = horizon is not None and horizon.continuity is None
    return Task(problem, data, conditions, origin, found, y, step, hard, weighted)


def _require_kinds(
    system: System,
    observe: Observe | None,
    start: Start | None,
    initial_states: InitialStates,
    horizon: Shooting | None,
    step: float | None,
) -> None:
    """Raise if one of the arguments that can be judged alone is not of its kind."""
    require_kind("system", system, System, "System(...)")
    for name, fn in (("observe", observe), ("start", start)):
        if fn is not None:
            require_function(name, fn)
    if initial_states not in ("fixed", "free"):
        raise ValueError(
            f'Argument `initial_states` must be "fixed" or "free", but is {initial_states!r}.'
        )
    if horizon is not None:
        require_kind("horizon", horizon, Shooting, "Shooting(0.5)")
    if step is not None and not step > 0:
        raise ValueError(f"Argument `step` must be positive, but is {step}.")


def _require_no_noise(
    given: Sequence[Recording], initial_states: InitialStates, prior: Mapping[str, Any] | None
) -> None:
    """Raise if something is to count against samples of which the noise is not known."""
    for one in given if initial_states == "free" else ():
        if one.start_sd is not None:
            raise ValueError(
                f"Argument `start_sd` of {one.name} needs `weights` = 1 / (standard deviation of "
                "the noise): otherwise nobody knows how much the start counts against the samples. "
                'Leave it out, or hold exact starts by `initial_states="fixed"`.'
            )
    if prior:
        raise ValueError(
            "Argument `prior` needs recordings with `weights` = 1 / (standard deviation of the "
            "noise): otherwise nobody knows how much the prior counts against the data."
        )


def _require_enough(given: Sequence[Recording], unknowns: int) -> None:
    """Raise if there are fewer measurements than unknowns."""
    count = sum(one.count for one in given)
    if count < unknowns:
        raise ValueError(
            f"Argument `recordings` must hold at least as many measurements as there are unknowns, "
            f"but there are {count} for {unknowns}; fix parameters by `free`, or exact starts by "
            '`initial_states="fixed"`.'
        )


def _with_guesses(
    problem: FitProblem, found: Parameters, given: Sequence[Recording]
) -> tuple[Recording, ...]:
    """Recordings that know a start at every sample; where they do not, from a simulation."""
    params = found.layout.params(jnp.zeros(found.layout.size), found.leaves)
    whole = []
    for one in given:
        if one.q0.ndim == 2:
            whole.append(one)
            continue
        if problem.start is not None:
            raise ValueError(
                f"Argument `q0` of {one.name} must have shape (T, {one.q0.size}), and `v0` too: "
                "multiple shooting with `start` needs a guess of both at every sample."
            )
        q, v = begin(
            problem.system, None, jnp.asarray(one.q0), jnp.asarray(one.v0),
            jnp.asarray(one.ts[0]), params,
        )  # fmt: skip
        sol = simulate(
            problem.system, q, v, one.ts, params, method=problem.method,
            projection=problem.projection, formulation=problem.formulation,
        )  # fmt: skip
        whole.append(replace(one, q0=np.asarray(sol.q), v0=np.asarray(sol.v)))
    return tuple(whole)


def _data(
    problem: FitProblem,
    found: Parameters,
    pieces: Segments,
    origin: SegmentOrigin,
    initial_states: InitialStates,
    horizon: Shooting | None,
) -> Data:
    """The directions in which starts may move; those of held starts are zero."""
    count, size = pieces.q0.shape
    if initial_states == "fixed" and horizon is None:
        return Data(pieces, found.leaves, jnp.zeros((count, size, 0)), jnp.zeros((count, size, 0)))
    params = found.layout.params(jnp.zeros(found.layout.size), found.leaves)
    along_q, along_v = directions_of_starts(problem, pieces, params)
    if initial_states == "fixed":
        first = np.diff(origin.recording, prepend=-1) != 0
        along_q[first], along_v[first] = 0.0, 0.0
    return Data(pieces, found.leaves, jnp.asarray(along_q), jnp.asarray(along_v))


def directions_of_starts(
    problem: FitProblem, pieces: Segments, params: Params
) -> tuple[np.ndarray, np.ndarray]:
    """How start variables (S, k, i) and their rates (S, k, j) may move.

    Raises:
        ValueError: not all starts have the same number of freedoms.
    """
    starts = zip(pieces.q0, pieces.v0, pieces.ts[:, 0], strict=True)
    pairs = [bases(problem.system, problem.start, q0, v0, t, params) for q0, v0, t in starts]
    if len({(a.shape, b.shape) for a, b in pairs}) > 1:
        raise ValueError(
            "Free initial states need starts with the same number of degrees of freedom, but the "
            "rank of the constraints differs from one to another; give `start`, which makes a "
            'state of independent variables, or hold exact starts by `initial_states="fixed"`.'
        )
    along_q, along_v = (np.stack(side) for side in zip(*pairs, strict=True))
    return along_q, along_v


def _conditions(
    problem: FitProblem,
    found: Parameters,
    data: Data,
    origin: SegmentOrigin,
    initial_states: InitialStates,
    horizon: Shooting | None,
) -> Conditions:
    count, size = data.segments.q0.shape
    states = 2 * problem.system.n
    start_weight = np.zeros((count, 2 * size))
    first = np.diff(origin.recording, prepend=-1) != 0
    for piece in np.flatnonzero(first):
        sd = origin.recordings[origin.recording[piece]].start_sd
        if sd is not None and initial_states == "free":
            start_weight[piece] = 1 / np.concatenate(sd)
    return Conditions(
        prior_mean=jnp.asarray(found.prior_mean),
        prior_weight=jnp.asarray(1 / found.prior_sd),
        start_weight=jnp.asarray(start_weight),
        jump_weight=_jump_weight(problem, found, data, horizon),
        jump_shift=jnp.zeros((count, states)),
    )


def _jump_weight(
    problem: FitProblem, found: Parameters, data: Data, horizon: Shooting | None
) -> Array:
    """1 / continuity; for a hard condition, what makes a jump as bad as missing all of a piece."""
    if horizon is None:
        return jnp.zeros(2 * problem.system.n)
    if horizon.continuity is not None:
        return jnp.full(2 * problem.system.n, 1 / horizon.continuity)
    s = data.segments
    params = found.layout.params(jnp.zeros(found.layout.size), found.leaves)
    begins = [
        jnp.concatenate(begin(problem.system, problem.start, q, v, t, params))
        for q, v, t in zip(s.q0, s.v0, s.ts[:, 0], strict=True)
    ]
    size = jnp.sqrt((jnp.stack(begins) ** 2).mean(0))
    size = jnp.where(size > 1e-3 * size.max(), size, size.max())
    centred = s.observed - s.observed.mean(axis=1, keepdims=True)
    signal = jnp.sqrt(((s.weights * centred) ** 2).sum(axis=(1, 2)).mean())
    return signal / size
