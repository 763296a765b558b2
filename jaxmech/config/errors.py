"""Errors of input, which name the key and the requirement that it violates."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from math import inf
from typing import Any

from jaxmech.utils.text import not_one_of

Key = tuple[str, ...]


class InputError(ValueError):
    """Bad input: the commands print its text without a traceback."""


class ConfigError(InputError):
    """An invalid configuration, with one line for each problem that names file and line."""


class FolderError(InputError):
    """A run folder cannot be used; the text names the remedy."""


class TableError(InputError):
    """An unusable file of measurements; the text names the file, the line, and the problem."""


class RunWarning(UserWarning):
    """A warning about a run, such as repaired damage or changed versions."""


class StoppedError(Exception):
    """A run was stopped on request; finished results are kept."""


@dataclass(frozen=True)
class Problem:
    """One problem of one key."""

    key: Key  # path of the key, such as ("times", "end"); empty for the study as a whole
    message: str  # predicate of the key, such as "must be a number, but is true"

    def __str__(self) -> str:
        return f"{_dotted(self.key)} {self.message}".strip()


class StudyError(ValueError):
    """An invalid study, with all of its problems, at least one."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        sentences = (
            f"Argument `{_dotted(p.key)}` {p.message}" if p.key else p.message
            for p in self.problems
        )
        super().__init__("\n".join(sentences))

    def within(self, *key: str) -> "StudyError":
        """The error of the table around this one, which stands at the key."""
        return StudyError(Problem((*key, *p.key), p.message) for p in self.problems)


def refuse(key: str | Key, message: str) -> StudyError:
    """Make the error for a single key."""
    return StudyError([Problem((key,) if isinstance(key, str) else key, message)])


def refuse_all(problems: Iterable[Problem]) -> None:
    """Raise a StudyError with all of these problems, if there are any."""
    if problems := list(problems):
        raise StudyError(problems)


def unknown(key: Key, names: Iterable[str], valid: Collection[str], category: str) -> list[Problem]:
    """The names within a table that are not known."""
    return [Problem((*key, n), not_one_of(n, valid, category)) for n in names if n not in valid]


def out_of_range(settings: Any) -> Iterator[Problem]:
    """The fields of a dataclass that are given and beyond the limits in their metadata."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        least, most, between = (field.metadata.get(x) for x in ("least", "most", "between"))
        positive = field.metadata.get("positive")
        if value is None:
            continue
        if least is not None and not value >= least:
            yield Problem((field.name,), f"must be at least {least}, but is {value}")
        if most is not None and not value <= most:
            yield Problem((field.name,), f"must be at most {most}, but is {value}")
        if positive and not 0 < value < inf:
            yield Problem((field.name,), f"must be positive and finite, but is {value}")
        if between and not between[0] < value < between[1]:
            message = "must be between {} and {}, but is {}".format(*between, value)
            yield Problem((field.name,), message)


def _dotted(key: Key) -> str:
    return ".".join(part or '""' for part in key)
