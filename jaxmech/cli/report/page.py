"""`write_report`: one page about a study that opens anywhere, without a network.

It begins with the answers, then shows the motions, and ends with what they can be trusted for.
Pictures and animations are inside the page as data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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
    motion,
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
from jaxmech.plot import statistic_drawings, trajectory_figures
from jaxmech.status import Status, succeeded
from jaxmech.utils.units import with_unit

_MOST_CLIPS = 8  # members that are animated by default
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
    moving = _clips(results, asked, bad[:1].tolist(), animated, study, folder, tell)
    text = page(
        results.name,
        f"{lead}.",
        [*_parts(results, summary, asked, moving, animated or (), bad)],
        title=f"{results.name}: {summary['done']:,} trajectories",
        source=str(path),
        warnings=[left_out] if lost else [],
    )
    out = path / "report.html" if out is None else out
    write_whole(out, text)
    return out


def _clips(
    results: Results, asked: Sequence[MemberQuantity], first_bad: list[int],
    animated: Sequence[int] | None, study: Study | None, folder: Path,
    tell: Callable[[str], None],
) -> Mapping[int, Picture]:  # fmt: skip
    """Members in motion; by default those of the first quantities, and one that failed.

    There are none if they cannot be computed again or have no shape.
    """
    numbers = [*(animated or ())]
    if animated is None:
        for quantity in asked:
            more = [*dict.fromkeys([*numbers, *quantity.members])]
            numbers = more if len(more) <= _MOST_CLIPS else numbers
        if not numbers:
            numbers = [int(k) for k in results.members[:1]]
        numbers = [*dict.fromkeys([*numbers, *first_bad])]
    if not numbers:
        return {}
    try:
        trajectories = replays(results.path, numbers, study, folder)
    except (InputError, StudyError) as error:
        if animated is not None:
            raise
        tell(f"the page has no animation: {error}")
        return {}
    model = trajectories[0].subject.model
    if animated is not None and (model is None or model.geometry is None):
        raise InputError(f"{results.name} has no geometry, without which nothing is animated")
    motions, captions = {}, {}
    for one in trajectories:
        if one.last_good < 1 or model is None:
            continue
        q = one.values["q"][:, : model.system.n]
        motions[one.index] = motion(model, one.ts, q, one.params)
        at = float(one.values["t_failed"])
        failure = f"It failed at t = {at:.4g} s: {one.status.name}."
        captions[one.index] = "" if succeeded(one.status) else failure
    return clips(motions, captions)


def _parts(
    results: Results, summary: dict[str, Any], asked: Sequence[MemberQuantity],
    moving: Mapping[int, Picture], chosen: Sequence[int], bad: np.ndarray,
) -> Iterator[PagePart]:  # fmt: skip
    shown = {*chosen}  # each moves once, under the first quantity that it is typical of
    for quantity in asked:
        some = [
            _of_member(moving[k], k, f"{rank_name[:1].upper()}{rank_name[1:]}: {value}, member")
            for k, (rank_name, value) in quantity.members.items()
            if k in moving and k not in shown
        ]
        shown |= {*quantity.members}
        sentences, pictures = [*quantity.sentences()], [quantity.picture()]
        label = with_unit(quantity.name, quantity.unit)
        yield PagePart(label, sentences=sentences, pictures=pictures, clips=some)
    if some := [_of_member(moving[k], k) for k in chosen if k in moving]:
        yield PagePart("Chosen members", clips=some)
    pictures_of = dict(_pictures(results))
    if motions := [picture for name, picture in pictures_of.items() if name not in _OF_TRUST]:
        yield PagePart("Motions", pictures=motions)
    yield PagePart("Numbers", text=as_table(summary), is_closed=True)
    trusted = [pictures_of[x] for x in _OF_TRUST if x in pictures_of]
    parts = [_failures(results, failed(summary), moving, bad)] if failed(summary) else []
    if trusted or parts:
        yield PagePart("Trust", pictures=trusted, parts=parts, is_closed=True)
    for title, name in (("Configuration", "config.toml"), ("Environment", "environment.json")):
        text = (results.path / name).read_text(encoding="utf-8")
        yield PagePart(title, text=text, is_closed=True)


def _of_member(picture: Picture, index: int, lead: str = "Member") -> Picture:
    return replace(picture, caption=f"{lead} {index:,}. {picture.caption}".rstrip())


def _pictures(results: Results) -> Iterator[tuple[str, Picture]]:
    """The pictures of stored trajectories, and of statistics, by name."""
    if results.is_good.any():
        for name, figure in trajectory_figures(results):
            is_wide = float(figure.get_size_inches()[0]) > _COLUMN  # a grid of panels
            yield name, of_figure(figure, _CAPTIONS[name], is_wide=is_wide)
    of = results.config.get("statistics", {})
    for name, draw in statistic_drawings(results):
        quantity = of[name]["of"]
        shown = quantity if isinstance(quantity, str) else quantity[0]
        kind = of[name]["statistic"].replace("-", " ").capitalize()
        yield f"statistic {name}", drawn(draw, f"{kind} of {shown}.")


def _failures(
    results: Results, count: int, moving: Mapping[int, Picture], bad: np.ndarray
) -> PagePart:
    """What was drawn for the failed trajectories, and the commands that replay them."""
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
    seen = [_of_member(moving[k], k) for k in bad[:1].tolist() if k in moving]
    return PagePart("Failures", tables=[PageTable(head, rows)], clips=seen, note=note)
