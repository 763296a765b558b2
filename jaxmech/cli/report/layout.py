"""`page`: the parts of a page with their tables and pictures, and its text from the templates."""

import base64
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from jaxmech.plot import Animation, add_axes, legend_below, new_figure, styled

_MOST_DECIMALS = 6  # smaller numbers have an exponent
_TYPES = {"svg": "image/svg+xml", "gif": "image/gif"}
_WIDTH, _HEIGHT = 6.0, 3.3  # inches
_CLIP_WIDTH, _CLIP_DPI = 3.0, 80.0  # inches, and pixels per inch


class EstimateCell(NamedTuple):
    """A number with the limits of its interval."""

    value: float
    low: float
    high: float

    @property
    def texts(self) -> tuple[str, str, str]:
        """Value and limits, with as many decimals as show two digits of the interval's length."""
        length = self.high - self.low
        decimals = 1 - int(np.floor(np.log10(length))) if 0 < length < np.inf else -1
        if 0 <= decimals <= _MOST_DECIMALS:
            value, low, high = (f"{x:z,.{decimals}f}" for x in self)
        else:
            value, low, high = map(number_text, self)
        return value, low, high


class CommandCell(NamedTuple):
    """A command of the shell."""

    command: str


@dataclass(frozen=True)
class PageTable:
    """A table of the page; cells are texts, numbers, `EstimateCell`s or `CommandCell`s."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture inside the page."""

    address: str  # its data as a URL
    caption: str
    is_wide: bool = False  # whether it takes the whole width


@dataclass(frozen=True, kw_only=True)
class PagePart:
    """A part of the page."""

    title: str = field(kw_only=False)
    sentences: Sequence[str] = ()
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
    environment.filters["number"] = number_text
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


def number_text(value: object) -> str:
    """Format a number; a dash if it is unknown."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if value is None or not np.isfinite(value) else f"{value:.6g}"


def drawn(draw: Callable[..., object], caption: str, *, below: bool = False) -> Picture:
    """A picture of one pair of axes, optionally with its legend below them."""
    figure = new_figure(_WIDTH, _HEIGHT)
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
    return Picture(_address(data, "svg"), caption, **settings)


def _address(data: io.BytesIO, kind: str) -> str:
    return f"data:{_TYPES[kind]};base64,{base64.b64encode(data.getvalue()).decode()}"


def clips(motions: Mapping[int, Animation], captions: Mapping[int, str]) -> dict[int, Picture]:
    """Small pictures that move, all on the same scale."""
    space: list[Any] = [x.ax for x in motions.values()]
    for letter in "xyz" if space and space[0].name == "3d" else "xy":
        ends = np.array([getattr(ax, f"get_{letter}lim")() for ax in space])
        for ax in space:
            ax.set(**{f"{letter}lim": (ends.min(), ends.max())})
    pictures = {}
    for (k, one), ax in zip(motions.items(), space, strict=True):
        ax.tick_params(labelsize="x-small")
        ax.set(xlabel="", ylabel="")
        if ax.name == "3d":
            sides = [np.ptp(x) for x in (ax.get_xlim(), ax.get_ylim(), ax.get_zlim())]
            ax.set_box_aspect(sides, zoom=0.85)
            ax.set(zlabel="")
            shape = 0.85
        else:
            shape = float(np.clip(np.ptp(ax.get_ylim()) / np.ptp(ax.get_xlim()), 0.5, 1.2))
        one.figure.set_size_inches(_CLIP_WIDTH, _CLIP_WIDTH * shape + 0.3)
        with tempfile.TemporaryDirectory() as folder:
            file = one.save(Path(folder) / "clip.gif", dpi=_CLIP_DPI, progress=False)
            gif = io.BytesIO(file.read_bytes())
        pictures[k] = Picture(_address(gif, "gif"), captions[k])
    return pictures
