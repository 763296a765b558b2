"""Inequality constraints: gaps that close and open again, where bodies push and never pull.

A gap g(q, t, p) >= 0 has a multiplier lambda >= 0, the force that keeps it from closing further.
Among closed gaps that are at rest, the accelerations are those of Gauss' principle with
inequalities, the minimum of Gauss' function subject to

    A qdd = b,    A_g qdd >= b_g,    A_g = dg/dq,

which is a linear complementarity problem: lambda >= 0, A_g qdd - b_g >= 0, and in every gap one of
the two is zero (Moreau, "Quadratic programming in mechanics", SIAM J. Control 4, 1966, 153-158).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.system.constraints import AbstractConstraint, Holonomic, function_name
from jaxmech.system.dry_friction import Component, DryFriction
from jaxmech.utils.checks import require_both, require_distinct, require_function

MOST = 8  # gaps that can be closed at once


@dataclass(frozen=True, repr=False)
class Unilateral:
    """An inequality constraint on the positions: `gap(q, t, params) >= 0`, a contact or a stop.

    A gap that closes is an impact, by Newton's law: the rate of the gap after it is -restitution
    times that before it. All impulses push. A rebound slower than a rest speed does not take place:
    the gap then stays closed until its multiplier, the force that pushes the bodies apart, would
    become negative. `jaxmech.simulate` finds the times of both as it finds those of events, and
    `observe` has the multipliers by name.

    Args:
        gap: function that returns a scalar or a (k,) array: distances that cannot be negative [m],
            or angles [rad].
        restitution: a number from 0, for bodies that stay together, to 1, for an elastic impact; or
            a function of `params`, such as `lambda p: p["e"]`; one for all gaps, or a (k,) array.
        rest_speed: speed of a rebound below which the gap stays closed [m/s]; by default a
            millionth of the speeds of the motion, or 2.5e-3 of them in float32.
        friction: coefficient of Coulomb friction in a closed gap, or a pair (static, kinetic), or a
            function of `params` that returns either; see `DryFriction`. None for none. Its force is
            observed under the name of the gap and " friction".
        slip: the velocity along which the bodies slide [m/s], one for each gap, with friction only:
            `slip(q, v, t, params)`, or a coordinate `slip(q, t, params)`, whose rate it is. In
            space it has two components along orthogonal axes, (2,) for one gap or (k, 2).
        name: name in messages, events and reports; by default that of `gap`.

    Raises:
        TypeError: if `gap` is not a function or `name` not a string.
        ValueError: if a restitution is not from 0 to 1, a rest speed negative, or one of `friction`
            and `slip` missing.

    Example:
        A ball that is dropped comes to rest, after bounces that take
        (1 + e) / (1 - e) sqrt(2 h / g) in all:

        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> ball = jm.System(
        ...     lambda q, v, t, p: 0.5 * v @ v - p["g"] * q[0],
        ...     [jm.Unilateral(lambda q, t, p: q[0], restitution=0.5, name="floor")],
        ...     coordinates=("height",),
        ... )
        >>> ts = jnp.linspace(0.0, 2.0, 21)
        >>> sol = jm.simulate(ball, [1.0], [0.0], ts, {"g": 9.81})
        >>> print(jnp.abs(sol.q[14:, 0]).max() < 1e-12, round(3 * (2 / 9.81) ** 0.5, 3))
        True 1.355
    """

    gap: Callable[..., Any]
    restitution: float | Callable[[Any], Any] = 0.0
    rest_speed: float | None = None
    friction: Any = None
    slip: Callable[..., Any] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"Argument `name` must be a string, but is {self.name!r}.")
        require_function("gap", self.gap, "q, t, params")
        e, rest_speed, name = self.restitution, self.rest_speed, self.name or "gap"
        if not callable(e) and not 0 <= float(e) <= 1:
            raise ValueError(
                f"Argument `restitution` of {name!r} must be a number from 0 to 1, but is {e}; an "
                "elastic impact has 1, and bodies that stay together 0."
            )
        if rest_speed is not None and not 0 <= rest_speed < math.inf:
            raise ValueError(
                f"Argument `rest_speed` of {name!r} must be a speed from 0 on, but is "
                f"{rest_speed}; leave it out for a millionth of the speeds of the motion."
            )
        remedy = "a coefficient needs the velocity along which the bodies slide"
        pair = ("friction", self.friction is not None), ("slip", self.slip is not None)
        require_both(remedy, *pair)
        self.parts()

    def __repr__(self) -> str:
        return f"Unilateral({self.name!r})"

    def parts(self) -> tuple["Unilateral | DryFriction", ...]:
        """The gap without friction, and after it its friction, if there is any."""
        if self.friction is None or self.slip is None:
            return (self,)
        name = self.name or function_name(self.gap, "gap")
        static, kinetic = (_Coefficient(self.friction, k) for k in (0, 1))
        if not callable(self.friction):
            static, kinetic = static(None), kinetic(None)
        friction = DryFriction(self.slip, static, kinetic, normal=name, name=f"{name} friction")
        return replace(self, friction=None, slip=None), friction

    def mapped(self, wrap: Callable[[Callable[..., Any], str], Any]) -> "Unilateral":
        """The constraint whose gap is `wrap(fn, role)`."""
        return replace(self, gap=wrap(self.gap, f"constraint {self.name!r}"))

    @property
    def constraint(self) -> Holonomic:
        """The constraint that all gaps are zero."""
        return Holonomic(self.gap, name=self.name)

    def component(self, number: int, size: int) -> Holonomic:
        """The constraint that one of its gaps is zero."""
        name = self.name if size == 1 else f"{self.name}[{number}]"
        return Holonomic(Component(self.constraint, number), name=name)

    def values(self, q: Array, v: Array, t: Array, params: Any) -> list[Array]:
        """The gaps and their restitutions at a state."""
        gaps = self.constraint.value(q, t, params)
        return [gaps, self.restitutions(gaps.size, params, q.dtype)]

    def restitutions(self, size: int, params: Any, dtype: Any) -> Float[Array, " k"]:
        """The restitution of each of its gaps."""
        e = self.restitution(params) if callable(self.restitution) else self.restitution
        e = jnp.asarray(e, dtype)
        if e.shape not in ((), (1,), (size,)):
            raise ValueError(
                f"Argument `restitution` of {self.name!r} must be a number, or one for each of its "
                f"{size} gaps, but has shape {e.shape}."
            )
        return jnp.broadcast_to(e, (size,))


@dataclass(frozen=True)
class _Coefficient:
    """The static or the kinetic coefficient of a friction, which may have both in one number."""

    friction: Any
    number: int

    def __call__(self, params: Any) -> Any:
        both = self.friction(params) if callable(self.friction) else self.friction
        if isinstance(both, tuple):
            if len(both) != 2:
                raise ValueError(
                    "Argument `friction` must be a coefficient or a pair of the static and the "
                    f"kinetic one, but has {len(both)} entries."
                )
            return both[self.number]
        return both


def separated(
    constraints: Sequence[Any], unilateral: Sequence[Any]
) -> tuple[tuple[AbstractConstraint, ...], tuple[Unilateral | DryFriction, ...]]:
    """Equations and inequalities, the latter with names, from a sequence with both."""
    both: tuple[Any, ...] = (
        tuple(constraints) if isinstance(constraints, Iterable) else (constraints,)
    )
    kinds = Unilateral | DryFriction
    inequalities = [c for c in (*both, *unilateral) if isinstance(c, kinds)]
    with_names: list[Unilateral | DryFriction] = []
    for number, c in enumerate(inequalities, start=1):
        fn, default = (c.gap, "gap") if isinstance(c, Unilateral) else (c.velocity, "friction")
        c = c if c.name else replace(c, name=function_name(fn, f"{default}{number}"))
        with_names += c.parts() if isinstance(c, Unilateral) else (c,)
    require_distinct("constraints", tuple(c.name for c in with_names))
    return tuple(c for c in both if not isinstance(c, kinds)), tuple(with_names)


def require_no_gaps(system: Any) -> None:
    """Raise a ValueError where it would have to be known which gaps of a system are closed."""
    if system.unilateral:
        raise ValueError(
            f"Argument `system` must have no unilateral constraints or dry friction here, but has "
            f"{system.unilateral[0].name!r}; only a run decides which gaps are closed and what "
            "sticks, so use `simulate` and `observe`, or `dataclasses.replace(system, "
            "unilateral=())` for the motion without both."
        )


def require_restitutions(name: str, values: Any) -> None:
    """Raise a ValueError unless known restitutions of a constraint are from 0 to 1."""
    wrong = [float(e) for e in values.ravel() if not 0 <= e <= 1]
    if wrong:
        raise ValueError(
            f"Argument `restitution` of {name!r} must be from 0 to 1, but its function returned "
            f"{wrong[0]:g}; an elastic impact has 1, and bodies that stay together 0."
        )
