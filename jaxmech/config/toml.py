"""Configuration files: TOML read into a frozen dataclass such as `Study`, with lines of errors.

The keys, their types, defaults and descriptions are those of the dataclasses, and are listed
nowhere else.
"""

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, get_args, get_origin

from jaxmech.config.errors import InputError, Key, Problem, StudyError
from jaxmech.config.run_folder import python_files
from jaxmech.config.schema import OneOf, choice_of, hints_of, short_field, words
from jaxmech.config.validate import Config, plain, structure

_WIDTH = 98  # characters per line of help
_OUTER = 2  # indent of the tables of a file
_NO_LINE = sys.maxsize
_PART = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"\s*{_PART}(?:\s*\.\s*{_PART})*"


class ConfigError(InputError):
    """An invalid configuration, with one line for each problem that names file and line."""


def read(
    path: Path, kind: type[Config], also: Callable[[Mapping[str, Any]], list[Problem]] | None = None
) -> Config:
    """Read and check a configuration file.

    If reading fails, `also` returns further problems of the plain data, so that all problems are
    reported at once in the `ConfigError`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: it is not a text file") from error
    data: dict[str, Any] = {}
    try:
        data = tomllib.loads(text)
        return structure(data, kind)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        location = f"{path}:{line[1]}" if line else str(path)
        raise ConfigError(f"{location}: is not TOML: {error}") from error
    except StudyError as error:
        further = also(data) if also else []
        everything = StudyError(dict.fromkeys([*error.problems, *further]))
        raise located(everything, path) from error
    except (RecursionError, OverflowError, ValueError) as error:
        text = "is nested too deeply, or holds a number that is too long"
        raise ConfigError(f"{path}: {text}") from error


def named_files(path: Path) -> list[Path]:
    """The Python files that a configuration file names; none if it cannot be read."""
    try:
        return python_files(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)
    except (OSError, ValueError, RecursionError):
        return []


def located(error: StudyError, path: Path) -> ConfigError:
    """Sort the problems of a study by their lines in the configuration file."""
    lines = key_lines(path.read_text(encoding="utf-8"))
    locations = sorted(
        ((_line(p.key, lines), p) for p in error.problems), key=lambda location: location[0]
    )
    sentences = (f"{path}{f':{line}' if line < _NO_LINE else ''}: {p}" for line, p in locations)
    return ConfigError("\n".join(sentences))


def key_lines(source: str) -> dict[Key, int]:
    r"""The line, counted from 1, of each key of a valid TOML text.

    Example:
        >>> key_lines('size = 1\n[times]\nend = 2')
        {('size',): 1, ('times',): 2, ('times', 'end'): 3}
    """
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
    return "\n".join(_descriptions(kind, indent=2))


def _descriptions(kind: type, indent: int, prefix: str = "") -> Iterator[str]:
    hints = hints_of(kind)
    tables = [f for f in fields(kind) if _is_table(hints[f.name])]
    drawn = {f: choice for f in tables if (choice := _values_of(hints[f.name]))}
    for entry in fields(kind):
        if entry not in tables:
            yield _row(entry, hints[entry.name], indent)
    for entry in tables:
        if entry not in drawn:
            opening, closing = ("[[", "]]") if get_origin(hints[entry.name]) is tuple else "[]"
            yield f"\n  {opening}{prefix}{entry.name}{closing}  {entry.metadata['description']}"
            yield from _inside(hints[entry.name], f"{entry.name}.")
    for choice in dict.fromkeys(drawn.values()):
        yield ""
        for entry in (f for f, its_choice in drawn.items() if its_choice is choice):
            yield f"{' ' * indent}{f'[{prefix}{entry.name}]':<14}  {entry.metadata['description']}"
        if indent > _OUTER:  # its choices belong to another table
            continue
        forms = "a number, which is fixed, or a table" if choice.bare else "a table"
        yield f"    name = {forms}, one of:"
        yield from _choices(choice)
        if choice.other:
            summary = (choice.other.__doc__ or "").partition("\n")[0]
            yield fill(
                f"    {choice.tag} = ...{' ' * 13}{summary}", _WIDTH, subsequent_indent=" " * 34
            )


def _inside(kind: Any, prefix: str = "") -> Iterator[str]:
    if choice := choice_of(kind):
        yield from _choices(choice)
    elif table := _table_of(kind):
        if get_origin(kind) is Mapping:
            short = short_field(table)
            yield f"    name = {f'its `{short}`, or ' if short else ''}a table:"
        yield from _descriptions(table, indent=4, prefix=prefix)


def _choices(choice: OneOf) -> Iterator[str]:
    kinds = choice.kinds
    alike = len({tuple(map(id, fields(kind))) for kind in kinds.values()}) == 1
    for location, (name, kind) in enumerate(kinds.items(), start=1):
        label = f'    {choice.tag} = "{name}"'
        row = f"{label:<34}{(kind.__doc__ or '').partition(chr(10))[0]}"
        yield fill(row, width=_WIDTH, subsequent_indent=" " * 34)
        if not alike or location == len(kinds):  # keys common to all of them are listed once
            yield from _descriptions(kind, indent=6)


def _row(entry: Field[Any], kind: Any, indent: int) -> str:
    label = f"{' ' * indent}{entry.name}"
    row = f"{label:<17} {entry.metadata['description']}; {words(kind)}{_default(entry, kind)}"
    return fill(row, width=_WIDTH, subsequent_indent=" " * 18, break_long_words=False)


def _default(entry: Field[Any], kind: Any) -> str:
    if entry.default is MISSING and entry.default_factory is MISSING:
        return ", required"
    value = entry.default
    if value is MISSING or value is None or value == ():
        return ""
    value = plain(value, kind)
    formatted = (
        ", ".join(map(str, value)) if isinstance(value, list) else json.dumps(value).strip('"')
    )
    return f" [{formatted}]"


def _is_table(kind: Any) -> bool:
    choice = choice_of(kind)
    return choice.tag is not None if choice else bool(_table_of(kind) or _values_of(kind))


def _table_of(kind: Any) -> type | None:
    """The dataclass of a key that holds a table, possibly omitted, or a list of tables."""
    inside = [kind, *get_args(kind)]
    tables = [part for part in inside if isinstance(part, type) and is_dataclass(part)]
    return tables[0] if len(tables) == 1 else None


def _values_of(kind: Any) -> OneOf | None:
    """The choices for each entry of a table of distributions."""
    return choice_of(get_args(kind)[1]) if get_origin(kind) is Mapping else None


def _line(key: Key, lines: Mapping[Key, int]) -> int:
    """The line of a key, or of the nearest enclosing table that has one."""
    parts = [key[:end] for end in range(len(key), 0, -1)]
    tables = [(*part[:-1], part[-1].partition("[")[0]) for part in parts]  # without indices
    names = (name for pair in zip(parts, tables, strict=True) for name in pair)
    return next((lines[name] for name in names if name in lines), _NO_LINE)


def _split(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
