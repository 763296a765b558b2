"""A few steps of a system: gradients against differences, and the compilation of a batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.findings import Finding, serious, warning
from jaxmech.analysis.states import State
from jaxmech.compiler import Explanation, explain
from jaxmech.integrate import FixedSteps, Scheme, StepState, step
from jaxmech.run import consistent_change, simulate
from jaxmech.system import Params, System
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_positive_integer
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import leaf_names, numbers_of


@dataclass(frozen=True)
class ShortRun:
    """A few RK4 steps with projection, for checks that need a run.

    Args:
        steps: number of steps.
        h: step size [s]; by default at most 1 ms, and so short that the initial accelerations
            change no coordinate by more than about a millionth of 1 + |q| in one step.

    Raises:
        ValueError: if `steps` is not a positive integer.
    """

    steps: int = 8
    h: float | None = None

    def __post_init__(self) -> None:
        require_positive_integer("steps", self.steps, "give the number of steps")


@dataclass(frozen=True)
class Slope:
    """One derivative of a short run, computed by reverse mode and by differences.

    Attributes:
        name: a parameter, or "start" for a change of the initial state along the constraints.
        reverse: the derivative by `jax.grad` through `simulate`, along a pseudo-random direction.
        difference: the same by central differences of two step sizes, extrapolated.
        agrees: whether the two are equal to within the uncertainty of the differences.
    """

    name: str
    reverse: float
    difference: float
    agrees: bool


def slopes(system: System, state: State, run: ShortRun, qdd: HostArray) -> tuple[Slope, ...]:
    """Compare the reverse gradient of a short run with central differences, for each parameter."""
    q, v, t, params = state
    h = run.h or _step_size(state, qdd)
    draw = np.random.default_rng(5)
    weights = jnp.asarray(draw.normal(size=2 * system.n), q.dtype)
    ts = jnp.stack([t, t + run.steps * h])
    numbers, with_numbers = numbers_of(params)

    def simulated(x: Any) -> Array:
        q, v, params = x[0], x[1], with_numbers(x[2])
        sol = simulate(system, q, v, ts, params, steps=FixedSteps(run.steps), throw=False)
        return weights @ jnp.concatenate([sol.q[-1], sol.v[-1]])

    @jax.jit
    def stepped(x: Any, change: Any, shift: Any) -> Array:
        x = jax.tree.map(lambda x, d: x + shift * d, x, change)
        # The initial state is not checked, since a difference moves it off the constraints.
        end = _stepped(system, run.steps, *x[:2], ts, with_numbers(x[2]))
        return weights @ jnp.concatenate(end)

    start = (q, v, numbers)
    gradient = jax.jit(jax.grad(simulated))(start)
    zeros = jax.tree.map(jnp.zeros_like, start)
    moved = consistent_change(system, *state) or zeros[:2]
    results = [_slope("start", stepped, start, gradient, (*moved, zeros[2]))]
    leaves, structure = jax.tree.flatten(params)
    for k, (name, leaf) in enumerate(zip(leaf_names(params), leaves, strict=True)):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            change = [jnp.zeros_like(x) for x in leaves]
            size = jnp.asarray(draw.uniform(0.5, 1.0, leaf.shape), leaf.dtype)
            change[k] = (1 + jnp.abs(leaf)) * size
            direction, _ = numbers_of(jax.tree.unflatten(structure, change))
            results.append(_slope(name, stepped, start, gradient, (*zeros[:2], direction)))
    return tuple(results)


def _slope(name: str, fn: Callable[..., Any], start: Any, gradient: Any, direction: Any) -> Slope:
    """Compare one derivative with differences of two step sizes, which estimate its error."""
    # Not `differences.sweep`, which needs at least four step sizes of two runs each.
    eps = float(jnp.finfo(start[0].dtype).eps)
    delta = eps**0.25  # round-off eps / delta against the error delta^4 of the extrapolation

    def end(shift: float) -> float:
        return float(fn(start, direction, shift))

    def difference(delta: float) -> float:
        return (end(delta) - end(-delta)) / (2 * delta)

    products = jax.tree.map(
        lambda g, d: float(np.sum(np.asarray(g) * np.asarray(d))), gradient, direction
    )
    reverse = sum(jax.tree.leaves(products))
    near, far = difference(delta), difference(2 * delta)
    best = (4 * near - far) / 3
    round_off = eps**0.5 * (1 + abs(end(0.0)))
    doubt = 10 * abs(near - far) + round_off + eps**0.25 * max(abs(best), abs(reverse))
    # A jump or a kink changes the difference with its step size by more than this.
    smooth = abs(near - far) <= round_off + 0.1 * abs(best)
    return Slope(name, reverse, best, bool(smooth and abs(reverse - best) <= doubt))


@jit_of("system", "steps")
def _stepped(
    system: System, steps: int, q: Array, v: Array, ts: Array, params: Params
) -> tuple[Array, Array]:
    scheme = _scheme(system, steps, q, v, ts[0], params)
    h = (ts[1] - ts[0]) / steps

    def advance(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        end, _ = step(scheme, StepState(*state, ts[0] + k * h), h, params)
        return end.q, end.v

    return jax.lax.fori_loop(0, steps, advance, (q, v))


def _scheme(system: System, steps: int, q: Array, v: Array, t: Array, params: Params) -> Scheme:
    return Scheme.of(system, steps=FixedSteps(steps)).at(q, v, t, params)


def _step_size(state: State, qdd: HostArray) -> float:
    size = 1 + np.abs(np.asarray(state.q))
    fastest = max(np.max(np.abs(np.asarray(state.v)) / size), np.sqrt(np.max(np.abs(qdd) / size)))
    return float(1e-3 / max(1.0, fastest))


def slope_findings(results: Sequence[Slope]) -> list[Finding]:
    """Findings on gradients that do not agree with differences."""
    remedy = (
        "look for a jump or a kink in the functions of the system there (round, where, abs, a "
        "contact), for a stop_gradient, or for a constraint that is redundant for these values only"
    )
    return [
        serious(
            f"the gradient of a short run by {slope.name!r} is {slope.reverse:.6g}, but "
            f"differences give {slope.difference:.6g}",
            remedy,
        )
        for slope in results
        if not slope.agrees
    ]


def lanes_of(system: System, state: State) -> Explanation:
    """An explanation of how a batch of steps is compiled."""
    q, v, t, params = state
    scheme = _scheme(system, 1, q, v, t, params)

    def advance(q: Array, v: Array, t: Array, params: Params) -> tuple[Array, Array]:
        end, _ = step(scheme, StepState(q, v, t), 1e-3 * jnp.ones_like(t), params)
        return end.q, end.v

    return explain(advance, q[None], v[None], t, params, in_axes=(0, 0, None, None))


def lanes_findings(explanation: Explanation | None) -> list[Finding]:
    """Findings on the parts of a step that are not compiled for lanes."""
    reasons = {part.reason for part in explanation.parts if part.reason} if explanation else set()
    return [
        warning(
            f"batches run under plain vmap instead of as native code, because of {reason}",
            "the results are the same but take many times longer on a CPU: write that part with "
            "other operations",
        )
        for reason in sorted(reasons)
    ]
