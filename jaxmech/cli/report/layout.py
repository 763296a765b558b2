"""`page`: the parts of a page, its text, from the templates, and small animations of one scale."""

import base64
import io
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from PIL import Image

from jaxmech.cli.report import tables
from jaxmech.cli.report.tables import Answer, PageTable
from jaxmech.ensemble import ReplayedTrajectory
from jaxmech.plot import Animation, add_axes, animate, legend_below, new_figure, styled
from jaxmech.status import succeeded

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


_SECONDS, _FPS = 5.0, 10.0
_COLORS = 64  # of a still
_CLIP_WIDTH, _CLIP_DPI = 3.0, 80.0  # inches, and pixels per inch


def clips(trajectories: Sequence[ReplayedTrajectory]) -> dict[int, Picture]:
    """A picture of each trajectory that moves, by its index; its caption tells a failure."""
    motions = {x.index: motion for x in trajectories if (motion := _animation(x)) is not None}
    if not motions:
        return {}
    _share_limits([*motions.values()])
    failures = {x.index: _failure(x) for x in trajectories}
    with tempfile.TemporaryDirectory() as folder:
        return {
            index: clip(motion, Path(folder) / f"{index}.gif", failures[index])
            for index, motion in motions.items()
        }


def _failure(trajectory: ReplayedTrajectory) -> str:
    status = trajectory.status
    at = float(trajectory.values["t_failed"])
    return "" if succeeded(status) else f"It failed at t = {at:.4g} s: {status.name}."


def _animation(trajectory: ReplayedTrajectory) -> Animation | None:
    model, ts = trajectory.subject.model, trajectory.ts
    if model is None or model.geometry is None or trajectory.last_good < 1:
        return None
    speed = max(float(ts[-1] - ts[0]) / _SECONDS, 1.0)
    q = trajectory.values["q"][:, : model.system.n]
    return animate(model, (ts, q), trajectory.params, speed=speed, fps=_FPS)


def _share_limits(motions: Sequence[Animation]) -> None:
    """Give all pictures the same scale, so that they can be compared."""
    for letter in "xyz" if motions[0].ax.name == "3d" else "xy":
        ends = np.array([getattr(one.ax, f"get_{letter}lim")() for one in motions])
        for one in motions:
            one.ax.set(**{f"{letter}lim": (ends.min(), ends.max())})
    for one in motions:
        space = one.ax
        sides = [np.ptp(space.get_xlim()), np.ptp(space.get_ylim())]
        if space.name == "3d":
            sides.append(np.ptp(space.get_zlim()))  # type: ignore[attr-defined]
            space.set_box_aspect(sides, zoom=0.85)  # type: ignore[call-arg, arg-type]
            space.set(zlabel="")
        space.tick_params(labelsize="x-small")
        space.set(xlabel="", ylabel="")
        shape = 0.85 if space.name == "3d" else float(np.clip(sides[1] / sides[0], 0.5, 1.2))
        one.figure.set_size_inches(_CLIP_WIDTH, _CLIP_WIDTH * shape + 0.3)


def clip(motion: Animation, file: Path, caption: str) -> Picture:
    """A small animation, saved as a .gif file, and what is printed in its place."""
    motion.save(file, dpi=_CLIP_DPI, progress=False)
    still = io.BytesIO()
    motion.strobe().savefig(still, format="png", dpi=1.5 * _CLIP_DPI)
    small = io.BytesIO()
    with Image.open(still) as picture:
        picture.convert("RGB").quantize(_COLORS).save(small, "png", optimize=True)
    return Picture(data_url(file.read_bytes(), "gif"), caption, data_url(small.getvalue(), "png"))
