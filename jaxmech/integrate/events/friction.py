"""The frictions of a run: each is a constraint while it sticks, and a force while it slides.

A friction "slips" where the multiplier of its constraint exceeds what it can hold, and "stops"
where its velocity becomes zero. Its switches are whether it sticks, and whether it slides forward
or backward.

In space a slip has two rows, one after the other, and its force is against the slip velocity. The
switches tell the nearest of eight directions, from which it has not turned far: "stops" looks for
the velocity along that direction, which a slip also loses where it turns away; then the switches
follow it. Where friction can change a slip within a step as much as all of it, the direction in
that step is that of its end: a slip that is slow against the step would swing from side to side.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.events.coulomb import (
    Coulomb,
    Margin,
    both,
    compliance,
    disc_force,
    margin,
    norm,
    pairs_of,
    slip_forces,
    unit,
    with_pairs,
)
from jaxmech.integrate.run_params import RunParams, plain
from jaxmech.laws import Law
from jaxmech.linalg import LDL, QR, diagonal, matvec
from jaxmech.state import metric_mass
from jaxmech.system import DryFriction, EquationsOfMotion, Nonholonomic, Params, System
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.probing import actual
from jaxmech.utils.text import not_one_of

KINDS = ("", " forward", " backward")  # endings of the names of its switches
_ROUNDING = 64.0  # units of round-off of an acceleration that counts as zero
_HELD = 500.0  # units of round-off by which a load may be beyond a limit
_MEMBERS = 1000  # of a batch whose limits are checked
_OCTANT = 0.3827  # sine of half the angle between neighbours of the eight directions
TURNED = 0.5  # cosine of the angle by which a slip has turned from its direction
_SLOW = 0.5  # speed of a slip that is slow, per change of speed by friction in a step
_STOPS = 1.5  # steps until a stop in which the direction does not change
_ROUNDS = 3  # in which several slips in space of a step tell their normal forces
_LEAST = 1e-5  # share of its limit that the force of a slip needs in a step, at least
_REGULAR = 1e-8  # determinant of the compliances of a slip in space, relative to their square


@dataclass(frozen=True)
class Friction:
    """One velocity of a `DryFriction`, and what presses there."""

    of: DryFriction
    number: int  # which of its velocities
    size: int
    gap: int | None = None  # the gap whose multiplier presses
    rows: tuple[int, int] | None = None  # the equations of the constraint that presses
    in_place: int | None = None  # the switch of one that can be removed
    each: int = 1  # components of a slip

    @property
    def is_second(self) -> bool:
        return self.number % self.each == 1

    @property
    def constraint(self) -> Nonholonomic:
        """The constraint that its velocity is zero."""
        return self.of.component(self.number, self.size, self.each)

    @property
    def name(self) -> str:
        return self.constraint.name

    def limit(self, argument: str, params: Params, dtype: Any) -> Float[Array, ""]:
        """The static or kinetic limit; `params` are the user's."""
        with naming_missing(f"friction {self.of.name!r}", params):
            return self.of.limits(argument, self.size, params, dtype, self.each)[self.number]

    def normal_force(self, multipliers: Array, gaps: Array) -> Float[Array, ""]:
        """What presses, of all multipliers and those of the gaps; one if nothing does."""
        if self.gap is not None:
            return gaps[self.gap]
        if self.rows is None:
            return jnp.ones((), multipliers.dtype)
        pushes = multipliers[slice(*self.rows)]
        if pushes.size == 1:
            return jnp.abs(pushes[0])
        square = pushes @ pushes
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def frictions_of(
    system: System, gaps: Mapping[str, Sequence[str]], q: Array, t: Array, params: Params
) -> tuple[Friction, ...]:
    """The frictions of a system, whose gaps are given, which its functions tell at a state."""
    stated = [u for u in system.unilateral if isinstance(u, DryFriction)]
    if not stated:
        return ()
    v, u = jnp.zeros_like(q), jnp.zeros(system.n_velocities, q.dtype)
    sizes = jax.eval_shape(
        lambda q, v, t, params: [f.constraint.value(q, v, t, params) for f in stated],
        q, v, t, params,
    )  # fmt: skip
    ends = list(accumulate(system.dynamics.sizes(q, u, t, params), initial=0))
    names = [constraint.name for constraint in system.constraints]
    firsts = dict(zip(gaps, accumulate(map(len, gaps.values()), initial=0), strict=False))
    frictions: list[Friction] = []
    outputs = {c.name for c in system.sampling.controllers} if system.sampling else set()
    constant = {k: x for k, x in params.items() if k not in outputs} if outputs else params
    for friction, shape in zip(stated, sizes, strict=True):
        size = shape.shape[0]
        count = len(gaps.get(friction.normal or "", ()))
        pairs = friction.is_in_space(q, v, t, params) or (count == 1 and size == 2)
        each = 2 if pairs else 1
        try:  # which frictions can hold anything is decided once, when a run begins
            limits = [
                friction.limits(x, size, constant, q.dtype, each) for x in ("static", "kinetic")
            ]
        except KeyError as error:
            if error.args[0] not in outputs:
                raise
            raise ValueError(
                f"Argument `static` of {friction.name!r} must be constant in a run, but reads the "
                f"controller {error.args[0]!r}; let the controller act by a `force`."
            ) from error
        friction.require_limits(*(actual(limits, _MEMBERS) or (None, None)))
        for k in range(size):
            gap = rows = None
            if friction.normal is None:
                pass
            elif friction.normal in gaps:
                if count not in (1, size // each):
                    raise ValueError(
                        f"Argument `normal` of {friction.name!r} must name a constraint with one "
                        f"gap or as many as slips, {size // each}, but {friction.normal!r} has "
                        f"{count}; give each gap a constraint of its own."
                    )
                gap = firsts[friction.normal] + (k // each if count > 1 else 0)
            elif friction.normal in names:
                place = names.index(friction.normal)
                rows = ends[place], ends[place + 1]
            else:
                known = not_one_of(friction.normal, (*gaps, *names), "a constraint of the system")
                raise ValueError(
                    f"Argument `normal` of {friction.name!r}: {friction.normal!r} {known}"
                )
            frictions.append(Friction(friction, k, size, gap, rows, each=each))
    return tuple(frictions)


def discs_of(frictions: Sequence[Friction]) -> tuple[int, ...]:
    """The first rows of slips in space."""
    return tuple(k for k, f in enumerate(frictions) if f.each == 2 and not f.is_second)


def by_slip(frictions: Sequence[Friction], x: Array) -> Array:
    """The entries of slips, of those in space the first, from those (F,) of their rows."""
    first = np.array([k for k, f in enumerate(frictions) if not f.is_second])
    return x if len(first) == len(frictions) else x[first]


def eighths(direction: Float[Array, " F"], discs: tuple[int, ...]) -> Float[Array, " F"]:
    """The directions that switches tell, where those in space are rounded."""
    if not discs:
        return direction
    pairs = pairs_of(direction, discs)
    rounded = jnp.where(jnp.abs(pairs) > _OCTANT, jnp.sign(pairs), 0.0)
    return with_pairs(direction, discs, rounded)


def directions_of(
    frictions: Sequence[Friction], params: RunParams, dtype: Any
) -> Float[Array, " F"]:
    """The directions of those that slide by their switches: 1 or -1, or one of eight in space."""
    _, forward, backward = jnp.split(params.active[-len(KINDS) * len(frictions) :], len(KINDS))
    directions, discs = forward.astype(dtype) - backward.astype(dtype), discs_of(frictions)
    if not discs:
        return directions
    pairs = pairs_of(directions, discs)
    return with_pairs(directions, discs, pairs / jnp.maximum(norm(pairs), 1.0)[:, None])


class Rubbing(NamedTuple):
    """F frictions at a state of a run."""

    normal: Float[Array, " F"]  # normal forces, or one
    limits: Float[Array, "2 F"]  # static and kinetic, per normal force
    multipliers: Float[Array, " F"]  # of those that stick
    sticks: Bool[Array, " F"]
    directions: Float[Array, " F"]  # of those that slide, 1 or -1, or one of eight in space

    @staticmethod
    def at(
        frictions: Sequence[Friction], params: RunParams, multipliers: Array, count: int,
        t: Array | None = None, slip: Float[Array, " F"] | None = None,
    ) -> "Rubbing":  # fmt: skip
        """The frictions, given all multipliers, the last `count` of them of gaps and frictions.

        With the time and their slip velocities the directions in space are those of forces.
        """
        user, last = plain(params), multipliers[-count:]
        sticks = params.active[-len(KINDS) * len(frictions) :][: len(frictions)]
        of_gaps, own = jnp.split(last, [count - len(frictions)])
        limits = jnp.stack([
            jnp.stack([f.limit(argument, user, last.dtype) for f in frictions])
            for argument in ("static", "kinetic")
        ])  # fmt: skip
        if any(f.in_place is not None for f in frictions):  # what is not there holds nothing
            is_there = [f.in_place is None or params.active[f.in_place] for f in frictions]
            limits = jnp.where(jnp.stack([*map(jnp.asarray, is_there)]), limits, 0.0)
        normal = jnp.stack([f.normal_force(multipliers, of_gaps) for f in frictions])
        directions, discs = directions_of(frictions, params, last.dtype), discs_of(frictions)
        if discs and slip is not None:
            pairs, w, axes = pairs_of(directions, discs), pairs_of(slip, discs), params.axes
            pairs = jnp.where(pairs.any(1)[:, None], unit(w, pairs), pairs)
            if axes is not None and t is not None:
                axis = axes[0] + (t - axes[2]) * axes[1]
                axis = axis * (norm(axes[0]) / jnp.maximum(norm(axis), 0.1))[:, None]
                pairs = jnp.where(axes[0].any(1)[:, None], axis, pairs)
            directions = with_pairs(directions, discs, pairs)
        return Rubbing(normal, limits, own, sticks, directions)

    @property
    def pull(self) -> Float[Array, " F"]:
        """The forces against those that slide."""
        return self.directions * self.limits[1] * self.normal

    def reserves(self, discs: tuple[int, ...]) -> Float[Array, " F"]:
        """What those that stick, each alone, could still hold."""
        sizes = jnp.abs(self.multipliers)
        if discs:
            sizes = with_pairs(sizes, discs, norm(pairs_of(self.multipliers, discs))[:, None])
        return self.held(discs) * self.normal - sizes

    def held(self, discs: tuple[int, ...]) -> Float[Array, " F"]:
        """The static limits, and a little more: a load that is at its limit to round-off is held.

        It would otherwise slip without an acceleration, stop, and slip again. Slips in space are
        decided by an interior-point method, whose errors are larger, and have none of it.
        """
        if discs:
            return self.limits[0]
        return self.limits[0] * (1 + _HELD * float(jnp.finfo(self.limits.dtype).eps))


def pressing(frictions: Sequence[Friction], count: int, dtype: Any) -> Float[Array, "F C"]:
    """Which of so many gaps presses at each friction."""
    flags = np.zeros((len(frictions), count), dtype)
    for k, friction in enumerate(frictions):
        if friction.gap is not None:
            flags[k, friction.gap] = 1
    return jnp.asarray(flags)


def least_norm(A: Float[Array, "m n"], multipliers: Float[Array, " m"]) -> Float[Array, " m"]:
    """The multipliers of the same forces that have minimum norm, which no dropped rows change."""
    return LDL().factor(A.T).min_norm_solve(matvec(A.T, multipliers))[0]


RunState = tuple[Array, Array, Array, RunParams]  # q, v, t and parameters


@dataclass(frozen=True)
class SlidingForce:
    """The force of frictions that slide, beside that of other non-ideal constraints."""

    frictions: tuple[Friction, ...]
    constraints: tuple[Nonholonomic, ...]  # with the functions of the system
    ideal: Callable[..., Any] | None  # the force of the system without friction
    count: int  # equations of gaps and frictions
    states: int = 0  # of first order, on which no force acts

    @property
    def is_linear(self) -> bool:
        """Whether the force is a linear function of the multipliers."""
        return self.ideal is None and all(f.rows is None for f in self.frictions)

    def read(self, count: int) -> tuple[int, ...] | None:
        """Which of so many multipliers the force depends on; None if on any."""
        if self.ideal is not None:
            return None
        of_gaps = {count - self.count + f.gap for f in self.frictions if f.gap is not None}
        return tuple(sorted(of_gaps.union(*(range(*f.rows) for f in self.frictions if f.rows))))

    def __call__(
        self, q: Array, v: Array, multipliers: Array, t: Array, params: RunParams
    ) -> Array:
        """The force on the coordinates, (n,)."""
        slip, pull = jax.vjp(lambda v: self.slip_at(v, q, t, params), v)
        rubbing = Rubbing.at(self.frictions, params, multipliers, self.count, t, slip)
        (force,) = pull(-rubbing.pull)
        force = force[: force.size - self.states]
        if self.ideal is None:
            return force
        return force + self.ideal(q, v, multipliers[: -self.count], t, params)

    @property
    def discs(self) -> tuple[int, ...]:
        return discs_of(self.frictions)

    def slip_at(self, v: Array, q: Array, t: Array, params: RunParams) -> Float[Array, " F"]:
        """The slip velocities, given the rates of the coordinates."""
        return jnp.stack([c.fn(q, v, t, params) for c in self.constraints])

    def in_step(
        self, scheme: Any, q: Array, v: Array, t: Array, h: Array, params: RunParams
    ) -> RunParams:
        """The parameters of a step, with the directions of slips in space that are slow in it.

        With accelerations W x + r a slip w has that of w / h + W x + r, with the x in its disc that
        makes it least, and turns as that does with the loads of both ends of the step. If it stops
        within about a step, its direction is that of x = -W^-1 (w / tau + r), which takes it to
        zero in a time tau with its whole limit.
        """
        if not self.discs:
            return params
        system, size = scheme.system, jnp.where(h == 0, 1.0, jnp.abs(h))

        def loads(q: Array, v: Array, t: Array, params: RunParams) -> tuple[Array, ...]:
            eom, law = scheme.law(q, v, t, params)
            slip = self.slip_at(system.dynamics.speeds(q, v, t, params), q, t, params)
            multipliers = law.multipliers
            if self.count > len(self.frictions):
                multipliers = least_norm(eom.A, multipliers)
            rubbing = Rubbing.at(self.frictions, params, multipliers, self.count, t, slip)
            rows = [c.rows(q, v, t, params) for c in self.constraints]
            A, b = (jnp.concatenate(x) for x in zip(*rows, strict=True))
            W, _ = compliance(metric_mass(system, q, v, t, params), eom.A, A)
            limit = rubbing.limits[1] * rubbing.normal
            x = -rubbing.pull
            return W, matvec(A, law.qdd) - b - matvec(W, x), limit, slip, x, law.qdd

        speeds = system.dynamics.speeds(q, v, t, params)
        if len(self.discs) > 1:
            axes, late, is_slow = self._joint_axes(loads, (q, v, t), speeds, h, params)
            turns = jnp.where(is_slow[:, None], late - axes, 0.0) / size * jnp.sign(h)
            return replace(params, axes=(axes, turns, t))
        W, r, limit, slip, x, qdd = loads(q, v, t, params)
        r_end = loads(q + h * speeds, v + h * qdd, t + h, params)[1]
        pair, s = slice(self.discs[0], self.discs[0] + 2), limit[self.discs[0]]
        M, own = W[pair, pair], x[pair]

        def axis(r: Array) -> tuple[Array, Array, Array]:
            free = (r + matvec(W, x))[pair] - matvec(M, own)
            usual = -own / jnp.where(s > 0, s, 1.0)
            return _slow_axis(M, free, slip[pair], s, usual, size)

        (now, is_slow, stops), (late, _, _) = axis(r), axis(r_end)
        keeps = is_slow & own.any()
        turns = jnp.where(keeps & ~stops, (late - now) / size * jnp.sign(h), 0.0)
        return replace(params, axes=(jnp.where(keeps, now, 0.0)[None], turns[None], t))

    def _joint_axes(
        self, loads: Callable[..., tuple[Array, ...]], state: tuple[Array, Array, Array],
        speeds: Array, h: Array, params: RunParams,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """The directions of several slips at both ends of a step, and which of them are slow.

        Their forces minimize 1/2 x^T W x + (w / tau + r)^T x together, where tau is the step, or
        the time in which they stop. They change the normal forces of one another, and are asked
        again.
        """
        discs, (q, v, t), size = self.discs, state, jnp.where(h == 0, 1.0, jnp.abs(h))
        nothing = jnp.zeros((len(discs), 2), q.dtype)
        in_space = np.array([f.each == 2 for f in self.frictions])

        def refined(number: Array, last: tuple[Any, ...]) -> tuple[Any, ...]:
            axes, _, _, stops, rate, (rate0, share0), qdd = last
            ahead = jnp.where(number == _ROUNDS, h, 0.0)
            known = replace(params, axes=(axes, nothing, t + ahead))
            W, r, limit, w, x, new_qdd = loads(
                q + ahead * speeds, v + ahead * qdd, t + ahead, known
            )
            slides = both(x != 0, discs)
            box = slides & in_space
            # Slips that turn with a body have rates that no motion changes.
            goal = w * rate + r + matvec(W, jnp.where(in_space, 0.0, x))
            goal = jnp.where(box, goal, 0.0)
            S = jnp.where(box[:, None] & box[None], W, 0.0)
            goal = matvec(S, QR().factor(S).min_norm_solve(goal)[0])
            found = slip_forces(discs, W, goal, jnp.where(in_space, limit, 0.0), box)
            pairs, most = pairs_of(found, discs), pairs_of(limit, discs)[:, 0]
            force, on = norm(pairs), pairs_of(box, discs)[:, 0]
            share = jnp.where(on & (most > 0), force / jnp.where(most > 0, most, 1.0), 0.0).max()
            new = -pairs / jnp.where(most > 0, most, 1.0)[:, None]
            speed, lost = (norm(pairs_of(y, discs)) for y in (w, matvec(W, x)))
            # Those of a body that moves without turning stop together with their whole forces.
            start, change = (jnp.where(box, y, 0.0) for y in (w, r + matvec(W, x)))
            end = -(start @ change) / jnp.where(change.any(), change @ change, 1.0)
            left = start + end * change
            is_whole = (end > 0) & (end < _STOPS * size)
            is_whole &= left @ left <= _LEAST**2 * (start @ start)
            new = jnp.where(
                is_whole, -pairs_of(x, discs) / jnp.where(most > 0, most, 1.0)[:, None], new
            )
            # The time in which the largest force is the limit, by the secant method, which begins
            # with that of the limits without a load. A force that drives its slip is negative.
            share = jnp.where((pairs * pairs_of(w, discs)).sum() > 0, -share, share)
            stop = jnp.where(on & (lost > 0), speed / jnp.where(lost > 0, lost, 1.0), 0.0).max()
            longer = jnp.where(rate == rate0, 1.0, rate - rate0)
            rise = jnp.where(rate0 == 0, stop, (share - share0) / longer)
            rises = (rise > 0) & (rate != rate0)
            later = rises & (share < 1 - _LEAST)
            new_rate = rate + (1 - share) / jnp.where(rises, rise, 1.0)
            is_start = number < _ROUNDS
            stops |= is_start & (later | is_whole)
            new_rate = jnp.where(later, new_rate, jnp.where(stops, rate, 1 / size))
            is_slow = on & (stops | (speed < _SLOW * size * lost))
            now = (
                jnp.where(is_slow[:, None], new, axes), axes, is_slow, stops, new_rate,
                (rate, share), new_qdd,
            )  # fmt: skip
            at_end = axes, new, *last[2:]
            return jax.tree.map(lambda x, y: jnp.where(is_start, x, y), now, at_end)

        no, none = jnp.asarray(False), jnp.zeros(len(discs), bool)
        zero = jnp.zeros_like(size)
        start = nothing, nothing, none, no, 1 / (_STOPS * size), (zero, zero), v
        axes, end, is_slow, stops, *_ = jax.lax.fori_loop(0, _ROUNDS + 1, refined, start)
        return axes, jnp.where(stops, axes, end), is_slow

    def turned(self, system: System, q: Array, v: Array, t: Array, params: RunParams) -> RunParams:
        """The parameters of a step with the directions of slow slips at its end, or opposite."""
        assert params.axes is not None
        slip = self.slip_at(system.dynamics.speeds(q, v, t, params), q, t, params)
        axes, turns, _ = params.axes
        w = pairs_of(slip, self.discs)
        along = unit(jnp.where((w * axes).sum(1)[:, None] < 0, -w, w), axes)
        return replace(params, axes=(jnp.where(axes.any(1)[:, None], along, axes), 0 * turns, t))

    def settled(self, law: Law, eom: EquationsOfMotion, params: RunParams) -> Law:
        """The law in which what sticks has no acceleration of the size of round-off.

        Otherwise its velocities would change by round-off, and it would creep. The derivative
        stays.
        """
        count = len(self.frictions)
        sticks = params.active[-len(KINDS) * count :][:count].any()
        own = diagonal(eom.M)
        terms = jnp.abs(eom.Q) + matvec(jnp.abs(eom.A.T), jnp.abs(law.multipliers))
        terms = terms / jnp.where(own > 0, own, 1.0) + jnp.abs(law.free)
        small = jnp.abs(law.qdd) <= _ROUNDING * float(jnp.finfo(terms.dtype).eps) * terms
        noise = jnp.where(small & sticks, law.qdd, 0.0)
        return replace(law, qdd=law.qdd - jax.lax.stop_gradient(noise))

    def rubbing(self, system: System, multipliers: Array, state: RunState) -> Rubbing:
        """The frictions at a state, with the directions of forces."""
        q, v, t, params = state
        slip = self.slip_at(system.dynamics.speeds(q, v, t, params), q, t, params)
        return Rubbing.at(self.frictions, params, multipliers, self.count, t, slip)

    def margin(
        self, system: System, eom: EquationsOfMotion, multipliers: Float[Array, " m"],
        state: RunState,
    ) -> Margin:  # fmt: skip
        """The margin of the load of gaps and frictions, the last constraints of a system.

        The multipliers are any that the law finds; those in the margin are within their bounds.
        """
        (q, v, t, params), own = state, len(self.frictions)
        count, first = self.count - own, len(multipliers) - self.count
        rubbing = self.rubbing(system, multipliers, state)
        held, kinetic = rubbing.held(self.discs), rubbing.directions * rubbing.limits[1]
        each = jnp.where(rubbing.sticks, held, kinetic)
        slip_rows = jnp.concatenate([c.jacobian(q, v, t, params) for c in self.constraints])
        slope = jnp.concatenate([eom.A[first : first + count], slip_rows])
        W, _ = compliance(metric_mass(system, q, v, t, params), eom.A[:first], slope)
        by_gap = np.array([f.gap is not None for f in self.frictions])
        offset = each * jnp.where(by_gap, 0.0, rubbing.normal)
        pressed = each[:, None] * pressing(self.frictions, count, q.dtype)
        law = Coulomb(rubbing.sticks, pressed, offset, self.discs)
        of_gaps, alone = multipliers[first : first + count], rubbing.multipliers - rubbing.pull
        closed = params.active[-count - len(KINDS) * own :][:count]
        return margin(W, jnp.concatenate([of_gaps, alone]), closed, law)

    def forces(
        self, system: System, eom: EquationsOfMotion, multipliers: Array, state: RunState
    ) -> Array:
        """The multipliers within their bounds, with the forces of frictions that slide."""
        first = len(multipliers) - self.count
        found = self.margin(system, eom, multipliers, state).forces
        # What equations bear of a load that contacts share in another way.
        rest = matvec(eom.A[first:].T, multipliers[first:] - found)
        own = LDL().factor(eom.A[:first].T).min_norm_solve(rest)[0] if first else multipliers[:0]
        shared = jnp.concatenate([multipliers[:first] + own, found])
        rubbing = self.rubbing(system, multipliers, state)
        alone = rubbing.multipliers - rubbing.pull
        alone = jnp.concatenate([multipliers[: -len(self.frictions)], alone])
        return jnp.where(rubbing.sticks.any(), shared, alone)


def _slow_axis(
    M: Float[Array, "2 2"], r: Float[Array, "2"], w: Float[Array, "2"], s: Float[Array, ""],
    usual: Float[Array, "2"], h: Float[Array, ""],
) -> tuple[Float[Array, "2"], Bool[Array, ""], Bool[Array, ""]]:  # fmt: skip
    """The direction in a step of a slip w, whether it is slow, and whether it is about to stop."""
    # |M^-1 (w y + r)| = s with y = 1 / tau
    det = M[0, 0] * M[1, 1] - M[0, 1] * M[1, 0]
    is_regular = det > _REGULAR * jnp.trace(M) ** 2
    adjugate = jnp.trace(M) * jnp.eye(2, dtype=w.dtype) - M
    u, z = (matvec(adjugate, x) / jnp.where(is_regular, det, 1.0) for x in (w, r))
    a, half, c = u @ u, u @ z, z @ z - s * s
    root = half * half - a * c
    may = is_regular & (root > 0) & (a > 0)
    y = (jnp.sqrt(jnp.where(may, root, 1.0)) - half) / jnp.where(may, a, 1.0)
    stop = unit(jnp.where(may, u * y + z, -usual), usual)
    stops = may & (y * _STOPS * h >= 1) & (stop @ w >= TURNED * norm(w))
    is_slow = norm(w) < _SLOW * h * s * jnp.trace(M) / 2
    return jnp.where(stops, stop, unit(-disc_force(M, w / h + r, s), usual)), is_slow | stops, stops
