"""Functions of a system that read the outputs of its controllers from the states.

`controllers` are always a `ControllerSet`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate import Event


@dataclass(frozen=True)
class OutputReader:
    """A function of the system without controllers, in one that has them.

    Attributes:
        fn: the function, of q, of further vectors of that kind, and of others, t and parameters.
        vectors: number of vectors after q: v, and an acceleration. Without v no output is known.
    """

    fn: Callable[..., Any]
    controllers: Any
    vectors: int = 1

    def __call__(self, q: Array, *args: Any) -> Any:
        """The value of the function, with the outputs among the parameters."""
        *others, params = args
        vectors = [q, *others[: self.vectors]]
        if self.vectors:
            params = self.controllers.read(vectors[1], params)
        bare = [self.controllers.without_states(x) for x in vectors]
        return self.fn(*bare, *others[self.vectors :], params)


@dataclass(frozen=True)
class ReadingEvent:
    """The function of an event or a sensor."""

    fn: Callable[..., Any]
    controllers: Any

    def __call__(self, q: Array, v: Array, t: Array, params: Any) -> Any:
        """The value of the function, with the outputs among the parameters."""
        return OutputReader(self.fn, self.controllers)(q, v, t, params)


@dataclass(frozen=True)
class ReadingReactions:
    """The function of an event that has an argument for reactions."""

    fn: Callable[..., Any]
    controllers: Any

    def __call__(self, q: Array, v: Array, t: Array, params: Any, reactions: Any) -> Any:
        """The value of the function, with the outputs among the parameters."""
        bare = map(self.controllers.without_states, (q, v))
        return self.fn(*bare, t, self.controllers.read(v, params), reactions)


@dataclass(frozen=True)
class ReadingTransition:
    """The transition of an event, which leaves the states of controllers as they are."""

    fn: Callable[..., Any]
    controllers: Any

    def __call__(self, q: Array, v: Array, t: Array, params: Any) -> Any:
        """The state after the transition."""
        moved = OutputReader(self.fn, self.controllers)(q, v, t, params)
        if not isinstance(moved, tuple) or len(moved) != 2:
            return moved  # the error is that of every transition
        before = zip(moved, (q, v), strict=True)
        return tuple(
            jnp.concatenate([jnp.asarray(new), old[len(self.controllers.without_states(old)) :]])
            for new, old in before
        )


@dataclass(frozen=True)
class HeldRates:
    """The rates of the states: those of the system itself, and zero for those of controllers."""

    fn: Callable[..., Any] | None
    count: int
    controllers: Any

    def __call__(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The rates of all states."""
        held = jnp.zeros(self.controllers.size, v.dtype)
        if self.fn is None:
            return held
        rates = jnp.asarray(OutputReader(self.fn, self.controllers)(q, v, t, params))
        return jnp.concatenate([rates.reshape(self.count), held])


@dataclass(frozen=True)
class WholeState:
    """A function of the whole state, with the states of controllers."""

    fn: Callable[..., Any]

    def __call__(self, q: Array, v: Array, t: Array, params: Any) -> Any:
        """The value of the function."""
        return self.fn(q, v, t, params)


def reading_event(event: Event, controllers: Any) -> Event:
    """An event whose functions read the outputs of controllers, also if they do already."""
    transition = event.transition
    change = transition and transition.fn
    if transition and change and not isinstance(change, ReadingTransition):
        transition = replace(transition, fn=ReadingTransition(change, controllers))
    return replace(event, fn=reading_outputs(event.fn, controllers), transition=transition)


def reading_outputs(fn: Callable[..., Any], controllers: Any) -> Callable[..., Any]:
    """A function of q, v, t, parameters and maybe reactions that reads outputs."""
    if isinstance(fn, ReadingEvent | ReadingReactions | WholeState):
        return fn
    has_reactions = len(inspect.signature(fn).parameters) > 4
    return (ReadingReactions if has_reactions else ReadingEvent)(fn, controllers)
