"""`write_report`: one page about a study that opens anywhere, without a network.

It begins with the answers, then shows the motions, and ends with what they can be trusted for.
Pictures and animations are inside the page as data.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from jaxmech.cli.report.answers import MemberQuantity, quantities
from jaxmech.cli.report.layout import (
    CommandCell,
    PagePart,
    PageTable,
    Picture,
    clips,
    drawn,
    of_figure,
    page,
)
from jaxmech.config import FolderError, python_files, write_whole
from jaxmech.config.errors import InputError, StudyError
from jaxmech.ensemble import (
    Results,
    Study,
    array_of,
    as_table,
    failed,
    open_results,
    replays,
    summarize,
)
from jaxmech.plot import animate, statistic_drawings, trajectory_figures
from jaxmech.status import Status, succeeded
from jaxmech.utils.units import with_unit

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
_OF_TRUST = ("drift", "energy")
_COLUMN = 7.0  # inches of a picture that fits into half the page


def write_report(
    path: Path,
    out: Path | None = None,
    animated: Sequence[int] | None = None,
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
    moving = _clips(results, asked, bad, animated, study, folder, tell)
    text = page(
        results.name,
        f"{lead}.",
        [*_parts(results, summary, asked, moving, bad)],
        title=f"{results.name}: {summary['done']:,} trajectories",
        source=str(path),
        warnings=[left_out] if lost else [],
    )
    out = path / "report.html" if out is None else out
    write_whole(out, text)
    return out


def _clips(
    results: Results, asked: Sequence[MemberQuantity], bad: np.ndarray,
    animated: Sequence[int] | None, study: Study | None, folder: Path,
    tell: Callable[[str], None],
) -> list[Picture]:  # fmt: skip
    """Members in motion; by default those of the first quantities, and one that failed.

    There are none if they cannot be computed again or have no shape.
    """
    leads = dict.fromkeys(animated or (), "")  # what each stands for
    if animated is None:
        for one in asked:
            ranks = one.members.items()
            more = {k: f"{one.name} {rank}: {value}" for k, (rank, value) in ranks}
            more = leads | {k: text for k, text in more.items() if k not in leads}
            leads = more if len(more) <= _MOST_CLIPS else leads
        leads = leads or dict.fromkeys(results.members[:1].tolist(), "")
        leads = leads | {k: "" for k in bad[:1].tolist() if k not in leads}
    if not leads:
        return []
    try:
        trajectories = replays(results.path, [*leads], study, folder)
    except (InputError, StudyError) as error:
        if animated is not None:
            raise
        tell(f"the page has no animation: {error}")
        return []
    model = trajectories[0].subject.model
    if animated is not None and (model is None or model.geometry is None):
        raise InputError(f"{results.name} has no geometry, without which nothing is animated")
    motions, captions = {}, {}
    for trajectory in trajectories:
        k = trajectory.index
        if trajectory.last_good < 1 or model is None or model.geometry is None:
            continue
        path = trajectory.ts, trajectory.values["q"][:, : model.system.n]
        speed = max(float(np.ptp(trajectory.ts)) / _SECONDS, 1.0)
        motions[k] = animate(model, path, trajectory.params, speed=speed, fps=_FPS)
        captions[k] = f"{leads[k]}, member {k:,}." if leads[k] else f"Member {k:,}."
        if not succeeded(trajectory.status):
            at = float(trajectory.values["t_failed"])
            captions[k] += f" It failed at t = {at:.4g} s: {trajectory.status.name}."
    return [*clips(motions, captions).values()]


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
    pictures_of: dict[str, Picture] = {}  # of stored trajectories, and of statistics
    for name, figure in trajectory_figures(results) if results.is_good.any() else ():
        is_wide = float(figure.get_size_inches()[0]) > _COLUMN  # a grid of panels
        pictures_of[name] = of_figure(figure, _CAPTIONS[name], is_wide=is_wide)
    for name, draw in statistic_drawings(results):
        settings = results.config["statistics"][name]
        of, kind = settings["of"], settings["statistic"].replace("-", " ").capitalize()
        shown = of if isinstance(of, str) else of[0]
        pictures_of[f"statistic {name}"] = drawn(draw, f"{kind} of {shown}.")
    if motions := [picture for name, picture in pictures_of.items() if name not in _OF_TRUST]:
        yield PagePart("Motions", pictures=motions)
    yield PagePart("Numbers", text=as_table(summary), is_closed=True)
    trusted = [pictures_of[x] for x in _OF_TRUST if x in pictures_of]
    parts = []
    if count := failed(summary):  # what was drawn for them, and the commands that replay them
        names = [x for x in results.group if x.startswith(_DRAWN)]
        names = [x for x in names if array_of(results.group, x).shape == (results.size,)]
        config = " --config CONFIG" if python_files(results.config, results.path) else ""
        command = f"jaxmech replay {quote(str(results.path))}"
        rows = [
            (str(k), Status(int(results.rows("status", k))).name,
             *(float(results.rows(name, k)) for name in ("t_failed", *names)),
             CommandCell(f"{command} {k}{config}"))
            for k in bad[:_MOST_FAILURES].tolist()
        ]  # fmt: skip
        head = ("trajectory", "status", "t [s]", *names, "to see it alone")
        note = f"{len(rows):,} of {count:,} are listed." if count > len(rows) else ""
        parts.append(PagePart("Failures", tables=[PageTable(head, rows)], note=note))
    if trusted or parts:
        yield PagePart("Trust", pictures=trusted, parts=parts, is_closed=True)
    for title, name in (("Configuration", "config.toml"), ("Environment", "environment.json")):
        text = (results.path / name).read_text(encoding="utf-8")
        yield PagePart(title, text=text, is_closed=True)
