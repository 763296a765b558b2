"""The methods of the diagrams: each gives the end of a motion, or of a batch, for a setting."""

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
from experiments.work_precision.cases import Case

ROUNDS = 3
PAIRS = {
    "Adaptive, Dormand-Prince 5": jm.DormandPrince5(),
    "Adaptive, Tsitouras 5": jm.Tsitouras5(),
    "Adaptive, Dormand-Prince 8": jm.DormandPrince8(),
}
STIFF = {
    "Adaptive, Rodas5P": jm.Rodas5P(),
    "Adaptive, Radau IIA 5": jm.RadauIIA5(),
}
MOST = 200_000  # attempted steps


@dataclass(frozen=True)
class Run:
    """The result of one setting.

    Attributes:
        end: q and v at the end, shape (2 n,) or (N, 2 n); None if it failed.
        seconds: processor time of the fastest round.
        evaluations: of the law of motion in all, if known.
    """

    end: np.ndarray | None
    seconds: float
    evaluations: int | None = None


Contender = Callable[[Case, np.ndarray | None, float], Run]  # case, batch of `varied`, setting


def adaptive(pair: Any) -> Contender:
    """jaxmech with a tolerance."""

    def run(case: Case, batch: np.ndarray | None, setting: float) -> Run:
        method = jm.Adaptive(pair, rtol=setting, atol=setting, max_steps=MOST)
        return _simulated(case, batch, method)

    return run


def fixed(case: Case, batch: np.ndarray | None, setting: float) -> Run:
    """RK4 of jaxmech with a step [s]."""
    return _simulated(case, batch, jm.RK4(substeps=max(1, round(case.end / setting))))


def _simulated(case: Case, batch: np.ndarray | None, method: Any) -> Run:
    def end(x: Any) -> tuple[Any, Any, Any]:
        params = {**case.params, case.varied: x}
        ts = jnp.array([0.0, case.end])
        sol = jm.simulate(case.system, case.q, case.v, ts, params, method=method, throw=False)
        return jnp.concatenate([sol.q[-1], sol.v[-1]]), sol.status, sol.evaluations

    given = case.params[case.varied] if batch is None else batch
    run = jax.jit(end if batch is None else jax.vmap(end))
    seconds, (state, status, evaluations) = timed(lambda: jax.block_until_ready(run(given)))
    good = (np.asarray(status) == jm.Status.OK).all()
    return Run(np.asarray(state) if good else None, seconds, int(np.sum(evaluations)))


def by_diffrax(solver: Any) -> Contender:
    """A method of diffrax on the index-reduced system."""
    return partial(_by_diffrax, solver)


def _by_diffrax(solver: Any, case: Case, batch: np.ndarray | None, setting: float) -> Run:
    term, _ = jm.to_diffrax(case.system, projection=None)
    controller = diffrax.PIDController(rtol=setting, atol=setting)

    def end(x: Any) -> tuple[Any, Any, Any]:
        sol = diffrax.diffeqsolve(
            term, solver, 0.0, case.end, None, (jnp.asarray(case.q), jnp.asarray(case.v)),
            args={**case.params, case.varied: x}, stepsize_controller=controller,
            max_steps=MOST, throw=False, adjoint=diffrax.ForwardMode(),
        )  # fmt: skip
        good = sol.result == diffrax.RESULTS.successful
        return jnp.concatenate([sol.ys[0][-1], sol.ys[1][-1]]), good, sol.stats["num_steps"]

    given = case.params[case.varied] if batch is None else batch
    run = jax.jit(end if batch is None else jax.vmap(end))
    seconds, (state, good, steps) = timed(lambda: jax.block_until_ready(run(given)), rounds=1)
    found = np.asarray(state) if np.asarray(good).all() else None
    return Run(found, seconds, 13 * int(np.sum(steps)) if solver.order(term) == 8 else None)


def by_scipy(method: str) -> Contender:
    """A method of scipy on the index-reduced system, with the law of motion of jaxmech."""

    def run(case: Case, batch: np.ndarray | None, setting: float) -> Run:
        if batch is not None:
            raise ValueError("scipy has no batches")
        n = len(case.q)

        @jax.jit
        def law(t: Any, y: Any) -> Any:
            motion = jm.acceleration(case.system, y[:n], y[n:], t, case.params)
            return jnp.concatenate([y[n:], motion.qdd])

        def solve() -> Any:
            return solve_ivp(
                lambda t, y: np.asarray(law(t, y)), (0.0, case.end),
                np.concatenate([case.q, case.v]), method, rtol=max(setting, 3e-14), atol=setting,
            )  # fmt: skip

        law(0.0, np.concatenate([case.q, case.v]))
        seconds, sol = timed(solve, rounds=1)
        return Run(sol.y[:, -1] if sol.success else None, seconds, int(sol.nfev))

    return run


def timed(run: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, Any]:
    """Processor time of the fastest of some rounds after a first one, and the result."""
    result, best = run(), np.inf
    for _ in range(rounds):
        started = time.process_time()
        result = run()
        best = min(best, time.process_time() - started)
    return best, result


SINGLE: dict[str, Contender] = {
    **{name: adaptive(pair) for name, pair in {**PAIRS, **STIFF}.items()},
    "RK4, fixed step": fixed,
    "diffrax Dopri8": by_diffrax(diffrax.Dopri8()),
    "diffrax Kvaerno5": by_diffrax(diffrax.Kvaerno5()),
    "scipy DOP853": by_scipy("DOP853"),
    "scipy Radau": by_scipy("Radau"),
}
BATCH: dict[str, Contender] = {
    name: one for name, one in SINGLE.items() if not name.startswith("scipy")
}


def reference(case: Case, batch: np.ndarray | None) -> np.ndarray:
    """The end to about 12 digits, and an AssertionError if two methods disagree."""
    pairs = [partial(adaptive(pair), case, batch) for pair in PAIRS.values()]
    best, other = _finest(pairs[2]), _finest(pairs[1])
    scale = np.maximum(1.0, np.abs(best))
    apart = np.max(np.abs(best - other) / scale)
    assert apart < 1e-9, f"{case.name}: two references are {apart:.1e} apart"
    return best


def _finest(run: Callable[[float], Run]) -> np.ndarray:
    """The end with the smallest tolerance above round-off: below it, steps are rejected forever."""
    for tolerance in (2e-14, 1e-13, 5e-13):
        end = run(tolerance).end
        if end is not None:
            return end
    raise AssertionError("no tolerance leads to the end")
