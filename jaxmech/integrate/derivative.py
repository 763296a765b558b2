"""How a rollout is differentiated, and where a batch of rollouts takes its own road.

Reverse mode keeps the state at the start of every segment of steps, no other; the backward pass
runs each segment again, then differentiates it step by step. With segments of about the square root
of all steps, memory grows with that root and a gradient costs a rollout more than with every state
kept. The forward run and the backward run are each one function of a single trajectory; under
`jax.vmap` both follow the rule of `jaxmech.lanes.batched`.
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jaxtyping import Array, Bool, Float

from jaxmech.checks import require_positive_integer
from jaxmech.integrate.rollout import Segments, Trajectory, bare_segment, rollout, segments
from jaxmech.integrate.step import Scheme, step
from jaxmech.lanes import batched, hoisted
from jaxmech.system import Params


@dataclass(frozen=True)
class AbstractDerivative(abc.ABC):
    """By which mode of automatic differentiation a trajectory can be differentiated."""

    @abc.abstractmethod
    def trajectory(
        self, scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params
    ) -> Trajectory:
        """The rollout, with its derivative rule."""


@dataclass(frozen=True)
class ReverseMode(AbstractDerivative):
    """`jax.grad`, `jax.vjp`, `jax.jacrev` to any number of parameters; the default.

    Args:
        segment: steps from one kept state to the next, a divisor of the method's substeps; by
            default about the square root of all steps. Fewer take more memory, and in batches more
            time too: a step computed again is sooner there than one from memory.

    Raises:
        ValueError: `segment` is not a positive integer.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> ts = jnp.linspace(0.0, 1.0, 101)
        >>> def height(params):
        ...     return jm.simulate(model.system, q0, v0, ts, params).q[-1, 1]
        >>> print(jax.grad(height)({"m": 1.0, "l": 1.0, "g": 9.81})["m"])
        0.0
    """

    segment: int | None = None

    def __post_init__(self) -> None:
        if self.segment is not None:
            remedy = "leave it out for about the square root of all steps"
            require_positive_integer("segment", self.segment, remedy)

    def trajectory(
        self, scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params
    ) -> Trajectory:
        """The rollout with a backward pass that recomputes its steps."""
        steps = self._steps(scheme.method.count, len(ts) - 1)
        program, traced = _program(scheme, steps, q0, v0, ts, params)
        return _reversible(program)(_Inputs(q0, v0, ts, params, traced))

    def _steps(self, substeps: int, saves: int) -> int:
        """Steps in a segment: the divisor of the substeps nearest to the root of all steps."""
        divisors = [k for k in range(1, substeps + 1) if substeps % k == 0]
        if self.segment is None:
            root = math.sqrt(substeps * saves)
            return min(divisors, key=lambda steps: abs(math.log(steps / root)))
        if self.segment not in divisors:
            raise ValueError(
                f"Argument `segment` must divide the {substeps} substeps of the method, but is "
                f"{self.segment}; take one of {', '.join(map(str, divisors))}."
            )
        return self.segment


@dataclass(frozen=True)
class ForwardMode(AbstractDerivative):
    """`jax.jvp` and `jax.jacfwd` too: for few parameters, and for derivatives of derivatives.

    Reverse mode works as well but keeps every intermediate value of every step.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> ts = jnp.linspace(0.0, 1.0, 101)
        >>> def end(g):
        ...     params = {"m": 1.0, "l": 1.0, "g": g}
        ...     sol = jm.simulate(
        ...         model.system, q0, v0, ts, params, derivative=jm.ForwardMode()
        ...     )
        ...     return sol.q[-1]
        >>> jax.jacfwd(end)(9.81).shape
        (2,)
    """

    def trajectory(
        self, scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params
    ) -> Trajectory:
        """The rollout as plain JAX operations."""
        return rollout(scheme, q0, v0, ts, params)[0]


class _Inputs(eqx.Module):
    """All that a trajectory depends on: `traced` is what the functions of a system close over."""

    q0: Any
    v0: Any
    ts: Any
    params: Params
    traced: list[Any]


class _Kept(eqx.Module):
    """What the backward pass needs of the forward run.

    Attributes:
        inputs: as they were.
        q: coordinates at the ends of the segments, shape (S, n).
        v: velocities there.
        known: whether the state was good at each save time, shape (T,).
        t_failed: as in `Trajectory`.
        wanted: which leaves of the inputs are differentiated by.
    """

    inputs: _Inputs
    q: Float[Array, " S n"]
    v: Float[Array, " S n"]
    known: Bool[Array, " T"]
    t_failed: Float[Array, ""]
    wanted: tuple[bool, ...] = eqx.field(static=True)


@dataclass(frozen=True)
class _Program:
    """The two functions of a single trajectory, with what they close over as an argument."""

    run: Callable[[_Inputs], tuple[Trajectory, tuple[Array, Array]]]
    segment: Callable[..., tuple[Array, Array]]
    substeps: int
    steps: int


def _program(
    scheme: Scheme, steps: int, q0: Array, v0: Array, ts: Array, params: Params
) -> tuple[_Program, list[Array]]:
    """The program, and the traced values that the system closes over.

    They should be parameters; but a system made inside a differentiated or vectorized function is
    not wrong for it.
    """
    _, traced = hoisted(partial(step, scheme), q0, v0, ts[0], ts[1] - ts[0], params)
    run, segment = partial(rollout, scheme, segment=steps), partial(bare_segment, scheme, steps)
    if traced:
        own = Segments(ts[0], ts[0], jnp.zeros((), int))
        run_hoisted, traced = hoisted(run, q0, v0, ts, params)
        segment_hoisted, some = hoisted(segment, q0, v0, own, params, ts[0])
        places = [next(k for k, x in enumerate(traced) if x is y) for y in some]

    # Compiled functions are traced once, though they are asked for alone and for a batch.
    @jax.jit
    def run_inputs(x: _Inputs) -> tuple[Trajectory, tuple[Array, Array]]:
        args = x.q0, x.v0, x.ts, x.params
        return run_hoisted(x.traced, *args) if traced else run(*args)

    def run_segment(q: Array, v: Array, own: Segments, shared: Any, t_failed: Array) -> Any:
        params, values = shared
        args = q, v, own, params, t_failed
        return segment_hoisted([values[k] for k in places], *args) if traced else segment(*args)

    return _Program(run_inputs, run_segment, scheme.method.count, steps), traced


def _reversible(program: _Program) -> Callable[[_Inputs], Trajectory]:
    """The trajectory as a function of the inputs, with its vector-Jacobian product."""

    def forward(primal: _Inputs) -> tuple[Trajectory, _Kept]:
        inputs = jax.tree.map(lambda x: x.value, primal, is_leaf=_is_primal)
        wanted = jax.tree.map(lambda x: x.perturbed, primal, is_leaf=_is_primal)
        trajectory, (q, v) = batched(program.run)(inputs)
        known = ~jnp.isnan(trajectory.q[:, 0])
        flags = tuple(jax.tree.leaves(wanted))
        return trajectory, _Kept(inputs, q, v, known, trajectory.t_failed, flags)

    def backward(kept: _Kept, cotangent: Trajectory) -> tuple[_Inputs]:
        wrt_q, wrt_v = (
            None if isinstance(ct, SymbolicZero) else ct for ct in (cotangent.q, cotangent.v)
        )
        return (batched(pulled)(kept, wrt_q, wrt_v),)

    pulled = jax.jit(partial(_pulled, program))
    differentiable = jax.custom_vjp(lambda inputs: batched(program.run)(inputs)[0])
    differentiable.defvjp(forward, backward, symbolic_zeros=True)
    return differentiable


def _is_primal(x: Any) -> bool:
    return isinstance(x, CustomVJPPrimal)


def _pulled(program: _Program, kept: _Kept, wrt_q: Array | None, wrt_v: Array | None) -> _Inputs:
    """Cotangents of the inputs from those of the saved q and v (T, n); None stands for zero."""
    wanted = jax.tree.unflatten(jax.tree.structure(kept.inputs), kept.wanted)
    asked = jnp.stack([(ct != 0).any(1) for ct in (wrt_q, wrt_v) if ct is not None]).any(0)
    cotangents = [
        jnp.zeros_like(state[:1]) if ct is None else jnp.where(kept.known[:, None], ct, 0.0)
        for ct, state in ((wrt_q, kept.q), (wrt_v, kept.v))
    ]
    found = _backwards(program, kept, wanted, cotangents)
    # After a failure: NaN where a saved NaN has a say, and 0, not 0 times NaN, where none has.
    answer = jnp.where((asked & ~kept.known).any(), jnp.nan, 0.0)
    certain = asked.any() & ~(asked & ~kept.known).any()
    return jax.tree.map(lambda x: jnp.where(certain, x, answer.astype(x.dtype)), found)


def _backwards(program: _Program, kept: _Kept, wanted: _Inputs, cotangents: list[Array]) -> _Inputs:
    """From the last segment to the first, each run again and pulled back."""
    x = kept.inputs
    shared, fixed = eqx.partition((x.params, x.traced), (wanted.params, wanted.traced))

    def times(ts: Array) -> tuple[Array, Array]:
        own = segments(ts, program.substeps, program.steps)
        return own.t, own.h

    timed, pull_times = jax.vjp(times, x.ts)
    done = segments(x.ts, program.substeps, program.steps).done
    starts = [jnp.concatenate([s0[None], s[:-1]]) for s0, s in ((x.q0, kept.q), (x.v0, kept.v))]
    added = [_at_ends(ct, len(done)) for ct in cotangents]

    def one(carry: Any, segment: Any) -> tuple[Any, Any]:
        (wrt_state, wrt_shared), (state, timed, done, added) = carry, segment
        wrt_state = [x if y is None else x + y for x, y in zip(wrt_state, added, strict=True)]

        def run(state: list[Array], timed: tuple[Array, Array], shared: Any) -> list[Array]:
            own = Segments(*timed, done)
            return list(program.segment(*state, own, eqx.combine(shared, fixed), kept.t_failed))

        _, pull = jax.vjp(run, state, timed, shared)
        wrt_state, wrt_timed, more = pull(wrt_state)
        return (wrt_state, jax.tree.map(jnp.add, wrt_shared, more)), wrt_timed

    start = [ct[-1] for ct in cotangents], jax.tree.map(jnp.zeros_like, shared)
    ((wrt_q, wrt_v), wrt_shared), wrt_timed = jax.lax.scan(
        one, start, (starts, timed, done, added), reverse=True
    )
    return _Inputs(
        wrt_q + cotangents[0][0],
        wrt_v + cotangents[1][0],
        pull_times(wrt_timed)[0] if wanted.ts else None,
        *wrt_shared,
    )


def _at_ends(cotangent: Array, count: int) -> Array | None:
    """Cotangents of the saved states (T, n) at the ends of the segments, but for the last save."""
    saves = len(cotangent) - 1
    if saves < 2:
        return None
    zeros = jnp.zeros_like(cotangent[:1])
    inner = jnp.concatenate([cotangent[1:-1], zeros])[:, None]
    before = jnp.zeros((saves, count // saves - 1, cotangent.shape[1]), cotangent.dtype)
    return jnp.concatenate([before, inner], axis=1).reshape(count, -1)
