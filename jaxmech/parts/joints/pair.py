"""`PairJoint`: a joint between a point of one body and a point of another.

The kinds of its fields say what they may be. They are checked, and converted, where a joint is
made, in the order in which they are declared.
"""

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar, cast, get_type_hints

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.joints.checks import partners, point, require_no_axes
from jaxmech.parts.values import direction, number, positive
from jaxmech.utils.text import capital

Check = Callable[[str, str, Any, int], Any]  # of a part, an argument, its value and the dimension


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


# A plain number, the name of a parameter or a function of (t, params); or several of them.
Point = Any  # on a body, in a field `at_a` or `at_b`; zeros on a point mass
Number = Annotated[Any, lambda part, argument, value, size: number(part, argument, value)]
Positive = Annotated[Any, lambda part, argument, value, size: positive(part, argument, value)]
Direction = Annotated[Any, direction]  # of any length
Axis = Annotated[Any, _in_space]  # a direction, in space only
Turn = Annotated[Any, _turn_in_space]  # a quaternion or nothing, in space only
Attitude = Annotated[Any, _attitude]  # an angle in the plane, a quaternion in space; or nothing


def same_as(name: str) -> Any:
    """The default of a field that is that of another one."""
    return field(default=None, metadata={"same as": name})


@dataclass(frozen=True)
class PairJoint(Joint):
    """A joint between a point of a and a point of b.

    Args:
        name: name of the joint, and of its constraint.
        a: first body, or `ground`.
        at_a: the joint on a [m].
        b: second body.
        at_b: the joint on b [m].
    """

    name: str
    a: InitVar[AbstractBody]
    at_a: Point
    b: InitVar[AbstractBody]
    at_b: Point
    bodies: tuple[AbstractBody, ...] = field(init=False)

    dimensions: ClassVar[tuple[int, ...]] = (2, 3)  # in which it exists
    turning: ClassVar[bool] = False  # whether both bodies need an attitude

    def __post_init__(self, a: AbstractBody, b: AbstractBody) -> None:
        part = self.part
        bodies, size = partners(part, (a, b), sizes=self.dimensions, turning=self.turning)
        values: dict[str, Any] = {"bodies": bodies}
        values["at_a"] = point(part, "at_a", bodies[0], self.at_a, size)
        values["at_b"] = point(part, "at_b", bodies[1], self.at_b, size)
        for name, check in _checks(cast(Any, type(self))):
            value = getattr(self, name)
            other = self.__dataclass_fields__[name].metadata.get("same as", "")
            is_same = value is None and other
            values[name] = values[other] if is_same else check(part, name, value, size)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        return self.bodies[1].dimension


@cache
def _checks(joint: Any) -> tuple[tuple[str, Check], ...]:
    """The fields of a joint with a check."""
    hints = get_type_hints(joint, include_extras=True)
    return tuple((name, x) for name in hints for x in getattr(hints[name], "__metadata__", ()))
