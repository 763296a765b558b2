"""Descriptions of dataclass fields that are keys of a configuration file."""

from dataclasses import field
from typing import Any, TypeVar

Default = TypeVar("Default")


def doc(
    description: str,
    *,
    least: int | float | None = None,
    most: int | float | None = None,
    between: tuple[int, int] | None = None,
    positive: bool = False,
    short: bool = False,
) -> dict[str, Any]:
    """Make metadata of a field: its line in `--help`, and the limits of its value.

    `most` is a limit for values in a file alone. A text in place of a table sets its `short` field.
    """
    above, below = between or (0 if positive else None, None)
    limits = {"ge": least, "le": most, "gt": above, "lt": below}  # as pydantic calls them
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return {"description": description, "short": short, **given}


def setting(default: Default, description: str, *, kw_only: bool = False, **limits: Any) -> Default:
    """A field with a default, described by `doc`; every instance gets a dictionary of its own.

    Example:
        >>> from dataclasses import dataclass, fields
        >>> @dataclass(frozen=True)
        ... class Steps:
        ...     count: int = setting(10, "number of steps")
        >>> Steps().count, fields(Steps)[0].metadata["description"]
        (10, 'number of steps')
    """
    default_argument = {"default_factory": dict} if default == {} else {"default": default}
    result: Default = field(
        **default_argument, kw_only=kw_only, metadata=doc(description, **limits)
    )
    return result
