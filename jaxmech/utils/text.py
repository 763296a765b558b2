"""Texts of messages, and of results that show themselves in terminals and notebooks."""

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import field
from difflib import get_close_matches
from typing import Any, TypeVar

Default = TypeVar("Default")

# How results draw themselves, by the name of their class: `jaxmech` enters functions of its `plot`.
DRAWINGS: dict[str, Callable[..., Any]] = {}


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

    A text in place of a table sets its `short` field.
    """
    limits = {"least": least, "most": most, "between": between, "positive": positive}
    return {"description": description, "short": short, **limits}


def setting(default: Default, description: str, *, kw_only: bool = False, **limits: Any) -> Default:
    """A field with a default, described by `doc`; every instance gets a dictionary of its own."""
    default_argument = {"default_factory": dict} if default == {} else {"default": default}
    result: Default = field(
        **default_argument, kw_only=kw_only, metadata=doc(description, **limits)
    )
    return result


def capital(sentence: str) -> str:
    """The text with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]


def counted(count: int, noun: str) -> str:
    """A number with its noun, such as "1 recording"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def percent(share: float) -> str:
    """A share as a percentage in two digits, from 100 % on without an exponent."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def titled_lines(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    r"""Lines of titles and texts, wrapped at 100 characters; a repeated title is left out."""
    lines, previous = list[str](), ""
    for title, line in rows:
        first = f"  {'' if title == previous else title:<{width}}"
        lines += textwrap.wrap(line, 100, initial_indent=first, subsequent_indent=" " * (width + 2))
        previous = title
    return lines


def close_name(name: str, names: Iterable[str]) -> str | None:
    """The name that is most like a wrong one, if any is."""
    near = get_close_matches(name, list(names), n=1, cutoff=0.5)
    return near[0] if near else None


def not_one_of(name: str, valid: Iterable[str], category: str) -> str:
    """Report that a name is unknown, suggest the nearest known one, and list them all."""
    names = sorted(valid)
    near = close_name(name, names)
    hint = f" did you mean `{near}`?" if near else ""
    return f"is not {category};{hint} Known: {', '.join(names) or 'none'}"
