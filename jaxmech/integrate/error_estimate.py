"""An estimate of the integration error from the states of a run, without further steps.

A method of order p makes an error of about c h^(p + 1) q^(p + 1) in a step of size h. The
derivative is a divided difference over the last four states, from order four on each repeated
twice: q provides the values and v the slopes (Hermite; Stoer and Bulirsch, Introduction to
Numerical Analysis, 2.1.5). The errors of the steps are added up, relative to the motion. Later
growth of an error is not included, and errors that cancel are counted.

Differences below round-off have no information on the method. In float32 those of neighbouring
states soon are, although the errors of all steps together are not. So the states of a difference
may lie several steps apart: with k steps between them, a difference is k^(p + 1) times as large.
An error that still cannot be told from round-off counts as round-off, not as zero.
"""

from itertools import accumulate, pairwise
from math import ceil
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.integrate.methods.runge_kutta import AbstractMethod
from jaxmech.system import System

STATES = 4  # states in a divided difference
_HIGHEST = 5  # order of a method whose error they can estimate
_LEAST = 0.01  # least motion of a coordinate, relative to the widest motion
_IN_V = 4  # errors of velocities partly cancel; found by comparison with true errors
_IN_ORDER_2 = 3  # errors of methods of order two, found likewise
_JUMP = 1e-3  # of velocities, relative to the speed: the projection does more at a kink only
_IN_RATES = 10  # errors of accelerations, that do not know a change of v, found likewise
_EVEN = 0.1  # least ratio of the times between the states of a difference
_ROUNDING = 16.0  # rounding error of a difference, in eps |q|
_AT_REST = 1e3  # units of round-off of the extents: what moves less, on constraints, is at rest
_RESOLVED = 1e-4  # round-off in the sum of all errors, relative to |q|, for which states are apart


def steps_apart(method: AbstractMethod, steps: int, dtype: Any) -> int:
    """The number of steps between the states of a difference, in a run with so many steps.

    It is 1 in float64, for up to 3e10 steps.
    """
    noise = steps * _ROUNDING * float(jnp.finfo(dtype).eps) / _RESOLVED
    return max(1, ceil(noise ** (1 / (_order(method) + 1))))


def _order(method: AbstractMethod) -> int:
    return min(method.order, _HIGHEST)


class Recent(eqx.Module):
    """The states before the present one, the oldest first."""

    q: Float[Array, "3 n"]
    v: Float[Array, "3 n"]
    h: Float[Array, " k"]  # the times from each to the next; none if all are the same

    @staticmethod
    def none(q: Array, v: Array, same_steps: bool) -> "Recent":
        q, v = (jax.lax.stop_gradient(jnp.stack([x] * (STATES - 1))) for x in (q, v))
        return Recent(q, v, jnp.ones(0 if same_steps else STATES - 1, q.dtype))

    @property
    def is_smooth(self) -> Array:
        """Whether the motion is smooth between the states, and no step is much shorter."""
        if not self.h.size:
            return jnp.asarray(True)
        # Round-off of the values counts by the third power of the ratio of two lengths.
        sizes = jnp.abs(self.h)
        return (jnp.isfinite(sizes) & (sizes > _EVEN * sizes.max())).all()

    def ended(self, turns: Array) -> "Recent":
        """The same states, before a time at which the motion turns."""
        return Recent(self.q, self.v, jnp.where(turns, jnp.nan, self.h))

    def after(self, q: Array, v: Array, h: Array) -> "Recent":
        """The states before the one to which a step of size h leads from (q, v)."""
        q, v, h = jax.lax.stop_gradient((q, v, h))
        return Recent(
            jnp.concatenate([self.q[1:], q[None]]),
            jnp.concatenate([self.v[1:], v[None]]),
            jnp.concatenate([self.h, h[None]])[1:],
        )

    def longer(self, h: Array) -> "Recent":
        """The same states before the one to which a further step of size h leads."""
        last = self.h[-1:] + jax.lax.stop_gradient(h)
        return Recent(self.q, self.v, jnp.concatenate([self.h[:-1], last]))


class Corrections(eqx.Module):
    """The contribution of the projection to the motion, where constraints contain the time."""

    in_q: Float[Array, " n"]  # sum of all displacements, as in `Scheme.correction`
    in_v: Float[Array, " n"]  # sum of all changes of the velocities
    smooth: Int[Array, " k"]  # states since the last jump of velocities; none without a drive

    @staticmethod
    def none(q: Array, is_driven: bool) -> "Corrections":
        """Initialize before the first step; all is empty without a drive."""
        in_q = jnp.zeros_like(q if is_driven else q[:0])
        return Corrections(in_q, in_q, jnp.ones(int(is_driven), jnp.int32))

    def after(self, correction: tuple[Array, ...], v: Array, h: Array) -> "Corrections":
        """Add a step of size h with this correction, which ends with these velocities."""
        v, h = jax.lax.stop_gradient((v, h))
        moves, late = map(jnp.abs, correction)
        jump = late / jnp.where(h == 0, 1.0, jnp.abs(h))
        jumps = jump.max() > _JUMP * jnp.abs(v).max()
        smooth = jnp.where(jumps, 1, self.smooth + 1)
        return Corrections(self.in_q + moves + late, self.in_v + jump, smooth)


class StepErrors(eqx.Module):
    """The sums of the errors of the steps so far, and the extent of the motion."""

    q: Float[Array, " n"]  # sum of the errors of the coordinates
    v: Float[Array, " n"]  # sum of the errors of their rates
    low: Float[Array, " n"]  # smallest coordinates
    high: Float[Array, " n"]  # largest coordinates
    fastest: Float[Array, " n"]  # largest |rates|
    rounding: Float[Array, ""]  # sum of the errors of a coordinate that would go unnoticed

    @staticmethod
    def none(q: Array, speeds: Array) -> "StepErrors":
        zero = jnp.zeros_like(q)
        return StepErrors(zero, zero, q, q, jnp.abs(speeds), zero.sum())

    def after(
        self, q: Array, speeds: Array, in_q: Array, in_v: Array, unnoticed: Array | float = 0.0
    ) -> "StepErrors":
        """Add errors up to a state, and those that would go unnoticed."""
        return StepErrors(
            self.q + in_q,
            self.v + in_v,
            jnp.minimum(self.low, q),
            jnp.maximum(self.high, q),
            jnp.maximum(self.fastest, jnp.abs(speeds)),
            self.rounding + unnoticed,
        )

    def relative(self, duration: Array, rest: Array, states: int) -> Float[Array, ""]:
        """The largest error in q and v, relative to the range and the speed of each coordinate.

        That of one of the `states` of first order is relative to its largest value; its integral
        does not count. Nor does the error of a mechanism that is at `rest`, which is its whole
        motion.
        """
        width, speed = self.sizes(duration, states)
        mechanical = slice(self.q.size - states)
        path = self.fastest[mechanical] * jnp.abs(duration)
        farthest = jnp.maximum((self.high - self.low)[mechanical], path).max()
        pairs = (self.q, width), (self.v, speed)
        shares = [jnp.where(farthest > rest, _share(x[mechanical], size), 0.0) for x, size in pairs]
        if states:
            shares.append(_share(self.v[-states:], self.fastest[-states:]))
        return jnp.max(jnp.concatenate(shares))

    def resolution(self, rest: Array, states: int) -> Float[Array, ""]:
        """Rounding errors relative to the widest motion of a coordinate; 0 within round-off."""
        low, high = self.low[: self.low.size - states], self.high[: self.high.size - states]
        width, largest_value = (high - low).max(), jnp.maximum(jnp.abs(low), jnp.abs(high)).max()
        moves = width > jnp.maximum(jnp.sqrt(jnp.finfo(low.dtype).eps) * largest_value, rest)
        return jnp.where(moves, self.rounding / jnp.where(moves, width, 1.0), 0.0)

    def sizes(self, duration: Array, states: int) -> tuple[Array, Array]:
        """The range and the speed with which the errors of each coordinate are compared."""
        mechanical = slice(self.q.size - states)
        low, high, fastest = self.low[mechanical], self.high[mechanical], self.fastest[mechanical]
        # A coordinate that hardly moves is compared with 1 % of the widest motion, because it may
        # move by errors alone; and no motion is smaller than rounding.
        largest_value = jnp.maximum(jnp.abs(low), jnp.abs(high)).max()
        rounding = jnp.sqrt(jnp.finfo(low.dtype).eps) * largest_value
        width, speed = high - low, fastest
        width = jnp.maximum(jnp.maximum(width, _LEAST * width.max()), rounding)
        speed = jnp.maximum(jnp.maximum(speed, _LEAST * speed.max()), rounding / jnp.abs(duration))
        return width, speed

    def delay(
        self, corrections: Corrections, h: Array, duration: Array, states: int, *, keeps_q: bool
    ) -> Float[Array, ""]:
        """The error, relative to the motion, due to corrections at the ends of steps of size h.

        They come too late by a part of a step. Where the projection of velocities `keeps_q`, all of
        what they should have moved is missing.
        """
        # The projection does not move states.
        mechanical = slice(self.q.size - states)
        width, speed = self.sizes(duration, states)
        in_q = jnp.max(_share(corrections.in_q[mechanical], width))
        in_v = jnp.max(_share(corrections.in_v[mechanical], speed))
        # The part of its whole motion that a coordinate makes meanwhile.
        part = jnp.minimum(jnp.max(_share(h * speed, width)), 1.0)
        return (in_q if keeps_q else part * in_q) + part * in_v / _IN_RATES


def rest_motion(system: System, extents: Float[Array, " n"]) -> Float[Array, ""]:
    """The motion below which a mechanism is at rest: what its constraints leave is round-off."""
    least = _AT_REST * jnp.finfo(extents.dtype).eps * extents.max()
    return least if system.constraints else jnp.zeros_like(least)


def _share(error: Array, size: Array) -> Array:
    # A coordinate that neither moves nor errs counts as exact, not as 0 / 0.
    return jnp.where(error == 0, 0.0, error / jnp.where(size == 0, 1.0, size))


def step_errors(
    recent: Recent, q: Array, v: Array, h: Array, method: AbstractMethod, apart: int,
    states: int, *, coupled: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The errors of one step in q and in v (n,), and the largest one in q that goes unnoticed.

    The recent states are `apart` steps from each other; coordinates that constraints couple share
    round-off by the projection.
    """
    q, v, h = jax.lax.stop_gradient((q, v, h))
    order, span = _order(method), apart * h
    # With every state taken twice, divided differences have odd orders: p + 1, which is wanted, for
    # a method of even order p, and p for an odd one.
    odd = 2 * (order // 2) + 1
    of_q, of_rate = (jnp.abs(x) for x in _derivatives(recent, q, v, span, odd))
    of_v = of_rate / jnp.abs(span)
    if order == odd:  # the derivative in the error is the next higher one
        scale = jnp.maximum(largest(of_q, states), jnp.finfo(q.dtype).tiny)
        faster = spread(largest(of_rate, states) / scale, q.size)
        of_q, of_v = of_rate / (odd + 1), of_v * faster / (odd + 1)
    size = method.error_constant
    rounding = _ROUNDING * jnp.finfo(q.dtype).eps * largest(q, states)
    in_q, in_v = size * of_q, (size / _IN_V) * of_v
    # Without a projection a small fast motion is not hidden by the round-off of a large slow one.
    size_of_each = jnp.maximum(jnp.abs(recent.q).max(0), jnp.abs(q))
    eps = float(jnp.finfo(q.dtype).eps)
    least = spread(rounding, q.size) if coupled else _ROUNDING * eps * size_of_each
    in_q = jnp.where(in_q > least, in_q, 0.0)
    in_v = jnp.where(in_v > least / jnp.abs(span), in_v, 0.0)
    to_step = float(apart) ** -(order + 1)  # from the error of a step as long as the span
    return to_step * in_q, to_step * in_v, to_step * rounding[0]


def _derivatives(recent: Recent, q: Array, v: Array, h: Array, level: int) -> tuple[Array, Array]:
    """q^(level) h^level / level! for an odd level, and its rate times h."""
    # Differences of vectors, not weights of the states: native code cannot fold zeros among weights
    # that it does not know.
    spans = list(recent.h / h) or [1.0] * (STATES - 1)
    ends = list(accumulate(spans, initial=0.0))
    values, slopes = [*recent.q, q], [h * x for x in (*recent.v, v)]

    def differences(values: list[Array], nodes: list[int]) -> list[Array]:
        row = [
            slopes[a] if a == b else (values[b] - values[a]) / (ends[b] - ends[a])
            for a, b in pairwise(nodes)
        ]
        for k in range(2, level + 1):
            apart = [ends[b] - ends[a] for a, b in zip(nodes, nodes[k:], strict=False)]
            row = [(y - x) / width for (x, y), width in zip(pairwise(row), apart, strict=True)]
        return row

    single = list(range(STATES))
    if level < STATES:
        # A method of order two may tie q to v by the trapezoidal rule; then a difference of states
        # taken twice is zero.
        of_q, of_v = (_IN_ORDER_2 * differences(x, single)[0] for x in (values, slopes))
        return of_q, of_v
    row = differences(values, sorted(single * 2))
    # The rate compares only differences with every state taken twice: the others have errors of
    # either sign where q and v do not quite agree. These two are of states one apart, whose means
    # lie (last - first) / states apart.
    states = (level + 1) // 2
    return row[-1], (row[-1] - row[-3]) * (states / (ends[-1] - ends[-1 - states]))


def largest(x: Float[Array, "*m n"], states: int) -> Float[Array, "*m k"]:
    """The largest size of the numbers that belong to no state, and the size of that of each state.

    States have units of their own, so that no number of theirs is compared with another.
    """
    size = jnp.abs(x)
    n = x.shape[-1] - states
    maximum = size[..., :n].max(axis=-1, keepdims=True)
    return jnp.concatenate([maximum, size[..., n:]], axis=-1) if states else maximum


def spread(parts: Float[Array, "*m k"], n: int) -> Float[Array, "*m n"]:
    """One number for each coordinate, from those that `largest` returns."""
    states = parts.shape[-1] - 1
    first = jnp.broadcast_to(parts[..., :1], (*parts.shape[:-1], n - states))
    return jnp.concatenate([first, parts[..., 1:]], axis=-1)
