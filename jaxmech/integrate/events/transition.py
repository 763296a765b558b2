"""`Transition`: a change of the state at an event."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxmech.utils.checks import require_function


@dataclass(frozen=True)
class Transition:
    """A change of the state at an event: a jump, an impact, constraints switched on or off.

    They are applied in this order. Afterwards the velocities satisfy the constraints that are now
    active: the impulses of these constraints change the velocities as little as possible in the
    mass metric (Gauss' principle for impulses). With a restitution e, the function of the event
    must be a gap g(q, t, params); an impulse P along dg/dq reverses the rate of the gap:

        M (v+ - v-) = A^T Lambda + (dg/dq)^T P,    dg/dt+ = -e dg/dt-

    Args:
        fn: `fn(q, v, t, params)`, which returns the new q and v.
        restitution: e, a number or a function of `params`, such as `lambda p: p["e"]`.
        on: names of constraints that are switched on. The position at the event must satisfy them;
            otherwise the trajectory ends with the status `NOT_ON_CONSTRAINT`.
        off: names of constraints that are switched off.

    An event whose transition would not switch any constraint does not occur.

    Raises:
        TypeError: `fn` is not a function, or a name is not a string.
        ValueError: no change is specified, a number e is negative, or a constraint is switched both
            on and off.

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
        if e is not None and not callable(e) and not float(e) >= 0:
            raise ValueError(f"Argument `restitution` must not be negative, but is {e}.")
        for argument in ("on", "off"):
            object.__setattr__(self, argument, names_of(argument, getattr(self, argument)))
        both = set(self.on) & set(self.off)
        if both:
            raise ValueError(
                f"Argument `off` must not name what `on` names, but both name {min(both)!r}."
            )
        if self.fn is None and e is None and not self.switches:
            raise ValueError(
                "Argument `fn`, `restitution`, `on` or `off` must be given, but none is; for an "
                "event that changes nothing, leave out the transition."
            )

    @property
    def switches(self) -> tuple[str, ...]:
        """The constraints that are switched."""
        return (*self.on, *self.off)


def names_of(argument: str, names: Any) -> tuple[str, ...]:
    """Names of constraints as a tuple, from one of them or several."""
    if isinstance(names, str):
        return (names,)
    given: tuple[Any, ...] = tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in given):
        raise TypeError(f"Argument `{argument}` must hold names of constraints, but is {names!r}.")
    return tuple(dict.fromkeys(given))
