"""`write_report`: one page about a study that opens anywhere, without a network.

It begins with the answers, then shows the motions, and ends with what they can be trusted for.
Pictures and animations are inside the page as data.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from jaxmech.cli.report.answers import MemberQuantity, answers, confidences, quantities
from jaxmech.cli.report.layout import PagePart, Picture, clips, drawn, of_figure, page
from jaxmech.cli.report.tables import CommandCell, PageTable
from jaxmech.config import FolderError, python_files, stored_environment, write_whole
from jaxmech.config.errors import InputError, StudyError
from jaxmech.ensemble import (
    Results,
    Study,
    array_of,
    failed,
    open_results,
    read_mark,
    replays,
    rows_of_coordinates,
    summarize,
)
from jaxmech.plot import distribution, influences, statistic_drawings, trajectory_figures
from jaxmech.status import Status, succeeded

_MOST_CLIPS = 8  # members that are animated by default
_MOST_FAILURES = 100
_OVER_TIME = ("quantiles", "moments", "first-passage")  # statistics that may be of each saved time
_DRAWN = ("start_", "coordinate_", "velocity_", "parameter_")  # beginnings of drawn variables
_CAPTIONS = {
    "quantile_bands": "Quantiles of the coordinates over time: half of the members are in the "
    "dark band, and 90 % in both.",
    "observed_bands": "Quantiles of the observed quantities over time: half of the members are in "
    "the dark band, and 90 % in both.",
    "phase_portrait": "The coordinates and their velocities at all saved times of all members.",
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
    if not (results.summary or results.has_trajectories):
        message = "finish it with `jaxmech ensemble`: it stores statistics only"
        raise FolderError(f"{path} is not finished, and there is nothing to report; {message}")
    summary = results.summary or summarize(results)
    asked, lost = quantities(results), failed(summary)
    numbers = _animated_by_default(results, asked) if animated is None else [*animated]
    moving = _clips(results, numbers, animated is not None, study, folder, tell)
    lead = f"{summary['done']:,} of {summary['size']:,} trajectories, "
    lead += f"{lost:,} failed" if lost else "none failed"
    if len(results.blocks) < results.count and not results.summary:
        lead += "; the run is not finished"
    left_out = (
        f"{lost:,} of {summary['done']:,} members failed, and are left out of all answers; they "
        "are listed below, under Trust."
    )
    text = page(
        results.name,
        f"{lead}.",
        [*_parts(results, summary, asked, moving, animated or ())],
        title=f"{results.name}: {summary['done']:,} trajectories",
        source=str(path),
        warnings=[left_out] if lost else [],
    )
    out = path / "report.html" if out is None else out
    write_whole(out, text)
    return out


def _parts(
    results: Results,
    summary: dict[str, Any],
    asked: Sequence[MemberQuantity],
    moving: Mapping[int, Picture],
    chosen: Sequence[int],
) -> Iterator[PagePart]:
    shown = {*chosen}  # each moves once, under the first quantity that it is typical of
    for quantity in asked:
        new = {one.index for one in quantity.members} - shown
        yield _answer(quantity, {k: moving[k] for k in new if k in moving})
        shown |= new
    if some := [_of_member(moving[k], k) for k in chosen if k in moving]:
        yield PagePart("Chosen members", clips=some)
    pictures = dict(_pictures(results))
    if motions := [picture for name, picture in pictures.items() if name not in _OF_TRUST]:
        yield PagePart("Motions", pictures=motions)
    cards, tables = answers(results), list[PageTable]()
    quantiles = summary["quantiles"]
    if quantiles and summary["done"] > failed(summary):
        head = ("coordinate", *(f"{100 * p:g} %" for p in quantiles["probabilities"]))
        rows = [(name, *numbers) for name, numbers in rows_of_coordinates(quantiles)]
        caption = f"Quantiles at t = {quantiles['times'][-1]:g} s"
        tables = [PageTable(head, rows, caption=caption)]
    if cards or tables:
        note = f"Intervals of {confidences(results)} are below their values; arrays in full are in"
        note = f"{note} statistics.npz." if cards else ""
        yield PagePart("Numbers", cards=cards, tables=tables, note=note, is_closed=True)
    yield _trust(results, summary, [pictures[x] for x in _OF_TRUST if x in pictures], moving)
    configuration = (results.path / "config.toml").read_text(encoding="utf-8")
    yield PagePart("Configuration", text=configuration, is_closed=True)
    facts = {
        name: x if isinstance(x, str) else json.dumps(x)
        for name, x in stored_environment(results.path).items()
    }
    tables = [PageTable(("fact", "value"), [pair for pair in facts.items() if pair[1]])]
    marks = (read_mark(results.path, block) for block in results.blocks)
    kinds = Counter(mark.processor for mark in marks if mark)
    del kinds[""]
    several = ""
    if len(kinds) > 1:
        tables.append(PageTable(("processor", "blocks"), [*kinds.items()]))
        several = "Several kinds of processors computed this run; the last bits may differ."
    yield PagePart("Environment", tables=tables, note=several, is_closed=True)


def _answer(quantity: MemberQuantity, moving: Mapping[int, Picture]) -> PagePart:
    """The distribution of a quantity, what it depends on, and its typical and worst members."""
    pictures = []
    if quantity.density is not None:
        draw = partial(
            distribution, quantity.density, name=quantity.label, mean=quantity.mean,
            limits=quantity.limits,
        )  # fmt: skip
        pictures.append(drawn(draw, f"The distribution of {quantity.name} over the members."))
    if quantity.influence is not None:
        strongest = quantity.influence.strongest()
        caption = f"What {quantity.name} depends on: {strongest.measure}, with intervals of 95 %."
        height = 1.1 + 0.34 * max(len(strongest.names), 3)
        pictures.append(drawn(partial(influences, strongest), caption, height=height))
    some = [
        _of_member(moving[one.index], one.index, f"{one.rank_name}: {one.value}")
        for one in quantity.members
        if one.index in moving
    ]
    return PagePart(quantity.label, sentences=quantity.sentences, pictures=pictures, clips=some)


def _of_member(clip: Picture, index: int, rank_name: str = "") -> Picture:
    member = f"{rank_name[:1].upper()}{rank_name[1:]}, member" if rank_name else "Member"
    return replace(clip, caption=f"{member} {index:,}. {clip.caption}".rstrip())


def _trust(
    results: Results,
    summary: dict[str, Any],
    pictures: list[Picture],
    moving: Mapping[int, Picture],
) -> PagePart:
    """How members ended, their residuals and errors, and the failed ones."""
    ends = [(name, x["count"], x["message"]) for name, x in summary["status"].items()]
    worst = [(name.replace("_", " "), value) for name, value in summary["worst"].items()]
    worst.append(("smallest rank", summary["smallest_rank"]))
    if summary["too_coarse"]:
        worst.append(("trajectories with too large a step", summary["too_coarse"]))
    if summary.get("with_missed_events"):
        worst.append(("trajectories with missed events", summary["with_missed_events"]))
    audit = [
        PageTable(("status", "count", "meaning"), ends, "How trajectories ended"),
        PageTable(("", "largest"), worst, "The worst of the successful trajectories"),
    ]
    parts = [PagePart(tables=audit)]
    if pictures:
        parts.append(PagePart(pictures=pictures))
    if count := failed(summary):
        table = _failures(results, summary)
        listed = len(table.rows)
        note = f"{listed:,} of {count:,} are listed." if count > listed else ""
        some = [_of_member(moving[k], k) for k in _first_failure(results) if k in moving]
        parts.append(PagePart("Failures", tables=[table], clips=some, note=note))
    return PagePart("Trust", parts=parts, is_closed=True)


def _failures(results: Results, summary: dict[str, Any]) -> PageTable:
    """The failed trajectories, with what was drawn for them and the commands that replay them."""
    rows: list[tuple[Any, ...]] = [(int(index), "", "") for index in summary.get("failed", ())]
    names: list[str] = []
    if results.has_trajectories:
        bad = results.members[~np.asarray(succeeded(results.status))][:_MOST_FAILURES]
        names = [
            name
            for name in results.group
            if name.startswith(_DRAWN) and array_of(results.group, name).shape == (results.size,)
        ]
        rows = [
            (
                k, Status(int(results.rows("status", k))).name,
                *(float(results.rows(name, k)) for name in ("t_failed", *names)),
            )
            for k in bad.tolist()
        ]  # fmt: skip
    config = " --config CONFIG" if python_files(results.config, results.path) else ""
    command = f"jaxmech replay {quote(str(results.path))}"
    lines = [(str(k), *rest, CommandCell(f"{command} {k}{config}")) for k, *rest in rows]
    return PageTable(("trajectory", "status", "t [s]", *names, "to see it alone"), lines)


def _pictures(results: Results) -> Iterator[tuple[str, Picture]]:
    """The pictures of stored trajectories, and of statistics over time, by name."""
    if results.has_trajectories and np.any(succeeded(results.status)):
        for name, figure in trajectory_figures(results):
            is_wide = float(figure.get_size_inches()[0]) > _COLUMN  # a grid of panels
            yield name, of_figure(figure, _CAPTIONS[name], is_wide=is_wide)
    of = results.config.get("statistics", {})
    for name, draw in statistic_drawings(results):
        if (kind := of[name]["statistic"]) in _OVER_TIME:
            caption = f"{kind.replace('-', ' ').capitalize()} of {of[name]['of']} over time."
            yield f"statistic {name}", drawn(draw, caption)


def _clips(
    results: Results,
    numbers: Sequence[int],
    is_asked: bool,
    study: Study | None,
    folder: Path,
    tell: Callable[[str], None],
) -> Mapping[int, Picture]:
    """Members in motion, by number; none if they cannot be computed again or have no shape."""
    if not numbers:
        return {}
    try:
        trajectories = replays(results.path, numbers, study, folder)
    except (InputError, StudyError) as error:
        if is_asked:
            raise
        tell(f"the page has no animation: {error}")
        return {}
    model = trajectories[0].subject.model
    if is_asked and (model is None or model.geometry is None):
        raise InputError(f"{results.name} has no geometry, without which nothing is animated")
    return clips(trajectories)


def _animated_by_default(results: Results, asked: Sequence[MemberQuantity]) -> list[int]:
    """The members of the first quantities, and one that failed."""
    numbers: list[int] = []
    for quantity in asked:
        more = dict.fromkeys([*numbers, *(one.index for one in quantity.members)])
        numbers = [*more] if len(more) <= _MOST_CLIPS else numbers
    if results.has_trajectories and not numbers:
        numbers = [int(k) for k in results.members[:1]]
    return [*dict.fromkeys([*numbers, *_first_failure(results)])]


def _first_failure(results: Results) -> list[int]:
    if not results.has_trajectories:
        return []
    return [int(k) for k in results.members[~np.asarray(succeeded(results.status))][:1]]
