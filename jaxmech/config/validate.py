"""Validation of plain data as dataclasses, by pydantic, and the JSON Schema of their files.

The fields of a dataclass become the keys of a pydantic table, whose entries are the arguments of
the dataclass. Reading is strict: an integer is accepted as a number, but nothing else is converted,
unknown keys are rejected, and all problems are reported at once.
"""

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, NotRequired, Required, TypeVar, get_args, get_origin

import pydantic
from pydantic import AfterValidator, BeforeValidator, PlainValidator, TypeAdapter, WrapValidator
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from jaxmech.config import schema
from jaxmech.config.errors import Key, Problem, StudyError, limit_problem, refuse
from jaxmech.config.plain import plain
from jaxmech.utils.text import not_one_of

Config = TypeVar("Config")
# Types that are made at run time, which mypy cannot follow.
_Annotated: Any = Annotated
_Literal: Any = Literal
_Required: Any = Required
_NotRequired: Any = NotRequired
_TypedDict: Any = TypedDict
_dict: Any = dict
_tuple: Any = tuple
_LONGEST = 60  # characters of a value in a message
_DIALECT = "http://json-schema.org/draft-07/schema#"


def structure(data: Any, kind: type[Config]) -> Config:
    """Convert the plain data of a TOML file to a dataclass, or raise a StudyError.

    Example:
        >>> from jaxmech.stabilization import AbstractStabilization
        >>> structure({"name": "baumgarte", "alpha": 5, "beta": 5}, AbstractStabilization)
        Baumgarte(alpha=5.0, beta=5.0)
    """
    hint: Any = kind
    try:
        value: Config = _adapter(_type_of(hint)).validate_python(data)
    except pydantic.ValidationError as error:
        raise StudyError(_problems(error)) from None
    return value


def json_schema(kind: type) -> dict[str, Any]:
    """The JSON Schema of the files that a dataclass describes.

    Example:
        >>> from jaxmech.stabilization import Projection
        >>> json_schema(Projection)["properties"]["iterations"]["default"]
        2
    """
    tables = _adapter(_type_of(kind)).json_schema(schema_generator=_WithoutTitles)
    return {"$schema": _DIALECT, **tables}


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles of keys, which would repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@cache
def _adapter(annotation: Any) -> Any:
    return TypeAdapter(annotation)


@cache
def _type_of(hint: Any) -> Any:
    """The pydantic type of a key, from the type of its field."""
    kind = schema.required(hint)
    if choice := schema.choice_of(kind):
        return _choice(choice)
    if isinstance(kind, type) and is_dataclass(kind):
        return _table(kind)
    if schema.is_text_or_list(kind):
        return _text_or_list(*map(_type_of, get_args(kind)))
    if get_origin(kind) is Mapping:
        return _Annotated[_dict[str, _type_of(get_args(kind)[1])], BeforeValidator(_require_table)]
    if get_origin(kind) is tuple:
        return _Annotated[_tuple[_type_of(get_args(kind)[0]), ...], _require_list(kind)]
    return _scalar(kind)


def _table(kind: type, tag: str | None = None, name: str = "", *, is_default: bool = False) -> Any:
    """The table of a dataclass; `tag` is the key that holds its name among several classes."""
    hints = schema.hints_of(kind)
    keys = {field.name: _key_type(field, hints[field.name]) for field in fields(kind)}
    if tag:
        tag_type = _Annotated[_Literal[name], pydantic.Field(description=_summary(kind))]
        keys = {tag: _NotRequired[tag_type] if is_default else _Required[tag_type], **keys}
    table = _TypedDict(kind.__name__, keys)
    table.__pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    table.__doc__ = _summary(kind)
    short = schema.short_field(kind)

    def build(value: Any, validate: Callable[[Any], dict[str, Any]]) -> Any:
        if short and isinstance(value, str):
            value = {short: value}
        try:
            entries = validate(_require_table(value))
        except pydantic.ValidationError as error:
            raise StudyError(_problems(error, keys)) from None
        entries.pop(tag or "", None)
        return _construct(kind, **entries)

    return _Annotated[table, WrapValidator(build, str | table if short else table)]


def _construct(kind: Callable[..., Any], /, *args: Any, **entries: Any) -> Any:
    """An instance of a class; a ValueError of the class becomes a StudyError by key."""
    try:
        return kind(*args, **entries)
    except StudyError:
        raise
    except ValueError as error:
        argument = re.fullmatch(r"Argument `(\w+)` (.*?)\.?", str(error), re.DOTALL)
        raise refuse(*argument.groups() if argument else ((), str(error))) from None


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _key_type(field: Field[Any], hint: Any) -> Any:
    """The type of a key, with its description, limits and default."""
    limits = field.metadata

    def check_limits(value: Any) -> Any:
        largest = limits.get("most")
        if largest is not None and value > largest:
            message = f"must be at most {largest}, but is {value}; the default is {field.default}"
            raise refuse((), message)
        if message := limit_problem(limits, value):
            raise refuse((), message)
        return value

    is_required = field.default is MISSING and field.default_factory is MISSING
    extra = _limits_schema(limits)
    if not is_required and field.default not in (MISSING, None, ()):
        extra["default"] = plain(field.default, hint)
    documentation = pydantic.Field(description=limits.get("doc"), json_schema_extra=extra)
    annotation = _Annotated[_type_of(hint), AfterValidator(check_limits), documentation]
    return _Required[annotation] if is_required else _NotRequired[annotation]


def _limits_schema(limits: Mapping[str, Any]) -> dict[str, Any]:
    entries = {"minimum": limits.get("least"), "maximum": limits.get("most")}
    if limits.get("positive"):
        entries["exclusiveMinimum"] = 0
    if interval := limits.get("between"):
        entries["exclusiveMinimum"], entries["exclusiveMaximum"] = interval
    return {name: limit for name, limit in entries.items() if limit is not None}


def _choice(choice: schema.OneOf) -> Any:
    """An instance of one of several classes."""
    if choice.tag is None:
        names = _Literal[tuple(choice.kinds)]
        return _made_by(lambda value: _named(choice, value), names)
    tables = {
        name: _table(kind, choice.tag, name, is_default=name == choice.default)
        for name, kind in choice.kinds.items()
    }
    alternatives = [*([float, list[Any]] if choice.bare else ()), *tables.values()]
    if choice.other:
        alternatives.append(_open_table(choice))

    def build(value: Any) -> Any:
        if choice.bare and isinstance(value, int | float | list) and not isinstance(value, bool):
            return _bare(choice, value)
        name = choice.name_in(value) if isinstance(value, dict) else None
        if not isinstance(name, str):
            names = ", ".join(f'"{name}"' for name in choice.kinds)
            raise _mismatch(f"must be a table with `{choice.tag}`, one of {names}", value)
        if name in tables:
            if choice.tag not in value:
                _require_no_key_of_others(choice, name, value)
            return _adapter(tables[name]).validate_python(value)
        if choice.other:
            parameters = {key: entry for key, entry in value.items() if key != choice.tag}
            return _construct(choice.other, name, parameters)
        raise refuse(str(choice.tag), not_one_of(name, choice.kinds, f"a known {choice.tag}"))

    return _made_by(build, reduce(or_, alternatives))


def _require_no_key_of_others(choice: schema.OneOf, name: str, table: Mapping[str, Any]) -> None:
    """Refuse a table without a name whose keys are those of a class with another name."""
    valid = schema.hints_of(choice.kinds[name])
    for other_name, kind in choice.kinds.items():
        accepted = schema.hints_of(kind)
        for entry in table:
            if entry in accepted and entry not in valid:
                raise refuse(entry, f'needs {choice.tag} = "{other_name}" in the same table')


def _open_table(choice: schema.OneOf) -> Any:
    """The JSON Schema of a table whose name is none of the known ones."""
    tag, names = str(choice.tag), list(choice.kinds)
    name = {"type": "string", "not": {"enum": names}, "description": _summary(choice.other or type)}
    table = {"type": "object", "required": [tag], "properties": {tag: name}}
    return _Annotated[dict[str, Any], pydantic.WithJsonSchema(table)]


def _named(choice: schema.OneOf, value: Any) -> Any:
    """An instance of the class whose name stands alone."""
    if not isinstance(value, str) or value not in choice.kinds:
        raise _mismatch(f"must be {schema.alternatives(choice.kinds)}", value)
    return choice.kinds[value]()


def _bare(choice: schema.OneOf, value: Any) -> Any:
    """The instance for a number, or a list of numbers, in place of a table."""
    if not (_is_number(value) or _is_numbers(value)):
        raise _mismatch(
            f"must be a finite number, a list of them or a table with `{choice.tag}`", value
        )
    assert choice.bare
    try:
        return choice.bare(_as_floats(value))
    except StudyError as error:  # the name of the field is not a key of the file
        raise StudyError(Problem((), problem.message) for problem in error.problems) from None


def _text_or_list(string: Any, entries: Any) -> Any:
    def build(value: Any) -> Any:
        return _adapter(entries if isinstance(value, list) else string).validate_python(value)

    return _made_by(build, string | entries)


def _require_table(value: Any) -> Any:
    if not isinstance(value, dict):
        raise _mismatch("must be a table", value)
    return value


def _require_list(kind: Any) -> BeforeValidator:
    def check(value: Any) -> Any:
        if not isinstance(value, list):
            raise _mismatch(f"must be {schema.words(kind)}", value)
        return value

    return BeforeValidator(check)


def _made_by(build: Callable[[Any], Any], annotation: Any) -> Any:
    """A type whose values a function makes, with the JSON Schema of another type."""
    return _Annotated[Any, PlainValidator(build, json_schema_input_type=annotation)]


_FLOAT = Annotated[float, pydantic.Strict(), pydantic.AllowInfNan(False)]
_STRING = Annotated[str, pydantic.Strict()]
_INTEGER = Annotated[int, pydantic.Strict()]
_SCALARS: Mapping[Any, Any] = {
    float: _FLOAT,
    int: _INTEGER,
    str: _STRING,
    bool: Annotated[bool, pydantic.Strict()],
    schema.NAME: _INTEGER | _STRING,
    schema.NUMBER_OR_NAME: _FLOAT | _STRING,
    Any: Any,
}


def _scalar(kind: Any) -> Any:
    """The type of a key that holds no table and no list of fixed entries."""
    message = f"must be {schema.words(kind)}"

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except pydantic.ValidationError:
            raise _mismatch(message, value) from None

    def build(value: Any) -> Any:
        if not (_is_number(value) or _is_numbers(value)):
            raise _mismatch(message, value)
        return _as_floats(value)

    if get_origin(kind) is Literal:
        return _Annotated[kind, WrapValidator(check)]
    if kind in _SCALARS:
        return _Annotated[_SCALARS[kind], WrapValidator(check)]
    if str in get_args(kind):  # in Python it may be an object, too
        return _Annotated[_STRING, WrapValidator(check)]
    return _made_by(build, kind)


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max  # False for NaN, and for integers beyond all floats


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_is_number(x) or _is_numbers(x) for x in value)


def _as_floats(value: Any) -> Any:
    return [_as_floats(entry) for entry in value] if isinstance(value, list) else float(value)


def _problems(error: pydantic.ValidationError, valid: Collection[str] = ()) -> list[Problem]:
    """The problems that pydantic has found in a table with the known keys."""
    problems: list[Problem] = []
    for details in error.errors(include_url=False):
        key = _key(details["loc"])
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, StudyError):
            problems += cause.within(*key).problems
        elif details["type"] == "missing":
            problems.append(Problem(key, "must be given, but is missing"))
        elif details["type"] == "extra_forbidden":
            problems.append(Problem(key, not_one_of(key[-1], valid, "a known key")))
        else:
            problems.append(Problem(key, details["msg"]))
    return problems


def _key(location: tuple[int | str, ...]) -> Key:
    """The path of a key: ("entries", 2) is "entries[2]"."""
    key: list[str] = []
    for part in location:
        if isinstance(part, int):
            key[-1] += f"[{part}]"
        else:
            key.append(part)
    return tuple(key)


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
