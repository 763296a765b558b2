"""Configuration files: TOML into a frozen dataclass such as `Study`, with the line of an error.

The keys, their types, defaults and explanations are those of the dataclasses in
`jaxmech.ensemble`; nothing is listed here a second time.
"""

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, get_args, get_origin, get_type_hints

from jaxmech.config.errors import Problem, StudyError
from jaxmech.config.schema import Config, choices, structure, words
from jaxmech.ensemble import DISTRIBUTIONS, Distribution, Study

Key = tuple[str, ...]
_NO_LINE = sys.maxsize
_PART = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"\s*{_PART}(?:\s*\.\s*{_PART})*"


class ConfigError(ValueError):
    """A configuration that is refused: one line per problem, with file and line."""


def read(
    path: Path,
    kind: type[Config],
    also: Callable[[Mapping[str, Any]], list[Problem]] | None = None,
) -> Config:
    """Reads and checks a configuration file.

    Args:
        path: the TOML file.
        kind: the frozen dataclass that says what belongs in it, such as `Study`.
        also: what else is wrong with the plain data; asked where something is wrong already, so
            that all of it is told at once.

    Returns:
        An instance of it.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong.
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
        place = f"{path}:{line[1]}" if line else str(path)
        raise ConfigError(f"{place}: is not TOML: {error}") from error
    except StudyError as error:
        more = also(data) if also else []
        everything = StudyError(dict.fromkeys([*error.problems, *more]))
        raise located(everything, path) from error
    except (RecursionError, OverflowError, ValueError) as error:
        text = "is nested too deeply, or holds a number that is too long"
        raise ConfigError(f"{path}: {text}") from error


def located(error: StudyError, path: Path) -> ConfigError:
    """The problems of a study, each with its line in the configuration file, in their order."""
    lines = key_lines(path.read_text(encoding="utf-8"))
    places = sorted(((_line(p.key, lines), p) for p in error.problems), key=lambda place: place[0])
    shown = (f"{path}{f':{line}' if line < _NO_LINE else ''}: {p}" for line, p in places)
    return ConfigError("\n".join(shown))


def key_lines(text: str) -> dict[Key, int]:
    r"""The line on which each key of a TOML text stands.

    Args:
        text: the text of the file, valid TOML.

    Returns:
        Line numbers, counted from 1, by key path.

    Example:
        >>> key_lines('size = 1\n[times]\nend = 2')
        {('size',): 1, ('times',): 2, ('times', 'end'): 3}
    """
    lines: dict[Key, int] = {}
    entries: dict[str, int] = {}
    table: Key = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(rf"\s*\[\[({_DOTTED})\s*\]\]", line):
            *around, name = _split(header[1])
            entries[name] = entries.get(name, -1) + 1
            table = key = (*around, f"{name}[{entries[name]}]")
        elif header := re.match(rf"\s*\[({_DOTTED})\s*\]", line):
            table = key = _split(header[1])
            if (name := key[0]) in entries:  # a table in the last entry of an array of tables
                table = key = (f"{name}[{entries[name]}]", *key[1:])
        elif entry := re.match(rf"({_DOTTED})\s*=", line):
            key = table + _split(entry[1])
        else:
            continue
        for end in range(1, len(key) + 1):  # `a.b = 1` is the first line of `a`, too
            lines.setdefault(key[:end], number)
    return lines


def described(kind: type = Study) -> str:
    """Every key of a configuration with its meaning, type and default, from the dataclasses.

    Args:
        kind: the dataclass that says what belongs in it.
    """
    return "\n".join(_described(kind, indent=2))


def _described(kind: type, indent: int) -> Iterator[str]:
    hints = get_type_hints(kind)
    tables = [f for f in fields(kind) if _is_table(hints[f.name])]
    drawn = [f for f in tables if _holds_distributions(hints[f.name])]
    for entry in fields(kind):
        if entry not in tables:
            yield _row(entry, hints[entry.name], indent)
    for entry in tables:
        if entry not in drawn:
            left, right = ("[[", "]]") if get_origin(hints[entry.name]) is tuple else "[]"
            yield f"\n  {left}{entry.name}{right}  {entry.metadata['doc']}"
            yield from _inside(hints[entry.name])
    if drawn:
        yield ""
        yield from (f"  {f'[{f.name}]':<16}{f.metadata['doc']}" for f in drawn)
        yield "    name = a number, which is fixed, or a table, one of:"
        yield from _choices(DISTRIBUTIONS)


def _inside(kind: Any) -> Iterator[str]:
    if table := _table_of(kind):
        yield from _described(table, indent=4)
    yield from _choices(choices(kind))


def _choices(kinds: Mapping[str, Any]) -> Iterator[str]:
    for name, kind in kinds.items():
        left = f'    {kind.tag[0]} = "{name}"'
        text = (kind.__doc__ or "").partition("\n")[0]
        yield f"{left:<34}{text}"
        yield from _described(kind, indent=6)


def _row(entry: Field[Any], kind: Any, indent: int) -> str:
    left = f"{' ' * indent}{entry.name}"
    text = f"{left:<18}{entry.metadata['doc']}; {words(kind)}{_default(entry)}"
    return fill(text, width=98, subsequent_indent=" " * 18, break_long_words=False)


def _default(entry: Field[Any]) -> str:
    if entry.default is MISSING and entry.default_factory is MISSING:
        return ", needed"
    value = entry.default
    if value is MISSING or value is None or value == ():
        return ""
    shown = ", ".join(value) if isinstance(value, tuple) else json.dumps(value).strip('"')
    return f" [{shown}]"


def _is_table(kind: Any) -> bool:
    return bool(_table_of(kind) or choices(kind)) or _holds_distributions(kind)


def _table_of(kind: Any) -> type | None:
    """The dataclass of a key that holds a table, that may be left out, or a list of tables."""
    inside = [kind, *get_args(kind)]
    found = [one for one in inside if isinstance(one, type) and is_dataclass(one)]
    return found[0] if len(found) == 1 else None


def _holds_distributions(kind: Any) -> bool:
    return get_origin(kind) is Mapping and get_args(kind)[1] == Distribution


def _line(key: Key, lines: Mapping[Key, int]) -> int:
    """The line of a key, or of the nearest table around it that has one."""
    parts = [key[:end] for end in range(len(key), 0, -1)]
    names = (name for part in parts for name in (part, _without_index(part)))
    return next((lines[name] for name in names if name in lines), _NO_LINE)


def _without_index(key: Key) -> Key:
    return (*key[:-1], key[-1].partition("[")[0])


def _split(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
