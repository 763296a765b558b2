"""Pieces of HTML in which every text is escaped."""

from collections.abc import Iterable
from html import escape


class Html(str):
    """Text that is HTML already; any other text is escaped where it is put into an element."""

    __slots__ = ()


def html(content: object) -> Html:
    """A text, or anything that can be printed, as HTML.

    Example:
        >>> print(html("<b>"))
        &lt;b&gt;
    """
    return content if isinstance(content, Html) else Html(escape(str(content)))


def element(name: str, *content: object, **attributes: str) -> Html:
    """An element with its content.

    Example:
        >>> print(element("a", "x < y", title='"'))
        <a title="&quot;">x &lt; y</a>
    """
    rendered = "".join(f' {key.rstrip("_")}="{escape(x)}"' for key, x in attributes.items())
    return Html(f"<{name}{rendered}>{''.join(map(html, content))}</{name}>")


def together(parts: Iterable[object]) -> Html:
    """Join parts, one after the other."""
    return Html("\n".join(map(html, parts)))


def table(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> Html:
    """A table; cells that are numbers are aligned."""
    head = element("tr", *(element("th", title) for title in titles))
    lines = [element("tr", *map(_cell, row)) for row in rows]
    return element("table", element("thead", head), element("tbody", *lines))


def _cell(value: object) -> Html:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return element("td", number_text(value), class_="n") if number else element("td", value)


def number_text(value: object) -> str:
    """Format a number for a table; a dash if it is unknown."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def section(title: str, *content: object, folded: bool = False) -> Html:
    """A section with a title, which is folded if it is long and seldom read."""
    if folded:
        return element("details", element("summary", title), *content)
    return element("section", element("h2", title), *content)
