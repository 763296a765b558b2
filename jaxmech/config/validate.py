"""Plain data read as dataclasses, by pydantic.

pydantic reads the dataclasses themselves. Reading is strict: an integer is accepted as a number,
but nothing else is converted, unknown keys are rejected, and all problems are reported at once.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, TypeVar, get_args, get_origin

import pydantic
from pydantic_core import core_schema

from jaxmech.config import schema
from jaxmech.config.errors import Key, Problem, StudyError, limit_problem, refuse
from jaxmech.utils.text import not_one_of


def plain(value: Any, kind: Any = None, key: Key = ()) -> Any:
    """Convert a dataclass to plain data as in its TOML file, or raise a StudyError."""
    kind = schema.required(type(value) if kind is None else kind)
    if (choice := schema.choice_of(kind)) and value is not None:
        return _plain_choice(choice, value, key)
    if kind is str and not isinstance(value, str | None):  # an object in place of its name
        return python_name(value)
    if is_dataclass(value):
        table: dict[str, Any] = {}
        for name, hint in schema.hints_of(type(value)).items():
            entry = plain(getattr(value, name), hint, (*key, name))
            if entry is not None:  # TOML has no null
                table[name] = entry
        return table
    function = value[0] if isinstance(value, tuple) and value else value
    if callable(function) and not isinstance(function, type):
        return python_name(function)
    if isinstance(value, Mapping):
        item = get_args(kind)[1] if get_origin(kind) is Mapping else Any
        item = None if item is Any else item
        return {name: plain(entry, item, (*key, name)) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _plain_choice(choice: schema.OneOf, value: Any, key: Key) -> Any:
    if choice.other and isinstance(value, choice.other):
        return {str(choice.tag): value.name, **value.parameters}
    name = choice.name_of(value)
    if name is None:
        raise refuse(key, choice.refusal_of(value))
    return name if choice.tag is None else {choice.tag: name} | plain(value, None, key)


def python_name(value: Any) -> str:
    """The name of a function or another object that is given in place of that of its file."""
    own = getattr(value, "__qualname__", getattr(value, "name", None))
    return f"python:{own if isinstance(own, str) else type(value).__name__}"


Config = TypeVar("Config")
_LONGEST = 60  # characters of a value in a message
_STRICT = pydantic.ConfigDict(
    extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
)


def structure(data: Any, kind: type[Config]) -> Config:
    """Convert the plain data of a TOML file to a dataclass, or raise a StudyError.

    Example:
        >>> from jaxmech.state import AbstractStabilization
        >>> structure({"name": "baumgarte", "alpha": 5, "beta": 5}, AbstractStabilization)
        Baumgarte(alpha=5.0, beta=5.0)
    """
    hint: Any = kind
    value: Config
    try:
        # As JSON, of which pydantic accepts lists as tuples, and tables as dataclasses, strictly.
        # Dates, which JSON has not and no key accepts, are texts there.
        (value,) = _adapter(hint).validate_json(json.dumps([data], default=str))
    except pydantic.ValidationError as error:
        raise StudyError(dict.fromkeys(_problems(error, kind))) from None
    return value


@cache
def _adapter(kind: Any) -> Any:
    # Of a tuple: pydantic takes the settings of a dataclass alone from the dataclass.
    return pydantic.TypeAdapter(tuple[kind], config=_STRICT)


def _choice_of_classes(choice: schema.OneOf, source: Any, handler: Any) -> core_schema.CoreSchema:
    """How pydantic reads an instance of one of several classes."""
    return core_schema.no_info_plain_validator_function(partial(_chosen, choice))


def _policy(kind: type, source: Any, handler: Any) -> core_schema.CoreSchema:
    choice = schema.POLICIES.get(source)
    return _choice_of_classes(choice, source, handler) if choice else handler(source)


# pydantic asks a class, and an annotation, how it is read.
_annotation: Any = schema.OneOf
_annotation.__get_pydantic_core_schema__ = _choice_of_classes
for _kind in schema.POLICIES:
    _kind.__get_pydantic_core_schema__ = classmethod(_policy)


def _chosen(choice: schema.OneOf, value: Any) -> Any:
    """The instance that a value describes: by its name, or by a number or a list of them."""
    if choice.tag is None:
        if not isinstance(value, str) or value not in choice.kinds:
            raise _mismatch(f"must be {schema.alternatives(choice.kinds)}", value)
        return choice.kinds[value]()
    if choice.bare and isinstance(value, int | float | list) and not isinstance(value, bool):
        try:  # an integer is the same as its number; one beyond all numbers becomes infinite
            return choice.bare(value if isinstance(value, list) else float(str(value)))
        except StudyError as error:  # the name of the field is not a key of the file
            raise StudyError(Problem((), p.message) for p in error.problems) from None
    name = choice.name_in(value) if isinstance(value, dict) else None
    if not isinstance(name, str):
        names = ", ".join(f'"{name}"' for name in choice.kinds)
        raise _mismatch(f"must be a table with `{choice.tag}`, one of {names}", value)
    entries = {key: entry for key, entry in value.items() if key != choice.tag}
    if name in choice.kinds:
        return structure(entries, choice.kinds[name])
    if choice.other:
        return choice.other(name, entries)
    raise refuse(choice.tag, not_one_of(name, choice.kinds, f"a known {choice.tag}"))


def _located(kind: Any, location: tuple[int | str, ...]) -> tuple[list[str], Any, Any]:
    """The key of a location that pydantic states, the type there, and the table around it."""
    key, hint, table = list[str](), kind, kind
    for part in location:
        inner = schema.required(hint)
        kinds = (inner, *get_args(inner))
        found = next((x for x in kinds if isinstance(x, type) and is_dataclass(x)), None)
        if isinstance(part, int):
            key[-1] += f"[{part}]"
            hint = next(get_args(x)[0] for x in kinds if get_origin(x) is tuple)
        elif get_origin(inner) is Mapping:
            key.append(part)
            hint = get_args(inner)[1]
        elif found and part not in (schema.TEXT, schema.TABLE):  # nor the name of an alternative
            key.append(part)
            table, hint = found, schema.hints_of(found).get(part, Any)
    return key, hint, table


def _problems(error: pydantic.ValidationError, kind: type) -> Iterator[Problem]:
    """The problems that pydantic has found."""
    for details in error.errors(include_url=False):
        names, hint, table = _located(kind, details["loc"][1:])  # the first is that in the tuple
        key, value = tuple(names), details["input"]
        match details["type"]:
            case "value_error":
                yield from _as_study_error(details["ctx"]["error"]).within(*key).problems
            case "missing":
                yield Problem(key, "must be given, but is missing")
            case "unexpected_keyword_argument":
                yield Problem(key, not_one_of(key[-1], schema.hints_of(table), "a known key"))
            case "json_invalid":
                raise RecursionError
            case "less_than_equal" | "greater_than" | "greater_than_equal" | "less_than":
                (field,) = (x for x in fields(table) if x.name == names[-1])
                yield Problem(key, limit_problem(field.metadata, value))
            case _:
                yield from _mismatch(f"must be {schema.words(hint)}", value).within(*key).problems


def _as_study_error(error: Exception) -> StudyError:
    """An error of a class by the keys that it names."""
    if isinstance(error, StudyError):
        return error
    argument = re.fullmatch(r"Argument `(\w+)` (.*?)\.?", str(error), re.DOTALL)
    return refuse(*argument.groups() if argument else ((), str(error)))


def _mismatch(requirement: str, value: Any) -> StudyError:
    return refuse((), f"{requirement}, but is {_shown(value)}")


def _shown(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case dict():
            return f"a table of {', '.join(value)}" if value else "an empty table"
    printed = str(value)
    return printed if len(printed) <= _LONGEST else f"{printed[:_LONGEST]} ..."
