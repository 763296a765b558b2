"""Events that come and go within a step, which signs at its ends do not show.

A function that falls towards zero at the start of a step and rises at its end has a minimum in
between. It is sought by the minimum of the cubic through the values and rates at both ends, in an
interval that gets smaller, until a value has the other sign or none can be expected. (Where a
function is negative, read maximum.)
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.scheme import Scheme
from jaxmech.system import Params

_MOST = 12  # trials for one minimum
_SHARE = 0.5  # relative to the smallest value so far: larger estimates of a minimum end its search
_TRUST = 0.2  # relative error of the depth of an estimated minimum below the ends
_KNOWN = 1e-6  # rate at a zero, relative to the change in a step, from which its sign is meaningful


class StepEnd(eqx.Module):
    """The functions at an end of an interval, positive at both ends, and their rates in u."""

    u: Float[Array, " E"]  # position in the step
    g: Float[Array, " E"]  # the functions
    r: Float[Array, " E"]  # their rates, NaN where unknown


class Dips(eqx.Module):
    """The search for minima within a step, of one function after another."""

    pending: Bool[Array, " E"]  # functions whose minimum is still sought
    low: StepEnd  # lower end of the interval of each minimum
    high: StepEnd  # upper end of the interval of each minimum
    tries: Int[Array, ""]  # trials for the current minimum so far
    stops: Float[Array, " E"]  # where a function was found beyond zero, 1 for nowhere

    @staticmethod
    def of(
        signs: Int[Array, " E"], enabled: Bool[Array, " E"], start: tuple[Array, Array],
        end: tuple[Array, Array],
    ) -> "Dips":  # fmt: skip
        """The possible minima in a step, from the functions and their rates in u at both ends."""
        s = signs.astype(start[0].dtype)
        zeros, ones = jnp.zeros_like(s), jnp.ones_like(s)
        low = StepEnd(zeros, s * start[0], s * start[1])
        high = StepEnd(ones, s * end[0], s * end[1])
        is_dip = (signs != 0) & enabled & (low.g > 0) & (high.g > 0) & (low.r < 0) & (high.r > 0)
        return Dips(is_dip & _hopeful(low, high), low, high, jnp.zeros((), jnp.int32), ones)

    def after(self, low: Array) -> Float[Array, ""]:
        """The end of the next trial, if nothing is known to happen after `low`."""
        which, u = self._next()
        stop = jnp.min(jnp.where(self.stops > low, self.stops, 1.0))
        return jnp.where(which.any() & (u > low), u, stop)

    def _next(self) -> tuple[Bool[Array, " E"], Float[Array, ""]]:
        """Select the function whose minimum is sought first, and estimate its position."""
        places = jnp.where(self.pending, _minimum(self.low, self.high)[0], jnp.inf)
        first = jnp.arange(len(places)) == jnp.argmin(places)
        return first & self.pending, jnp.min(places)

    def updated(self, u: Array, values: Array, rates: Array, signs: Array) -> "Dips":
        """Update the search after a trial; the functions and rates are those of the step."""
        mine, _ = self._next()
        s = signs.astype(values.dtype)
        here = StepEnd(jnp.full_like(values, u), s * values, s * rates)
        is_beyond = mine & ~(here.g > 0)
        falls = here.r < 0

        def put(at: StepEnd, when: Array) -> StepEnd:
            return jax.tree.map(lambda x, y: jnp.where(mine & when, x, y), here, at)

        low, high = put(self.low, falls), put(self.high, ~falls)
        tries = self.tries + 1
        goes_on = _hopeful(low, high) & (tries < _MOST) & ~is_beyond
        over = mine & ~goes_on
        return Dips(
            self.pending & ~over,
            low,
            high,
            jnp.where(over.any(), 0, tries).astype(jnp.int32),
            jnp.where(is_beyond, u, self.stops),
        )

    def without(self, when: Array) -> "Dips":
        """Drop all minima, since the motion has changed."""
        stops = jnp.where(when, jnp.ones_like(self.stops), self.stops)
        return replace(self, pending=self.pending & ~when, stops=stops)


def _minimum(low: StepEnd, high: StepEnd) -> tuple[Array, Array]:
    """The position and value of the minimum of a cubic that falls at `low` and rises at `high`."""
    width = high.u - low.u
    before, after, rise = low.r * width, high.r * width, high.g - low.g
    # p(x) = g + before x + second x^2 + third x^3 for x from 0 to 1
    third = before + after - 2 * rise
    second = 3 * rise - 2 * before - after
    root = jnp.sqrt(jnp.maximum(second**2 - 3 * third * before, 0.0))
    # Of both forms of the root the one without a difference of equals.
    above = jnp.where(second > 0, -before, root - second)
    below = jnp.where(second > 0, second + root, 3 * third)
    x = jnp.clip(above / jnp.where(below == 0, 1.0, below), 0.0, 1.0)
    least = low.g + x * (before + x * (second + x * third))
    return low.u + x * width, least


def _hopeful(low: StepEnd, high: StepEnd) -> Bool[Array, " E"]:
    """Whether the minimum between both ends may be beyond zero."""
    _, least = _minimum(low, high)
    depth = jnp.maximum(low.g, high.g) - least
    return (least <= _SHARE * jnp.minimum(low.g, high.g)) | (least <= _TRUST * depth)


def rates(
    watch: Watch, q: Array, v: Array, t: Array, h: Array, params: Params, qdd: Array | None
) -> Float[Array, " E"]:
    """The rates of the functions along the motion, over a step; NaN where unknown.

    Those of functions of v need accelerations, and those of reactions even more.
    """
    own = watch.plain(params)
    is_plain = watch.of_positions(q, v, t, own)

    def one(event: Any, plain: bool) -> Array:
        def value(q: Array, v: Array, t: Array) -> Array:
            return event.value(q, v, t, own)

        if event.needs_reactions or not (plain or qdd is not None):
            return jnp.full_like(t, jnp.nan)
        a = jnp.zeros_like(v) if qdd is None else qdd
        return h * jax.jvp(value, (q, v, t), (v, a, jnp.ones_like(t)))[1]

    return jnp.stack([one(*pair) for pair in zip(watch.events, is_plain, strict=True)])


StepState = tuple[Array, Array, Array, Array | None]  # q, v, t and, where known, accelerations


def step_dips(
    scheme: Scheme, watch: Watch, was: EventState, start: StepState, end: StepState, h: Array,
    params: Params,
) -> tuple[EventState, EventState, Dips, Array]:  # fmt: skip
    """The events before a step; after it, if none occur; minima in it; whether any may occur."""
    values, enabled = watch.values(scheme, *end[:3], params), watch.enabled(was.active)
    before, after = (rates(watch, q, v, t, h, params, qdd) for q, v, t, qdd in (start, end))
    # A function that is zero at first has the sign of its rate right after, or its return to zero
    # within a long step would go unnoticed.
    leaves = (was.signs == 0) & (was.values == 0) & enabled
    leaves &= jnp.abs(before) > _KNOWN * jnp.abs(values)
    was = replace(was, signs=jnp.where(leaves, jnp.sign(before), was.signs).astype(jnp.int32))
    dips = Dips.of(was.signs, enabled, (was.values, before), (values, after))
    crossed = watch.crossed(was.signs, values, was.active)
    signs = watch.continued_signs(was.signs, values, was.active)
    if watch.has_transitions:
        # Bodies that touch and are not pressed together have no impact, whatever the sign of a gap
        # of the size of a rounding error.
        rests = watch.changes & (was.signs != 0)
        for g, rate in ((was.values, before), (values, after)):
            rests &= (was.signs * g <= 0) & (was.signs * rate >= 0)
        crossed, signs = crossed & ~rests, jnp.where(rests, was.signs, signs)
    # NaN crosses nothing, but must be reported.
    happens = was.due | crossed.any() | jnp.isnan(values).any()
    passed = replace(was, signs=signs, values=values)
    for v in (start[1], end[1]):
        # A step that an event at its start makes void may have led to NaN.
        speeds = jnp.where(jnp.isfinite(v), jnp.maximum(was.speeds, jnp.abs(v)), was.speeds)
        was = replace(was, speeds=speeds)
    return was, passed, dips, happens | dips.pending.any()
