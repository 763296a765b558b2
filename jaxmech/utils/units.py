"""Units of coordinates, states and velocities, by their names."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

Units = tuple[tuple[str, str], ...]  # pairs of a name and its unit
# Names in order, or a mapping of them to their units. `Any` stands for the mapping: what is stored
# is always a sequence, which can be indexed.
Names = Sequence[str] | Any
RATE = ".rate"  # ends the name of the rate of a coordinate


def stated_units(units: Any, *named: Any) -> Units:
    """The units of those arguments that are mappings of names to units, after those stated before.

    Raises:
        TypeError: a unit is not a string.
    """
    pairs = dict(units)
    for names in named:
        pairs |= names if isinstance(names, Mapping) else {}
    for name, unit in pairs.items():
        if not isinstance(unit, str):
            raise TypeError(
                f"The unit of `{name}` must be a string such as 'm' or 'rad', but is {unit!r}."
            )
    return tuple(pairs.items())


def require_names_of_units(units: Units, names: Collection[str]) -> None:
    """Raise a ValueError if a unit belongs to no name."""
    for name, _ in units:
        if name not in names:
            raise ValueError(
                f"Argument `units` must have names of {', '.join(names)}, but has {name!r}."
            )


def unit_of(units: Units, name: str) -> str:
    """The unit of a name, or of the rate of a coordinate; empty if none is stated."""
    pairs = dict(units)
    if name in pairs or not name.endswith(RATE):
        return pairs.get(name, "")
    unit = pairs.get(name.removesuffix(RATE))
    return "" if unit is None else f"{unit or 1}/s"


def with_unit(name: str, unit: str) -> str:
    """A name as a label of an axis or of a row, with its unit if it has one."""
    return f"{name} [{unit}]" if unit else name


def units_of(units: Units, names: Iterable[str]) -> dict[str, str]:
    """The units of those names that have one."""
    return {name: unit for name in names if (unit := unit_of(units, name))}
