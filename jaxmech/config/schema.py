"""The schema of configuration files: the fields of a dataclass are the keys of a table.

The policies of `simulate` are their own schema; `POLICIES` maps them to their names in files.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from jaxmech import integrate
from jaxmech.config.errors import Problem
from jaxmech.linalg import LDL, QR, SVD, AbstractSolver
from jaxmech.state import AbstractStabilization, Baumgarte, Free, Projection

NAME = str | int  # of a column
NUMBER_OR_NAME = float | str  # of a parameter


TEXT, TABLE = "<text>", "<table>"  # the alternatives of `TextOrTable`, as pydantic names them


class TextOrTable:
    """A dataclass whose field with `short` may stand in a file in place of its whole table."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # imports slowly

        short = short_field(source)
        assert short
        text = core_schema.no_info_after_validator_function(
            lambda text: source(**{short: text}), core_schema.str_schema()
        )
        return core_schema.tagged_union_schema(
            {TEXT: text, TABLE: handler(source)},
            lambda value: TEXT if isinstance(value, str) else TABLE,
        )


class InFile:
    """The type of a key whose values are others in Python: `Annotated[str | X, InFile(str)]`."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return handler.generate_schema(self.kind)


@dataclass(frozen=True, eq=False)
class OneOf:
    """The classes whose instances a key accepts; its type is `Annotated[A | B, OneOf(...)]`."""

    kinds: Mapping[str, type]  # the classes by their names in a file
    tag: str | None = "name"  # the key of a table that holds the name; None if that stands alone
    default: str | None = None  # the name of a table without a tag
    bare: type | None = None  # the class represented by a number or a list, its only field
    # the class of all other names, which checks the name; its fields are `name` and `parameters`,
    # a mapping of all other keys
    other: type[Any] | None = None

    def name_of(self, value: object) -> str | None:
        """The name with which a file describes a value, if there is one."""
        for name, kind in self.kinds.items():
            if type(value) is kind and (self.tag or value == kind()):  # a lone name has no settings
                return name
        return None

    def refusal_of(self, value: object) -> str:
        """The message about a value that no name describes."""
        kinds = ", ".join(f"{kind.__name__}(...)" for kind in self.kinds.values())
        return f"must be one of {kinds} without other settings, but is {value!r}"

    def name_in(self, table: Mapping[str, Any]) -> Any:
        """The name in a table, from its tag or its other keys."""
        return table.get(self.tag or "", self.default)


_METHODS = (
    integrate.RK4,
    integrate.DormandPrince5,
    integrate.DormandPrince8,
    integrate.Rodas5P,
    integrate.RATTLE,
)
POLICIES: Mapping[Any, OneOf] = {
    AbstractSolver: OneOf({"ldl": LDL, "qr": QR, "svd": SVD}, tag=None),
    integrate.AbstractMethod: OneOf({kind.__name__: kind for kind in _METHODS}),
    integrate.AbstractSteps: OneOf(
        {"FixedSteps": integrate.FixedSteps, "Adaptive": integrate.Adaptive}, default="FixedSteps"
    ),
    AbstractStabilization: OneOf({"projection": Projection, "baumgarte": Baumgarte, "none": Free}),
}


def words(kind: Any) -> str:
    """Describe a type of the schema, for messages and for `--help`."""
    kind, choice = required(kind), choice_of(kind)
    if get_origin(kind) is Literal or (choice and choice.tag is None):
        return alternatives(choice.kinds if choice else get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list of {_plural(get_args(kind)[0])}"
    if is_dataclass(kind) or get_origin(kind) is Mapping or choice:
        return "a table"
    if kind == NAME:
        return "a string or an integer"
    if kind == NUMBER_OR_NAME:
        return "a number or a string"
    if str in get_args(kind):
        return "a string"
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    return names.get(kind, "a number or a list of numbers")


def alternatives(names: Iterable[str]) -> str:
    """Join names as a list of choices, such as '"ldl" or "qr"'."""
    *first, last = [f'"{name}"' for name in names]
    return f"{', '.join(first)} or {last}" if first else last


def choice_of(kind: Any) -> OneOf | None:
    """The classes accepted for this type of key, if it is a choice."""
    choices = [part for part in get_args(required(kind)) if isinstance(part, OneOf)]
    return choices[0] if choices else POLICIES.get(required(kind))


def _plural(kind: Any) -> str:
    if kind == NAME:
        return "strings or integers"
    names = {str: "strings", float: "numbers", int: "integers"}
    return names.get(kind, "tables" if is_dataclass(kind) else words(kind))


def required(kind: Any) -> Any:
    """The type in files: `int` for `int | None`, and for `int | Any`, which is for Python alone."""
    for annotation in getattr(kind, "__metadata__", ()):
        if isinstance(annotation, InFile):
            return annotation.kind
    if get_origin(kind) not in (UnionType, Union):
        return kind
    return reduce(or_, (part for part in get_args(kind) if part not in (NoneType, Any)))


def hints_of(kind: type) -> dict[str, Any]:
    """The types of the fields of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def short_field(kind: type) -> str | None:
    """The field that a text in place of the table of the dataclass sets, if there is one."""
    return next((f.name for f in fields(kind) if f.metadata.get("short")), None)


def unnamed_policies(settings: Any) -> Iterator[Problem]:
    """The policies in a tree of dataclasses that have no name in a file."""
    for name, hint in hints_of(type(settings)).items():
        policy, choice = getattr(settings, name), POLICIES.get(required(hint))
        if choice and policy is not None and choice.name_of(policy) is None:
            yield Problem((name,), choice.refusal_of(policy))
        elif is_dataclass(required(hint)) and policy is not None:
            yield from (replace(p, key=(name, *p.key)) for p in unnamed_policies(policy))
