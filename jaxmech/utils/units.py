"""Names of coordinates, rates, states and velocities, and their units.

Entries of q and v are read by name with `Named`; units have their sizes in SI units.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array

from jaxmech.utils.text import not_one_of

Units = tuple[tuple[str, str], ...]  # pairs of a name and its unit
# Names in order, or a mapping of them to their units. `Any` stands for the mapping: what is stored
# is always a sequence, which can be indexed.
Names = Sequence[str] | Any
RATE = ".rate"  # ends the name of the rate of a coordinate
INTEGRALS = "integral of "  # begins the name of a coordinate that belongs to a state

_PREFIXES = {
    "n": 1e-9, "u": 1e-6, "\u00b5": 1e-6, "\u03bc": 1e-6, "m": 1e-3, "c": 1e-2, "d": 1e-1, "k": 1e3,
    "M": 1e6,
}  # fmt: skip
_SI = (  # may have a prefix
    "m", "s", "N", "rad", "Nm", "Pa", "J", "W", "V", "A", "Hz", "T", "C", "F", "H", "Wb", "ohm",
    "mol",
)  # fmt: skip
_IN_BASE = {  # exponents of m, kg, s, A of the units that have names of their own
    "N": (1, 1, -2, 0), "Pa": (-1, 1, -2, 0), "J": (2, 1, -2, 0), "W": (2, 1, -3, 0),
    "V": (2, 1, -3, -1), "Hz": (0, 0, -1, 0), "T": (0, 1, -2, -1), "C": (0, 0, 1, 1),
    "F": (-2, -1, 4, 2), "H": (2, 1, -2, -2), "Wb": (2, 1, -2, -1), "ohm": (2, 1, -3, -2),
}  # fmt: skip
_SPELLED = {"Nm": "N m"}
_OTHERS = {  # the gram is not among them: [g] of an accelerometer is something else
    "1": (1.0, ""), "kg": (1.0, "kg"), "K": (1.0, "K"), "deg": (math.pi / 180, "rad"),
    "rev": (2 * math.pi, "rad"), "turn": (2 * math.pi, "rad"), "rpm": (math.pi / 30, "rad/s"),
    "min": (60.0, "s"), "h": (3600.0, "s"), "in": (0.0254, "m"), "ft": (0.3048, "m"),
    "lbf": (4.4482216152605, "N"), "%": (0.01, ""), "bar": (1e5, "Pa"), "l": (1e-3, "m^3"),
}  # fmt: skip
_SYNONYMS = {
    "\u00b0": "deg", "degree": "deg", "degrees": "deg", "radian": "rad", "radians": "rad",
    "rad": "rad", "sec": "s", "second": "s", "seconds": "s", "r/min": "rpm", "RPM": "rpm",
    "msec": "ms", "usec": "us", "\u03a9": "ohm", "\u2126": "ohm", "L": "l",
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u207b", "01234-")
_FACTOR = re.compile(r"([^\W\d_]+|\u00b0|%|1)(?:\^|\*\*)?(-?\d+)?")


def stated_units(units: Any, *named: Any) -> Units:
    """The units of those arguments that are mappings of names to units, after those stated before.

    Raises:
        TypeError: if a unit is not a string.
        ValueError: if a unit is not known.
    """
    pairs = dict(units)
    for names in named:
        pairs |= names if isinstance(names, Mapping) else {}
    for name, unit in pairs.items():
        if not isinstance(unit, str):
            raise TypeError(
                f"The unit of `{name}` must be a string such as 'm' or 'rad', but is {unit!r}."
            )
        if problem := unit_problem(unit):
            raise ValueError(f"The unit of `{name}` {problem}.")
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


def si_unit(unit: str) -> tuple[float, str] | None:
    """The size of a unit in SI units, and their name; None for a unit that is not known."""
    unit = _SYNONYMS.get(unit.strip(), unit.strip())
    powers = "[\u207b\u2070\u00b9\u00b2\u00b3\u2074]+"
    unit = re.sub(powers, lambda match: "^" + match[0].translate(_SUPERSCRIPTS), unit)
    size, over, under = 1.0, "", ""
    for k, part in enumerate(unit.split("/")):
        for word in re.split(r"[ \u00b7\u22c5.]|(?<!\*)\*(?!\*)", part.strip()):
            factor = _factor(word)
            if factor is None:
                return None
            size = size / factor[0] if k else size * factor[0]
            if k:
                under += f"/{factor[1]}" if factor[1] else ""
            else:
                over += f" {factor[1]}" if factor[1] else ""
    return size, (over.strip() or "1" * bool(under)) + under


def dimension(unit: str) -> dict[str, int]:
    """The exponents of the base units in a known unit; an angle counts as one of them."""
    known = si_unit(unit)
    exponents: dict[str, int] = {}
    for k, part in enumerate((known[1] if known else "").split("/")):
        for word in part.split():
            name, _, power = word.partition("^")
            sign = int(power or 1) * (-1 if k else 1)
            base = zip(("m", "kg", "s", "A"), _IN_BASE.get(name, ()), strict=False)
            for letter, exponent in base if name in _IN_BASE else [(name, 1)]:
                exponents[letter] = exponents.get(letter, 0) + sign * exponent
    return {letter: n for letter, n in exponents.items() if n and letter != "1"}


def unit_problem(unit: Any) -> str:
    """What is wrong with the unit of a column, if anything; "" leaves numbers as they are."""
    if not unit or (isinstance(unit, str) and si_unit(unit)):
        return ""
    return f"must be a unit such as deg, ms, mm or N m, but is {unit!r}"


def _factor(word: str) -> tuple[float, str] | None:
    """The size and the SI name of a unit with an optional power, such as mm^2."""
    match = _FACTOR.fullmatch(word)
    single = match and _single(match[1])
    if not match or not single:
        return None
    power = int(match[2] or 1)
    return single[0] ** power, single[1] if power == 1 else f"{single[1]}^{power}"


def _single(name: str) -> tuple[float, str] | None:
    name = _SYNONYMS.get(name, name)
    if name in _OTHERS:
        return _OTHERS[name]
    if name in _SI:
        return 1.0, _SPELLED.get(name, name)
    if name[1:] in _SI and name[0] in _PREFIXES:
        return _PREFIXES[name[0]], _SPELLED.get(name[1:], name[1:])
    return None


def unit_in_name(title: str) -> tuple[str, str | None]:
    """The name and the unit of a column; in round brackets only what is known as a unit."""
    match = re.fullmatch(r"(.*\S)\s*(?:\[([^\[\]]*)\]|\(([^()]*)\))", title.strip())
    if match and (match[2] is not None or si_unit(match[3])):
        return match[1].strip(), (match[2] if match[2] is not None else match[3]).strip()
    return title.strip(), None


class UnknownNameError(KeyError):
    """A coordinate, rate or state is read that does not exist."""


def columns(
    coordinates: Sequence[str], velocities: Sequence[str], memory: Sequence[str] = ()
) -> dict[str, tuple[str, int]]:
    """The name of each column, with its array and its index there."""
    known = {name: ("q", k) for k, name in enumerate(shown_coordinates(coordinates))}
    rates = {
        f"{name}{RATE}" if name in known else name: ("v", k) for k, name in enumerate(velocities)
    }
    return known | rates | {name: ("memory", k) for k, name in enumerate(memory)}


def shown_coordinates(coordinates: Sequence[str]) -> tuple[str, ...]:
    """The names of the coordinates, without the last ones, the integrals of states."""
    return tuple(name for name in coordinates if not name.startswith(INTEGRALS))


@dataclass(frozen=True)
class Named(Mapping[str, Array]):
    """The columns of q, v and memory by name; an array is sliced when its name is read.

    Attributes:
        entries: the array and the index of each name.
        arrays: q (..., n), v (..., k) and the memory of controllers (..., c).
        source: words for the state in messages.
    """

    entries: Mapping[str, tuple[str, int]]
    arrays: Mapping[str, Any]
    source: str = "the state"

    def __getitem__(self, name: str) -> Array:
        if name not in self.entries:
            wrong = not_one_of(str(name), self.entries, f"in {self.source}")
            raise UnknownNameError(f"`{name}` {wrong}")
        array, index = self.entries[name]
        return self.arrays[array][..., index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
