"""Conversion of plain data, as read by `tomllib`, into frozen dataclasses and back.

Reading is strict: an integer is accepted as a number, but nothing else is converted, unknown keys
are rejected, and all problems are reported at once.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args, get_origin

from jaxmech.config import schema
from jaxmech.config.errors import Key, Problem, StudyError, not_one_of, refuse, refuse_all

Config = TypeVar("Config")
_LONGEST = 60  # characters of a value in a message


def structure(data: Mapping[str, Any], kind: type[Config]) -> Config:
    """Convert the plain data of a TOML file to a dataclass, or raise a StudyError.

    Example:
        >>> from jaxmech.stabilization import AbstractStabilization
        >>> structure({"name": "baumgarte", "alpha": 5, "beta": 5}, AbstractStabilization)
        Baumgarte(alpha=5.0, beta=5.0)
    """
    built: Config = _read(kind, data, ())
    return built


def plain(value: Any, kind: Any = None, key: Key = ()) -> Any:
    """Convert a dataclass to plain data as in its TOML file, or raise a StudyError.

    Example:
        >>> from jaxmech.stabilization import AbstractStabilization, Projection
        >>> plain(Projection(), AbstractStabilization)
        {'name': 'projection', 'iterations': 2, 'solver': 'ldl'}
    """
    kind = schema.required(type(value) if kind is None else kind)
    if choice := schema.choice_of(kind):
        if choice.other and isinstance(value, choice.other):
            return {str(choice.tag): value.name, **value.parameters}
        name = choice.name_of(value)
        if name is None or (choice.tag is None and value != choice.kinds[name]()):
            known = ", ".join(f"{one.__name__}(...)" for one in choice.kinds.values())
            text = f"must be one of {known} without other settings, but is {value!r}"
            raise refuse(key, text)
        return name if choice.tag is None else {choice.tag: name} | plain(value, None, key)
    if is_dataclass(value):
        found: dict[str, Any] = {}
        for f, hint in schema.hints_of(type(value)).items():
            inner = plain(getattr(value, f), hint, (*key, f))
            if schema.inline_field(type(value)) == f:
                found |= inner
            elif inner is not None:
                found[f] = inner
        return found
    if name := _python_name(value):
        return name
    if isinstance(value, Mapping):
        item = get_args(kind)[1] if get_origin(kind) is Mapping else None
        item = None if item is Any else item
        return {name: plain(entry, item, (*key, name)) for name, entry in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _python_name(value: Any) -> str:
    """The name of a function, or of a tuple of functions, in place of that of its file."""
    first = value[0] if isinstance(value, tuple) and value else value
    named = callable(first) and not isinstance(first, type)
    return f"python:{getattr(first, '__qualname__', type(first).__name__)}" if named else ""


def _read(kind: Any, value: Any, key: Key, also: Iterable[str] = ()) -> Any:
    """Read a value of a TOML file as the given type; `also` are keys of the same table."""
    kind = schema.required(kind)
    if choice := schema.choice_of(kind):
        return _chosen(choice, value, key, also)
    if isinstance(kind, type) and is_dataclass(kind):
        if isinstance(value, str) and (short := schema.short_field(kind)):
            value = {short: value}
        return _table(kind, value, key, also)
    if schema.is_text_or_list(kind):
        return _read(get_args(kind)[-1 if isinstance(value, list) else 0], value, key, also)
    if get_origin(kind) is Mapping:
        _require_table(value, key)
        item = get_args(kind)[1]
        return _gathered((name, partial(_read, item, x, (*key, name))) for name, x in value.items())
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise _wrong(key, f"must be {schema.words(kind)}", value)
        item, *around, name = get_args(kind)[0], *key
        names = ((f"{name}[{place}]", x) for place, x in enumerate(value))
        entries = ((name, partial(_read, item, x, (*around, name))) for name, x in names)
        return tuple(_gathered(entries).values())
    return _scalar(kind, value, key)


def _scalar(kind: Any, value: Any, key: Key) -> Any:
    if get_origin(kind) is Literal:
        fits = value in get_args(kind)
    elif kind is float:
        fits = _is_number(value)
    elif kind == schema.NAME:
        fits = type(value) in (int, str)
    elif kind == schema.NUMBER_OR_NAME:
        fits = type(value) is str or _is_number(value)
    elif kind in (int, str, bool):
        fits = type(value) is kind
    elif str in get_args(kind):  # in Python it may be an object, too
        fits = type(value) is str
    else:
        fits = kind is Any or _is_number(value) or _is_numbers(value)
    if not fits:
        raise _wrong(key, f"must be {schema.words(kind)}", value)
    is_float = kind is float or (float in get_args(kind) and not isinstance(value, str))
    return _floats(value) if is_float else value


def _wrong(key: Key, needed: str, value: Any) -> StudyError:
    return refuse(key, f"{needed}, but is {_shown(value)}")


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max  # False for NaN, and for integers beyond all floats


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_is_number(x) or _is_numbers(x) for x in value)


def _require_table(value: Any, key: Key) -> None:
    if not isinstance(value, dict):
        raise _wrong(key, "must be a table", value)


def _gathered(
    entries: Iterable[tuple[str, Callable[[], Any]]], problems: Iterable[Problem] = ()
) -> dict[str, Any]:
    """Read entries by name, and raise all of their problems together with the given ones."""
    built: dict[str, Any] = {}
    found: list[Problem] = []
    for name, read in entries:
        try:
            built[name] = read()
        except StudyError as error:
            found += error.problems
    refuse_all([*found, *problems])
    return built


def _table(kind: type, value: Any, key: Key, also: Iterable[str] = ()) -> Any:
    """Read one dataclass of the schema."""
    _require_table(value, key)
    hints, inline = schema.hints_of(kind), schema.inline_field(kind)
    own = [name for name in value if name in hints and name != inline]
    entries = [(name, partial(_read, hints[name], value[name], (*key, name))) for name in own]
    rest = {name: entry for name, entry in value.items() if name not in own}
    if inline:
        known = hints.keys() - {inline}
        entries.append((inline, partial(_read, hints[inline], rest, key, known)))
        rest = {}
    place = f"a key of `{'.'.join(key)}`" if key else "a key of a configuration"
    problems = [Problem((*key, n), not_one_of(n, [*hints, *also], place)) for n in rest]
    built = _gathered(entries, [*problems, *_missing(kind, own, key)])
    refuse_all(_too_large(kind, built, key))
    return _made(key, kind, **built)


def _made(key: Key, kind: Callable[..., Any], *args: Any, **fields: Any) -> Any:
    """An instance of a class, or the problems of its values by their keys."""
    try:
        return kind(*args, **fields)
    except ValueError as error:  # the class rejects a value, or inconsistent values
        raise _told(error).within(*key) from None


def _missing(kind: type, given: Collection[str], key: Key) -> Iterator[Problem]:
    for f in fields(kind):
        if f.name not in given and f.default is MISSING and f.default_factory is MISSING:
            yield Problem((*key, f.name), "must be given, but is missing")


def _too_large(kind: type, built: Mapping[str, Any], key: Key) -> Iterator[Problem]:
    for f in fields(kind):
        if (most := f.metadata.get("most")) is not None and built.get(f.name, most) > most:
            text = f"must be at most {most}, but is {built[f.name]}; the default is {f.default}"
            yield Problem((*key, f.name), text)


def _told(error: ValueError) -> StudyError:
    """The error of a class by key: "Argument `substeps` must be ..." concerns that one."""
    if isinstance(error, StudyError):
        return error
    parts = re.fullmatch(r"Argument `(\w+)` (.*?)\.?", str(error), re.DOTALL)
    return refuse(parts[1], parts[2]) if parts else refuse((), str(error))


def _chosen(choice: schema.OneOf, value: Any, key: Key, also: Iterable[str]) -> Any:
    """Read an instance of one of several classes, selected by the tag of a table."""
    tag, kinds = choice.tag, choice.kinds
    if tag is None:
        if not isinstance(value, str) or value not in kinds:
            raise _wrong(key, f"must be {schema.alternatives(kinds)}", value)
        return kinds[value]()
    if choice.bare and isinstance(value, int | float | list) and not isinstance(value, bool):
        return _bare(choice.bare, tag, value, key)
    name = choice.name_in(value) if isinstance(value, dict) else None
    if not isinstance(name, str):
        known = ", ".join(f'"{one}"' for one in kinds)
        raise _wrong(key, f"must be a table with `{tag}`, one of {known}", value)
    rest = {k: item for k, item in value.items() if k != tag}
    if name not in kinds and choice.other:
        return _made(key, choice.other, name, rest)
    if name not in kinds:
        raise refuse((*key, tag), not_one_of(name, kinds, f"a known {tag}"))
    return _table(kinds[name], rest, key, [tag, *also])


def _bare(kind: type, tag: str, value: Any, key: Key) -> Any:
    """Read a number, or a list of them, in place of a table."""
    if not (_is_number(value) or _is_numbers(value)):
        raise _wrong(key, f"must be a finite number, a list of them or a table with `{tag}`", value)
    try:
        return kind(_floats(value))
    except StudyError as error:  # the name of the field is not a key of the file
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
            return f"a table of {', '.join(value)}" if value else "an empty table"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
