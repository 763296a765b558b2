"""The methods of the diagrams: each computes the end of a motion, or of a batch, for a setting."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import jaxmech as jm
from experiments.measuring import mean_seconds
from experiments.work_precision.cases import Case

PAIRS = {
    "Adaptive, Dormand-Prince 5": jm.DormandPrince5(),
    "Adaptive, Dormand-Prince 8": jm.DormandPrince8(),
}
STIFF = {
    "Adaptive, Rodas5P": jm.Rodas5P(),
}
MOST = 200_000  # attempted steps
WARM = 1e-6  # a tolerance to compile for
ROUNDS, ENOUGH = 7, 0.5  # at most so many rounds, and none after so many seconds
ROUND = 0.02  # seconds that a round should take


@dataclass(frozen=True)
class Run:
    """The result of one setting.

    Attributes:
        end: q and v at the end, shape (2 n,) or (N, 2 n); None if it failed.
        seconds: processor time of the fastest round.
        evaluations: of the law of motion in all, if known.
        steps: attempted steps in all, if known.
    """

    end: np.ndarray | None
    seconds: float
    evaluations: int | None = None
    steps: int | None = None


Batch = np.ndarray | tuple[np.ndarray, np.ndarray] | None  # of `varied`, of q and v, or none
Prepared = Callable[[float], Run]  # of a setting
Prepare = Callable[[Case, Batch], Prepared]


@dataclass(frozen=True)
class Contender:
    """A method.

    Attributes:
        prepare: compiles the method for a case and returns a function of the setting.
        most: size of its largest batch, if that is smaller than the batch of jaxmech.
        batches: whether it can integrate batches.
        fixed: whether its settings are steps, not tolerances.
    """

    prepare: Prepare
    most: int | None = None
    batches: bool = True
    fixed: bool = False


def adaptive(pair: Any) -> Prepare:
    """Adaptive steps of jaxmech."""

    def prepare(case: Case, batch: Batch) -> Prepared:
        def run(setting: float) -> Run:
            steps = jm.Adaptive(rtol=setting, atol=setting, max_steps=MOST)
            return simulated(case, batch, pair, steps)

        return run

    return prepare


def _fixed(case: Case, batch: Batch) -> Prepared:
    """RK4 of jaxmech with a fixed step [s]."""

    def run(step: float) -> Run:
        steps = jm.FixedSteps(per_save=max(1, round(case.end / step)))
        return simulated(case, batch, jm.RK4(), steps)

    return run


def simulated(case: Case, batch: Batch, method: Any, steps: Any) -> Run:
    """A run of jaxmech."""

    def end(q: Any, v: Any, x: Any) -> tuple[Any, ...]:
        params = {**case.params, case.varied: x}
        ts = jnp.array([0.0, case.end])
        sol = jm.simulate(case.system, q, v, ts, params, method=method, steps=steps, throw=False)
        counts = sol.evaluations, sol.accepted + sol.rejected
        return jnp.concatenate([sol.q[-1], sol.v[-1]]), sol.status == jm.Status.OK, *counts

    given, axes = arguments(case, batch)
    run = jax.jit(end if batch is None else jax.vmap(end, axes))
    return _counted(*timed(lambda: jax.block_until_ready(run(*given))))


def arguments(case: Case, batch: Batch) -> tuple[tuple[Any, Any, Any], tuple[int | None, ...]]:
    """q, v and the varied parameter, and the axes along which they differ in a batch."""
    q, v, x = jnp.asarray(case.q), jnp.asarray(case.v), jnp.asarray(case.params[case.varied])
    if isinstance(batch, tuple):
        return (*batch, x), (0, 0, None)
    return (q, v, x if batch is None else jnp.asarray(batch)), (None, None, 0)


def _counted(seconds: float, found: tuple[Any, ...]) -> Run:
    state, good, *counts = (np.asarray(x) for x in found)
    return Run(state if good.all() else None, seconds, *(int(np.sum(x)) for x in counts))


def _by_diffrax(solver: Any, case: Case, batch: Batch) -> Prepared:
    """A method of diffrax on the index-reduced system; its program serves all tolerances."""

    def field(t: Any, y: Any, params: Any) -> Any:
        return y[1], jm.acceleration(case.system, *y, t, params).qdd

    term = diffrax.ODETerm(field)

    def end(q: Any, v: Any, x: Any, tolerance: Any) -> tuple[Any, ...]:
        sol = diffrax.diffeqsolve(
            term, solver, 0.0, case.end, None, (q, v), args={**case.params, case.varied: x},
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            max_steps=MOST, throw=False, adjoint=diffrax.ForwardMode(),
        )  # fmt: skip
        good, steps = sol.result == diffrax.RESULTS.successful, sol.stats["num_steps"]
        return jnp.concatenate([sol.ys[0][-1], sol.ys[1][-1]]), good, evaluated * steps, steps

    # An explicit method whose last stage is the first of the next step evaluates that one once.
    evaluated = solver.tableau.num_stages - 1 if not isinstance(solver, diffrax.Kvaerno5) else 0
    given, axes = arguments(case, batch)
    many = end if batch is None else jax.vmap(end, in_axes=(*axes, None))
    whole = jax.jit(many).lower(*given, WARM).compile()

    def run(setting: float) -> Run:
        found = _counted(*timed(lambda: jax.block_until_ready(whole(*given, setting))))
        return found if evaluated else Run(found.end, found.seconds, None, found.steps)

    return run


def _by_scipy(method: str, case: Case, batch: Batch) -> Prepared:
    """A method of scipy on the index-reduced system, with the law of motion of jaxmech."""
    assert batch is None, "scipy has no batches"
    n = len(case.q)

    @jax.jit
    def law(t: Any, y: Any) -> Any:
        motion = jm.acceleration(case.system, y[:n], y[n:], t, case.params)
        return jnp.concatenate([y[n:], motion.qdd])

    start = np.concatenate([case.q, case.v])
    law(np.float64(0.0), start)

    def run(setting: float) -> Run:
        def solve() -> Any:
            return solve_ivp(
                lambda t, y: np.asarray(law(t, y)), (0.0, case.end), start, method,
                rtol=max(setting, 3e-14), atol=setting,
            )  # fmt: skip

        seconds, sol = timed(solve)
        return Run(sol.y[:, -1] if sol.success else None, seconds, int(sol.nfev))

    return run


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of the fastest of some rounds, after a first run, and the result of that.

    A round has enough runs to take a while, because the process clock counts threads with a delay.
    """
    result, times, started = run(), list[float](), time.process_time()
    while not times or (len(times) < ROUNDS and time.process_time() - started < ENOUGH):
        times.append(mean_seconds(run, ROUND))
    return min(times), result


def diffrax_method(solver: Any) -> Prepare:
    """The function that prepares a method of diffrax."""
    return partial(_by_diffrax, solver)


CONTENDERS: dict[str, Contender] = {
    **{name: Contender(adaptive(pair)) for name, pair in PAIRS.items()},
    **{name: Contender(adaptive(pair)) for name, pair in STIFF.items()},
    "RK4, fixed step": Contender(_fixed, fixed=True),
    "diffrax Dopri8": Contender(diffrax_method(diffrax.Dopri8()), most=256),
    "diffrax Kvaerno5": Contender(diffrax_method(diffrax.Kvaerno5()), most=16),
    "scipy DOP853": Contender(partial(_by_scipy, "DOP853"), batches=False),
    "scipy Radau": Contender(partial(_by_scipy, "Radau"), batches=False),
}


def reference(case: Case, batch: np.ndarray | None) -> np.ndarray:
    """The final state in closed form, or to about 12 digits.

    Raises:
        AssertionError: two methods disagree.
    """
    if case.exact is not None:
        values = [case.params[case.varied]] if batch is None else batch
        ends = np.stack([case.exact(float(x), case.end) for x in values])
        return ends[0] if batch is None else ends
    other, best = (_finest(CONTENDERS[name].prepare(case, batch)) for name in PAIRS)
    apart = np.max(np.abs(best - other) / np.maximum(1.0, np.abs(best)))
    assert apart < 1e-9, f"{case.name}: two references are {apart:.1e} apart"
    return best


def _finest(run: Prepared) -> np.ndarray:
    """The final state with the smallest tolerance that works: below it, all steps are rejected."""
    for tolerance in (2e-14, 1e-13, 5e-13):
        end = run(tolerance).end
        if end is not None:
            return end
    raise AssertionError("no tolerance leads to the end")
