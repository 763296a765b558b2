"""Plain data into frozen dataclasses and back: the fields of a dataclass are the keys of a table.

Reading is strict: an integer stands for a number, but nothing else is converted, no unknown key is
accepted, and all problems are found at once. The policies of `simulate` are read as they are;
`POLICIES` holds the names that they have in files.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import reduce
from operator import or_
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from jaxmech.config.errors import Key, Problem, StudyError, not_one_of
from jaxmech.integrate import RK4, AbstractMethod, DormandPrince5, Midpoint
from jaxmech.linalg import LDL, QR, SVD, AbstractSolver
from jaxmech.stabilization import AbstractStabilization, Baumgarte, Free, Projection

Reader = Callable[[Any, Key], Any]
Config = TypeVar("Config")
_NAME = str | int  # of a column
_LONGEST = 60  # characters of a value that a message shows


@dataclass(frozen=True, eq=False)
class OneOf:
    """The classes that a key may hold an instance of; `Annotated[A | B, OneOf(...)]` is its type.

    Attributes:
        kinds: the classes by their names in a file.
        tag: the key of a table that holds the name; None where the name is all there is.
        default: the name of a table without one.
        bare: the class that a number or a list stands for, as its only field.
    """

    kinds: Mapping[str, type]
    tag: str | None = "name"
    default: str | None = None
    bare: type | None = None

    def name_of(self, value: object) -> str | None:
        """The name of a value's class."""
        return next((name for name, kind in self.kinds.items() if type(value) is kind), None)


POLICIES: Mapping[Any, OneOf] = {
    AbstractSolver: OneOf({"ldl": LDL, "qr": QR, "svd": SVD}, tag=None),
    AbstractMethod: OneOf(
        {"rk4": RK4, "midpoint": Midpoint, "dormand-prince5": DormandPrince5}, default="rk4"
    ),
    AbstractStabilization: OneOf(
        {"projection": Projection, "baumgarte": Baumgarte, "none": Free},
    ),
}


def structure(data: Mapping[str, Any], kind: type[Config]) -> Config:
    """The dataclass that the plain data of a TOML file stand for, or a StudyError.

    Example:
        >>> structure({"name": "baumgarte", "alpha": 5, "beta": 5}, AbstractStabilization)
        Baumgarte(alpha=5.0, beta=5.0)
    """
    built: Config = _reader(kind)(data, ())
    return built


def plain(value: Any, kind: Any = None, key: Key = ()) -> Any:
    """The plain data of a dataclass, as in its TOML file, or a StudyError where there are none.

    Example:
        >>> plain(Projection(), AbstractStabilization)
        {'name': 'projection', 'iterations': 2, 'solver': 'ldl'}
    """
    kind = _required(type(value) if kind is None else kind)
    if choice := choice_of(kind):
        name = choice.name_of(value)
        if name is None or (choice.tag is None and value != choice.kinds[name]()):
            known = ", ".join(f"{one.__name__}(...)" for one in choice.kinds.values())
            text = f"must be one of {known} without other settings, but is {value!r}"
            raise StudyError([Problem(key, text)])
        return name if choice.tag is None else {choice.tag: name} | plain(value, None, key)
    if is_dataclass(value):
        found: dict[str, Any] = {}
        for f, hint in _hints(type(value)).items():
            inner = plain(getattr(value, f), hint, (*key, f))
            if _inline(type(value)) == f:
                found |= inner
            elif inner is not None:
                found[f] = inner
        return found
    if isinstance(value, Mapping):
        item = get_args(kind)[1] if get_origin(kind) is Mapping else None
        item = None if item is Any else item
        return {name: plain(entry, item, (*key, name)) for name, entry in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def words(kind: Any) -> str:
    """A type of the schema in words, for messages and for `--help`.

    Example:
        >>> words(int), words(AbstractSolver)
        ('an integer', '"ldl", "qr" or "svd"')
    """
    kind, choice = _required(kind), choice_of(kind)
    if get_origin(kind) is Literal or (choice and choice.tag is None):
        *most, last = [f'"{name}"' for name in (choice.kinds if choice else get_args(kind))]
        return f"{', '.join(most)} or {last}" if most else last
    if get_origin(kind) is tuple:
        return f"a list of {_plural(get_args(kind)[0])}"
    if is_dataclass(kind) or get_origin(kind) is Mapping or choice:
        return "a table"
    if kind == _NAME:
        return "a text or an integer"
    names = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
    return names.get(kind, "a number or a list of numbers")


def choice_of(kind: Any) -> OneOf | None:
    """What a key of this type may hold one of, if it is a choice."""
    given = [part for part in get_args(_required(kind)) if isinstance(part, OneOf)]
    return given[0] if given else POLICIES.get(_required(kind))


def _plural(kind: Any) -> str:
    if kind == _NAME:
        return "texts or integers"
    names = {str: "texts", float: "numbers", int: "integers"}
    return names.get(kind, "tables" if is_dataclass(kind) else words(kind))


def _reader(kind: Any) -> Reader:
    """The function that turns a value of a TOML file into one of the given type, or raises."""
    kind = _required(kind)
    if choice := choice_of(kind):
        return lambda value, key: _chosen(choice, value, key)
    if isinstance(kind, type) and is_dataclass(kind):
        return lambda value, key: _table(kind, value, key)
    if get_origin(kind) is Mapping:
        item = _reader(get_args(kind)[1])
        return lambda value, key: _entries(value, key, lambda name: item)
    if get_origin(kind) is tuple:
        item = _reader(get_args(kind)[0])
        return lambda value, key: _list(value, key, item, words(kind))
    return lambda value, key: _scalar(kind, value, key)


def _required(kind: Any) -> Any:
    """`int` for `int | None`."""
    inner = tuple(part for part in get_args(kind) if part is not NoneType)
    return reduce(or_, inner) if NoneType in get_args(kind) else kind


def _hints(kind: type) -> dict[str, Any]:
    """The types of the fields of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def _inline(kind: type) -> str | None:
    """The field whose own keys stand in the table of the dataclass, if there is one."""
    return next((f.name for f in fields(kind) if f.metadata.get("inline")), None)


def _scalar(kind: Any, value: Any, key: Key) -> Any:
    if get_origin(kind) is Literal:
        fits = value in get_args(kind)
    elif kind is float:
        fits = _is_number(value)
    elif kind == _NAME:
        fits = type(value) in (int, str)
    elif kind in (int, str, bool):
        fits = type(value) is kind
    else:
        fits = kind is Any or _is_number(value) or _is_numbers(value)
    if not fits:
        raise _wrong(key, f"must be {words(kind)}", value)
    return _floats(value) if kind is float or float in get_args(kind) else value


def _wrong(key: Key, needed: str, value: Any) -> StudyError:
    return StudyError([Problem(key, f"{needed}, but is {_shown(value)}")])


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max  # False for NaN, and for integers beyond all floats


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_is_number(x) or _is_numbers(x) for x in value)


def _list(value: Any, key: Key, item: Reader, what: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _wrong(key, f"must be {what}", value)
    name = key[-1]
    return tuple(item(x, (*key[:-1], f"{name}[{place}]")) for place, x in enumerate(value))


def _entries(value: Any, key: Key, item: Callable[[str], Reader | None]) -> dict[str, Any]:
    """Read the entries of a table, and gather the problems of all of them."""
    if not isinstance(value, dict):
        raise _wrong(key, "must be a table", value)
    built: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, entry in value.items():
        reader = item(name)
        try:
            if reader:
                built[name] = reader(entry, (*key, name))
        except StudyError as error:
            problems.extend(error.problems)
    if problems:
        raise StudyError(problems)
    return built


def _table(kind: type, value: Any, key: Key) -> Any:
    """Read one dataclass of the schema."""
    readers = {name: _reader(hint) for name, hint in _hints(kind).items()}
    if (inline := _inline(kind)) and isinstance(value, dict):
        own = {name: x for name, x in value.items() if name in readers and name != inline}
        value = own | {inline: {name: x for name, x in value.items() if name not in own}}
        inner = readers[inline]
        readers[inline] = lambda value, within: inner(value, within[:-1])
    problems = list(_key_problems(kind, value, key)) if isinstance(value, dict) else []
    try:
        built = _entries(value, key, readers.get)
    except StudyError as error:
        raise StudyError([*error.problems, *problems]) from None
    if problems := problems or list(_too_large(kind, built, key)):
        raise StudyError(problems)
    try:
        return kind(**built)
    except ValueError as error:  # each value is possible by itself, or its class refuses it
        raise StudyError(Problem((*key, *p.key), p.message) for p in _told(error)) from None


def _key_problems(kind: type, value: Mapping[str, Any], key: Key) -> Iterator[Problem]:
    """The keys of a table that are unknown or missing."""
    known = {f.name: f for f in fields(kind)}
    place = f"a key of `{'.'.join(key)}`" if key else "a key of a configuration"
    for name in value:
        if name not in known:
            yield Problem((*key, name), not_one_of(name, known, place))
    for name, f in known.items():
        if name not in value and f.default is MISSING and f.default_factory is MISSING:
            yield Problem((*key, name), "must be given, but is missing")


def _too_large(kind: type, built: Mapping[str, Any], key: Key) -> Iterator[Problem]:
    for f in fields(kind):
        if (most := f.metadata.get("most")) is not None and built.get(f.name, most) > most:
            text = f"must be at most {most}, but is {built[f.name]}; the default is {f.default}"
            yield Problem((*key, f.name), text)


def _told(error: ValueError) -> Iterable[Problem]:
    """The problems in an error of a class: "Argument `substeps` must be ..." is of that key."""
    if isinstance(error, StudyError):
        return error.problems
    parts = re.fullmatch(r"Argument `(\w+)` (.*?)\.?", str(error), re.DOTALL)
    return [Problem((parts[1],), parts[2]) if parts else Problem((), str(error))]


def _chosen(choice: OneOf, value: Any, key: Key) -> Any:
    """Read one of several classes, which a table names by its tag."""
    tag, kinds = choice.tag, choice.kinds
    if tag is None:
        if not isinstance(value, str) or value not in kinds:
            *most, last = [f'"{name}"' for name in kinds]
            raise _wrong(key, f"must be {', '.join(most)} or {last}", value)
        return kinds[value]()
    if choice.bare and isinstance(value, int | float | list) and not isinstance(value, bool):
        return _bare(choice.bare, tag, value, key)
    name = value.get(tag, choice.default) if isinstance(value, dict) else None
    if not isinstance(name, str):
        known = ", ".join(f'"{one}"' for one in kinds)
        what = f"must be a table with `{tag}`, one of {known}; but is {_shown(value)}"
        raise StudyError([Problem(key, what)])
    if name not in kinds:
        raise StudyError([Problem((*key, tag), not_one_of(name, kinds, f"a known {tag}"))])
    return _table(kinds[name], {k: item for k, item in value.items() if k != tag}, key)


def _bare(kind: type, tag: str, value: Any, key: Key) -> Any:
    """Read a number, or a list of them, in place of a table."""
    if not (_is_number(value) or _is_numbers(value)):
        raise _wrong(key, f"must be a finite number, a list of them or a table with `{tag}`", value)
    try:
        return kind(_floats(value))
    except StudyError as error:  # the field of the class is no key here
        raise StudyError(Problem(key, p.message) for p in error.problems) from None


def _floats(value: Any) -> Any:
    return [_floats(item) for item in value] if isinstance(value, list) else float(value)


def _shown(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case dict():
            return f"a table of {', '.join(value) or 'nothing'}"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
