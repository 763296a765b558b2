"""`page`: the parts of a page about a run or a fit, and its text, from the templates."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from jaxmech.cli.report import tables
from jaxmech.cli.report.answers import Answer
from jaxmech.cli.report.tables import PageTable
from jaxmech.plot import add_axes, legend_below, new_figure, styled

_TYPES = {"svg": "image/svg+xml", "png": "image/png", "gif": "image/gif"}
_WIDTH, _HEIGHT = 6.0, 3.3  # inches


@dataclass(frozen=True)
class Picture:
    """A picture inside the page."""

    address: str  # its data as a URL
    caption: str
    on_paper: str = ""  # what is printed in place of a picture that moves
    is_wide: bool = False  # whether it takes the whole width


@dataclass(frozen=True, kw_only=True)
class PagePart:
    """A part of the page; without a title its tables, which have titles, are beside each other."""

    title: str = field(default="", kw_only=False)
    sentences: Sequence[str] = ()
    cards: Sequence[Answer] = ()
    text: str = ""
    tables: Sequence[PageTable] = ()
    pictures: Sequence[Picture] = ()
    clips: Sequence[Picture] = ()  # small ones, side by side
    note: str = ""
    parts: "Sequence[PagePart]" = ()
    is_closed: bool = False  # to be opened by the reader


def page(
    name: str, lead: str, parts: Sequence[PagePart], *, title: str, source: str = "",
    warnings: Sequence[str] = (),
) -> str:  # fmt: skip
    """The text of a page, with a sentence below its name."""
    environment = Environment(
        loader=PackageLoader("jaxmech.cli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = tables.number_text
    return environment.get_template("page.html").render(
        name=name,
        lead=lead,
        parts=parts,
        title=title,
        source=source,
        warnings=warnings,
        time=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("jaxmech"),
    )


def data_url(data: bytes, kind: str) -> str:
    """A file inside a page: its address."""
    return f"data:{_TYPES[kind]};base64,{base64.b64encode(data).decode()}"


def drawn(
    draw: Callable[..., object], caption: str, *, height: float = _HEIGHT, below: bool = False
) -> Picture:
    """A picture of one pair of axes, optionally with its legend below them."""
    figure = new_figure(_WIDTH, height)
    with styled():
        draw(ax=add_axes(figure))
    if len(figure.axes) > 1 and below:  # of sensors of unlike units
        figure.set_size_inches(_WIDTH, 2.0 + 1.6 * len(figure.axes))
    if below and sum(len(ax.get_legend_handles_labels()[0]) for ax in figure.axes) > 1:
        legend_below(figure, figure.axes, columns=2)
    return of_figure(figure, caption)


def of_figure(figure: Figure, caption: str, **settings: Any) -> Picture:
    """A figure as a picture in lines, which is sharp at any size and on paper."""
    data = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "jaxmech"}):
        figure.savefig(data, format="svg", dpi=110, metadata={"Date": None})
    return Picture(data_url(data.getvalue(), "svg"), caption, **settings)
