"""Conversion of dataclasses to plain data, as `tomli_w` writes it."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin

from jaxmech.config import schema
from jaxmech.config.errors import Key, refuse


def plain(value: Any, kind: Any = None, key: Key = ()) -> Any:
    """Convert a dataclass to plain data as in its TOML file, or raise a StudyError.

    Example:
        >>> from jaxmech.stabilization import AbstractStabilization, Projection
        >>> plain(Projection(), AbstractStabilization)
        {'name': 'projection', 'iterations': 2, 'solver': 'ldl'}
    """
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
