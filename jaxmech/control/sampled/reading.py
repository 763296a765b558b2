"""Functions of a system that read the outputs of its controllers from the states."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate import Event


@dataclass(frozen=True)
class Reading:
    """A function of the system without controllers, in one that has them.

    Attributes:
        fn: the function.
        controllers: the `ControllerSet`.
        vectors: how many of its arguments, the first ones, have entries of controllers: q, v and
            maybe an acceleration. Without v no output is known.
        params: which of its arguments are the parameters, among which it finds the outputs.
    """

    fn: Callable[..., Any]
    controllers: Any
    vectors: int = 2
    params: int = -1

    def __call__(self, *args: Any) -> Any:
        """The value of the function."""
        given = list(args)
        if self.vectors > 1:
            given[self.params] = self.controllers.read(args[1], args[self.params])
        given[: self.vectors] = (self.controllers.bare(x) for x in args[: self.vectors])
        return self.fn(*given)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.fn)


@dataclass(frozen=True)
class WholeState(Reading):
    """A function of the whole state, with the states of controllers."""

    controllers: Any = None
    vectors: int = 0


@dataclass(frozen=True)
class ReadingTransition(Reading):
    """The transition of an event, which leaves the states of controllers as they are."""

    def __call__(self, *args: Any) -> Any:
        """The state after the transition."""
        moved = super().__call__(*args)
        if not isinstance(moved, tuple) or len(moved) != 2:
            return moved  # the error is that of every transition
        return tuple(
            jnp.concatenate([jnp.asarray(new), old[old.size - self.controllers.size :]])
            for new, old in zip(moved, args, strict=False)
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
        return jnp.concatenate([jnp.reshape(self.fn(q, v, t, params), self.count), held])


def reading_event(event: Event, controllers: Any) -> Event:
    """An event whose functions read the outputs of controllers, also if they do already."""
    transition = event.transition
    if transition and transition.fn and not isinstance(transition.fn, Reading):
        transition = replace(transition, fn=ReadingTransition(transition.fn, controllers))
    return replace(event, fn=reading_outputs(event.fn, controllers), transition=transition)


def reading_outputs(fn: Callable[..., Any], controllers: Any) -> Callable[..., Any]:
    """A function of q, v, t, parameters and maybe reactions that reads outputs."""
    return fn if isinstance(fn, Reading) else Reading(fn, controllers, params=3)
