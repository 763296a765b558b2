"""`optimize`: the best motion of a system between given times, by multiple shooting and Ipopt.

`shooting` makes a problem of finitely many numbers of it, which Ipopt solves.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmech.control.shooting import SAMPLED, UNFINISHED, NonlinearProgram, Transcription
from jaxmech.integrate import AbstractMethod, FixedSteps
from jaxmech.run import Solution, simulate
from jaxmech.system import KnownState, Params, Signal, Subject, with_params
from jaxmech.utils.caller import USE_FLOAT64
from jaxmech.utils.checks import require_finite, require_function, require_positive_integer
from jaxmech.utils.probing import depends_on
from jaxmech.utils.units import columns

MET = 1e-6  # how much a condition may be missed by


class OptimumStatus(Enum):
    """How a search for the best motion has ended."""

    OPTIMAL = "a local optimum, to the tolerance"
    ACCEPTABLE = "nearly a local optimum: the steps have become too small to get nearer"
    INFEASIBLE = "no motion near this one meets all conditions"
    TOO_MANY_ITERATIONS = "the iterations are used up"
    FAILED = "the solver could not go on"


@dataclass(frozen=True)
class Optimum:
    """The best motion near a guess, with what makes it.

    Attributes:
        status: an `OptimumStatus`.
        cost: its cost.
        params: the parameters with the free ones at their optimum, and a `Signal` for each control:
            `simulate(system, q[0], v[0], ts, params)` is the motion.
        ts: times of the nodes [s], (N + 1,).
        q: coordinates at the nodes, (N + 1, n).
        v: velocities at the nodes, (N + 1, m).
        violations: by how much each condition is violated at most: "motion" for continuity, an
            "end[0]" for each number of `end`, a "path[0]" for each of `path`, and the names of
            coordinates and velocities with bounds.
        multipliers: the multipliers of the conditions, the rates at which the cost would change
            with what they demand: "end" (e,), "path" (N + 1, rows of path, and of bounds of
            coordinates), where those of the nodes are sums over the interval that begins there.
        iterations: of the solver, in all rounds.
        run: computes `solution`.
    """

    status: OptimumStatus
    cost: float
    params: dict[str, Any]
    ts: np.ndarray
    q: np.ndarray
    v: np.ndarray
    violations: dict[str, float]
    multipliers: dict[str, np.ndarray]
    iterations: int
    run: Callable[[], Solution]

    @cached_property
    def solution(self) -> Solution:
        """The motion from the first node in steps half as long, computed when first asked for."""
        return self.run()

    @property
    def deviation(self) -> float:
        """The largest difference of `solution` and `q`: what steps miss, enlarged by the motion."""
        return float(np.abs(np.asarray(self.solution.q) - self.q).max())

    @property
    def succeeded(self) -> bool:
        """Whether it is a local optimum."""
        return self.status in (OptimumStatus.OPTIMAL, OptimumStatus.ACCEPTABLE)

    def __repr__(self) -> str:
        lines = [
            f"Optimum: {self.status.value}",
            f"  cost        {self.cost:.6g}",
            f"  iterations  {self.iterations}",
            f"  deviation   {self.deviation:.1e} of the motion in steps half as long",
        ]
        missed = {name: x for name, x in self.violations.items() if x > MET}
        lines += [f"  {name:<11} violated by {x:.3g}" for name, x in missed.items()]
        if not missed:
            lines.append(f"  conditions  met to {max(self.violations.values()):.1e}")
        return "\n".join(lines)


OUTCOMES = {  # of Ipopt
    0: OptimumStatus.OPTIMAL,
    1: OptimumStatus.ACCEPTABLE,
    2: OptimumStatus.INFEASIBLE,
    3: OptimumStatus.ACCEPTABLE,
    UNFINISHED: OptimumStatus.TOO_MANY_ITERATIONS,
}


def optimize(
    system: Subject,
    q0: Any,
    v0: Any,
    ts: Any,
    params: Params = None,
    *,
    controls: Iterable[str] = (),
    free: Iterable[str] = (),
    duration: str | None = None,
    cost: Callable[..., Any] | None = None,
    end_cost: Callable[..., Any] | None = None,
    end: Callable[..., Any] | None = None,
    path: Callable[..., Any] | None = None,
    bounds: Mapping[str, tuple[Any, Any]] | None = None,
    guess: Any = None,
    per_save: int = 4,
    iterations: int = 500,
    tolerance: float = 1e-8,
    method: AbstractMethod | None = None,
) -> Optimum:
    """The motion of smallest cost, with the controls and parameters that make it.

    Direct multiple shooting (Bock and Plitt 1984): between neighbours of the `ts`, the nodes, the
    motion is simulated, and its states at the nodes, controls and free parameters are found by the
    interior-point method of Ipopt (Waechter and Biegler 2006). Nodes lie on the constraints, in
    coordinates along them. First derivatives are exact; second ones are differences of these.

    What is compiled for `system` and the functions serves later calls with the same ones, so a loop
    over starts or guesses compiles once. It runs on the host, not under `jit`, `vmap` or `grad`.

    Args:
        system: the system, without gaps, dry friction and controllers.
        q0: coordinates at the start, shape (n,).
        v0: velocities at the start, like q0.
        ts: times of the nodes [s], shape (N + 1,).
        params: the parameters. The entry of each control is a `Signal`, the guess, which functions
            of the system call: constant between nodes if it is one of "hold", otherwise linear.
        controls: names of the parameters that are controls.
        free: names of the parameters that are found too; their values are the guess.
        duration: name of the parameter that is the time from the first node to the last, if it is
            free; the nodes keep their places in it.
        cost: `cost(q, v, t, params)`, the cost per time along the motion.
        end_cost: the same for the cost of the last state.
        end: what is zero at the last state, an array.
        path: what is not negative along the motion, an array: at the nodes, and at three times
            between neighbours.
        bounds: the least and the largest value, or None for any, by the names of controls, free
            parameters, coordinates and velocities; of the latter two at the times of `path`.
        guess: the states at the nodes with which the search begins, as q (N + 1, n) and v; by
            default the motion by the guessed controls. They are projected onto the constraints. Or
            an `Optimum`, also one of other nodes, whose controls and free parameters are the guess,
            too.
        per_save: steps from one node to the next, a multiple of four.
        iterations: the largest number of iterations of Ipopt.
        tolerance: of Ipopt, for conditions and for the gradient of the Lagrangian.
        method: as for `simulate`.

    Returns:
        The `Optimum`, whose status tells whether it is one.

    Raises:
        ValueError: if the system has gaps, dry friction or controllers, a name is unknown, a shape
            is wrong, numbers are not finite or in float32, or the start is not on the constraints.
        ImportError: if cyipopt is not installed.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> cart = jm.System(
        ...     lambda q, v, t, p: v @ v / 2,
        ...     force=lambda q, v, t, p: p["push"](t)[None],
        ...     coordinates=("x",),
        ... )
        >>> best = optimize(
        ...     cart, [0.0], [0.0], jnp.linspace(0.0, 2.0, 21),
        ...     {"push": jm.Signal([0.0, 2.0], [0.0, 0.0])},
        ...     controls=["push"],
        ...     cost=lambda q, v, t, p: p["push"](t) ** 2,
        ...     end=lambda q, v, t, p: jnp.array([q[0] - 1.0, v[0]]),
        ... )
        >>> print(round(best.cost, 6))  # 12 d^2 / T^3
        1.5
    """
    system, params = with_params(system, params)
    params = dict(params or {})
    for name, pair in (bounds or {}).items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                f"Argument `bounds` must hold (low, high) for {name!r}, None for no bound, but "
                f"holds {pair!r}."
            )
    bounds = {
        name: (-np.inf if low is None else low, np.inf if high is None else high)
        for name, (low, high) in (bounds or {}).items()
    }
    system.require_smooth()
    controls, free = tuple(controls), tuple(free)
    free = free if duration is None or duration in free else (*free, duration)
    if isinstance(guess, Optimum):
        params |= {name: guess.params[name] for name in (*controls, *free) if name in guess.params}
    q0, v0, _, _ = system.arguments(q0, v0, 0.0, params, ("q0", "v0"))
    if q0.dtype != np.float64:
        raise ValueError(
            f"`optimize` needs float64, but `q0` is in {q0.dtype}, in whose round-off differences "
            f"of derivatives are lost; {USE_FLOAT64}."
        )
    ts = np.asarray(ts, float)
    require_finite(q0=q0, v0=v0, ts=ts, params=params)
    if ts.ndim != 1 or ts.size < 2 or not (np.diff(ts) > 0).all():
        raise ValueError("Argument `ts` must be an array of two or more increasing times.")
    require_positive_integer("per_save", per_save, "pass 4, or a multiple")
    if per_save % (SAMPLED.size - 1):
        raise ValueError(f"Argument `per_save` must be a multiple of four, but is {per_save}.")
    for argument, fn in (("cost", cost), ("end_cost", end_cost), ("end", end), ("path", path)):
        if fn is not None:
            require_function(argument, fn, "q, v, t, params")
    _require_names(params, controls, free)
    is_linear = {params[name].interpolation != "hold" for name in controls}
    if len(is_linear) > 1:
        raise ValueError("Argument `params` must hold signals of one interpolation for `controls`.")
    places = columns(system.coordinates, system.velocity_names)
    known = (*controls, *free, *places)
    for name, (low, high) in bounds.items():
        if name not in known:
            raise ValueError(
                f"Argument `bounds` holds {name!r}, which is none of {', '.join(known)}."
            )
        if not np.less_equal(low, high).all():
            raise ValueError(
                f"Argument `bounds` must hold the least value of {name!r} first, but is from {low} "
                f"to {high}."
            )
    for violation in KnownState(system, q0, v0, jnp.asarray(ts[0]), params).violations():
        raise ValueError(
            f"Arguments `q0` and `v0` are off the constraint {violation.name!r} by "
            f"{violation.size:.3g}; `jm.assemble` finds a state on it."
        )

    def levels(signals: dict[str, Any]) -> Any:
        full, t = {**params, **signals}, jnp.asarray(ts[0])
        dynamics = system.dynamics
        return jnp.concatenate(
            [dynamics.position_level(q0, t, full), dynamics.velocity_level(q0, v0, t, full)]
        )

    if depends_on(levels, ({name: params[name] for name in controls},)):
        raise ValueError(
            "Argument `controls` must not be read by constraints, since states would jump with "
            "them; let a control be a force, or the rate of a state that a constraint reads."
        )
    limited = [name for name in places if name in bounds]
    problem = Transcription(
        system, method, per_save // (SAMPLED.size - 1),
        tuple((x, np.shape(params[x].values)[1:]) for x in controls), is_linear == {True},
        tuple((x, np.shape(params[x])) for x in free), duration, cost, end_cost, path,
        tuple(places[name] for name in limited), end,
    )  # fmt: skip

    begin, fractions = ts[0], (ts - ts[0]) / (ts[-1] - ts[0])
    if duration is not None:
        ts = begin + fractions * float(params[duration])
    half = FixedSteps(2 * per_save)
    q, v = _guessed(system, guess, q0, v0, ts, params, method, half)
    program = NonlinearProgram(problem, fractions, ts, params, q, v, bounds, limited)
    code, count = program.solve(iterations, tolerance)
    ts, q, v, best = program.motion()
    run = partial(simulate, system, q[0], v[0], ts, best, method=method, steps=half, throw=False)
    return Optimum(
        status=OUTCOMES.get(code, OptimumStatus.FAILED), cost=program.objective(program.z),
        params=best, ts=ts, q=q, v=v, violations=program.violations(),
        multipliers=program.multipliers(), iterations=count, run=run,
    )  # fmt: skip


def _require_names(
    params: dict[str, Any], controls: tuple[str, ...], free: tuple[str, ...]
) -> None:
    """Raise a ValueError unless controls are signals, and free parameters are numbers."""
    for argument, names in (("controls", controls), ("free", free)):
        for name in names:
            if name not in params:
                raise ValueError(
                    f"Argument `{argument}` holds {name!r}, which `params` must hold too, as its "
                    "guess."
                )
            if isinstance(params[name], Signal) != (argument == "controls"):
                raise ValueError(
                    f"Argument `params` must hold a number or an array for a free parameter and a "
                    f"`Signal` for a control, but {name!r} is {type(params[name]).__name__}."
                )


def _guessed(
    system: Any, guess: Any, q0: Any, v0: Any, ts: np.ndarray, params: Params,
    method: AbstractMethod | None, steps: FixedSteps,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """States at the nodes with which the search begins."""
    if isinstance(guess, Optimum):
        places = (ts - ts[0]) / (ts[-1] - ts[0])
        known = (guess.ts - guess.ts[0]) / (guess.ts[-1] - guess.ts[0])
        guess = [
            np.stack([np.interp(places, known, x) for x in states.T], axis=1)
            for states in (guess.q, guess.v)
        ]
    if guess is None:
        sol = simulate(system, q0, v0, ts, params, method=method, steps=steps, throw=False)
        q, v = np.array(sol.q), np.array(sol.v)
        lost = ~np.isfinite(q).all(axis=1)
        q[lost], v[lost] = q0, v0
        return q, v
    q, v = (np.array(x, float) for x in guess)
    shapes = (ts.size, *np.shape(q0)), (ts.size, *np.shape(v0))
    if (q.shape, v.shape) != shapes:
        raise ValueError(
            f"Argument `guess` must be q and v of shapes {shapes[0]} and {shapes[1]}, but they are "
            f"{q.shape} and {v.shape}."
        )
    q[0], v[0] = q0, v0
    return q, v
