"""`check_gradients`: gradients through a whole motion, in three independent ways.

`nan_origins` finds the function, the argument and the time at which a derivative that is NaN
starts.
Reverse mode multiplies the derivatives of all steps, and 0 times NaN is NaN: one function without a
derivative at one state makes the gradient by everything before it NaN. So every function of a
system is differentiated by itself, in reverse mode, at every state of the motion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from jaxmech.run.simulate import simulate
from jaxmech.state import AbstractStabilization, Projection, onto
from jaxmech.status import Status
from jaxmech.system import Params, Subject, System, with_params
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_function, require_kind
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import as_dtype, number_names, numbers_of

Loss = Callable[[Array, Array, Array, Params], Array]  # loss(q (T, n), v (T, n), ts, params)

_START = "start"
_SAFETY = 3.0  # factor on the uncertainty of a difference, which is an estimate itself
_PLATEAU = 0.01  # relative uncertainty above which there is no plateau
REMEDY = (
    "a root, norm, power, quotient or arctan2 is evaluated where it has no derivative, often at 0: "
    "write x = jnp.where(safe, x, 1.0) before it and jnp.where(safe, result, limit) after it"
)
_NOTES = {
    "differs": (
        "a function has a wrong derivative rule (`custom_jvp`, `custom_vjp`), blocks the "
        "derivative (`stop_gradient`), or jumps (`sign`, `where`, `floor`)"
    ),
    "no plateau": (
        "the differences do not converge: the loss is not smooth there, or the motion is chaotic "
        "over this time, and a shorter one is needed"
    ),
    "NaN": REMEDY,
}


@dataclass(frozen=True, eq=False, repr=False)
class GradientCheck:
    """Derivatives of a loss through a whole motion in three ways; prints itself as a table.

    Attributes:
        names: names of the parameter numbers, and "start" for a change of the initial state along
            the constraints; P in all.
        reverse: `jax.grad` through `simulate`, shape (P,).
        forward: forward mode, shape (P,); None where a function has a rule for reverse mode only.
        difference: the best central differences, shape (P,); NaN where they do not converge.
        uncertainty: their uncertainties, shape (P,).
        verdicts: for each derivative "agrees", "differs", "NaN" or "no plateau".
        loss: the value of the loss.
        steps: number of steps of the motion.
        origins: the functions of the system without a derivative, by what and from which of the
            save times on, where a derivative is NaN; the earliest first.
    """

    names: tuple[str, ...]
    reverse: HostArray
    forward: HostArray | None
    difference: HostArray
    uncertainty: HostArray
    verdicts: tuple[str, ...]
    loss: float
    steps: int
    origins: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether all derivatives agree in all ways."""
        return all(verdict == "agrees" for verdict in self.verdicts)

    def __repr__(self) -> str:
        forward = np.full(len(self.names), np.nan) if self.forward is None else self.forward
        width = max(map(len, ("name", *self.names)))
        titles = ("reverse", "forward", "difference", "uncertainty")
        value = f"{self.loss:.6g}"
        agreeing = f"{self.verdicts.count('agrees')} of {len(self.names)}"
        lines = [
            f"GradientCheck: {agreeing} derivatives agree ({self.steps:,} steps, loss {value})",
            f"  {'name':<{width}}" + "".join(f"{title:>18}" for title in titles) + "  verdict",
        ]
        columns = self.reverse, forward, self.difference, self.uncertainty
        for name, verdict, *numbers in zip(self.names, self.verdicts, *columns, strict=True):
            row = "".join(f"{x:>18.10g}" for x in numbers[:-1]) + f"{numbers[-1]:>18.1g}"
            lines.append(f"  {name:<{width}}{row}  {verdict}")
        notes = {verdict: note for verdict, note in _NOTES.items() if verdict in self.verdicts}
        lines += [f"  {verdict}: {note}" for verdict, note in notes.items()]
        lines += [f"  without a derivative: {'; '.join(self.origins)}"] if self.origins else []
        return "\n".join(lines)


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
        tolerance: relative error allowed beside the uncertainty of a difference; 1e-6 by default,
            1e-2 in single precision.

    Returns:
        The `GradientCheck`; `ok` says whether all agree. Of a derivative that is NaN, `origins`
        names the function, the argument and the time where it starts.

    Raises:
        ValueError: if `loss` or an argument of `simulate` is invalid.
        TypeError: if `loss` is not a function, or `steps` are `Adaptive`.
        SimulationError: if the motion failed.
    """
    fn = loss or _end
    require_function("loss", fn)
    system, params = with_params(system, params)
    scheme = Scheme.of(system, method, steps, projection, formulation)
    require_kind("steps", scheme.steps, FixedSteps, "FixedSteps()")
    q0, v0 = jnp.asarray(q0), jnp.asarray(v0)
    dtype = jnp.result_type(q0, v0, float)
    q0, v0, params = q0.astype(dtype), v0.astype(dtype), as_dtype(params, dtype)
    policies = resolved(scheme, q0, v0, ts, params).policies
    solution = simulate(system, q0, v0, ts, params, **policies)
    ts = solution.ts
    value = fn(solution.q, solution.v, ts, params)
    if np.shape(value) != () or not np.isfinite(value):
        raise ValueError(f"Argument `loss` must return a finite scalar, but returns {value}.")
    # Off the constraints, onto which the motion of the check begins by projection.
    draw = np.random.default_rng(5)
    dq, dv = (draw.uniform(-1, 1, x.size) * (1 + np.abs(np.asarray(x))) for x in (q0, v0))
    dq, dv = jnp.asarray(dq, dtype), jnp.asarray(dv, dtype)
    numbers, with_numbers = numbers_of(params)
    x, names = jnp.append(numbers, jnp.zeros((), dtype)), (*number_names(params), _START)

    def loss_at(x: Array, derivative: AbstractDerivative) -> tuple[Array, Array]:
        params, q, v = with_numbers(x[:-1]), q0 + x[-1] * dq, v0 + x[-1] * dv
        q, v = onto(system, q, v, ts[0], system.with_outputs(params))
        ways = policies | {"derivative": derivative, "throw": False}
        sol = simulate(system, q, v, ts, params, **ways)
        return fn(sol.q, sol.v, sol.ts, params), sol.status == Status.OK

    reverse = np.asarray(jax.jit(jax.grad(lambda x: loss_at(x, ReverseMode())[0]))(x), float)
    try:
        by_forward_mode = jax.jit(jax.jacfwd(lambda x: loss_at(x, ForwardMode())[0]))
        forward = np.asarray(by_forward_mode(x), float)
    except TypeError as error:  # a function has a rule for reverse mode only
        if "forward-mode" not in str(error):
            raise
        forward = None

    def difference_point(x: Array) -> Array:
        loss, is_good = loss_at(x, ReverseMode())
        return jnp.where(is_good, loss, jnp.nan)

    eps, middle = float(jnp.finfo(dtype).eps), np.asarray(x)
    decades = 9 if eps < 1e-10 else 4
    sizes = 10.0 ** -np.linspace(1, decades, 2 * decades - 1)
    scales = np.where(middle == 0, 1.0, np.abs(middle.astype(float)))
    shifts = np.einsum("p,s,pk->psk", scales, sizes, np.eye(x.size))
    ahead, behind = ((middle + sign * shifts).astype(middle.dtype) for sign in (1, -1))
    points = jnp.asarray(np.stack([ahead, behind]).reshape(-1, x.size))
    losses = np.asarray(jax.jit(jax.vmap(difference_point))(points), float)
    after, before = losses.reshape(2, x.size, -1)
    # The actual distance, which rounding has changed.
    slopes = (after - before) / (ahead - behind).sum(-1)
    difference, uncertainty = plateau(slopes, sizes, scales, eps * abs(float(value)))
    weighted = np.abs(difference * scales)
    largest = np.max(weighted[np.isfinite(weighted)], initial=0.0)
    round_off = eps**0.75 * (abs(float(value)) + largest) / scales
    verdicts = verdicts_of(
        reverse, forward, difference, uncertainty, largest / scales, round_off,
        (1e-6 if eps < 1e-10 else 1e-2) if tolerance is None else tolerance,
    )  # fmt: skip
    motion = solution.q, solution.v, ts, params
    origins = tuple(nan_origins(system, *motion)) if "NaN" in verdicts else ()
    ways = reverse, forward, difference, uncertainty
    return GradientCheck(names, *ways, verdicts, float(value), int(solution.accepted), origins)


def _end(q: Array, v: Array, ts: Array, params: Params) -> Array:
    weights = np.random.default_rng(5).normal(size=q.shape[1] + v.shape[1])
    return jnp.asarray(weights, q.dtype) @ jnp.concatenate([q[-1], v[-1]])


def plateau(
    differences: HostArray, sizes: HostArray, scales: HostArray, round_off: float
) -> tuple[HostArray, HostArray]:
    """The derivatives (P,) from central differences (P, S) with relative step sizes, descending.

    Each two neighbours are extrapolated, to the fourth order. Where these agree best is the
    derivative, and by how much is its uncertainty; `round_off` is that of the values.
    """
    ratio = (sizes[:-1] / sizes[1:]) ** 2
    large, small = differences[:, :-1], differences[:, 1:]
    extrapolated = small + (small - large) / (ratio - 1)
    jumps = np.abs(np.diff(extrapolated))
    next_jump = np.pad(jumps[:, 2:], ((0, 0), (0, 1)), mode="edge")
    doubt = np.maximum(np.maximum(jumps[:, :-1], jumps[:, 1:]), next_jump)
    doubt = doubt + round_off / (scales[:, None] * sizes[1:-2])
    doubt[np.isnan(doubt)] = np.inf
    middle, least = np.argmin(doubt, axis=1) + 1, np.min(doubt, axis=1)
    values = extrapolated[np.arange(len(scales)), middle]
    is_finite = np.isfinite(least)
    return np.where(is_finite, values, np.nan), np.where(is_finite, least, np.nan)


def verdicts_of(
    reverse: HostArray, forward: HostArray | None, difference: HostArray, uncertainty: HostArray,
    largest: HostArray, round_off: HostArray, tolerance: float,
) -> tuple[str, ...]:  # fmt: skip
    """What the derivatives (P,) in three ways say about each other.

    `largest` is the size, and `round_off` the error, of a derivative that matters.
    """
    forward = reverse if forward is None else forward
    size = np.abs(difference)
    least = np.maximum(np.maximum(_PLATEAU * size, tolerance * largest), round_off)
    allowed = tolerance * size + _SAFETY * uncertainty + round_off
    errors = np.maximum(np.abs(reverse - difference), np.abs(forward - difference))
    conditions = ~np.isfinite(reverse + forward), ~(uncertainty <= least), errors > allowed
    return tuple(np.select(conditions, ("NaN", "no plateau", "differs"), "agrees").tolist())


def nan_origins(system: System, q: Array, v: Array, ts: Array, params: Params) -> list[str]:
    """Where along a motion functions of a system begin to have no derivative, in words."""
    inputs = (*state_names(system.coordinates), *number_names(params))
    origins = []
    for name, rows in _bad(system, q, v, ts, params).items():
        bad = np.asarray(rows)
        for k in np.flatnonzero(bad.any(0)):
            t = float(ts[int(bad[:, k].argmax())])
            origins.append((abs(t - float(ts[0])), f"{name} by {inputs[k]} at t = {t:.6g} s"))
    return [text for _, text in sorted(origins, key=lambda origin: origin[0])]


@jit_of("system")
def _bad(system: System, q: Array, v: Array, ts: Array, params: Params) -> dict[str, Array]:
    """Whether the derivatives of each function by q, v and numbers are non-finite, (T, 2 n + p)."""

    def slopes(fn: Callable[..., Any]) -> Array:
        def value(q: Array, v: Array, t: Array, params: Params) -> Any:
            return fn(q, v, t, system.with_outputs(params))

        return jax.vmap(partial(bad_slopes, value), (0, 0, 0, None))(q, v, ts, params)[1]

    return {name: slopes(fn) for name, fn in functions_of(system).items()}


def state_names(coordinates: Sequence[str]) -> tuple[str, ...]:
    """The names of the coordinates, then those of the velocities, such as x'."""
    return (*coordinates, *(f"{name}'" for name in coordinates))


def bad_slopes(
    fn: Callable[..., Any], q: Array, v: Array, t: Array, params: Params
) -> tuple[Any, Array]:
    """The value of a function, and flags of its non-finite derivatives by q, v and numbers."""
    numbers, with_numbers = numbers_of(params)
    value, pull = jax.vjp(lambda q, v, x: fn(q, v, t, with_numbers(x)), q, v, numbers)
    return value, ~jnp.isfinite(jnp.concatenate(pull(jax.tree.map(jnp.ones_like, value))))


def functions_of(system: System) -> dict[str, Callable[..., Any]]:
    """The functions of q, v, t, params in a motion: M and Q, forces, constraints with A and b."""

    def friction(q: Array, v: Array, t: Array, params: Params) -> Array:
        multipliers = jnp.ones(sum(system.dynamics.sizes(q, v, t, params)), q.dtype)
        return system.dynamics.nonideal_force(q, v, multipliers, t, params)

    def rows(constraint: Any, q: Array, v: Array, t: Array, params: Params) -> Any:
        level = constraint.residual(q, v, jnp.zeros_like(v), t, params)
        return level, constraint.rows(q, v, t, params)

    functions: dict[str, Callable[..., Any]] = {
        "`lagrangian`": lambda *state: (
            system.dynamics.mass(*state),
            system.dynamics.conservative_force(*state),
        )
    }
    if system.force is not None:
        functions["`force`"] = system.force
    if system.nonideal is not None:
        functions["`nonideal`"] = friction
    if system.rates is not None:
        functions["`rates`"] = system.rates
    return functions | {f"constraint {c.name!r}": partial(rows, c) for c in system.constraints}
