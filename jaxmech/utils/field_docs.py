"""Descriptions of dataclass fields that are keys of a configuration file."""

from typing import Any


def doc(
    text: str, *, most: int | float | None = None, inline: bool = False, short: bool = False
) -> dict[str, Any]:
    """Make metadata of a field: its line in `--help`, and the largest value accepted in a file.

    The keys of an `inline` object are written in the table of its owner. A text in place of a table
    sets its `short` field.
    """
    return {"doc": text, "most": most, "inline": inline, "short": short}
