"""Kinds of the arguments of parts, which are declared as fields of dataclasses.

A kind checks and converts a value, and words the error. `check_fields` applies the kinds of all
fields, in the order in which they are declared.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, cast, get_type_hints

from jaxmech.parts.values import direction, non_negative, number, positive, vector
from jaxmech.utils.text import capital


def require_no_axes(part: str, **axes: Any) -> None:
    """Raise for an axis that is given in the plane."""
    for argument, axis in axes.items():
        if axis is not None:
            raise ValueError(
                f"{capital(part)} must have no `{argument}` in the plane, where all axes are at "
                "right angles to it; leave it out."
            )


Check = Callable[[str, str, Any, int], Any]  # of a part, an argument, its value and the dimension


@dataclass(frozen=True, repr=False)
class Kind:
    """A check under the name by which signatures show it."""

    name: str
    check: Check

    def __repr__(self) -> str:
        return self.name


def _in_space(part: str, argument: str, value: Any, size: int) -> Any:
    if size == 2:
        return require_no_axes(part, **{argument: value})
    if value is None:
        raise ValueError(
            f"{capital(part)} must have an `{argument}` in space; write the direction on the first "
            f"body, such as {argument}=(0, 0, 1)."
        )
    return direction(part, argument, value, 3)


def _turn_in_space(part: str, argument: str, value: Any, size: int) -> Any:
    if size == 2:
        return require_no_axes(part, **{argument: value})
    return None if value is None else direction(part, argument, value, 4)


def _attitude(part: str, argument: str, value: Any, size: int) -> Any:
    if size == 2:
        return number(part, argument, 0.0 if value is None else value)
    return (1.0, 0.0, 0.0, 0.0) if value is None else direction(part, argument, value, 4)


def _single(check: Callable[[str, str, Any], Any]) -> Check:
    return lambda part, name, value, size: check(part, name, value)


def _maybe(check: Callable[[str, str, Any], Any]) -> Check:
    return lambda part, name, value, size: None if value is None else check(part, name, value)


def _coefficients(part: str, argument: str, value: Any, size: int) -> Any:
    return vector(part, argument, value, 3 if size == 2 else 6)


# Each is a plain number, the name of a parameter or a function of (t, params); or several of them.
Point = Any  # on a body, in a field `at_a` or `at_b`; zeros on a point mass
Number = Annotated[Any, Kind("Number", _single(number))]
Positive = Annotated[Any, Kind("Positive", _single(positive))]
NonNegative = Annotated[Any, Kind("NonNegative", _single(non_negative))]
MaybePositive = Annotated[Any, Kind("MaybePositive", _maybe(positive))]
MaybeNonNegative = Annotated[Any, Kind("MaybeNonNegative", _maybe(non_negative))]
Direction = Annotated[Any, Kind("Direction", direction)]  # of any length
# in space only: a direction; a quaternion or None
Axis = Annotated[Any, Kind("Axis", _in_space)]
Turn = Annotated[Any, Kind("Turn", _turn_in_space)]
# an angle in the plane, a quaternion in space; None for the attitude of the other body
Attitude = Annotated[Any, Kind("Attitude", _attitude)]
# one along and one about each axis
Coefficients = Annotated[Any, Kind("Coefficients", _coefficients)]


def same_as(name: str) -> Any:
    """The default of a field that is that of another one."""
    return field(default=None, metadata={"same as": name})


def check_fields(owner: Any, part: str, size: int, /, **values: Any) -> None:
    """Set some fields of a frozen part, and check and convert the others by their kinds."""
    for name, check in _checks(cast(Any, type(owner))):
        value = getattr(owner, name)
        other = owner.__dataclass_fields__[name].metadata.get("same as", "")
        is_same = value is None and other
        values[name] = values[other] if is_same else check(part, name, value, size)
    for name, value in values.items():
        object.__setattr__(owner, name, value)


@cache
def _checks(owner: Any) -> tuple[tuple[str, Check], ...]:
    """The fields with a kind."""
    hints = get_type_hints(owner, include_extras=True)
    kinds = ((name, x) for name in hints for x in getattr(hints[name], "__metadata__", ()))
    return tuple((name, kind.check) for name, kind in kinds if isinstance(kind, Kind))
