"""The steps of a recorded run as a program, and how a state moves along them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.compiler import hoisted
from jaxmech.integrate.adaptive.method import Adaptive, Tolerance
from jaxmech.integrate.adaptive.record import Move, StepRecord
from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.segment_parts import RolloutInputs
from jaxmech.integrate.step import step


class AdaptiveInputs(eqx.Module):
    """What a run depends on."""

    motion: RolloutInputs
    tolerance: Any


class KeptRun(eqx.Module):
    """What the derivatives need of the forward run.

    Attributes:
        record: its moves.
        states: q and v at the save times, shape (T, 2 n).
        known: which of them were reached, shape (T,).
    """

    record: StepRecord
    states: Float[Array, " T n2"]
    known: Bool[Array, " T"]


@dataclass(frozen=True)
class MoveProgram:
    """The run, a step of the pair and the rates at a state, with closed-over values as arguments.

    Attributes:
        run: from all inputs to the trajectory and the record.
        step: (state, t, h, shared) to the next state; `shared` are parameters and closed-over
            values.
        rates: (state, t, shared) to its time derivative.
    """

    run: Callable[[AdaptiveInputs], tuple[Trajectory, StepRecord]]
    step: Callable[[Array, Array, Array, Any], Array]
    rates: Callable[[Array, Array, Any], Array]


def move_program(
    scheme: Scheme, segment: int, q0: Array, v0: Array, ts: Array, params: Any,
    tolerance: Tolerance,
) -> tuple[MoveProgram, list[Array]]:  # fmt: skip
    """The program, and the traced values that the system closes over."""
    assert isinstance(scheme.method, Adaptive)
    by_pair = replace(scheme, method=replace(scheme.method.pair, substeps=1))

    def run(q0: Array, v0: Array, ts: Array, params: Any, tolerance: Tolerance) -> Any:
        return adaptive_rollout(scheme, q0, v0, ts, params, tolerance, segment=segment)

    def moved(state: Array, t: Array, h: Array, params: Any) -> Array:
        q, v = jnp.split(state, 2)
        q, v, _ = step(by_pair, q, v, t, h, params)
        return jnp.concatenate([q, v])

    def rates(state: Array, t: Array, params: Any) -> Array:
        q, v = jnp.split(state, 2)
        _, law = scheme.law(q, v, t, params)
        return jnp.concatenate([v, law.qdd])

    state, h = jnp.concatenate([q0, v0]), ts[1] - ts[0]
    _, traced = hoisted(moved, state, ts[0], h, params)
    if traced:
        # The run holds the values of the others, but in an order of its own.
        run_hoisted, traced = hoisted(run, q0, v0, ts, params, tolerance)
        moved_hoisted, in_step = hoisted(moved, state, ts[0], h, params)
        rates_hoisted, in_rates = hoisted(rates, state, ts[0], params)
        of_step, of_rates = (
            [next(k for k, x in enumerate(traced) if x is y) for y in some]
            for some in (in_step, in_rates)
        )

    @jax.jit  # so that it is traced once, for a single trajectory and for a batch
    def run_inputs(x: AdaptiveInputs) -> tuple[Trajectory, StepRecord]:
        m = x.motion
        args = m.q0, m.v0, m.ts, m.params, x.tolerance
        return run_hoisted(m.traced, *args) if traced else run(*args)

    def step_inputs(state: Array, t: Array, h: Array, shared: Any) -> Array:
        params, values = shared
        if not traced:
            return moved(state, t, h, params)
        return moved_hoisted([values[k] for k in of_step], state, t, h, params)

    def rates_inputs(state: Array, t: Array, shared: Any) -> Array:
        params, values = shared
        if not traced:
            return rates(state, t, params)
        return rates_hoisted([values[k] for k in of_rates], state, t, params)

    return MoveProgram(run_inputs, step_inputs, rates_inputs), traced


class Moves(eqx.Module):
    """How a state moves along.

    Attributes:
        t0: time of the start.
        sign: of the direction in time.
        ts: save times, shape (T,), which do not move with the start.
        shared: parameters and closed-over values.
    """

    t0: Array
    sign: Array
    ts: Array
    shared: Any

    def target(self, move: Move) -> Array:
        """The time of the save that a move leads to."""
        found: Array = jax.lax.dynamic_index_in_dim(self.ts, move.save, keepdims=False)
        return found

    def moved(self, program: MoveProgram, state: Array, move: Move) -> Array:
        """The state after a move."""
        start = jax.lax.stop_gradient(self.t0) + self.sign * move.begin
        h = jnp.where(move.save > 0, self.target(move) - start, self.sign * move.size)
        return program.step(state, self.t0 + self.sign * move.begin, h, self.shared)

    @property
    def usual(self) -> Array:
        """A length for moves that were not made."""
        # Any length at which the step can be computed: its result is not used, but must not be NaN.
        return jnp.abs(self.ts[1] - self.ts[0])


def moves_of(x: RolloutInputs, shared: Any) -> Moves:
    """The moves of a run, with these parameters and closed-over values."""
    return Moves(x.ts[0], jnp.sign(x.ts[-1] - x.ts[0]), jax.lax.stop_gradient(x.ts), shared)


def rates_at_saves(program: MoveProgram, x: RolloutInputs, kept: KeptRun) -> Array:
    """Speeds and accelerations at the saves, shape (T, 2 n)."""

    def one(_: None, save: tuple[Array, Array]) -> tuple[None, Array]:
        return None, program.rates(*save, (x.params, x.traced))

    first = jnp.concatenate([x.q0, x.v0])
    states = jnp.where(kept.known[:, None], kept.states, first[None])
    return jax.lax.scan(one, None, (states, x.ts))[1]
