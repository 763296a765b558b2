"""`check_gradients`: gradients through a whole motion, in three independent ways."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.integrate import (
    AbstractDerivative,
    AbstractMethod,
    FixedSteps,
    ForwardMode,
    ReverseMode,
    Scheme,
    resolved,
)
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.run.check_report import START, GradientCheck
from jaxmech.run.nan_origins import (
    NanOrigin,
    concerning,
    origins_in_loss,
    origins_in_system,
)
from jaxmech.run.simulate import simulate
from jaxmech.run.solution import Solution
from jaxmech.run.tangents import Sweep, consistent_change, step_sizes, sweep
from jaxmech.state import AbstractStabilization, Projection, onto
from jaxmech.status import Status
from jaxmech.system import Params, Subject, System, with_params
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_function, require_kind
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import as_dtype, number_names, numbers_of

Loss = Callable[[Array, Array, Array, Params], Array]  # loss(q (T, n), v (T, n), ts, params)


@dataclass(frozen=True)
class _Motion:
    """The inputs that stay fixed while the numbers change."""

    scheme: Scheme
    loss: Loss

    @property
    def system(self) -> System:
        """The system that moves."""
        return self.scheme.system


class _Base(NamedTuple):
    """The point at which the derivatives are evaluated."""

    q0: Array
    v0: Array
    ts: Array
    params: Params  # all leaves are arrays
    change: tuple[Array, Array] | None  # a consistent change (dq, dv) of the initial state, if any


def check_gradients(
    system: Subject,
    q0: Any,
    v0: Any,
    ts: Any,
    params: Params = None,
    *,
    loss: Loss | None = None,
    method: AbstractMethod | None = None,
    steps: FixedSteps | None = None,
    projection: AbstractStabilization | None = Projection(),
    formulation: AbstractFormulation = UdwadiaKalaba(),
    sizes: Any = None,
    tolerance: float | None = None,
) -> GradientCheck:
    """The gradient of a loss through a motion: reverse mode, forward mode, central differences.

    By every floating-point number of the parameters, and by a change of the initial state along the
    constraints. Differences are taken with many step sizes at once, all motions in one batch; the
    value where they agree best is used, with its uncertainty. Where a parameter changes the
    constraints, as the length of a rod does, the initial state follows by projection of q0 and v0,
    alike in all three ways. Steps are fixed, so that all three are derivatives of one smooth
    function; the functions of the system, which may be at fault, are those of any steps.

    Args:
        system: the system, with n coordinates.
        q0: coordinates at ts[0], shape (n,).
        v0: velocities at ts[0], shape (n,).
        ts: save times [s], shape (T,).
        params: the parameters that the functions of the system expect.
        loss: loss(q, v, ts, params), a scalar, of q (T, n) and v (T, n); by default a pseudo-random
            combination of q and v at the end.
        method: as for `simulate`.
        steps: as for `simulate`.
        projection: as for `simulate`.
        formulation: as for `simulate`.
        sizes: step sizes of the differences relative to each number, (S,); by default two in each
            decade from 0.1 to 1e-9 (1e-4 in single precision).
        tolerance: relative error allowed beside the uncertainty of a difference; 1e-6 by default,
            1e-2 in single precision.

    Returns:
        The `GradientCheck`; `ok` says whether all agree. A derivative that is NaN is traced to the
        function, the argument and the time where it starts.

    Raises:
        ValueError: if `sizes`, `loss` or an argument of `simulate` is invalid, or there is nothing
            to differentiate by.
        TypeError: if `loss` is not a function, or `steps` are `Adaptive`.
        SimulationError: if the motion failed.
    """
    require_function("loss", loss or _end)
    system, params = with_params(system, params)
    scheme = Scheme.of(system, method, steps, projection, formulation)
    require_kind("steps", scheme.steps, FixedSteps, "FixedSteps()")
    run = _Motion(scheme, loss or _end)
    run, base, solution = _prepared(run, q0, v0, ts, params)
    eps = float(jnp.finfo(base.ts.dtype).eps)
    names = (*number_names(base.params), *([START] if base.change is not None else []))
    if not names:
        raise ValueError(
            "Argument `params` must hold a floating-point number to differentiate by, since the "
            "constraints leave no freedom to the initial state either."
        )
    x, scales = _numbers(base)
    value, reverse = (np.asarray(out, float) for out in _by_reverse_mode(run, base, x))
    forward = _by_forward_mode(run, base, x)
    sweep = _sweep(run, base, x, scales, step_sizes(sizes, eps), eps * float(abs(value)))
    slopes = np.abs(sweep.values * scales)
    matters = abs(value) + np.max(slopes[np.isfinite(slopes)], initial=0.0)
    bad = ~np.isfinite(np.array([reverse, reverse if forward is None else forward]))
    return GradientCheck(
        names=names,
        reverse=reverse,
        forward=forward,
        sweep=sweep,
        loss=float(value),
        steps=int(solution.accepted),
        tolerance=(1e-6 if eps < 1e-10 else 1e-2) if tolerance is None else tolerance,
        round_off=eps**0.75 * matters / scales,
        origins=_origins(run, base, solution, names, bad) if bad.any() else {},
    )


def _sweep(
    run: _Motion, base: _Base, x: Array, scales: HostArray, sizes: HostArray, round_off: float
) -> Sweep:
    steps = np.einsum("p,s,pk->psk", scales, sizes, np.eye(len(scales)))
    middle = np.asarray(x)
    forward_points = (middle + steps).astype(middle.dtype)
    backward_points = (middle - steps).astype(middle.dtype)
    points = jnp.asarray(np.stack([forward_points, backward_points]).reshape(-1, x.size))
    forward, backward = np.asarray(_losses(run, base, points), float).reshape(2, len(scales), -1)
    # The actual distance, which rounding has changed.
    apart = (forward_points - backward_points).sum(-1)
    return sweep(sizes, scales, (forward - backward) / apart, round_off)


def _origins(
    run: _Motion, base: _Base, solution: Solution, names: tuple[str, ...], bad: Any
) -> dict[str, tuple[NanOrigin, ...]]:
    scheme, states = _refined(run, base, solution)
    numbers = tuple(name for name in names if name != START)
    motion = states.q, states.v, states.ts
    origins = origins_in_system(scheme, *motion, base.params, numbers)
    origins += origins_in_loss(run.loss, solution, base.params, numbers)
    return {
        name: concerning(None if only_forward else name, origins, numbers)
        for name, is_bad, only_forward in zip(names, bad.any(0), ~bad[0], strict=True)
        if is_bad
    }


def _end(q: Array, v: Array, ts: Array, params: Params) -> Array:
    weights = np.random.default_rng(5).normal(size=q.shape[1] + v.shape[1])
    return jnp.asarray(weights, q.dtype) @ jnp.concatenate([q[-1], v[-1]])


def _prepared(
    run: _Motion, q0: Any, v0: Any, ts: Any, params: Params
) -> tuple[_Motion, _Base, Solution]:
    q0, v0 = jnp.asarray(q0), jnp.asarray(v0)
    dtype = jnp.result_type(q0, v0, float)
    q0, v0, params = q0.astype(dtype), v0.astype(dtype), as_dtype(params, dtype)
    run = replace(run, scheme=resolved(run.scheme, q0, v0, ts, params))
    solution = simulate(run.system, q0, v0, ts, params, **run.scheme.policies)
    value = run.loss(solution.q, solution.v, solution.ts, params)
    if np.shape(value) != () or not np.isfinite(value):
        raise ValueError(f"Argument `loss` must return a finite scalar, but returns {value}.")
    first = solution.q[0], solution.v[0], solution.ts[0]
    change = consistent_change(run.system, *first, run.system.with_outputs(params))
    return run, _Base(q0, v0, solution.ts, params, change), solution


def _numbers(base: _Base) -> tuple[Array, HostArray]:
    x, _ = numbers_of(base.params)
    if base.change is not None:
        x = jnp.append(x, jnp.zeros((), base.ts.dtype))
    x = x.astype(base.ts.dtype)
    return x, np.where(x == 0, 1.0, np.abs(np.asarray(x, float)))


def _start(run: _Motion, base: _Base, x: Array) -> tuple[Array, Array, Params]:
    numbers, with_numbers = numbers_of(base.params)
    params = with_numbers(x[: numbers.size])
    t = base.ts[0]
    q, v = base.q0, base.v0
    if base.change is not None:
        dq, dv = base.change
        q, v = q + x[-1] * dq, v + x[-1] * dv
    return *onto(run.system, q, v, t, run.system.with_outputs(params)), params


def _solved(
    run: _Motion, base: _Base, x: Array, derivative: AbstractDerivative
) -> tuple[Array, Array]:
    q, v, params = _start(run, base, x)
    ways = run.scheme.policies | {"derivative": derivative, "throw": False}
    sol = simulate(run.system, q, v, base.ts, params, **ways)
    return run.loss(sol.q, sol.v, sol.ts, params), sol.status == Status.OK


@jit_of("run")
def _by_reverse_mode(run: _Motion, base: _Base, x: Array) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda x: _solved(run, base, x, ReverseMode())[0])(x)


@jit_of("run")
def _forward(run: _Motion, base: _Base, x: Array) -> Array:
    return jax.jacfwd(lambda x: _solved(run, base, x, ForwardMode())[0])(x)


def _by_forward_mode(run: _Motion, base: _Base, x: Array) -> HostArray | None:
    # None where a function has a rule for reverse mode only.
    try:
        return np.asarray(_forward(run, base, x), float)
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        return None


@jit_of("run")
def _losses(run: _Motion, base: _Base, points: Array) -> Array:
    def loss_at(x: Array) -> Array:
        loss, good = _solved(run, base, x, ReverseMode())
        return jnp.where(good, loss, jnp.nan)

    return jax.vmap(loss_at)(points)


def _refined(run: _Motion, base: _Base, solution: Solution) -> tuple[Scheme, Solution]:
    steps = run.scheme.steps
    assert isinstance(steps, FixedSteps)
    fractions = np.arange(steps.count * (len(base.ts) - 1) + 1) / steps.count
    fine = jnp.interp(jnp.asarray(fractions), jnp.arange(len(base.ts)), base.ts)
    policies = run.scheme.policies | {"steps": replace(steps, per_save=1, max_step=None)}
    start = solution.q[0], solution.v[0]
    states = simulate(run.system, *start, fine, base.params, throw=False, **policies)
    params = run.system.with_outputs(base.params)
    return run.scheme.at(states.q[0], states.v[0], states.ts[0], params), states
