"""`write_report`: one page about a study that opens anywhere, without a network.

It begins with the answers, then shows the motions, and ends with what they can be trusted for.
Pictures and animations are inside the page as data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxmech.cli.report import tables
from jaxmech.cli.report.answers import MemberQuantity, answers, confidences, quantities
from jaxmech.cli.report.layout import PagePart, Picture, clips, drawn, of_figure, page
from jaxmech.config import FolderError, write_whole
from jaxmech.config.errors import InputError, StudyError
from jaxmech.ensemble import Results, Study, failed, open_results, replays, summarize
from jaxmech.plot import distribution, influences, statistic_drawings, trajectory_figures
from jaxmech.status import succeeded

_MOST_CLIPS = 8  # members that are animated by default
_OVER_TIME = ("quantiles", "moments", "first-passage")  # statistics that may be of each saved time
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
    out = path / "report.html" if out is None else out
    asked = quantities(results)
    numbers = _animated_by_default(results, asked) if animated is None else [*animated]
    moving = _clips(results, numbers, animated is not None, study, folder, tell)
    parts = _parts(results, summary, asked, moving, animated or ())
    title = f"{results.name}: {tables.number_text(summary['done'])} trajectories"
    lead = tables.lead(results, summary)
    text = page(
        results.name, lead, [*parts], title=title, source=str(path), warnings=_warnings(summary)
    )
    write_whole(out, text)
    return out


def _warnings(summary: dict[str, Any]) -> list[str]:
    count = failed(summary)
    if not count:
        return []
    left_out = f"{count:,} of {summary['done']:,} members failed, and are left out of all answers"
    return [f"{left_out}; they are listed below, under Trust."]


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
    if clips := [_of_member(moving[k], k) for k in chosen if k in moving]:
        yield PagePart("Chosen members", clips=clips)
    pictures = dict(_pictures(results))
    if motions := [picture for name, picture in pictures.items() if name not in _OF_TRUST]:
        yield PagePart("Motions", pictures=motions)
    cards, quantiles = answers(results), tables.quantile_tables(summary)
    if cards or quantiles:
        note = f"Intervals of {confidences(results)} are below their values; arrays in full are in"
        note = f"{note} statistics.npz." if cards else ""
        yield PagePart("Numbers", cards=cards, tables=quantiles, note=note, is_closed=True)
    yield _trust(results, summary, [pictures[x] for x in _OF_TRUST if x in pictures], moving)
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


def _answer(quantity: MemberQuantity, moving: Mapping[int, Picture]) -> PagePart:
    """The distribution of a quantity, what it depends on, and its typical and worst members."""
    pictures = []
    if quantity.density is not None:
        settings: dict[str, Any] = {
            "name": quantity.label,
            "mean": quantity.mean,
            "limits": quantity.limits,
        }
        draw = partial(distribution, quantity.density, **settings)
        pictures.append(drawn(draw, f"The distribution of {quantity.name} over the members."))
    if quantity.influence is not None:
        shown = quantity.influence.strongest()
        caption = f"What {quantity.name} depends on: {shown.measure}, with intervals of 95 %."
        height = 1.1 + 0.34 * max(len(shown.names), 3)
        pictures.append(drawn(partial(influences, shown), caption, height=height))
    clips = [
        _of_member(moving[one.index], one.index, f"{one.rank_name}: {one.value}")
        for one in quantity.members
        if one.index in moving
    ]
    return PagePart(quantity.label, sentences=quantity.sentences, pictures=pictures, clips=clips)


def _of_member(clip: Picture, index: int, rank_name: str = "") -> Picture:
    words = (
        f"{rank_name[:1].upper()}{rank_name[1:]}, member {index:,}."
        if rank_name
        else f"Member {index:,}."
    )
    return replace(clip, caption=f"{words} {clip.caption}".rstrip())


def _trust(
    results: Results,
    summary: dict[str, Any],
    pictures: list[Picture],
    moving: Mapping[int, Picture],
) -> PagePart:
    """How members ended, their residuals and errors, and the failed ones."""
    parts = [PagePart(tables=tables.audit_tables(summary))]
    if pictures:
        parts.append(PagePart(pictures=pictures))
    if failures := tables.failure_table(results, summary):
        count = len(failures.table.rows)
        listed = f"{count:,} of {failures.count:,} are listed." if failures.count > count else ""
        clips = [_of_member(moving[k], k) for k in _first_failure(results) if k in moving]
        parts.append(PagePart("Failures", tables=[failures.table], clips=clips, note=listed))
    return PagePart("Trust", parts=parts, is_closed=True)


def _pictures(results: Results) -> Iterator[tuple[str, Picture]]:
    """The pictures of stored trajectories, and of statistics over time, by name."""
    if results.has_trajectories and np.any(succeeded(results.status)):
        for name, figure in trajectory_figures(results):
            yield name, of_figure(figure, _CAPTIONS[name], is_wide=_is_wide(figure))
    of = results.config.get("statistics", {})
    for name, draw in statistic_drawings(results):
        if (kind := of[name]["statistic"]) in _OVER_TIME:
            caption = f"{kind.replace('-', ' ').capitalize()} of {of[name]['of']} over time."
            yield f"statistic {name}", drawn(draw, caption)


def _is_wide(figure: Figure) -> bool:
    """Whether a grid of panels needs the whole width of the page."""
    return float(figure.get_size_inches()[0]) > _COLUMN


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
