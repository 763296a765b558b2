"""Configuration files: TOML read into a frozen dataclass such as `Study`, with lines of errors.

The keys, their types, defaults and descriptions are those of the dataclasses, and are listed
nowhere else.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, get_args, get_origin

from jaxmech.config.errors import InputError, Key, StudyError
from jaxmech.config.run_folder import python_files
from jaxmech.config.validate import (
    Config,
    OneOf,
    choice_of,
    hints_of,
    plain,
    short_field,
    structure,
    words,
)

_WIDTH = 98  # characters per line of help
_PART = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"\s*{_PART}(?:\s*\.\s*{_PART})*"


class ConfigError(InputError):
    """An invalid configuration, with one line for each problem that names file and line."""


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


def named_files(path: Path) -> list[Path]:
    """The Python files that a configuration file names; none if it cannot be read."""
    try:
        return python_files(tomllib.loads(path.read_text(encoding="utf-8")), path.parent)
    except (OSError, ValueError, RecursionError):
        return []


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
    tables = {entry: inner for entry in fields(kind) if (inner := _table(hints[entry.name]))}
    for entry in fields(kind):
        if entry not in tables:
            label = f"{' ' * indent}{entry.name}"
            text = f"{entry.metadata['description']}; {words(hints[entry.name])}"
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


def _table(kind: Any) -> Any:
    """The dataclass, or the choice of some, that a table of this type holds; None for a value."""
    choice = choice_of(get_args(kind)[1] if get_origin(kind) is Mapping else kind)
    if choice:
        return choice if choice.tag else None
    tables = [x for x in (kind, *get_args(kind)) if isinstance(x, type) and is_dataclass(x)]
    return tables[0] if len(tables) == 1 else None


def _split(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
