"""`check_gradients`: gradients through a whole motion, in three independent ways."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.assemble import Start
from jaxmech.formulations import AbstractFormulation, UdwadiaKalaba
from jaxmech.integrate import RK4, AbstractMethod
from jaxmech.sensitivity import check_runs, nan_origins
from jaxmech.sensitivity.check_report import START, GradientCheck
from jaxmech.sensitivity.check_runs import Base, CheckedMotion, Loss
from jaxmech.sensitivity.differences import Numbers, Sweep, step_sizes, sweep
from jaxmech.solution import Solution
from jaxmech.stabilization import AbstractStabilization, Free, Projection
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_function
from jaxmech.utils.trees import number_names


def check_gradients(
    system: System,
    q0: Any,
    v0: Any,
    ts: Any,
    params: Params = None,
    *,
    loss: Loss | None = None,
    start: Start | None = None,
    method: AbstractMethod = RK4(),
    projection: AbstractStabilization | None = Projection(),
    formulation: AbstractFormulation = UdwadiaKalaba(),
    sizes: Any = None,
    tolerance: float | None = None,
) -> GradientCheck:
    """The gradient of a loss through a motion: reverse mode, forward mode, central differences.

    By every floating-point number of the parameters, and by a change of the initial state along the
    constraints. Differences are taken with many step sizes at once, all motions in one batch; the
    value where they agree best is used, with its uncertainty. Where a parameter changes the
    constraints, as the length of a rod does, the initial state follows: by `start`, or by
    projection of q0 and v0, alike in all three ways.

    With `Adaptive` both modes hold the step sizes, and the differences are those of motions in the
    steps recorded at `params`. So all three are derivatives of one smooth function, however
    large the tolerances; that these are small enough is for `Solution.integration_error` to say.

    Args:
        system: the system, with n coordinates.
        q0: coordinates at ts[0], shape (n,).
        v0: velocities at ts[0], shape (n,).
        ts: save times [s], shape (T,).
        params: the parameters that the functions of the system expect.
        loss: loss(q, v, ts, params), a scalar, of q (T, n) and v (T, n); by default a pseudo-random
            combination of q and v at the end.
        start: start(q0, v0, params) returns a consistent q (n,) and v (n,) at ts[0] from start
            variables q0, v0 of any shape, as for `fit`.
        method: as for `simulate`.
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
        ValueError: `sizes`, `loss` or an argument of `simulate` is invalid, or there is nothing to
            differentiate by.
        TypeError: `loss` or `start` is not a function.
        SimulationError: the motion failed.

    Example:
        >>> oscillator = System(
        ...     lambda q, v, t, p: 0.5 * v @ v - 0.5 * p["k"] * q @ q, coordinates=("x",)
        ... )
        >>> found = check_gradients(
        ...     oscillator, [1.0], [0.0], jnp.linspace(0.0, 1.0, 101), {"k": 4.0},
        ...     loss=lambda q, v, ts, p: q[-1, 0],
        ... )
        >>> found.ok, found.names
        (True, ('k', 'start'))
        >>> print(found.reverse[0])  # -t sin(w t) / (2 w), w = sqrt(k)
        -0.2273243
    """
    for name, function in (("loss", loss or check_runs.end), ("start", start or check_runs.end)):
        require_function(name, function)
    stabilization = Free() if projection is None else projection
    run = CheckedMotion(system, loss or check_runs.end, start, method, stabilization, formulation)
    dtype = jnp.result_type(*(jnp.asarray(x) for x in (q0, v0)), float)
    eps = float(jnp.finfo(dtype).eps)
    chosen_sizes = step_sizes(sizes, eps)
    run, base, solution = check_runs.prepared(run, q0, v0, ts, params)
    names = (*number_names(base.params), *([START] if base.change is not None else []))
    if not names:
        raise ValueError(
            "Argument `params` must hold a floating-point number to differentiate by, since the "
            "constraints leave no freedom to the initial state either."
        )
    x, scales = check_runs.numbers(base)
    value, reverse = (np.asarray(out, float) for out in check_runs.by_reverse_mode(run, base, x))
    forward = check_runs.by_forward_mode(run, base, x)
    found = _sweep(run, base, x, scales, chosen_sizes, eps * float(abs(value)))
    slopes = np.abs(found.values * scales)
    matters = abs(value) + np.max(slopes[np.isfinite(slopes)], initial=0.0)
    bad = ~np.isfinite(np.array([reverse, reverse if forward is None else forward]))
    return GradientCheck(
        names=names,
        reverse=reverse,
        forward=forward,
        sweep=found,
        loss=float(value),
        steps=int(solution.accepted),
        tolerance=(1e-6 if eps < 1e-10 else 1e-2) if tolerance is None else tolerance,
        round_off=eps**0.75 * matters / scales,
        origins=_origins(run, base, solution, names, bad) if bad.any() else {},
    )


def _sweep(
    run: CheckedMotion, base: Base, x: Array, scales: Numbers, sizes: Numbers, round_off: float
) -> Sweep:
    """Central differences by all numbers with all step sizes."""
    steps = np.einsum("p,s,pk->psk", scales, sizes, np.eye(len(scales)))
    middle = np.asarray(x)
    above, below = ((middle + way * steps).astype(middle.dtype) for way in (1, -1))
    points = jnp.asarray(np.stack([above, below]).reshape(-1, x.size))
    up, down = np.asarray(check_runs.losses(run, base, points), float).reshape(2, len(scales), -1)
    apart = (above - below).sum(-1)  # the actual distance, which rounding has changed
    return sweep(sizes, scales, (up - down) / apart, round_off)


def _origins(
    run: CheckedMotion, base: Base, solution: Solution, names: tuple[str, ...], bad: Any
) -> dict[str, tuple[nan_origins.NanOrigin, ...]]:
    """Locate the origin of each NaN: `start`, the loss, or a function at the end of some step."""
    scheme, states = check_runs.refined(run, base, solution)
    numbers = tuple(name for name in names if name != START)
    start = run.start, base.q0, base.v0, base.ts[0]
    found = nan_origins.origins_in_start(*start, base.params, numbers)
    motion = states.q, states.v, states.ts
    found += nan_origins.origins_in_system(scheme, *motion, base.params, numbers)
    found += nan_origins.origins_in_loss(run.loss, solution, base.params, numbers)
    return {
        name: nan_origins.concerning(None if only_forward else name, found, numbers)
        for name, is_bad, only_forward in zip(names, bad.any(0), ~bad[0], strict=True)
        if is_bad
    }
