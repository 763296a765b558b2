"""The loss of a motion as a function of numbers, its derivatives, and its values for a batch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.assemble import Start, onto
from jaxmech.formulations import AbstractFormulation
from jaxmech.integrate import (
    AbstractDerivative,
    AbstractFixedStep,
    AbstractMethod,
    Adaptive,
    ForwardMode,
    ReverseMode,
    Scheme,
)
from jaxmech.integrate.adaptive.record import StepRecord
from jaxmech.integrate.adaptive.replay import recorded, replayed, shortened
from jaxmech.integrate.default_steps import resolved_method
from jaxmech.sensitivity.differences import Numbers
from jaxmech.sensitivity.tangents import consistent_change
from jaxmech.simulate import simulate
from jaxmech.solution import Solution
from jaxmech.stabilization import AbstractStabilization
from jaxmech.status import Status
from jaxmech.system import Params, System, as_dtype
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import numbers_of

Loss = Callable[[Array, Array, Array, Params], Array]  # loss(q (T, n), v (T, n), ts, params)


@dataclass(frozen=True)
class CheckedMotion:
    """The inputs that stay fixed while the numbers change."""

    system: System
    loss: Loss
    start: Start | None
    method: AbstractMethod
    stabilization: AbstractStabilization
    formulation: AbstractFormulation

    @property
    def policies(self) -> dict[str, Any]:
        """The policies for `simulate`."""
        return {"method": self.method, "projection": self.stabilization,
                "formulation": self.formulation}  # fmt: skip


class Steps(NamedTuple):
    """The adaptive steps of a motion, reused for changed initial states and parameters."""

    record: StepRecord
    q: Array  # saved q and v minus those of the same steps without interpolation, (T, n)
    v: Array


class Base(NamedTuple):
    """The point at which the derivatives are evaluated."""

    q0: Array  # start variables
    v0: Array  # their rates
    ts: Array
    params: Params  # all leaves are arrays
    change: tuple[Array, Array] | None  # a consistent change (dq, dv) of the initial state, if any
    steps: Steps | None = None  # with `Adaptive`


def end(q: Array, v: Array, ts: Array, params: Params) -> Array:
    """The default loss: a pseudo-random combination of q and v at the end."""
    weights = np.random.default_rng(5).normal(size=2 * q.shape[1])
    return jnp.asarray(weights, q.dtype) @ jnp.concatenate([q[-1], v[-1]])


def prepared(
    run: CheckedMotion, q0: Any, v0: Any, ts: Any, params: Params
) -> tuple[CheckedMotion, Base, Solution]:
    """The run with its steps chosen, the point of its derivatives, and the motion there."""
    q0, v0 = jnp.asarray(q0), jnp.asarray(v0)
    dtype = jnp.result_type(q0, v0, float)
    q0, v0, params = q0.astype(dtype), v0.astype(dtype), as_dtype(params, dtype)
    q, v = (q0, v0) if run.start is None else run.start(q0, v0, params)
    run = replace(run, method=resolved_method(run.system, q, v, ts, params, **run.policies))
    solution = simulate(run.system, q, v, ts, params, **run.policies)
    value = run.loss(solution.q, solution.v, solution.ts, params)
    if np.shape(value) != () or not np.isfinite(value):
        raise ValueError(f"Argument `loss` must return a finite scalar, but returns {value}.")
    first = solution.q[0], solution.v[0], solution.ts[0]
    base = Base(q0, v0, solution.ts, params, consistent_change(run.system, *first, params))
    if isinstance(run.method, Adaptive):
        record = shortened(_recorded(run, base, x := numbers(base)[0]))
        q, v, _ = _replayed(run, base, x, record)
        base = base._replace(steps=Steps(record, solution.q - q, solution.v - v))
    return run, base, solution


def numbers(base: Base) -> tuple[Array, Numbers]:
    """The numbers to differentiate by, (P,), and their sizes, (P,)."""
    x, _ = numbers_of(base.params)
    if base.change is not None:
        x = jnp.append(x, jnp.zeros((), base.ts.dtype))
    x = x.astype(base.ts.dtype)
    return x, np.where(x == 0, 1.0, np.abs(np.asarray(x, float)))


def _start(run: CheckedMotion, base: Base, x: Array) -> tuple[Array, Array, Params]:
    """The initial state and the parameters for numbers x (P,)."""
    numbers, with_numbers = numbers_of(base.params)
    params = with_numbers(x[: numbers.size])
    t = base.ts[0]
    q, v = base.q0, base.v0
    if run.start is not None:
        q, v = (jnp.asarray(x, t.dtype) for x in run.start(q, v, params))
    if base.change is not None:
        dq, dv = base.change
        q, v = q + x[-1] * dq, v + x[-1] * dv
    return *onto(run.system, q, v, t, params), params


def _solved(
    run: CheckedMotion, base: Base, x: Array, derivative: AbstractDerivative
) -> tuple[Array, Array]:
    """The loss for numbers x (P,), and whether the motion succeeded."""
    q, v, params = _start(run, base, x)
    ways = run.policies | {"derivative": derivative, "throw": False}
    sol = simulate(run.system, q, v, base.ts, params, **ways)
    return run.loss(sol.q, sol.v, sol.ts, params), sol.status == Status.OK


def _scheme(run: CheckedMotion, *state: Any) -> Scheme:
    return Scheme.of(run.system, run.method, run.formulation, run.stabilization, *state)


@jit_of("run")
def _recorded(run: CheckedMotion, base: Base, x: Array) -> StepRecord:
    assert isinstance(run.method, Adaptive)
    q, v, params = _start(run, base, x)
    scheme = _scheme(run, q, v, base.ts[0], params)
    return recorded(scheme, q, v, base.ts, params, run.method.tolerance(q.dtype))


@jit_of("run")
def _replayed(
    run: CheckedMotion, base: Base, x: Array, record: StepRecord
) -> tuple[Array, Array, Array]:
    q, v, params = _start(run, base, x)
    scheme = _scheme(run, q, v, base.ts[0], params)
    return replayed(scheme, record, q, v, base.ts, params)


@jit_of("run")
def by_reverse_mode(run: CheckedMotion, base: Base, x: Array) -> tuple[Array, Array]:
    """The loss, and its derivatives (P,) in reverse mode."""
    return jax.value_and_grad(lambda x: _solved(run, base, x, ReverseMode())[0])(x)


@jit_of("run")
def _forward(run: CheckedMotion, base: Base, x: Array) -> Array:
    return jax.jacfwd(lambda x: _solved(run, base, x, ForwardMode())[0])(x)


def by_forward_mode(run: CheckedMotion, base: Base, x: Array) -> Numbers | None:
    """The derivatives (P,) of the loss; None where a function has a rule for reverse mode only."""
    try:
        return np.asarray(_forward(run, base, x), float)
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        return None


@jit_of("run")
def losses(run: CheckedMotion, base: Base, points: Array) -> Array:
    """The loss at points (K, P), as one batch; NaN where a motion failed."""

    def one(x: Array) -> Array:
        if base.steps is None:
            loss, good = _solved(run, base, x, ReverseMode())
        else:  # in the steps of the motion where the derivatives are taken
            q, v, good = _replayed(run, base, x, base.steps.record)
            params = _start(run, base, x)[2]
            loss = run.loss(q + base.steps.q, v + base.steps.v, base.ts, params)
        return jnp.where(good, loss, jnp.nan)

    return jax.vmap(one)(points)


def refined(run: CheckedMotion, base: Base, solution: Solution) -> tuple[Scheme, Solution]:
    """The scheme of a step, and the same motion saved at the end of every step."""
    if isinstance(run.method, AbstractFixedStep):
        substeps = run.method.count
        places = np.arange(substeps * (len(base.ts) - 1) + 1) / substeps
        fine = jnp.interp(jnp.asarray(places), jnp.arange(len(base.ts)), base.ts)
        policies = run.policies | {"method": replace(run.method, substeps=1)}
    else:
        assert base.steps is not None
        sizes = np.asarray(base.steps.record.moves)
        ends = np.cumsum(sizes[sizes > 0])
        sign = np.sign(base.ts[-1] - base.ts[0])
        fine = jnp.append(base.ts[0] + sign * np.append(0.0, ends[:-1]), base.ts[-1])
        policies = run.policies
    start = solution.q[0], solution.v[0]
    states = simulate(run.system, *start, fine, base.params, throw=False, **policies)
    return _scheme(run, states.q[0], states.v[0], states.ts[0], base.params), states
