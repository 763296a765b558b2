"""Plain data into frozen dataclasses, such as those of `jaxmech.ensemble`, strictly.

No value is converted in silence (an integer stands for a number, nothing else does), no key is
overlooked, and all problems are found at once.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import reduce
from operator import or_
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from jaxmech.config.errors import Problem, StudyError, not_one_of
from jaxmech.ensemble import DISTRIBUTIONS, Distribution, Fixed

Key = tuple[str, ...]
Reader = Callable[[Any, Key], Any]
Config = TypeVar("Config")
_NAME = str | int  # of a column
_LONGEST = 60  # characters of a value that a message shows


def structure(data: Mapping[str, Any], kind: type[Config]) -> Config:
    """A frozen dataclass, such as `Study`, from the plain data of a TOML file.

    Args:
        data: what `tomllib` reads.
        kind: the dataclass.

    Returns:
        An instance of it.

    Raises:
        StudyError: naming every key that is unknown, missing, of the wrong type or impossible.

    Example:
        >>> from jaxmech.ensemble import Study
        >>> structure({"model": "chain", "size": 8, "times": {"end": 1}}, Study).times.end
        1.0
    """
    built: Config = _reader(kind)(data, ())
    return built


def words(kind: Any) -> str:
    """A type of the schema in words, for messages and for `--help`.

    Example:
        >>> words(int), words(Literal["ldl", "qr"])
        ('an integer', '"ldl" or "qr"')
    """
    kind = _required(kind)
    if get_origin(kind) is Literal:
        *most, last = [f'"{choice}"' for choice in get_args(kind)]
        return f"{', '.join(most)} or {last}" if most else last
    if get_origin(kind) is tuple:
        return f"a list of {_plural(get_args(kind)[0])}"
    if is_dataclass(kind) or get_origin(kind) is Mapping or choices(kind):
        return "a table"
    if kind == _NAME:
        return "a text or an integer"
    names = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
    return names.get(kind, "a number or a list of numbers")


def choices(kind: Any) -> Mapping[str, Any]:
    """The dataclasses that a key may hold one of, by their tag; none if it is no such key.

    Example:
        >>> from jaxmech.ensemble import DriftControl
        >>> list(choices(DriftControl))
        ['projection', 'baumgarte', 'none']
    """
    kinds = get_args(_required(kind))
    if not kinds or not all(is_dataclass(one) and "tag" in vars(one) for one in kinds):
        return {}
    return {one.tag[1]: one for one in kinds}


def _plural(kind: Any) -> str:
    if kind == _NAME:
        return "texts or integers"
    names = {str: "texts", float: "numbers", int: "integers"}
    return names.get(kind, "tables" if is_dataclass(kind) else words(kind))


def _reader(kind: Any) -> Reader:
    """What turns a value of a TOML file into a value of the given type, or raises."""
    kind = _required(kind)
    if kind == Distribution:
        return _distribution
    if kinds := choices(kind):
        return lambda value, key: _tagged(value, key, kinds)
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
        raise StudyError([Problem(key, f"must be {words(kind)}, but is {_shown(value)}")])
    if kind is float or float in get_args(kind):
        return _floats(value)
    return value


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max  # also an integer beyond all floating-point numbers


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_is_number(x) or _is_numbers(x) for x in value)


def _list(value: Any, key: Key, item: Reader, what: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise StudyError([Problem(key, f"must be {what}, but is {_shown(value)}")])
    name = key[-1]
    return tuple(item(x, (*key[:-1], f"{name}[{place}]")) for place, x in enumerate(value))


def _entries(value: Any, key: Key, item: Callable[[str], Reader | None]) -> dict[str, Any]:
    """Reads the entries of a table, and gathers the problems of all of them."""
    if not isinstance(value, dict):
        raise StudyError([Problem(key, f"must be a table, but is {_shown(value)}")])
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
    """One dataclass of the schema."""
    hints = get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    problems = [] if not isinstance(value, dict) else [*_strangers(value, key, readers)]
    problems += [
        Problem((*key, name), "must be given, but is missing")
        for name in needed
        if isinstance(value, dict) and name not in value
    ]
    try:
        built = _entries(value, key, readers.get)
    except StudyError as error:
        problems = [*error.problems, *problems]
    if problems:
        raise StudyError(problems)
    try:
        return kind(**built)
    except StudyError as error:  # each value is possible, but not together
        raise StudyError(Problem((*key, *p.key), p.message) for p in error.problems) from None


def _strangers(value: Mapping[str, Any], key: Key, known: Iterable[str]) -> Iterator[Problem]:
    place = f"a key of `{'.'.join(key)}`" if key else "a key of a configuration"
    for name in value:
        if name not in known:
            yield Problem((*key, name), not_one_of(name, known, place))


def _tagged(value: Any, key: Key, kinds: Mapping[str, Any]) -> Any:
    """One of several dataclasses, told apart by the text of their tag."""
    tag = next(iter(kinds.values())).tag[0]
    if not isinstance(value, dict) or not isinstance(value.get(tag), str):
        choices = ", ".join(f'"{name}"' for name in kinds)
        what = f"must be a table with `{tag}`, one of {choices}; but is {_shown(value)}"
        raise StudyError([Problem(key, what)])
    if value[tag] not in kinds:
        raise StudyError([Problem((*key, tag), not_one_of(value[tag], kinds, f"a known {tag}"))])
    rest = {name: item for name, item in value.items() if name != tag}
    return _table(kinds[value[tag]], rest, key)


def _distribution(value: Any, key: Key) -> Any:
    """A table with a `distribution`, or a plain number, which is a fixed value."""
    if isinstance(value, int | float | list) and not isinstance(value, bool):
        if not (_is_number(value) or _is_numbers(value)):
            text = "must be a finite number, a list of them or a table with `distribution`"
            raise StudyError([Problem(key, f"{text}, but is {_shown(value)}")])
        try:
            return Fixed(_floats(value))
        except StudyError as error:  # there is no key `value` here
            raise StudyError(Problem(key, p.message) for p in error.problems) from None
    return _tagged(value, key, DISTRIBUTIONS)


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
