"""Dry friction that sticks, by Coulomb's law, with or without a constraint that presses.

A slip velocity w(q, v, t, p) has a friction force lambda along dw/dv. With the normal force N,

    sticking    w = 0,     |lambda| <= static N,     lambda is the multiplier of w = 0
    sliding     w != 0,    lambda = -kinetic N sign(w)

so that a body at rest stays exactly where it is (Coulomb, 1785; Glocker, Set-Valued Force Laws,
2001, chapter 5). Without a constraint that presses, N = 1, and static and kinetic are forces.

In space a slip has two components, and the bound is a disc: |lambda| <= static N while both are
zero, and lambda = -kinetic N w / |w| against the slip.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.system.constraints import AbstractConstraint, Nonholonomic, rate
from jaxmech.utils.checks import argument_count, require_function


@dataclass(frozen=True, repr=False)
class DryFriction:
    """Coulomb friction along a velocity: it holds like a constraint, until it slides.

    While the velocity w is zero and a force of at most `static` can keep it so, w = 0 is a
    constraint; nothing creeps. A larger load makes it slide, against a force `kinetic`, until w is
    zero again. In space w has two components, and the force is against the slip, wherever it turns.
    `jaxmech.simulate` finds the times of both as it finds those of events, and
    `observe` has the force, positive along w, under the name of the friction.

    Args:
        velocity: function `velocity(q, v, t, params)` that returns a scalar or a (k,) array, the
            slip velocity [m/s or rad/s], affine in v; or a coordinate, `coordinate(q, t, params)`,
            whose rate it is. A (k, 2) array has k slips of two components along orthogonal axes;
            pressed by one gap, so has a (2,) array.
        static: largest force while it sticks [N or N m]; with `normal` the coefficient of friction.
            A number, a function of `params`, or one for each of k velocities or slips.
        kinetic: force while it slides, at most `static`; by default the same.
        normal: name of a constraint or a `Unilateral` whose multiplier presses the bodies together;
            of a constraint with several equations, such as a joint, the norm of its multipliers.
        name: name in messages, events and reports; by default that of `velocity`.

    Raises:
        TypeError: if `velocity` is not a function, or a name not a string.
        ValueError: if a number is negative or `kinetic` above `static`.

    Example:
        A block on a moving belt sticks, is pulled back by its spring, and sticks again:

        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> def slip(q, v, t, p):
        ...     return v[0] - 0.1
        >>> belt = jm.DryFriction(slip, static=2.0, kinetic=1.0, name="belt")
        >>> block = jm.System(
        ...     lambda q, v, t, p: 0.5 * v @ v - 50.0 * q @ q, [belt], coordinates=("x",)
        ... )
        >>> sol = jm.simulate(block, [0.0], [0.1], jnp.linspace(0.0, 2.0, 21))
        >>> print(sol.events["belt slips"].t[:2].round(6), sol.events["belt stops"].t[:2].round(6))
        [0.2      0.871239] [0.671239 1.342478]
    """

    velocity: Callable[..., Any]
    static: float | Callable[[Any], Any]
    kinetic: float | Callable[[Any], Any] | None = None
    normal: str | None = None
    name: str = ""

    def __post_init__(self) -> None:
        for argument in ("name", "normal"):
            value = getattr(self, argument)
            if not isinstance(value, str) and (argument == "name" or value is not None):
                raise TypeError(f"Argument `{argument}` must be a string, but is {value!r}.")
        if callable(self.velocity) and argument_count(self.velocity) == 3:
            object.__setattr__(self, "velocity", CoordinateRate(self.velocity))
        require_function("velocity", self.velocity, "q, v, t, params")
        for argument in ("static", "kinetic"):
            value = getattr(self, argument)
            if value is not None and not callable(value):
                require_not_negative(argument, self.name, value)
        if isinstance(self.static, int | float) and isinstance(self.kinetic, int | float):
            _require_order(self.name, self.static, self.kinetic)

    def __repr__(self) -> str:
        return f"DryFriction({self.name!r})"

    def mapped(self, wrap: Callable[[Callable[..., Any], str], Any]) -> "DryFriction":
        """The friction whose velocity is `wrap(fn, role)`."""
        return replace(self, velocity=wrap(self.velocity, f"friction {self.name!r}"))

    @property
    def constraint(self) -> Nonholonomic:
        """The constraint that all velocities are zero."""
        return _Slip(self.velocity, name=self.name)

    def component(self, number: int, size: int, each: int = 1) -> Nonholonomic:
        """The constraint that one of its velocities is zero; a slip has `each` one or two."""
        slip, side = divmod(number, each)
        name = self.name if size == each else f"{self.name}[{slip}]"
        return Nonholonomic(
            Component(self.constraint, number), name=f"{name} across" if side else name
        )

    def is_in_space(self, q: Array, v: Array, t: Array, params: Any) -> bool:
        """Whether its slips are stated with two components each."""
        c = self.constraint
        shape = jax.eval_shape(
            lambda *state: jnp.asarray(c.fn(*c.in_speeds(*state))), q, v, t, params
        )
        return len(shape.shape) == 2

    def values(self, q: Array, v: Array, t: Array, params: Any) -> list[Array]:
        """The velocities and both limits at a state; v are the rates of the coordinates."""
        w = self.constraint.value(q, v, t, params)
        each = 2 if self.is_in_space(q, v, t, params) else 1
        return [w, self.limits("static", w.size, params, q.dtype, each),
                self.limits("kinetic", w.size, params, q.dtype, each)]  # fmt: skip

    def limits(
        self, argument: str, size: int, params: Any, dtype: Any, each: int = 1
    ) -> Float[Array, " k"]:
        """`static` or `kinetic` for each of its velocities; a slip has `each` one or two."""
        stated = self.static if argument == "static" or self.kinetic is None else self.kinetic
        value = jnp.asarray(stated(params) if callable(stated) else stated, dtype)
        count, kind = (size, "velocities") if each == 1 else (size // each, "slips")
        if value.shape not in ((), (1,), (count,)):
            raise ValueError(
                f"Argument `{argument}` of {self.name!r} must be a number, or one for each of its "
                f"{count} {kind}, but has shape {value.shape}."
            )
        value = jnp.broadcast_to(value, (count,))
        return value if each == 1 else jnp.repeat(value, each)


class _Slip(Nonholonomic):
    """The constraint that slip velocities are zero, (k,) or (k, 2)."""

    pairs = True


@dataclass(frozen=True)
class CoordinateRate:
    """The rate of a function of q, t and params."""

    coordinate: Callable[..., Any]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The rate at a state."""
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        return rate(lambda q, t: jnp.asarray(self.coordinate(q, t, params)), q, v, t)


@dataclass(frozen=True)
class Component:
    """One component of the value of a constraint."""

    constraint: AbstractConstraint
    number: int

    def __call__(self, *state: Any) -> Array:
        """The component at a state."""
        return self.constraint.value(*state)[self.number]


def require_not_negative(argument: str, name: str, value: Any) -> None:
    """Raise a ValueError if a limit of a friction is negative or not finite."""
    values = np.ravel(np.asarray(value, float))
    for wrong in values[~(np.isfinite(values) & (values >= 0))][:1]:
        raise ValueError(
            f"Argument `{argument}` of {name!r} must be finite and not negative, but is {wrong:g}."
        )


def _require_order(name: str, static: float, kinetic: float) -> None:
    if kinetic > static:
        raise ValueError(
            f"Argument `kinetic` of {name!r} must not be above `static`, but is {kinetic:g}, and "
            f"`static` is {static:g}; friction that grows where bodies slide cannot stick."
        )


def require_limits(friction: DryFriction, static: Any, kinetic: Any) -> None:
    """Raise a ValueError unless known limits fit."""
    for argument, values in (("static", static), ("kinetic", kinetic)):
        if values is not None:
            require_not_negative(argument, friction.name, values)
    if static is not None and kinetic is not None:
        for s, k in zip(static.ravel(), kinetic.ravel(), strict=True):
            _require_order(friction.name, float(s), float(k))
