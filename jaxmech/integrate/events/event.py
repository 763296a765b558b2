"""`Event`: a zero crossing of a function of the motion."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate.events.transition import Transition
from jaxmech.utils.checks import (
    naming_missing,
    require_function,
    require_kind,
    require_positive_integer,
)


@dataclass(frozen=True)
class Event:
    """A zero crossing of a function of the motion.

    Args:
        fn: `fn(q, v, t, params)`, a scalar that changes sign at the event; or `fn(q, v, t, params,
            reactions)`, where `reactions` is the `Observation` of `observe` at that time.
            For example, `reactions.multipliers["hoop"][0]` changes sign where a bead leaves its
            hoop.
        direction: 1 for crossings from negative to positive, -1 for crossings from positive to
            negative, 0 for both. In a run backwards in time, the sign at the later time is the one
            before the crossing.
        terminal: whether the trajectory ends there, with the status `STOPPED`.
        transition: a change of the state at the event, such as an impact; None for no change.
        name: name in `Solution.events`; by default that of `fn`.
        keep: the number of occurrences whose times and states are stored; all are counted.

    Raises:
        TypeError: `fn` is not a function or `name` not a string, or another argument is of the
            wrong kind.
        ValueError: `fn` does not have four or five arguments, `direction` is not -1, 0 or 1, `keep`
            is not a positive integer, or a terminal event has a transition.

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
        _require_signature(self.fn)
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
        """Whether the function has an argument for reactions."""
        return _arguments(self.fn) == 5

    @property
    def cuts(self) -> bool:
        """Whether the motion is another one after the event."""
        return self.terminal or self.transition is not None

    @property
    def kept(self) -> int:
        """The number of occurrences whose times and states are kept."""
        return 1 if self.terminal else self.keep

    def value(self, q: Array, v: Array, t: Array, params: Any, reactions: Any = None) -> Array:
        """The value of the function, a scalar in the type of q."""
        more = (reactions,) if self.needs_reactions else ()
        with naming_missing(f"event {self.name!r}", params):
            value = self.fn(q, v, t, params, *more)
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


def _arguments(fn: Callable[..., Any]) -> int:
    """The number of arguments without a default."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some builtins have none
        return 4
    return sum(p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD for p in parameters)


def _require_signature(fn: Callable[..., Any]) -> None:
    count = _arguments(fn)
    if count not in (4, 5):
        raise ValueError(
            "Argument `fn` must be a function of q, v, t and params, or of these and reactions, "
            f"but takes {count} arguments."
        )
