"""`Event`, a zero crossing of a function of the motion, and `Transition`, a change of the state."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.utils.checks import (
    argument_count,
    naming_missing,
    require_function,
    require_kind,
    require_positive_integer,
)


@dataclass(frozen=True)
class Transition:
    """A change of the state at an event: a jump, an impact, constraints switched on or off.

    They are applied in this order. Afterwards the velocities satisfy the constraints that are now
    active: the impulses of these constraints change the velocities as little as possible in the
    mass metric (Gauss' principle for impulses). With a restitution e, the function of the event
    must be a gap g(q, t, params); an impulse P along dg/dq reverses the rate of the gap:

        M (v+ - v-) = A^T Lambda + (dg/dq)^T P,    dg/dt+ = -e dg/dt-

    Where the gap is zero and starts to close, because of another event or at the start of the run,
    the impact occurs at once. Bodies that are pressed together at rest need a constraint that is
    switched on; with a restitution alone the run ends with the status `CONTACT_AT_REST`.

    Args:
        fn: `fn(q, v, t, params)`, which returns the new q and v.
        restitution: e, a number or a function of `params`, such as `lambda p: p["e"]`.
        on: names of constraints that are switched on. The position at the event must satisfy them;
            otherwise the trajectory ends with the status `NOT_ON_CONSTRAINT`. A `Unilateral`
            constraint is put in place, closed or open, and a `DryFriction` sticks or slides.
        off: names of constraints that are switched off, such as a rope that is cut.

    An event whose transition would not switch any constraint does not occur.

    Raises:
        TypeError: if `fn` is not a function, or a name is not a string.
        ValueError: if no change is specified, a number e is negative or not finite, or a constraint
            is switched both on and off.

    Example:
        >>> Transition(restitution=0.8)
        Transition(fn=None, restitution=0.8, on=(), off=())
    """

    fn: Callable[..., Any] | None = None
    restitution: float | Callable[[Any], Any] | None = None
    on: str | Sequence[str] = ()
    off: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.fn is not None:
            require_function("fn", self.fn)
        e = self.restitution
        if e is not None and not callable(e) and not 0 <= float(e) < math.inf:
            raise ValueError(
                f"Argument `restitution` must be a finite number from 0 on, but is {e}; an elastic "
                "impact has 1."
            )
        for argument in ("on", "off"):
            object.__setattr__(self, argument, names_of(argument, getattr(self, argument)))
        repeated = set(self.on) & set(self.off)
        if repeated:
            raise ValueError(
                f"Argument `off` must not name what `on` names, but both name {min(repeated)!r}."
            )
        if self.fn is None and e is None and not self.switches:
            raise ValueError(
                "Argument `fn`, `restitution`, `on` or `off` must be given, but none is; for an "
                "event that changes nothing, leave out the transition."
            )

    @property
    def switches(self) -> tuple[str, ...]:
        return (*self.on, *self.off)


def names_of(argument: str, names: Any) -> tuple[str, ...]:
    """Names of constraints as a tuple, from one of them or several."""
    if isinstance(names, str):
        return (names,)
    sequence: tuple[Any, ...] = tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in sequence):
        raise TypeError(f"Argument `{argument}` must hold names of constraints, but is {names!r}.")
    return tuple(dict.fromkeys(sequence))


@dataclass(frozen=True)
class Event:
    """A zero crossing of a function of the motion.

    Args:
        fn: `fn(q, v, t, params)`, a scalar that changes sign at the event; or `fn(q, v, t, params,
            reactions)`, where `reactions` is the `Observation` of `observe` at that time.
            For example, `reactions.multipliers["hoop"][0]` changes sign where a bead leaves its
            hoop.
        direction: 1 for crossings from negative to positive, -1 for crossings from positive to
            negative, 0 for both. In a run backwards in time, the crossing is from the sign at the
            later time to that at the earlier one.
        terminal: whether the trajectory ends there, with the status `STOPPED`.
        transition: a change of the state at the event, such as an impact; None for no change.
        name: name in `Solution.events`; by default that of `fn`.
        keep: the number of occurrences whose times and states are stored; all are counted.

    Raises:
        TypeError: if `fn` is not a function or `name` not a string, or another argument is of the
            wrong kind.
        ValueError: if `fn` does not have four or five arguments, `direction` is not -1, 0 or 1,
            `keep` is not a positive integer, or a terminal event has a transition.

    Example:
        >>> Event(lambda q, v, t, p: q[1], direction=-1, terminal=True, name="lands")
        Event('lands')
    """

    fn: Callable[..., Any]
    direction: int = 0
    terminal: bool = False
    transition: Transition | None = None
    name: str = ""
    keep: int = 8

    def __post_init__(self) -> None:
        require_function("fn", self.fn)
        if not isinstance(self.name, str):
            raise TypeError(f"Argument `name` must be a string, but is {self.name!r}.")
        if self.direction not in (-1, 0, 1):
            raise ValueError(
                f"Argument `direction` must be -1, 0 or 1, but is {self.direction!r}; 1 is for "
                "changes from negative to positive, -1 for the others."
            )
        count = argument_count(self.fn)
        if count not in (4, 5):
            raise ValueError(
                "Argument `fn` must be a function of q, v, t and params, or of these and "
                f"reactions, but takes {count} argument{'s' * (count != 1)}."
            )
        require_positive_integer("keep", self.keep, "it is the number of occurrences to keep")
        if self.transition is not None:
            require_kind("transition", self.transition, Transition, "Transition(restitution=0.9)")
            if self.terminal:
                raise ValueError(
                    "Argument `transition` must be None for a terminal event, after which the "
                    "state is held constant; leave out one of the two."
                )
            if self.transition.restitution is not None and self.needs_reactions:
                raise ValueError(
                    "Argument `fn` must be a gap that depends on q, t and params only where the "
                    "transition has a restitution, but takes reactions."
                )

    def __repr__(self) -> str:
        return f"Event({self.name!r})"

    @property
    def needs_reactions(self) -> bool:
        return argument_count(self.fn) == 5

    @property
    def interrupts(self) -> bool:
        """Whether the motion is another one after the event."""
        return self.terminal or self.transition is not None

    @property
    def is_contact(self) -> bool:
        """Whether the transition is that of bodies that meet: an impact, or a new constraint."""
        transition = self.transition
        return transition is not None and (
            transition.restitution is not None or bool(transition.on)
        )

    @property
    def kept(self) -> int:
        """The number of occurrences whose times and states are kept."""
        return 1 if self.terminal else self.keep

    def value(self, q: Array, v: Array, t: Array, params: Any, reactions: Any = None) -> Array:
        """The value of the function, a scalar in the type of q."""
        arguments = (reactions,) if self.needs_reactions else ()
        with naming_missing(f"event {self.name!r}", params):
            value = self.fn(q, v, t, params, *arguments)
        if value is None:
            raise ValueError(f"Event {self.name!r} returned None; add a `return` to its function.")
        value = jnp.asarray(value)
        if value.shape != ():
            raise ValueError(
                f"Event {self.name!r} must return a scalar, but returned shape {value.shape}; "
                "give one event for each component."
            )
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise TypeError(
                f"Event {self.name!r} must return a real number that crosses zero, but returned "
                f"{value.dtype}; instead of a comparison, return the difference of both sides."
            )
        return value.astype(q.dtype)
