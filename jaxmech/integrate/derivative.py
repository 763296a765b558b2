"""Derivatives of a rollout, and the operation as which a batch of rollouts is compiled.

The forward run keeps the state at the end of every segment of steps, and no other; a derivative
runs each segment again from there and differentiates it step by step. With segments of about the
square root of the number of steps, memory grows with that root, and a gradient costs one rollout
more than with every state kept. The run and its derivatives are each one JAX operation on a single
trajectory (`jaxmech.compiler.operation`).
"""

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.compiler import (
    Arrays,
    Flags,
    bind,
    hoisted,
    operation_of,
)
from jaxmech.integrate.adaptive import Tolerance, adaptive_trajectory
from jaxmech.integrate.events.adaptive import adaptive_event_trajectory
from jaxmech.integrate.events.replay import event_trajectory
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.methods import AbstractFixedStep
from jaxmech.integrate.rollout import StepSegments, Trajectory, bare_segment, rollout, segments
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.segment_parts import (
    AbstractTreeRule,
    RolloutInputs,
    SegmentEnds,
    at_ends,
    plus,
    segment_starts,
    segment_times,
)
from jaxmech.integrate.step import step
from jaxmech.system import Params
from jaxmech.utils.checks import require_positive_integer


@dataclass(frozen=True)
class AbstractDerivative(abc.ABC):
    """The modes of automatic differentiation in which a trajectory can be differentiated."""

    @abc.abstractmethod
    def trajectory(
        self, scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params,
        tolerance: Tolerance | None = None, watch: Watch | None = None,
    ) -> Trajectory:  # fmt: skip
        """The rollout, with its derivative rule; with steps by a tolerance if there is one.

        With a watch, it has its events.
        """


@dataclass(frozen=True)
class ReverseMode(AbstractDerivative):
    """Both modes, efficient for `jax.grad` with respect to many parameters; the default.

    Args:
        segment: steps from one kept state to the next, a divisor of the method's substeps; by
            default about the square root of the number of steps. Shorter segments take more memory,
            and in batches more time too: computing a step again is faster than loading it.

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
        self, scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params,
        tolerance: Tolerance | None = None, watch: Watch | None = None,
    ) -> Trajectory:  # fmt: skip
        """The rollout, whose derivatives recompute its steps."""
        if tolerance is not None and watch is not None:
            return adaptive_event_trajectory(scheme, watch, q0, v0, ts, params, tolerance)
        if tolerance is not None:
            return adaptive_trajectory(scheme, q0, v0, ts, params, tolerance, self.segment)
        assert isinstance(scheme.method, AbstractFixedStep)
        steps = self._steps(scheme.method.count, len(ts) - 1)
        if watch is not None:
            return event_trajectory(scheme, watch, steps, q0, v0, ts, params)
        program, traced = _program(scheme, steps, q0, v0, ts, params)
        return _differentiable(program, RolloutInputs(q0, v0, ts, params, traced))

    def _steps(self, substeps: int, saves: int) -> int:
        """Steps in a segment: the divisor of the substeps nearest to the root of all steps."""
        # All segments have one shape, so that they are compiled once; hence a divisor.
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
    """For `jax.jvp` and `jax.jacfwd` alone, which then cost one run less.

    Reverse mode works too, but keeps every intermediate value of every step.

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
        self, scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params,
        tolerance: Tolerance | None = None, watch: Watch | None = None,
    ) -> Trajectory:  # fmt: skip
        """The rollout as plain JAX operations; with a tolerance or events, in both modes."""
        if watch is not None:
            return ReverseMode().trajectory(scheme, q0, v0, ts, params, tolerance, watch)
        if tolerance is not None:
            return adaptive_trajectory(scheme, q0, v0, ts, params, tolerance)
        return rollout(scheme, q0, v0, ts, params)[0]


class _Residuals(eqx.Module):
    """What the derivatives need of the forward run.

    Attributes:
        ends: the states at the ends of the segments.
        known: whether the state was good at each save time, shape (T,).
        t_failed: as in `Trajectory`.
    """

    ends: SegmentEnds
    known: Bool[Array, " T"]
    t_failed: Float[Array, ""]


@dataclass(frozen=True)
class _Program:
    """The rollout and one of its segments, with closed-over values as arguments."""

    run: Callable[[RolloutInputs], tuple[Trajectory, tuple[Array, Array, Any]]]
    segment: Callable[..., tuple[Array, Array]]
    substeps: int
    steps: int


def _program(
    scheme: Scheme, steps: int, q0: Array, v0: Array, ts: Array, params: Params
) -> tuple[_Program, list[Array]]:
    """The program, and the traced values that the system closes over."""
    # They should be parameters, but a system may be made inside a differentiated function.
    _, traced = hoisted(partial(step, scheme), q0, v0, ts[0], ts[1] - ts[0], params)
    run, segment = partial(rollout, scheme, segment=steps), partial(bare_segment, scheme, steps)
    if traced:
        own = StepSegments(ts[0], ts[0], jnp.zeros((), int))
        run_hoisted, traced = hoisted(run, q0, v0, ts, params)
        segment_hoisted, some = hoisted(segment, q0, v0, own, params, ts[0])
        places = [next(k for k, x in enumerate(traced) if x is y) for y in some]

    # `jit` so that it is traced once, for a single trajectory and for a batch.
    @jax.jit
    def run_inputs(x: RolloutInputs) -> tuple[Trajectory, tuple[Array, Array, Any]]:
        args = x.q0, x.v0, x.ts, x.params
        return run_hoisted(x.traced, *args) if traced else run(*args)

    def run_segment(q: Array, v: Array, own: StepSegments, shared: Any, t_failed: Array) -> Any:
        params, values = shared
        args = q, v, own, params, t_failed
        return segment_hoisted([values[k] for k in places], *args) if traced else segment(*args)

    assert isinstance(scheme.method, AbstractFixedStep)
    return _Program(run_inputs, run_segment, scheme.method.count, steps), traced


def _differentiable(program: _Program, inputs: RolloutInputs) -> Trajectory:
    """The trajectory as one operation with its JVP and its VJP."""
    leaves, structure = jax.tree.flatten(inputs)

    def run(*leaves: Array) -> tuple[Trajectory, _Residuals]:
        trajectory, (q, v, _) = program.run(jax.tree.unflatten(structure, leaves))
        known = ~jnp.isnan(trajectory.q[:, 0])
        return trajectory, _Residuals(SegmentEnds(q, v), known, trajectory.t_failed)

    operation, outs = operation_of(run, leaves, partial(_Rule, program, structure))
    return jax.tree.unflatten(outs, bind(operation, (), *leaves))[0]


class _Rule(AbstractTreeRule):
    """Derivatives by the segments alone, without the audit of the rollout.

    The smooth results are q and v at the save times, and q and v at the ends of the segments, which
    derivatives of derivatives need.
    """

    def __init__(self, program: _Program, structure: Any, outs: Any) -> None:
        trajectory, kept = jax.tree.unflatten(outs, range(outs.num_leaves))
        smooth = trajectory.q, trajectory.v, kept.ends.q, kept.ends.v
        super().__init__(program, structure, kept, smooth)

    def jvp(self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays) -> list[Array]:
        inputs, kept = self.trees(args, residuals)
        return _jvp(self.program, inputs, kept, self.changes(wanted, tangents))

    def vjp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        inputs, kept = self.trees(args, residuals)
        return jax.tree.leaves(_vjp(self.program, inputs, kept, self.flags(wanted), cotangents))


def _jvp(
    program: _Program, x: RolloutInputs, kept: _Residuals, tangents: RolloutInputs
) -> list[Array]:
    """Tangents of q and v at the saves and at the ends; None is a zero tangent of an input."""
    some = tangents.params, tangents.traced
    wanted = jax.tree.map(lambda t: t is not None, some, is_leaf=lambda t: t is None)
    shared, fixed = eqx.partition((x.params, x.traced), wanted)
    own = segments(x.ts, program.substeps, program.steps)
    timed, d_timed = (own.t, own.h), None
    if tangents.ts is not None:
        timed, d_timed = jax.jvp(
            segment_times(program.substeps, program.steps), (x.ts,), (tangents.ts,)
        )
    d_start = [jnp.zeros_like(s) if d is None else d for s, d in (
        (x.q0, tangents.q0), (x.v0, tangents.v0)
    )]  # fmt: skip

    # Only the tangent is carried: the states at the starts of segments are known from the forward
    # run.
    def one(d_state: list[Array], segment: Any) -> tuple[list[Array], list[Array]]:
        state, timed, done, d_timed = segment

        def run(state: list[Array], moving: Any, shared: Any) -> list[Array]:
            t, h = timed if moving is None else moving
            own = StepSegments(t, h, done)
            return list(program.segment(*state, own, eqx.combine(shared, fixed), kept.t_failed))

        moving = None if d_timed is None else timed
        _, d_state = jax.jvp(run, (state, moving, shared), (d_state, d_timed, some))
        return d_state, d_state

    _, d_ends = jax.lax.scan(one, d_start, (segment_starts(x, kept.ends), timed, own.done, d_timed))
    per_save = program.substeps // program.steps
    d_saves = [
        jnp.concatenate([first[None], rest[per_save - 1 :: per_save]])
        for first, rest in zip(d_start, d_ends, strict=True)
    ]
    return [*(jnp.where(kept.known[:, None], d, jnp.nan) for d in d_saves), *d_ends]


def _vjp(
    program: _Program,
    x: RolloutInputs,
    kept: _Residuals,
    wanted: RolloutInputs,
    given: Sequence[Array | None],
) -> RolloutInputs:
    """Cotangents of the wanted inputs, from those of the saves and of the ends; None is zero."""
    by_save = [(ct != 0).any(1) for ct in given[:2] if ct is not None]
    nonzero = [(ct != 0).any() for ct in given if ct is not None]
    cotangents = [ct if ct is None else jnp.where(kept.known[:, None], ct, 0.0) for ct in given[:2]]
    found = _backwards(program, x, kept, wanted, [*cotangents, *given[2:]])
    # After a failure the derivative is NaN if it depends on a saved NaN. If it does not, and all
    # cotangents are zero, it is 0 and not 0 times NaN.
    depends_on_nan = sum(((flags & ~kept.known).any() for flags in by_save), jnp.asarray(False))
    answer = jnp.where(depends_on_nan, jnp.nan, 0.0)
    is_found = jnp.stack(nonzero).any() & ~depends_on_nan
    return jax.tree.map(lambda x: jnp.where(is_found, x, answer.astype(x.dtype)), found)


def _backwards(
    program: _Program, x: RolloutInputs, kept: _Residuals, wanted: RolloutInputs,
    cotangents: Sequence[Array | None],
) -> RolloutInputs:  # fmt: skip
    """Run the segments again, from the last to the first, and pull the cotangents back."""
    shared, fixed = eqx.partition((x.params, x.traced), (wanted.params, wanted.traced))
    timed, pull_times = jax.vjp(segment_times(program.substeps, program.steps), x.ts)
    done = segments(x.ts, program.substeps, program.steps).done
    starts = segment_starts(x, kept.ends)
    saves = [at_ends(ct, len(done)) for ct in cotangents[:2]]
    added = [
        [ct for ct in pair if ct is not None] for pair in zip(saves, cotangents[2:], strict=True)
    ]

    def one(carry: Any, segment: Any) -> tuple[Any, Any]:
        (wrt_state, wrt_shared), (state, timed, done, added) = carry, segment
        # A save at the end of this segment depends on the same state as the segment after it.
        wrt_state = [sum(more, start=x) for x, more in zip(wrt_state, added, strict=True)]

        def run(state: list[Array], timed: tuple[Array, Array], shared: Any) -> list[Array]:
            own = StepSegments(*timed, done)
            return list(program.segment(*state, own, eqx.combine(shared, fixed), kept.t_failed))

        _, pull = jax.vjp(run, state, timed, shared)
        wrt_state, wrt_timed, more = pull(wrt_state)
        return (wrt_state, jax.tree.map(jnp.add, wrt_shared, more)), wrt_timed

    ends = [
        jnp.zeros_like(state) if ct is None else ct[-1]
        for ct, state in zip(cotangents, (x.q0, x.v0), strict=False)
    ]
    start = ends, jax.tree.map(jnp.zeros_like, shared)
    ((wrt_q, wrt_v), wrt_shared), wrt_timed = jax.lax.scan(
        one, start, (starts, timed, done, added), reverse=True
    )
    return RolloutInputs(
        plus(wrt_q, cotangents[0]) if wanted.q0 else None,
        plus(wrt_v, cotangents[1]) if wanted.v0 else None,
        pull_times(wrt_timed)[0] if wanted.ts else None,
        *wrt_shared,
    )
