"""Events that come and go within a step, which signs at its ends do not show.

A function that falls towards zero at the start of a step and rises at its end has a minimum in
between. It is sought by the minimum of the cubic through the values and rates at both ends, in an
interval that gets smaller, until a value has the other sign or none can be expected. (Where a
function is negative, read maximum.)
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.log import EventState
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


class ExtremumSearch(eqx.Module):
    """The search for minima within a step, of one of D functions of motions after another.

    Those of reactions, whose rates are unknown, have no part in it.
    """

    pending: Bool[Array, " D"]  # functions whose minimum is still sought
    low: StepEnd  # lower end of the interval of each minimum
    high: StepEnd  # upper end of the interval of each minimum
    tries: Int[Array, ""]  # trials for the current minimum so far
    stops: Float[Array, " D"]  # where a function was found beyond zero, 1 for nowhere
    is_of_motion: tuple[bool, ...] = eqx.field(static=True)  # which of E functions it has

    @staticmethod
    def of(
        is_of_motion: tuple[bool, ...], signs: Int[Array, " E"], enabled: Bool[Array, " E"],
        start: tuple[Array, Array], end: tuple[Array, Array],
    ) -> "ExtremumSearch":  # fmt: skip
        """The possible minima in a step, from the functions and their rates in u at both ends."""
        signs, enabled, start, end = jax.tree.map(
            lambda x: x[np.flatnonzero(is_of_motion)], (signs, enabled, start, end)
        )
        low, high, is_dip = _dips(signs, enabled, start, end)
        # Most functions are far from zero, and their minima need not be estimated.
        pending = jax.lax.cond(
            (is_dip & _possible(low, high)).any(),
            lambda: is_dip & _hopeful(low, high),
            lambda: jnp.zeros_like(is_dip),
        )
        ones = jnp.ones_like(low.u)
        return ExtremumSearch(pending, low, high, jnp.zeros((), jnp.int32), ones, is_of_motion)

    @property
    def is_sought(self) -> Bool[Array, " E"]:
        """Flags of the functions whose minimum is still sought, of all."""
        numbers = np.where(self.is_of_motion, np.cumsum(self.is_of_motion) - 1, -1)
        return jnp.pad(self.pending, (0, 1))[numbers]

    def after(self, low: Array) -> Float[Array, ""]:
        """The end of the next trial, if nothing is known to happen after `low`."""
        is_next, u = self._next()
        stop = jnp.min(jnp.where(self.stops > low, self.stops, 1.0), initial=1.0)
        return jnp.where(is_next.any() & (u > low), u, stop)

    def _next(self) -> tuple[Bool[Array, " D"], Float[Array, ""]]:
        minima = jnp.where(self.pending, _minimum(self.low, self.high)[0], jnp.inf)
        if not minima.size:
            return self.pending, jnp.full((), jnp.inf, minima.dtype)
        first = jnp.arange(len(minima)) == jnp.argmin(minima)
        return first & self.pending, jnp.min(minima)

    def updated(self, u: Array, values: Array, rates: Array, signs: Array) -> "ExtremumSearch":
        """Update the search after a trial; the functions and rates are those of the step."""
        values, rates, signs = (
            x[np.flatnonzero(self.is_of_motion)] for x in (values, rates, signs)
        )
        mine, _ = self._next()
        s = signs.astype(values.dtype)
        tried_end = StepEnd(jnp.full_like(values, u), s * values, s * rates)
        is_beyond = mine & ~(tried_end.g > 0)
        falls = tried_end.r < 0

        def with_end(old: StepEnd, condition: Array) -> StepEnd:
            return jax.tree.map(lambda x, y: jnp.where(mine & condition, x, y), tried_end, old)

        low, high = with_end(self.low, falls), with_end(self.high, ~falls)
        tries = self.tries + 1
        goes_on = _hopeful(low, high) & (tries < _MOST) & ~is_beyond
        is_finished = mine & ~goes_on
        return replace(
            self,
            pending=self.pending & ~is_finished,
            low=low,
            high=high,
            tries=jnp.where(is_finished.any(), 0, tries).astype(jnp.int32),
            stops=jnp.where(is_beyond, u, self.stops),
        )

    def without(self, changed: Array) -> "ExtremumSearch":
        """Drop all minima, since the motion has changed."""
        stops = jnp.where(changed, jnp.ones_like(self.stops), self.stops)
        return replace(self, pending=self.pending & ~changed, stops=stops)


def may_dip(
    signs: Int[Array, " E"], enabled: Bool[Array, " E"], start: tuple[Array, Array],
    end: tuple[Array, Array],
) -> Bool[Array, " E"]:  # fmt: skip
    """Flags of the functions that may have a minimum to be sought, by a bound that is cheap."""
    low, high, is_dip = _dips(signs, enabled, start, end)
    return is_dip & _possible(low, high)


def _dips(
    signs: Int[Array, " E"], enabled: Bool[Array, " E"], start: tuple[Array, Array],
    end: tuple[Array, Array],
) -> tuple[StepEnd, StepEnd, Bool[Array, " E"]]:  # fmt: skip
    """Both ends of a step, and flags of the functions that fall at the first and then rise."""
    s = signs.astype(start[0].dtype)
    low = StepEnd(jnp.zeros_like(s), s * start[0], s * start[1])
    high = StepEnd(jnp.ones_like(s), s * end[0], s * end[1])
    is_dip = (signs != 0) & enabled & (low.g > 0) & (high.g > 0) & (low.r < 0) & (high.r > 0)
    return low, high, is_dip


def _minimum(low: StepEnd, high: StepEnd) -> tuple[Array, Array]:
    """The position and value of the minimum of a cubic that falls at `low` and rises at `high`."""
    width = high.u - low.u
    first, last, rise = low.r * width, high.r * width, high.g - low.g
    # p(x) = g + before x + second x^2 + third x^3 for x from 0 to 1
    third = first + last - 2 * rise
    second = 3 * rise - 2 * first - last
    root = jnp.sqrt(jnp.maximum(second**2 - 3 * third * first, 0.0))
    # Of both forms of the root the one without a difference of equals.
    numerator = jnp.where(second > 0, -first, root - second)
    denominator = jnp.where(second > 0, second + root, 3 * third)
    x = jnp.clip(numerator / jnp.where(denominator == 0, 1.0, denominator), 0.0, 1.0)
    least = low.g + x * (first + x * (second + x * third))
    return low.u + x * width, least


def _possible(low: StepEnd, high: StepEnd) -> Bool[Array, " E"]:
    """Whether the minimum can be `_hopeful`, by a bound below a cubic in the whole step."""
    least = jnp.minimum(low.g, high.g) - 4 / 27 * (high.r - low.r)
    return (least <= _SHARE * jnp.minimum(low.g, high.g)) | (
        (1 + _TRUST) * least <= _TRUST * jnp.maximum(low.g, high.g)
    )


def _hopeful(low: StepEnd, high: StepEnd) -> Bool[Array, " E"]:
    _, least = _minimum(low, high)
    depth = jnp.maximum(low.g, high.g) - least
    return (least <= _SHARE * jnp.minimum(low.g, high.g)) | (least <= _TRUST * depth)


def rates(
    event_set: EventSet, scheme: Scheme, q: Array, v: Array, t: Array, h: Array, params: Params,
    qdd: Array | None,
) -> Float[Array, " E"]:  # fmt: skip
    """The rates of the functions along the motion, over a step; NaN where unknown.

    Those of functions of v need accelerations, and those of reactions even more.
    """
    known = event_set.of_positions(q, v, t, params)
    if qdd is not None:
        known = event_set.of_motions
    speeds = scheme.system.dynamics.speeds(q, v, t, params)
    along = h * speeds, jnp.zeros_like(v) if qdd is None else h * qdd, h

    def values(q: Array, v: Array, t: Array) -> Array:
        return event_set.functions(q, v, t, params, known)

    return jnp.where(np.array(known), jax.jvp(values, (q, v, t), along)[1], jnp.nan)


State = tuple[Array, Array]  # q and v


def step_dips(
    scheme: Scheme, event_set: EventSet, state: EventState, ends: tuple[State, State], t: Array,
    h: Array, params: Params, values: Float[Array, " E"], slopes: tuple[Array, ...],
) -> tuple[EventState, EventState, ExtremumSearch, Array]:  # fmt: skip
    """The events before a step; after it, if none occur; minima in it; whether any may occur.

    `values` are those of the functions at its end, and `slopes` their `rates` at both ends.
    """
    enabled, (start_rates, end_rates) = event_set.enabled(state.active), slopes
    # A function that is zero at first has the sign of its rate right after, or its return to zero
    # within a long step would go unnoticed.
    leaves = (state.signs == 0) & (state.values == 0) & enabled
    leaves &= jnp.abs(start_rates) > _KNOWN * jnp.abs(values)
    signs = jnp.where(leaves, jnp.sign(start_rates), state.signs).astype(jnp.int32)
    if event_set.has_transitions:
        signs = event_set.signs_at_start(signs, state.values, values, state.active)
    state = replace(state, signs=signs)
    dips = ExtremumSearch.of(
        event_set.of_motions, state.signs, enabled, (state.values, start_rates), (values, end_rates)
    )
    crossed = event_set.crossed(state.signs, values, state.active)
    signs = event_set.continued_signs(state.signs, values, state.active)
    if event_set.has_transitions:
        # Bodies that touch and are not pressed together have no impact, whatever the sign of a gap
        # of the size of a rounding error.
        rests = event_set.changes & (state.signs != 0)
        for g, rate in ((state.values, start_rates), (values, end_rates)):
            rests &= (state.signs * g <= 0) & (state.signs * rate >= 0)
        crossed, signs = crossed & ~rests, jnp.where(rests, state.signs, signs)
    # NaN crosses nothing, but must be reported.
    happens = state.due | crossed.any() | jnp.isnan(values).any()
    passed = replace(state, signs=signs, values=values)
    for (q, v), time in zip(ends, (t, t + h), strict=True):
        speeds = scheme.system.dynamics.speeds(q, v, time, params)
        # A step that an event at its start makes void may have led to NaN.
        largest = jnp.maximum(state.speeds, jnp.abs(speeds))
        state = replace(state, speeds=jnp.where(jnp.isfinite(speeds), largest, state.speeds))
    return state, passed, dips, happens | dips.pending.any()
