"""`write_report`: one page about a run that opens anywhere, without a network.

Pictures and animations are inside the page as data.
"""

import base64
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from jaxmech.cli.report import tables
from jaxmech.cli.report.answers import Answer, answers, confidences
from jaxmech.cli.report.tables import PageTable
from jaxmech.config.errors import InputError, StudyError
from jaxmech.config.run_folder import FolderError, write_whole
from jaxmech.display.animate import animate
from jaxmech.ensemble import Results, open_results
from jaxmech.ensemble.finished.replay import ReplayedTrajectory, replays
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.summary import summarize
from jaxmech.plot.ensemble_figures import draw_pictures
from jaxmech.status import succeeded

_SHOWN = 3  # trajectories that are animated by default
_SECONDS, _FPS, _DPI = 8.0, 12.5, 72.0
_TYPES = {".png": "image/png", ".gif": "image/gif"}


@dataclass(frozen=True)
class Picture:
    """A picture inside the page."""

    address: str  # its data as a URL
    caption: str


@dataclass(frozen=True, kw_only=True)
class PagePart:
    """A part of the page; without a title its tables, which have titles, are beside each other."""

    title: str = field(default="", kw_only=False)
    cards: Sequence[Answer] = ()
    text: str = ""
    tables: Sequence[PageTable] = ()
    pictures: Sequence[Picture] = ()
    note: str = ""
    is_closed: bool = False  # to be opened by the reader


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
    if not (results.summary or results.has_trajectories):
        message = "finish it with `jaxmech ensemble`: it stores statistics only"
        raise FolderError(f"{path} is not finished, and there is nothing to report; {message}")
    summary = results.summary or summarize(results)
    out = path / "report.html" if out is None else out
    parts = _parts(results, summary, _animations(results, animated, study, folder, tell))
    title = f"{results.name}: {tables.number_text(summary['done'])} trajectories"
    lead = tables.lead(results, summary)
    write_whole(out, page(results.name, lead, list(parts), title=title, source=str(path)))
    return out


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


def _parts(
    results: Results, summary: dict[str, Any], animations: Sequence[Picture]
) -> Iterator[PagePart]:
    if cards := answers(results):
        note = f"Intervals of {confidences(results)} are below their values; arrays in full are in"
        yield PagePart("Answers", cards=cards, note=f"{note} statistics.npz.")
    yield PagePart(tables=tables.audit_tables(summary))
    for title, pictures in (("Pictures", _pictures(results)), ("In motion", animations)):
        if pictures:
            yield PagePart(title, pictures=pictures)
    if failures := tables.failure_table(results, summary):
        count = len(failures.table.rows)
        listed = f"{count:,} of {failures.count:,} are listed." if failures.count > count else ""
        yield PagePart("Failures", tables=[failures.table], note=listed)
    configuration = (results.path / "config.toml").read_text(encoding="utf-8")
    yield PagePart("Configuration", text=configuration, is_closed=True)
    environment = [tables.environment_table(results)]
    several = ""
    if processors := tables.processor_table(results):
        environment.append(processors)
        several = (
            "Several kinds of processors computed this run; the last bits of results may differ."
        )
    yield PagePart("Environment", tables=environment, note=several, is_closed=True)


def _pictures(results: Results) -> list[Picture]:
    files = sorted((results.path / "pictures").glob("*.png")) or sorted(draw_pictures(results))
    return [_picture(file, file.stem.replace("_", " ")) for file in files]


def _animations(
    results: Results,
    chosen: Sequence[int] | None,
    study: Study | None,
    folder: Path,
    tell: Callable[[str], None],
) -> list[Picture]:
    """Some trajectories in motion: the chosen ones, or the worst, a failed one and the first."""
    numbers = _animated_by_default(results) if chosen is None else list(chosen)
    if not numbers:
        return []
    try:
        trajectories = replays(results.path, numbers, study, folder)
    except (InputError, StudyError) as error:
        if chosen is not None:
            raise
        tell(f"the page has no animation: {error}")
        return []
    model = trajectories[0].subject.model
    if model is None or model.geometry is None:
        if chosen is not None:
            raise InputError(f"{results.name} has no geometry, without which nothing is animated")
        return []
    with tempfile.TemporaryDirectory() as scratch:
        return list(_animated(trajectories, Path(scratch)))


def _animated(trajectories: list[ReplayedTrajectory], folder: Path) -> Iterator[Picture]:
    for trajectory in trajectories:
        model, ts = trajectory.subject.model, trajectory.ts
        if model is None or trajectory.last_good < 1:
            continue
        speed = max(float(ts[-1] - ts[0]) / _SECONDS, 1.0)
        q, params = trajectory.values["q"], trajectory.params
        motion = animate(model, (ts, q), params, speed=speed, fps=_FPS)
        file = motion.save(folder / f"{trajectory.index}.gif", dpi=_DPI, progress=False)
        status = trajectory.status
        end = "" if succeeded(status) else f", {status.name}"
        yield _picture(file, f"trajectory {trajectory.index:,}{end}")


def _animated_by_default(results: Results) -> list[int]:
    worst = [
        int(index)
        for values in results.statistics.values()
        if "index" in values and "q" in values
        for index in np.ravel(values["index"])[:1]
    ]
    block = int(results.config["block"])
    first = [int(b) * block for b in results.blocks[:1]]
    failures = []
    if results.has_trajectories:
        is_good = np.asarray(succeeded(results.status[:block]))
        failures = [first[0] + int(k) for k in np.flatnonzero(~is_good)[:1]]
        first = [first[0] + int(k) for k in np.flatnonzero(is_good)[:2]]
    return list(dict.fromkeys([*worst, *failures, *first]))[:_SHOWN]


def _picture(file: Path, caption: str) -> Picture:
    data = base64.b64encode(file.read_bytes()).decode()
    return Picture(f"data:{_TYPES[file.suffix]};base64,{data}", caption)
