"""Texts of messages and of results that print themselves."""

import textwrap
from collections.abc import Iterable


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def titled_lines(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    r"""Lines of titles and texts, wrapped at 100 characters; a repeated title is left out.

    Example:
        >>> print(*titled_lines([("mass", "2 kg"), ("load", "3 N"), ("load", "5 N")], 8), sep="\n")
          mass    2 kg
          load    3 N
                  5 N
    """
    lines, before = list[str](), ""
    for title, text in rows:
        first = f"  {'' if title == before else title:<{width}}"
        lines += textwrap.wrap(text, 100, initial_indent=first, subsequent_indent=" " * (width + 2))
        before = title
    return lines
