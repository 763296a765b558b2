"""Systems with some coordinates held by forces, which count as reactions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Array

from jaxmech.constraints import Holonomic
from jaxmech.system import System


@dataclass(frozen=True)
class _WithFirst:
    """A function of the system applied to the first of a pair of parameters."""

    fn: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args[:-1], args[-1][0])


@dataclass(frozen=True)
class _Hold:
    """The constraint q[entry] - values[number], with the values as the second of a pair."""

    entry: int
    number: int

    def __call__(self, q: Array, t: Any, params: Any) -> Array:
        return q[self.entry] - params[1][self.number]


def held(system: System, names: Sequence[str]) -> System:
    """The system with `fixed x` for each named coordinate x; params become (params, values).

    Example:
        >>> import jaxmech as jm
        >>> held(jm.models.pendulum().system, ["x2"])
        System(coordinates=('x1', 'x2'), constraints=(Holonomic('rod'), Holonomic('fixed x2')))
    """
    if not names:
        return system
    indices = [list(system.coordinates).index(name) for name in names]
    constraints = [replace(c, fn=_WithFirst(c.fn)) for c in system.constraints]
    extra = [
        Holonomic(_Hold(entry, number), f"fixed {name}")
        for number, (entry, name) in enumerate(zip(indices, names, strict=True))
    ]

    def first(fn: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return None if fn is None else _WithFirst(fn)

    return System(
        _WithFirst(system.lagrangian),
        [*constraints, *extra],
        first(system.force),
        coordinates=system.coordinates,
        nonideal=first(system.nonideal),
        states=system.states,
        rates=first(system.rates),
    )
