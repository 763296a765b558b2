"""Configuration files: TOML read into a frozen dataclass such as `Study`, with lines of errors.

The keys, their types, defaults and descriptions are those of the dataclasses, and are listed
nowhere else. The policies of `simulate` are their own schema; `POLICIES` maps them to their names
in files. Reading is strict: an integer is accepted as a number, but nothing else is converted,
unknown keys are rejected, and all problems are reported at once.
"""

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import reduce
from math import isfinite
from operator import or_
from pathlib import Path
from textwrap import fill
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jaxmech import integrate
from jaxmech.config.errors import (
    ConfigError,
    Key,
    Problem,
    StudyError,
    refuse,
    refuse_all,
    unknown,
)
from jaxmech.linalg import LDL, QR, SVD, AbstractSolver
from jaxmech.state import AbstractStabilization, Baumgarte, Free, Projection
from jaxmech.utils.text import not_one_of

NAME = str | int  # of a column
NUMBER_OR_NAME = float | str  # of a parameter


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

    def read(self, value: Any) -> Any:
        """The instance that a value describes: by its name, or by a number or a list of them."""
        if self.tag is None:
            if not isinstance(value, str) or value not in self.kinds:
                raise _mismatch(f"must be {alternatives(self.kinds)}", value)
            return self.kinds[value]()
        if self.bare and isinstance(value, int | float | list) and not isinstance(value, bool):
            try:  # an integer is the same as its number; one beyond all numbers becomes infinite
                return self.bare(value if isinstance(value, list) else float(str(value)))
            except StudyError as error:  # the name of the field is not a key of the file
                raise StudyError(Problem((), p.message) for p in error.problems) from None
        name = value.get(self.tag, self.default) if isinstance(value, dict) else None
        if not isinstance(name, str):
            names = ", ".join(f'"{name}"' for name in self.kinds)
            raise _mismatch(f"must be a table with `{self.tag}`, one of {names}", value)
        entries = {key: entry for key, entry in value.items() if key != self.tag}
        if name in self.kinds:
            return structure(entries, self.kinds[name])
        if self.other:
            return self.other(name, entries)
        raise refuse(self.tag, not_one_of(name, self.kinds, f"a known {self.tag}"))

    def written(self, value: Any, key: Key) -> Any:
        """The plain data that describe an instance, or a StudyError if none do."""
        if self.other and isinstance(value, self.other):
            return {str(self.tag): value.name, **value.parameters}
        for name, kind in self.kinds.items():
            if type(value) is kind and self.tag:
                return {self.tag: name} | plain(value, None, key)
            if type(value) is kind and value == kind():  # a lone name has no settings
                return name
        kinds = ", ".join(f"{kind.__name__}(...)" for kind in self.kinds.values())
        raise refuse(key, f"must be one of {kinds} without other settings, but is {value!r}")


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


def description(kind: Any) -> tuple[str, Any]:
    """A type of the schema in words, and the dataclass or choice of the tables in it, if any."""
    kind, choice = required(kind), choice_of(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal or (choice and choice.tag is None):
        return alternatives(choice.kinds if choice else parts), None
    if origin is tuple:
        text, table = description(parts[0])
        plurals = {NAME: "strings or integers", str: "strings", float: "numbers", int: "integers"}
        return f"a list of {'tables' if table else plurals.get(parts[0], text)}", table
    if origin is Mapping:
        return "a table", description(parts[1])[1]
    if is_dataclass(kind) or choice:
        return "a table", choice or kind
    names = {
        int: "an integer", float: "a number", str: "a string", bool: "true or false",
        NAME: "a string or an integer", NUMBER_OR_NAME: "a number or a string",
    }  # fmt: skip
    others = "a string" if str in parts else "a number or a list of numbers"
    return names.get(kind, others), None


def alternatives(names: Iterable[str]) -> str:
    """Join names as a list of choices, such as '"ldl" or "qr"'."""
    *first, last = [f'"{name}"' for name in names]
    return f"{', '.join(first)} or {last}" if first else last


def choice_of(kind: Any) -> OneOf | None:
    """The classes accepted for this type of key, if it is a choice."""
    choices = [part for part in get_args(required(kind)) if isinstance(part, OneOf)]
    return choices[0] if choices else POLICIES.get(required(kind))


def required(kind: Any) -> Any:
    """The type in files: `int` for `int | None`, and for `int | Any`, which is for Python alone."""
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


def plain(value: Any, kind: Any = None, key: Key = ()) -> Any:
    """Convert a dataclass to plain data as in its TOML file, or raise a StudyError."""
    kind = required(type(value) if kind is None else kind)
    if (choice := choice_of(kind)) and value is not None:
        return choice.written(value, key)
    if kind is str and not isinstance(value, str | None):  # an object in place of its name
        return value.as_posix() if isinstance(value, Path) else python_name(value)
    if is_dataclass(value):
        table: dict[str, Any] = {}
        for name, hint in hints_of(type(value)).items():
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


def python_name(value: Any) -> str:
    """The name of a function or another object that is given in place of that of its file."""
    own = getattr(value, "__qualname__", getattr(value, "name", None))
    return f"python:{own if isinstance(own, str) else type(value).__name__}"


Config = TypeVar("Config")
_LONGEST = 60  # characters of a value in a message


def structure(data: Any, kind: type[Config]) -> Config:
    """Convert the plain data of a TOML file to a dataclass, or raise a StudyError.

    Example:
        >>> from jaxmech.state import AbstractStabilization
        >>> structure({"name": "baumgarte", "alpha": 5, "beta": 5}, AbstractStabilization)
        Baumgarte(alpha=5.0, beta=5.0)
    """
    problems: list[Problem] = []
    value: Config = _value(data, kind, (), problems)
    refuse_all(dict.fromkeys(problems))
    return value


def _value(data: Any, hint: Any, key: Key, problems: list[Problem]) -> Any:
    """The value of a key, or None with new problems."""
    kind = required(hint)
    origin, parts = get_origin(kind), get_args(kind)
    table: Any = kind if is_dataclass(kind) else None
    try:
        if choice := choice_of(kind):
            return choice.read(data)
        if table and isinstance(data, dict):
            return _instance(data, table, key, problems)
        if table and isinstance(data, str) and (short := short_field(table)):
            return table(**{short: data})
        if origin is tuple and isinstance(data, list):
            places = [(*key[:-1], f"{key[-1]}[{k}]") for k in range(len(data))]
            pairs = zip(data, places, strict=True)
            return tuple(_value(x, parts[0], place, problems) for x, place in pairs)
        if origin is Mapping and isinstance(data, dict):
            return {name: _value(x, parts[1], (*key, name), problems) for name, x in data.items()}
        kinds = {get_origin(x) or x for x in (parts if origin in (UnionType, Union) else [kind])}
        is_name = origin is Literal and type(data) is str and data in parts
        if is_name or Any in kinds or type(data) in kinds - {float}:
            return data
        if float in kinds and type(data) in (int, float) and isfinite(data):
            return float(data)  # an integer is accepted as a number, and nothing else converted
        raise _mismatch(f"must be {description(hint)[0]}", data)
    except ValueError as error:  # of a class, by the keys that it names
        if not isinstance(error, StudyError):
            named = re.fullmatch(r"Argument `(\w+)` (.*?)\.?", str(error), re.DOTALL)
            error = refuse(*named.groups() if named else ((), str(error)))
        problems += error.within(*key).problems


def _instance(data: Mapping[str, Any], kind: type, key: Key, problems: list[Problem]) -> Any:
    """The dataclass that a table describes, or None with new problems."""
    hints, count, values = hints_of(kind), len(problems), dict[str, Any]()
    problems += unknown(key, data, hints, "a known key")
    for field in fields(kind):
        place = (*key, field.name)
        if field.name in data:
            values[field.name] = _value(data[field.name], hints[field.name], place, problems)
        elif field.default is MISSING and field.default_factory is MISSING:
            problems.append(Problem(place, "must be given, but is missing"))
    return kind(**values) if len(problems) == count else None


def _mismatch(requirement: str, value: Any) -> StudyError:
    match value:
        case bool():
            text = str(value).lower()
        case str():
            text = f'"{value}"'
        case dict():
            text = f"a table of {', '.join(value)}" if value else "an empty table"
        case _:
            text = str(value)
            text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    return refuse((), f"{requirement}, but is {text}")


_WIDTH = 98  # characters per line of help
_PART = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_PYTHON = re.compile(r"(.*\.py):(\w+)")
ROBOTS = (".mjcf", ".urdf", ".xml")  # endings of MJCF and URDF files
_DOTTED = rf"\s*{_PART}(?:\s*\.\s*{_PART})*"


def read(path: Path, kind: type[Config]) -> Config:
    """Read and check a configuration file; a `ConfigError` has all of its problems."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: it is not a text file") from error
    try:
        with located(path):
            return structure(tomllib.loads(text), kind)
    except ConfigError:
        raise
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        location = f"{path}:{line[1]}" if line else str(path)
        raise ConfigError(f"{location}: is not TOML: {error}") from error
    except (RecursionError, OverflowError, ValueError) as error:
        text = "is nested too deeply, or holds a number that is too long"
        raise ConfigError(f"{path}: {text}") from error


def python_files(data: Any, folder: Path) -> list[Path]:
    """The files that the plain data of a configuration name as "path/file.py:name"."""
    files = list[Path]()

    def noted(key: Key, text: str) -> str:
        if match := _PYTHON.fullmatch(text):
            files.append(folder / match[1])
        return text

    _with_texts(data, noted)
    return list(dict.fromkeys(files))


def with_copies(data: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], dict[Path, str]]:
    """The plain data of a configuration that names copies of its files, and their names.

    These are the files of the model, of Python objects and of inputs. The copy of the model is
    `model.py`, `model.xml` or `model.urdf`, and the others keep their names where these differ.
    """
    copies: dict[Path, str] = {}

    def copied(key: Key, text: str) -> str:
        of_python = _PYTHON.fullmatch(text)
        file, colon, name = (of_python[1], ":", of_python[2]) if of_python else (text, "", "")
        is_input = key[:1] == ("inputs",) and key[2:] == ("file",)
        is_file = is_input or of_python or (key == ("model",) and is_robot(text))
        path = (folder / file).resolve()
        if not is_file or not path.is_file():
            return text
        copy, count = f"model{path.suffix.lower()}" if key == ("model",) else path.name, 0
        while path not in copies and copy in {"model.py", *copies.values()} and key != ("model",):
            count += 1
            copy = f"{path.stem}_{count}{path.suffix}"
        return f"{copies.setdefault(path, copy)}{colon}{name}"

    # that of the model first
    return _with_texts({"model": data["model"], **data}, copied), copies


def _with_texts(data: Any, change: Callable[[Key, str], str], key: Key = ()) -> Any:
    """Plain data with others in place of its texts."""
    if isinstance(data, str):
        return change(key, data)
    if isinstance(data, Mapping):
        return {name: _with_texts(x, change, (*key, name)) for name, x in data.items()}
    if isinstance(data, Sequence):
        return [_with_texts(x, change, key) for x in data]
    return data


def is_robot(name: str) -> bool:
    """Whether a name is that of an MJCF or URDF file."""
    return name.lower().endswith(ROBOTS)


@contextmanager
def located(path: Path) -> Iterator[None]:
    """Sort the problems of a study by their lines in the configuration file."""
    try:
        yield
    except StudyError as error:
        lines, no_line, places = key_lines(path.read_text(encoding="utf-8")), sys.maxsize, []
        for problem in error.problems:
            # The line of the key, or of the nearest enclosing table that has one, also without its
            # index.
            parts = [problem.key[:end] for end in range(len(problem.key), 0, -1)]
            names = (x for part in parts for x in (part, (*part[:-1], part[-1].partition("[")[0])))
            places.append((next((lines[x] for x in names if x in lines), no_line), problem))
        places.sort(key=lambda place: place[0])
        sentences = (f"{path}{f':{n}' if n < no_line else ''}: {problem}" for n, problem in places)
        raise ConfigError("\n".join(sentences)) from error


def key_lines(source: str) -> dict[Key, int]:
    r"""The line, counted from 1, of each key of a valid TOML text."""
    lines: dict[Key, int] = {}
    entries: dict[str, int] = {}
    table: Key = ()
    for number, line in enumerate(source.splitlines(), start=1):
        if header := re.match(rf"\s*\[\[({_DOTTED})\s*\]\]", line):
            *around, name = _split(header[1])
            entries[name] = entries.get(name, -1) + 1
            table = key = (*around, f"{name}[{entries[name]}]")
        elif header := re.match(rf"\s*\[({_DOTTED})\s*\]", line):
            table = key = _split(header[1])
            if (name := key[0]) in entries:  # a table within the last entry of an array of tables
                table = key = (f"{name}[{entries[name]}]", *key[1:])
        elif entry := re.match(rf"({_DOTTED})\s*=", line):
            key = table + _split(entry[1])
        else:
            continue
        for end in range(1, len(key) + 1):  # `a.b = 1` is the first line of `a`, too
            lines.setdefault(key[:end], number)
    return lines


def key_descriptions(kind: type) -> str:
    """Every key of a configuration with its meaning, type and default, from the dataclasses."""
    return "\n".join(_descriptions(kind, set()))


def _descriptions(kind: type, shown: set[int], table: str = "", indent: int = 2) -> Iterator[str]:
    """The keys of a table, then the tables within it; choices that several share come once."""
    hints = hints_of(kind)
    tables = dict[Any, Any]()
    for entry in fields(kind):
        described_as, inner = description(hints[entry.name])
        if inner:
            tables[entry] = inner
        else:
            label = f"{' ' * indent}{entry.name}"
            text = f"{entry.metadata['description']}; {described_as}"
            default = ""
            if entry.default is MISSING and entry.default_factory is MISSING:
                default = ", required"
            elif entry.default not in (MISSING, None, ()):
                value = plain(entry.default, hints[entry.name])
                listed = isinstance(value, list)
                content = ", ".join(map(str, value)) if listed else json.dumps(value).strip('"')
                default = f" [{content}]"
            row = f"{label:<17} {text}{default}"
            yield fill(row, _WIDTH, subsequent_indent=" " * 18, break_long_words=False)
    for entry, inner in tables.items():
        name, of_names = f"{table}{entry.name}", get_origin(hints[entry.name]) is Mapping
        name = f"[[{name}]]" if get_origin(hints[entry.name]) is tuple else f"[{name}]"
        yield f"\n{' ' * indent}{name:<14}  {entry.metadata['description']}"
        if id(inner) in shown:
            continue
        shown.add(id(inner))
        if not isinstance(inner, OneOf):
            if of_names:
                short = short_field(inner)
                yield f"    name = {f'its `{short}`, or ' if short else ''}a table:"
            yield from _descriptions(inner, shown, f"{entry.name}.", 4)
            continue
        if of_names:
            yield f"    name = {'a number, which is fixed, or ' if inner.bare else ''}a table:"
        before: Any = None
        others = {"...": inner.other} if inner.other else {}
        for choice, described in {**inner.kinds, **others}.items():
            summary = (described.__doc__ or "").partition("\n")[0]
            label = f"    {inner.tag} = " + (choice if choice == "..." else f'"{choice}"')
            yield fill(f"{label:<34}{summary}", _WIDTH, subsequent_indent=" " * 34)
            own = tuple(map(id, fields(described)))
            if own != before and choice != "...":  # keys common to several are listed once
                yield from _descriptions(described, shown, indent=6)
            before = own


def _split(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
