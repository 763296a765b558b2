"""One page about a study or a fit that opens anywhere, without a network.

It begins with the answers, then shows the motions, and ends with what they can be trusted for.
Pictures and animations are inside the page as data; its text comes from the templates in `page`.
"""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Any

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from jaxmech.cli.fit import Outcome
from jaxmech.config import python_files, write_whole
from jaxmech.config.errors import FolderError, InputError, StudyError
from jaxmech.ensemble import (
    Results,
    Study,
    as_table,
    failed,
    open_results,
    replays,
    summarize,
)
from jaxmech.identify import Fit
from jaxmech.plot import (
    HIGH,
    LOW,
    add_axes,
    animate,
    distribution,
    fit_over_data,
    is_series,
    legend_below,
    new_figure,
    residuals,
    statistic_drawings,
    styled,
    trajectory_figures,
    trust_drawings,
)
from jaxmech.status import Status, succeeded
from jaxmech.utils.text import capital, counted
from jaxmech.utils.units import with_unit

_MOST_DECIMALS = 6  # smaller numbers have an exponent
_TYPES = {"svg": "image/svg+xml", "gif": "image/gif"}
_WIDTH, _HEIGHT = 6.0, 3.3  # inches
_CLIP_WIDTH, _CLIP_DPI = 3.0, 80.0  # inches, and pixels per inch


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
    head: Sequence[str] = ()  # of a table
    rows: Sequence[Sequence[str]] = ()  # the last cell of each is a command
    pictures: Sequence[Picture] = ()
    clips: Sequence[Picture] = ()  # small ones, side by side
    note: str = ""
    parts: "Sequence[PagePart]" = ()
    is_closed: bool = False  # to be opened by the reader


def page(name: str, lead: str, parts: Sequence[PagePart], warnings: Sequence[str] = ()) -> str:
    """The text of a page, with a sentence below its name."""
    environment = Environment(
        loader=PackageLoader("jaxmech.cli", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        name=name,
        lead=lead,
        parts=parts,
        warnings=warnings,
        time=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("jaxmech"),
    )


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
    return Picture(_address(data.getvalue(), "svg"), caption, **settings)


def _address(data: bytes, kind: str) -> str:
    return f"data:{_TYPES[kind]};base64,{base64.b64encode(data).decode()}"


_MOST_QUANTITIES = 6
_NORMAL = 1.959963984540054  # of a two-sided interval of 95 %
_LEAST, _MOST_BINS = 8, 60  # members from which a distribution is drawn, and its bins


@dataclass(frozen=True, eq=False)
class MemberQuantity:
    """A number of each good member."""

    name: str  # with the time
    unit: str  # empty if it has none
    values: np.ndarray  # finite, (N,)
    numbers: np.ndarray  # of the members in the study, (N,)
    limits: tuple[float, ...] = ()  # whose probability was asked for
    is_worst_small: bool = False  # whether the smallest value is the worst one

    @property
    def members(self) -> dict[int, tuple[str, str]]:
        """The members at 5, 50 and 95 %, and the worst one: what each stands for, and its value."""
        order, last = np.argsort(self.values, kind="stable"), self.values.size - 1
        ranks = {f"at {100 * p:g} %": round(p * last) for p in (LOW, 0.5, HIGH)}
        ranks |= {"smallest": 0} if self.is_worst_small else {"largest": last}
        return {
            int(self.numbers[order[rank]]): (name, self._shown(self.values[order[rank]]))
            for name, rank in ranks.items()
        }

    def sentences(self) -> Iterator[str]:
        """Its mean with the interval, its quantiles, and the worst member."""
        x, mean = self.values, float(self.values.mean())
        half = float(_NORMAL * x.std(ddof=1) / np.sqrt(x.size))
        # As many decimals as show two digits of the interval's length.
        decimals = 1 - int(np.floor(np.log10(2 * half))) if 0 < half < np.inf else -1
        style = f"z,.{decimals}f" if 0 <= decimals <= _MOST_DECIMALS else ".6g"
        value, low, high = (f"{y:{style}}" for y in (mean, mean - half, mean + half))
        value = f"{value} {self.unit}".rstrip()
        yield f"The mean of {self.name} is {value} (95 % interval {low} to {high})."
        low, middle, high = (self._shown(y) for y in np.quantile(x, (LOW, 0.5, HIGH)))
        yield f"Half of the members are below {middle}, and 90 % are between {low} and {high}."
        for index, (name, value) in self.members.items():
            if not name.startswith("at"):  # no other member goes further
                yield f"The {name} value is {value}, of member {index:,}."

    def picture(self) -> Picture:
        x = self.values
        count = len(np.histogram_bin_edges(x, "auto")) - 1 if np.ptp(x) > 0 else 1
        draw = partial(
            distribution, *np.histogram(x, min(count, _MOST_BINS)),
            name=with_unit(self.name, self.unit),
            quantiles=np.quantile(x, (LOW, 0.5, HIGH)).tolist(), limits=self.limits,
        )  # fmt: skip
        return drawn(draw, f"The distribution of {self.name} over the members.")

    def _shown(self, value: Any) -> str:
        number = float(value)
        text = f"{number:.0f}" if 1e3 <= abs(number) < 1e6 else f"{number:.4g}"
        return f"{text} {self.unit}".rstrip()


def quantities(results: Results) -> list[MemberQuantity]:
    """The quantities of statistics, then the observed ones; without any, the coordinates."""
    names = [statistic["of"] for statistic in results.config.get("statistics", {}).values()]
    names = [*dict.fromkeys([*names, *results.config.get("observe", {})])]
    known = [*filter(None, (_quantity(results, name) for name in names))]
    if not known and results.has("q"):
        known = [*filter(None, (_quantity(results, name) for name in results.coordinates))]
    return known[:_MOST_QUANTITIES]


def _quantity(results: Results, name: str) -> MemberQuantity | None:
    """The stored numbers of a quantity, of a series those at the last time."""
    if name in results.coordinates and results.has("q"):
        x = results.good("q", times=[-1])[:, 0, results.coordinates.index(name)]
    elif not results.has(name):
        return None
    elif not is_series(results, name):
        x = results.good(name).astype(float)
        x = x.reshape(len(x), -1)[:, 0]
    elif results.dims(name) == ("trajectory", "time"):
        x = results.good(name, times=[-1])[:, 0].astype(float)
    else:
        return None
    known = np.isfinite(x)
    if known.sum() < _LEAST:
        return None
    statistics = results.config.get("statistics", {}).values()
    asked = [statistic for statistic in statistics if statistic["of"] == name]
    sides = [(side, x[side]) for x in asked for side in ("above", "below") if side in x]
    limits = tuple(dict.fromkeys(float(limit) for _, limit in sides))
    down = any(side == "below" for side, _ in sides)
    at = f" at t = {results.ts[-1]:g} s" if is_series(results, name) else ""
    numbers = results.members[results.is_good][known]
    return MemberQuantity(f"{name}{at}", results.unit_of(name), x[known], numbers, limits, down)


_MOST_CLIPS = 8  # members that are animated by default
_SECONDS, _FPS = 5.0, 10.0  # of an animation
_MOST_FAILURES = 100
_DRAWN = ("start_", "coordinate_", "velocity_", "parameter_")  # beginnings of drawn variables
_CAPTIONS = {
    "quantile_bands": "Quantiles of the coordinates over time: half of the members are in the "
    "dark band, and 90 % in both.",
    "observed_bands": "Quantiles of the observed quantities over time: half of the members are in "
    "the dark band, and 90 % in both.",
    "drift": "The largest constraint residuals over time, which projection keeps at round-off.",
    "energy": "The energy over time, whose change measures the error of the integration where no "
    "force does work.",
}
_COLUMN = 7.0  # inches of a picture that fits into half the page


def write_report(
    path: Path,
    out: Path | None = None,
    study: Study | None = None,
    folder: Path = Path(),
    tell: Callable[[str], None] = lambda message: None,
) -> Path:
    """Write the page about a run, finished or not, by default into its folder.

    Trajectories are animated where they can be replayed: if the configuration names Python files,
    with the `study` of the run, whose paths refer to `folder`.
    """
    results = open_results(path)
    if not results.blocks:
        raise FolderError(f"{path} has no finished block yet; there is nothing to report")
    summary = results.summary or summarize(results)
    asked, lost = quantities(results), failed(summary)
    lead = f"{summary['done']:,} of {summary['size']:,} trajectories, "
    lead += f"{lost:,} failed" if lost else "none failed"
    if len(results.blocks) < results.count and not results.summary:
        lead += "; the run is not finished"
    left_out = (
        f"{lost:,} of {summary['done']:,} members failed, and are left out of all answers; they "
        "are listed below, under Trust."
    )
    bad = results.members[~results.is_good]
    moving = _clips(results, asked, bad, study, folder, tell)
    parts = [*_parts(results, summary, asked, moving, bad)]
    out = path / "report.html" if out is None else out
    write_whole(out, page(results.name, f"{lead}.", parts, [left_out] if lost else []))
    return out


def _clips(
    results: Results, asked: Sequence[MemberQuantity], bad: np.ndarray,
    study: Study | None, folder: Path, tell: Callable[[str], None],
) -> list[Picture]:  # fmt: skip
    """Members in motion, of the first quantities, and one that failed.

    There are none if they cannot be computed again or have no shape.
    """
    leads = dict[int, str]()  # what each stands for
    for quantity in asked:
        ranks = quantity.members.items()
        more = {k: f"{quantity.name} {rank}: {value}" for k, (rank, value) in ranks}
        more = leads | {k: text for k, text in more.items() if k not in leads}
        leads = more if len(more) <= _MOST_CLIPS else leads
    leads = leads or dict.fromkeys(results.members[:1].tolist(), "")
    leads |= {k: "" for k in bad[:1].tolist() if k not in leads}
    try:
        trajectories = replays(results.path, [*leads], study, folder)
    except (InputError, StudyError) as error:
        tell(f"the page has no animation: {error}")
        return []
    motions, captions = list[Any](), list[str]()
    for trajectory in trajectories:
        k, model = trajectory.index, trajectory.subject.model
        if trajectory.last_good < 1 or model is None or model.geometry is None:
            continue
        path = trajectory.ts, trajectory.values["q"][:, : model.system.n]
        speed = max(float(np.ptp(trajectory.ts)) / _SECONDS, 1.0)
        motions.append(animate(model, path, trajectory.params, speed=speed, fps=_FPS))
        caption = f"{leads[k]}, member {k:,}." if leads[k] else f"Member {k:,}."
        if not succeeded(trajectory.status):
            at = float(trajectory.values["t_failed"])
            caption += f" It failed at t = {at:.4g} s: {trajectory.status.name}."
        captions.append(caption)

    # Small pictures that move, all on the same scale.
    space = [motion.ax for motion in motions]
    for letter in "xyz" if space and space[0].name == "3d" else "xy":
        ends = np.array([getattr(ax, f"get_{letter}lim")() for ax in space])
        for ax in space:
            ax.set(**{f"{letter}lim": (ends.min(), ends.max())})
    pictures = []
    for motion, ax, caption in zip(motions, space, captions, strict=True):
        ax.tick_params(labelsize="x-small")
        ax.set(xlabel="", ylabel="")
        if ax.name == "3d":
            sides = [np.ptp(x) for x in (ax.get_xlim(), ax.get_ylim(), ax.get_zlim())]
            ax.set_box_aspect(sides, zoom=0.85)
            ax.set(zlabel="")
            shape = 0.85
        else:
            shape = float(np.clip(np.ptp(ax.get_ylim()) / np.ptp(ax.get_xlim()), 0.5, 1.2))
        motion.figure.set_size_inches(_CLIP_WIDTH, _CLIP_WIDTH * shape + 0.3)
        pictures.append(Picture(_address(motion.gif(_CLIP_DPI), "gif"), caption))
    return pictures


def _parts(
    results: Results, summary: dict[str, Any], asked: Sequence[MemberQuantity],
    moving: Sequence[Picture], bad: np.ndarray,
) -> Iterator[PagePart]:  # fmt: skip
    for quantity in asked:
        sentences, pictures = [*quantity.sentences()], [quantity.picture()]
        label = with_unit(quantity.name, quantity.unit)
        yield PagePart(label, sentences=sentences, pictures=pictures)
    if moving:
        yield PagePart("Members", clips=moving)
    motions, trusted = list[Picture](), list[Picture]()
    if results.is_good.any():
        for name, figure in trajectory_figures(results):
            is_wide = float(figure.get_size_inches()[0]) > _COLUMN  # a grid of panels
            motions.append(of_figure(figure, _CAPTIONS[name], is_wide=is_wide))
        trusted += [drawn(x, _CAPTIONS[name], below=True) for name, x in trust_drawings(results)]
    for name, draw in statistic_drawings(results):
        settings = results.config["statistics"][name]
        kind = settings["statistic"].replace("-", " ").capitalize()
        motions.append(drawn(draw, f"{kind} of {settings['of']}."))
    if motions:
        yield PagePart("Motions", pictures=motions)
    yield PagePart("Numbers", text=as_table(summary), is_closed=True)
    parts = []
    if count := failed(summary):  # what was drawn for them, and the commands that replay them
        names = [x for x in results.group if x.startswith(_DRAWN)]
        names = [x for x in names if results.dims(x) == ("trajectory",)]
        config = " --config CONFIG" if python_files(results.config, results.path) else ""
        command = f"jaxmech replay {quote(str(results.path))}"
        rows = [
            (str(k), Status(int(results.rows("status", k))).name,
             *(f"{float(results.rows(name, k)):.6g}" for name in ("t_failed", *names)),
             f"{command} {k}{config}")
            for k in bad[:_MOST_FAILURES].tolist()
        ]  # fmt: skip
        head = ("trajectory", "status", "t [s]", *names, "to see it alone")
        note = f"{len(rows):,} of {count:,} are listed." if count > len(rows) else ""
        parts.append(PagePart("Failures", head=head, rows=rows, note=note))
    if trusted or parts:
        yield PagePart("Trust", pictures=trusted, parts=parts, is_closed=True)
    for title, name in (("Configuration", "config.toml"), ("Environment", "environment.json")):
        text = (results.path / name).read_text(encoding="utf-8")
        yield PagePart(title, text=text, is_closed=True)


_RECORDINGS = 3  # of which the motion and the residuals are drawn


def write_fit_report(fit: Fit, out: Path, name: str) -> Path:
    """Write the page about a fit.

    Args:
        fit: the fit, of this process or from a file.
        out: the file.
        name: title of the page.
    """
    recordings = counted(len(fit.train.recordings), "recording")
    state = "Converged" if fit.converged else "Not converged"
    lead = (
        f"{counted(len(fit.names), 'parameter')} from {fit.count:,} measurements in {recordings}. "
        f"{state} after {fit.optimization.evaluations} evaluations: {fit.optimization.reason}."
    )
    parts = [
        PagePart("Measured and fitted", pictures=[*_over_time(fit)]),
        PagePart("Parameters", text=str(Outcome(name, fit))),
        PagePart("Residuals", pictures=[*_over_time(fit, is_misfit=True)]),
    ]
    write_whole(out, page(name, lead, parts, fit.warnings))
    return out


def _over_time(fit: Fit, *, is_misfit: bool = False) -> Iterator[Picture]:
    """The motion of the first recordings and of a validation, or the residuals of the first."""
    for validation in (False,) if is_misfit else (False, True):
        part = fit.validation if validation else fit.train
        for k, recording in enumerate(part.recordings[: 1 if validation else _RECORDINGS]):
            caption = capital(recording.name)
            if is_misfit:
                caption += ": residuals over time, which should look like noise."
            else:
                caption += ", which was not fitted" if validation else ""
                caption += ": samples as dots, the simulated motion as lines."
            draw = residuals if is_misfit else fit_over_data
            sensors = fit.train.recordings[0].sensors
            draw_panel = partial(draw, fit, k, validation=validation, sensors=sensors)
            yield drawn(draw_panel, caption, below=True)
