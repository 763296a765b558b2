"""A run as one JAX operation, and what the derivative rules of all runs share.

A run has fixed or adaptive steps, with events or without. Its derivatives go through its steps
again, from states that the forward run has kept, piece by piece between steps and events.

At an event, the size s of its piece is the root of g(x(s)) = 0 that the run found, and has the
derivatives of the implicit function, ds = -dg / (dg/ds), of any order. Where g jumps through zero,
as the load of a friction does when a controller gives out another number, s does not change.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import AbstractRule, Arrays, Flags, bind, hoisted, operation_of
from jaxmech.integrate.checks import checked_states
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.impacts import MotionState
from jaxmech.integrate.methods.runge_kutta import RK4, AbstractRungeKutta
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import AnyInterval, within
from jaxmech.integrate.step import StepState, step
from jaxmech.integrate.trajectory import Trajectory
from jaxmech.system import Params


class RolloutInputs(eqx.Module):
    """All inputs of a trajectory, or their tangents or cotangents; None where zero."""

    q0: Any  # (n,)
    v0: Any  # (n,)
    ts: Any  # save times (T,)
    params: Params
    tolerance: Any = None  # of adaptive steps, held fixed in derivatives
    times: Any = None  # at which a step ends (K,); with fixed steps, where they are saves, held
    memory: Any = None  # of controllers, (c,); c is zero without them
    traced: Sequence[Any] = ()  # values that the system and the events close over

    @property
    def shared(self) -> tuple[Params, Sequence[Any]]:
        """The inputs that all steps depend on."""
        return self.params, self.traced


class SmoothResults(eqx.Module):
    """The differentiable results of a run, or their tangents or cotangents."""

    q: Any  # at the save times, (T, n)
    v: Any  # at the save times, (T, n)
    memory: Any  # at the save times, (T, c)
    occurrences: Any  # rows of the events, (R, w)
    states: Any  # states that the derivatives need, for derivatives of derivatives


class RunRule(AbstractRule):
    """The rule of a run, whose inputs have this structure; `outs` are the shapes of its results."""

    takes_finite = True

    def __init__(self, run: Any, structure: Any, outs: Any) -> None:
        trajectory, residuals = jax.tree.unflatten(outs, range(outs.num_leaves))
        saves = trajectory.saves
        smooth = SmoothResults(
            saves.q, saves.v, saves.memory, trajectory.occurrences, residuals.smooth
        )
        self._run = run
        self.residuals = tuple(jax.tree.leaves(residuals))
        self.smooth = tuple(jax.tree.leaves(smooth))
        self._inputs = structure
        self._kept, self._smooth = map(jax.tree.structure, (residuals, smooth))

    def jvp(self, args: Arrays, residuals: Arrays, needed: Flags, tangents: Arrays) -> list[Array]:
        return self.pushed(args, residuals, needed, tangents, is_smooth=False)

    def pushed(
        self, args: Arrays, residuals: Arrays, needed: Flags, tangents: Arrays, *, is_smooth: bool
    ) -> list[Array]:
        """Tangents of the smooth results, NaN where a state is NaN."""
        (x, kept_data), next_tangents = self._trees(args, residuals), iter(tangents)
        padded = [next(next_tangents) if flag else None for flag in needed]
        changes = jax.tree.unflatten(self._inputs, padded)
        results = self._run.tangents(x, kept_data, changes, is_smooth)
        saves = results.q, results.v, results.memory
        q, v, memory = (jnp.where(kept_data.known[:, None], d, jnp.nan) for d in saves)
        return jax.tree.leaves(replace(results, q=q, v=v, memory=memory))

    def vjp(
        self, args: Arrays, residuals: Arrays, needed: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        x, kept_data = self._trees(args, residuals)
        flags: RolloutInputs = jax.tree.unflatten(self._inputs, needed)
        result_cotangents: SmoothResults = jax.tree.unflatten(self._smooth, cotangents)
        saves = result_cotangents.q, result_cotangents.v, result_cotangents.memory
        is_known = kept_data.known[:, None]
        q, v, memory = (ct if ct is None else jnp.where(is_known, ct, 0.0) for ct in saves)
        # Before the loops of the run, with which they would be compiled otherwise.
        unknown = [((ct != 0) & ~is_known).any() for ct in saves if ct is not None]
        depends_on_nan = jnp.stack([*unknown, jnp.asarray(False)]).any()
        # The barrier keeps XLA from evaluating it while it compiles, slowly, where a cotangent of
        # many events or saves is constant.
        differ = jax.lax.optimization_barrier([ct != 0 for ct in cotangents if ct is not None])
        nonzero = jnp.stack([x.any() for x in differ]).any()
        # After a failure the derivative is NaN if it depends on a saved NaN. If it does not, and
        # all cotangents are zero, it is 0 and not 0 times NaN.
        answer, is_found = jnp.where(depends_on_nan, jnp.nan, 0.0), nonzero & ~depends_on_nan
        input_cotangents = self._run.cotangents(
            x, kept_data, flags, replace(result_cotangents, q=q, v=v, memory=memory)
        )
        input_cotangents = jax.tree.map(
            lambda x: jnp.where(is_found, x, answer.astype(x.dtype)), input_cotangents
        )
        zero_tolerance = jax.tree.map(
            lambda x, flag: jnp.zeros_like(x) if flag else None, x.tolerance, flags.tolerance
        )
        return jax.tree.leaves(replace(input_cotangents, tolerance=zero_tolerance))

    def _trees(self, args: Arrays, residuals: Arrays) -> tuple[RolloutInputs, Any]:
        return jax.tree.unflatten(self._inputs, args), jax.tree.unflatten(self._kept, residuals)


@dataclass(frozen=True)
class AbstractRun(abc.ABC):
    """A run and its derivatives."""

    rule: ClassVar[type[RunRule]] = RunRule  # of its derivatives
    # From the inputs to the trajectory and the data for its derivatives: `known`, whether the state
    # was good at each save time (T,), `smooth`, states with derivatives, and more.
    run: Callable[[RolloutInputs], tuple[Trajectory, Any]]

    @abc.abstractmethod
    def tangents(
        self, x: RolloutInputs, residuals: Any, changes: RolloutInputs, is_smooth: bool
    ) -> SmoothResults:
        """Tangents of the results; those of unknown states do not matter.

        Those that are smooth come from loops of fixed length, which JAX can differentiate in
        reverse mode.
        """

    @abc.abstractmethod
    def cotangents(
        self, x: RolloutInputs, residuals: Any, needed: RolloutInputs, cotangents: SmoothResults
    ) -> RolloutInputs:
        """Cotangents of the wanted inputs; those of unknown states are zero, as is None."""

    def trajectory(self, x: RolloutInputs) -> Trajectory:
        """The run as one operation with its derivatives."""
        leaves, structure = jax.tree.flatten(x)

        def run(*leaves: Array) -> tuple[Trajectory, Any]:
            return self.run(jax.tree.unflatten(structure, leaves))

        differ = tuple(any(leaf is y for y in (x.q0, x.v0, x.memory)) for leaf in leaves)
        operation, outs = operation_of(run, leaves, partial(self.rule, self, structure), differ)
        return jax.tree.unflatten(outs, bind(operation, *leaves))[0]


Part = Callable[..., Any]


def with_traced(
    run: Callable[[RolloutInputs], Any], x: RolloutInputs, parts: Sequence[Part],
    examples: Sequence[tuple[Any, ...]],
) -> tuple[RolloutInputs, Callable[[RolloutInputs], Any], list[Part]]:  # fmt: skip
    """The inputs with the traced values that a run closes over; the run and its parts with those.

    A part is a function with the parameters as its last argument, in place of which it then takes
    `RolloutInputs.shared`; the examples are its other arguments. The first part closes over all
    that any of them does.
    """
    # They should be parameters, but a system may be made inside a differentiated function.
    if not hoisted(parts[0], *examples[0], x.params)[1]:
        # `jit` so that it is traced once, for a single trajectory and for a batch.
        own = [lambda *args, part=part: part(*args[:-1], args[-1][0]) for part in parts]
        return x, jax.jit(run), own
    hoisted_run, traced = hoisted(run, x)

    @jax.jit
    def run_inputs(x: RolloutInputs) -> Any:
        return hoisted_run(list(x.traced), replace(x, traced=()))

    def with_values(part: Part, example: tuple[Any, ...]) -> Part:
        hoisted_part, part_values = hoisted(part, *example, x.params)
        # The run has the same values, in an order of its own.
        indices = [next(k for k, y in enumerate(traced) if y is value) for value in part_values]
        return lambda *args: hoisted_part(
            [args[-1][1][k] for k in indices], *args[:-1], args[-1][0]
        )

    return replace(x, traced=traced), run_inputs, list(map(with_values, parts, examples))


def split_shared(x: RolloutInputs, changes: RolloutInputs) -> tuple[Any, Any]:
    """Split `shared` into differentiated inputs and the rest; the changes are tangents or flags."""
    is_needed = jax.tree.map(
        lambda t: t is not None and t is not False, changes.shared, is_leaf=lambda t: t is None
    )
    return eqx.partition(x.shared, is_needed)


def pulled_through(
    advance: Callable[[Any, Any], tuple[Any, Any]], pull: Callable[[Any, Any, Any], Any],
    start: Any, moves: Any, cotangents: Any, count: int | None = None,
) -> Any:  # fmt: skip
    """Pull cotangents back through moves, of which `moves` has the data along its first axis.

    `advance` leads from a state and a move to the next state and what `pull` needs to know; `pull`
    from the cotangents after a move, that and the move to those before. Without data of the moves,
    `count` is their number.
    """

    # By two loops and not by the derivative of one, which keeps all intermediate values; with
    # events native code cannot do that.
    def backward(cotangents: Any, before: Any) -> tuple[Any, None]:
        return pull(cotangents, *before), None

    _, states = jax.lax.scan(advance, start, moves, length=count)
    return jax.lax.scan(backward, cotangents, (states, moves), length=count, reverse=True)[0]


def of_parts(parts: Any, values: Any) -> Any:
    """The values of the parts that are not None, and None for the others."""
    return jax.tree.map(
        lambda x, value: x if x is None else value, parts, values, is_leaf=lambda x: x is None
    )


class PieceState(eqx.Module):
    """A state between pieces, as differentiated."""

    q: Array  # (n,)
    v: Array  # (k,), where k is n unless there are quasi-velocities
    memory: Array  # of controllers, (c,)
    offset: Array  # time since the step began, or by which the motion is late, (1,) or (0,)

    @property
    def delay(self) -> Array:
        """The offset, or zero in runs without events and times at which a step ends."""
        return self.offset.sum()

    def packed(self) -> Array:
        return jnp.concatenate([self.q, self.v, self.memory, self.offset])


class EventPiece(eqx.Module):
    """The end of a piece."""

    t: Array  # start of its step [s]
    size: Array  # of the piece, if an event ends it [s]
    which: Array  # index of that event, -1 for the end of the step
    row: Array  # row in which the event is kept, -1 if it is not
    active: Array  # constraints that are on, (C,)
    outcome: Array  # decisions about gaps at that event, (D,)
    late: Array  # offset after a plain piece
    interval: AnyInterval = None  # of the piece

    def start(
        self, scheme: Scheme, event_set: EventSet, state: PieceState, params: Params
    ) -> tuple[StepState, Array, Params]:
        """The state, the memory and the parameters, without switches, as the piece begins."""
        t, params = self.t + state.delay, within(self.interval, params)
        memory, params = scheme.sampled(state.memory, state.q, state.v, t, params, self.interval)
        active_params = event_set.params(params, self.active)
        q, v, _ = scheme.after_kink(state.q, state.v, t, active_params, self.interval)
        return StepState(q, v, t), memory, params


def _part(
    scheme: Scheme, start: StepState, size: Array, h: Array, params: Params
) -> tuple[Array, Array]:
    """q and v after a part of a step of size h, which has no length where events coincide."""

    def part_step(scheme: Scheme, size: Array) -> tuple[Array, Array]:
        end, _ = step(scheme, start, size, params)
        return end.q, end.v

    if isinstance(scheme.method, AbstractRungeKutta):
        return part_step(scheme, size)
    # The rates of the state are those of the motion in any method, but other methods cannot make
    # steps of no length.
    is_none = size == 0
    by_explicit = part_step(replace(scheme, method=RK4()), jnp.where(is_none, size, h))
    return jax.tree.map(
        partial(jnp.where, is_none), by_explicit, part_step(scheme, jnp.where(is_none, h, size))
    )


def to_step_end(
    scheme: Scheme, event_set: EventSet, state: PieceState, piece: EventPiece, h: Array,
    is_over: Array, params: Params,
) -> PieceState:  # fmt: skip
    """The state at the end of the step, NaN if it is not finite unless the motion is over."""
    start, memory, params = piece.start(scheme, event_set, state, params)
    active_params = event_set.params(params, piece.active)
    q, v = _part(scheme, start, h - state.delay, h, active_params)
    q, v = checked_states(q, v, is_over)
    return PieceState(q, v, memory, piece.late)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _to_root(
    motion: Callable[..., Any], value: Callable[..., Array], size: Array, accuracy: Array,
    data: tuple[Any, Any],
) -> tuple[Array, Any]:  # fmt: skip
    """The size of a motion at whose end the value is zero, and the state there.

    Both functions have the values that they close over, `data`, as their first argument.
    """
    return size, motion(data[0], size)


# Not `jax.lax.custom_root`, which JAX 0.12 cannot compile within an operation. Cotangents go
# through the motion once: the state moves by its own change and along the motion by the size's.
@_to_root.defjvp
def _to_root_jvp(
    motion: Callable[..., Any], value: Callable[..., Array], primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
) -> tuple[Any, Any]:  # fmt: skip
    _, accuracy, (of_motion, of_value) = primals
    d_motion, d_value = tangents[2]
    size, _ = _to_root(motion, value, *primals)
    _, along = jax.jvp(partial(motion, of_motion), (size,), (jnp.ones_like(size),))
    state, moved = jax.jvp(lambda data: motion(data, size), (of_motion,), (d_motion,))
    g, g_along = jax.jvp(partial(value, of_value), (state,), (along,))
    _, g_moved = jax.jvp(value, (of_value, state), (d_value, moved))
    # What another friction holds that stopped at the same time has no rate: it stops with that one.
    jumps = (jnp.abs(g) > accuracy * jnp.abs(g_along)) | (g_along == 0)
    d_size = jnp.where(jumps, 0.0, -g_moved / jnp.where(jumps, 1.0, g_along))
    return (size, state), (d_size, jax.tree.map(lambda x, y: x + y * d_size, moved, along))


def along_motion(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> "Motion":
    """The motion from a state near a size of zero, with derivatives up to the fourth."""

    @jax.jit
    def rates(state: list[Array]) -> list[Array]:
        q, v, t = state
        speeds = scheme.system.dynamics.speeds(q, v, t, params)
        return [speeds, scheme.law(q, v, t, params)[1].qdd, jnp.ones_like(t)]

    def moved(state: list[Array], rate: list[Array], s: Array) -> list[Array]:
        return [x + s * rate for x, rate in zip(state, rate, strict=True)]

    def motion(s: Array) -> tuple[Array, Array, Array]:
        # The classical method: a size of zero that is known leaves only the first rates.
        state = [q, v, t]
        first = rates(state)
        second = rates(moved(state, first, s / 2))
        third = rates(moved(state, second, s / 2))
        fourth = rates(moved(state, third, s))
        for rate, weight in ((first, 6), (second, 3), (third, 3), (fourth, 6)):
            state = moved(state, rate, s / weight)
        return state[0], state[1], state[2]

    return motion


Motion = Callable[[Array], tuple[Array, Array, Array]]  # q, v and t as functions of a size


def at_event(
    scheme: Scheme, event_set: EventSet, motion: Motion, recorded_size: Array, piece: EventPiece,
    h: Array, params: Params,
) -> tuple[Array, tuple[Array, Array], Array]:  # fmt: skip
    """The size of the motion up to an event, q and v after it, and its row in the log.

    The size is `recorded_size`, with the derivatives of the root.
    """
    active_params = event_set.params(params, piece.active)

    def value(state: tuple[Array, Array, Array]) -> Array:
        return event_set.chosen(piece.which, event_set.values(scheme, *state, active_params))

    moved, of_motion = hoisted(motion, recorded_size)
    valued, of_value = hoisted(value, jax.eval_shape(motion, recorded_size))
    # Far above the accuracy of the search, and far below what a jump makes of a load.
    eps = float(jnp.finfo(h.dtype).eps)
    accuracy = jnp.maximum(1e-6 * jnp.abs(h), 1e4 * eps * jnp.abs(piece.t))
    accuracy = jax.lax.stop_gradient(accuracy)
    size, (q, v, t) = _to_root(moved, valued, recorded_size, accuracy, (of_motion, of_value))
    next_state, row = (q, v), [t[None], q, v]
    if event_set.has_transitions:
        state = MotionState(q, v, t, jnp.abs(q), jnp.zeros_like(t), jnp.zeros_like(t))
        after = event_set.after(scheme, piece.which, state, params, piece.active, piece.outcome)
        next_state = after.q, after.v
        row += next_state
    return size, next_state, jnp.concatenate([*row, event_set.gaps.undecided(q.dtype)])


def to_event(
    scheme: Scheme, event_set: EventSet, state: PieceState, piece: EventPiece, h: Array,
    params: Params,
) -> tuple[PieceState, Array]:  # fmt: skip
    """The state from which the motion continues after an event, and the row of the event."""
    start, memory, params = piece.start(scheme, event_set, state, params)
    active_params = event_set.params(params, piece.active)

    def motion(size: Array) -> tuple[Array, Array, Array]:
        return *_part(scheme, start, size, h, active_params), start.t + size

    size, next_state, row = at_event(scheme, event_set, motion, piece.size, piece, h, params)
    next_state = checked_states(*next_state, jnp.asarray(False))
    ended = PieceState(*next_state, memory, state.offset + size)
    interrupts = event_set.interrupts(piece.which)
    unchanged = PieceState(start.q, start.v, memory, state.offset)
    return jax.tree.map(lambda x, y: jnp.where(interrupts, x, y), ended, unchanged), row
