"""`Part`: a joint or force, whose fields are its arguments, and the kinds of them.

A kind checks and converts a value, and words the error. A part applies the kinds of its fields in
the order in which they are declared, after a check of its bodies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, ClassVar, cast, get_args, get_type_hints

from jaxmech.parts.body import AbstractBody, Ground
from jaxmech.parts.values import (
    Reader,
    Vector,
    are_numbers,
    direction,
    non_negative,
    number,
    positive,
    require_sign,
    vector,
)
from jaxmech.utils.text import capital


class Part:
    """A joint or force: a frozen dataclass, whose fields are its arguments.

    Attributes:
        kind: kind of part, as named in messages.
        name: name of the part.
    """

    kind: str
    name: str

    dimensions: ClassVar[tuple[int, ...]] = (2, 3)  # in which it exists
    turning: ClassVar[bool] = False  # whether all bodies need an attitude

    def __post_init__(self) -> None:
        """Check and convert all fields by their kinds."""
        fields, size = _fields(cast(Any, type(self))), 0
        if carriers := [name for name, kind, _ in fields if kind is BODY]:
            ends = [getattr(self, name) for name in carriers]
            bodies, size = partners(self.part, ends, sizes=self.dimensions, turning=self.turning)
            for name, body in zip(carriers, bodies, strict=True):
                object.__setattr__(self, name, body)
        for name, kind, is_optional in fields:
            value = getattr(self, name)
            other = cast(Any, self).__dataclass_fields__[name].metadata.get("same as", "")
            if value is None and other:
                object.__setattr__(self, name, getattr(self, other))
            elif not (value is None and is_optional):
                object.__setattr__(self, name, kind.check(self.part, name, value, size))
        for end in ("a", "b"):
            if hasattr(self, end) and hasattr(self, f"at_{end}"):
                require_on(self.part, f"at_{end}", getattr(self, end), getattr(self, f"at_{end}"))

    @property
    def part(self) -> str:
        """The name in messages, such as "revolute joint 'A'"."""
        return f"{self.kind} {self.name!r}"

    @property
    def bodies(self) -> tuple[AbstractBody, ...]:
        """The bodies, a before b."""
        fields = _fields(cast(Any, type(self)))
        return tuple(getattr(self, name) for name, kind, _ in fields if kind is BODY)

    def require(self, read: Reader) -> None:
        """Raise a ValueError for known sizes that nothing can have, as a radius below zero."""
        for name, kind, _ in _fields(cast(Any, type(self))):
            value = getattr(self, name)
            if kind.is_positive and value is not None:
                require_sign(read.part, name, read.number(value))


def partners(
    part: str, bodies: Sequence[Any], *, sizes: tuple[int, ...] = (2, 3), turning: bool = False
) -> tuple[tuple[AbstractBody, ...], int]:
    """Check the bodies of a part; return them, the ground in their dimension, and the dimension."""
    start = capital(part)
    for body in bodies:
        if not isinstance(body, AbstractBody):
            raise TypeError(
                f"{start} must be between bodies, but has {body!r}; "
                "make one by planar_body, spatial_body or point_mass, or take `ground`."
            )
    names = [body.name for body in bodies]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{start} must be between different bodies, but has {' and '.join(map(repr, names))}."
        )
    dimensions = {body.dimension for body in bodies} - {0}
    if len(dimensions) != 1 or not dimensions <= set(sizes):
        kinds = {0: "is the ground", 2: "is planar", 3: "is spatial"}
        description = ", ".join(f"{body.name!r} {kinds[body.dimension]}" for body in bodies)
        needs = " or ".join({2: "planar", 3: "spatial"}[size] for size in sizes)
        raise ValueError(
            f"{start} must be between {needs} bodies, all of one kind, but {description}; "
            "make all bodies of one kind or use another joint."
        )
    for body in bodies:
        if turning and not body.rotates:
            raise ValueError(
                f"{start} must be between bodies with an attitude, but {body.name!r} is a point; "
                "make it a planar_body or a spatial_body."
            )
    size = dimensions.pop()
    grounded = (replace(b, dimension=size) if isinstance(b, Ground) else b for b in bodies)
    return tuple(grounded), size


def require_on(part: str, argument: str, body: AbstractBody, components: Vector) -> None:
    """Raise for a point of a point mass that is not its centre."""
    if not body.rotates and not (are_numbers(components) and not any(components)):
        raise ValueError(
            f"{capital(part)} must have zeros in `{argument}`, since {body.name!r} "
            f"is a point mass, but has {components!r}."
        )


Check = Callable[[str, str, Any, int], Any]  # of a part, an argument, its value and the dimension


@dataclass(frozen=True, repr=False)
class Kind:
    """A check under the name by which signatures show it."""

    name: str
    check: Check
    is_positive: bool = False

    def __repr__(self) -> str:
        return self.name


def _in_space(part: str, argument: str, value: Any, size: int) -> Any:
    if size == 2:
        return _none_in_plane(part, argument, value)
    if value is None:
        raise ValueError(
            f"{capital(part)} must have an `{argument}` in space; write the direction on the first "
            f"body, such as {argument}=(0, 0, 1)."
        )
    return direction(part, argument, value, 3)


def _none_in_plane(part: str, argument: str, value: Any) -> None:
    if value is not None:
        raise ValueError(
            f"{capital(part)} must have no `{argument}` in the plane, where all axes are at right "
            "angles to it; leave it out."
        )


def _turn_in_space(part: str, argument: str, value: Any, size: int) -> Any:
    if size == 2:
        return _none_in_plane(part, argument, value)
    return None if value is None else direction(part, argument, value, 4)


def _attitude(part: str, argument: str, value: Any, size: int) -> Any:
    if size == 2:
        return number(part, argument, 0.0 if value is None else value)
    return (1.0, 0.0, 0.0, 0.0) if value is None else direction(part, argument, value, 4)


def non_zero(part: str, argument: str, value: Any) -> Any:
    """Check a value as `number` does; it must not be zero."""
    checked = number(part, argument, value)
    if checked == 0.0:
        raise ValueError(f"{capital(part)} must have a `{argument}` other than zero; correct it.")
    return checked


def _phase(part: str, argument: str, value: Any, size: int) -> Any:
    if size == 3 and value != 0:
        raise ValueError(
            f"{capital(part)} must have no `{argument}` in space, where its equation is one on "
            "velocities; leave it out."
        )
    return number(part, argument, value)


def _single(check: Callable[[str, str, Any], Any]) -> Check:
    return lambda part, name, value, size: check(part, name, value)


def _moment(part: str, argument: str, value: Any, size: int) -> Any:
    return number(part, argument, value) if size == 2 else vector(part, argument, value, 3)


BODY = Kind("Body", lambda part, argument, value, size: value)
Body = Annotated[Any, BODY]  # which `Part` checks together with the others
# Each is a plain number, the name of a parameter or a function of (t, params); or several of them.
Point = Annotated[Any, Kind("Point", vector)]  # in a field `at_a` or `at_b`; zeros on a point mass
Components = Annotated[Any, Kind("Components", vector)]
Moment = Annotated[Any, Kind("Moment", _moment)]  # three components in space
Number = Annotated[Any, Kind("Number", _single(number))]
NonZero = Annotated[Any, Kind("NonZero", _single(non_zero))]
Positive = Annotated[Any, Kind("Positive", _single(positive), is_positive=True)]
NonNegative = Annotated[Any, Kind("NonNegative", _single(non_negative))]
Phase = Annotated[Any, Kind("Phase", _phase)]  # in the plane only
Direction = Annotated[Any, Kind("Direction", direction)]  # of any length
# in space only: a direction; a quaternion or None
Axis = Annotated[Any, Kind("Axis", _in_space)]
Turn = Annotated[Any, Kind("Turn", _turn_in_space)]
# an angle in the plane, a quaternion in space; None for the attitude of the other body
Attitude = Annotated[Any, Kind("Attitude", _attitude)]


@dataclass(frozen=True)
class Pair(Part):
    """A part between a point of a and a point of b.

    Args:
        name: name of the part, and of its constraint if it is a joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].
    """

    name: str
    a: Body
    at_a: Point
    b: Body
    at_b: Point


def same_as(name: str) -> Any:
    """The default of a field that is that of another one."""
    return field(default=None, metadata={"same as": name})


@cache
def _fields(owner: Any) -> tuple[tuple[str, Kind, bool], ...]:
    """The fields with a kind, and whether they may be None, as those of `Kind | None`."""
    fields: list[tuple[str, Kind, bool]] = []
    for name, hint in get_type_hints(owner, include_extras=True).items():
        members = get_args(hint) if type(None) in get_args(hint) else (hint,)
        marks = (x for member in members for x in getattr(member, "__metadata__", ()))
        fields += [(name, x, len(members) > 1) for x in marks if isinstance(x, Kind)]
    return tuple(fields)
