"""Pictures and animations of a run, inside the page as data."""

import base64
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from jaxmech.animate import animate
from jaxmech.cli.report.elements import Html, element, section
from jaxmech.config.errors import InputError, StudyError
from jaxmech.ensemble import Results
from jaxmech.ensemble.finished.replay import ReplayedTrajectory, replays
from jaxmech.plot.ensemble_figures import draw_pictures
from jaxmech.status import succeeded

_SHOWN = 3  # trajectories that are animated by default
_SECONDS, _FPS, _DPI = 8.0, 12.5, 72.0
_TYPES = {".png": "image/png", ".gif": "image/gif"}


def pictures(results: Results) -> Html | None:
    """Embed all pictures of the run, which are drawn if they do not exist."""
    drawn = list((results.path / "pictures").glob("*.png")) or draw_pictures(results)
    files = sorted(drawn)
    if not files:
        return None
    return section("Pictures", *(_figure(file, file.stem.replace("_", " ")) for file in files))


def animations(
    results: Results, chosen: Sequence[int] | None, folder: Path | None, tell: Callable[[str], None]
) -> Html | None:
    """Some trajectories in motion: the named ones, or the worst, a failed one and the first."""
    numbers = _default(results) if chosen is None else list(chosen)
    if not numbers:
        return None
    try:
        found = replays(results.path, numbers, folder)
    except (InputError, StudyError) as error:
        if chosen is not None:
            raise
        tell(f"the page has no animation: {error}")
        return None
    model = found[0].subject.model
    if model is None or model.geometry is None:
        if chosen is not None:
            raise InputError(f"{results.name} has no geometry, without which nothing is animated")
        return None
    with tempfile.TemporaryDirectory() as place:
        shown = list(_animated(found, Path(place)))
    return section("In motion", *shown) if shown else None


def _animated(found: list[ReplayedTrajectory], folder: Path) -> Iterator[Html]:
    for one in found:
        model = one.subject.model
        if model is None or one.last_good < 1:
            continue
        speed = max(float(one.ts[-1] - one.ts[0]) / _SECONDS, 1.0)
        motion = animate(model, (one.ts, one.values["q"]), one.params, speed=speed, fps=_FPS)
        file = motion.save(folder / f"{one.index}.gif", dpi=_DPI, progress=False)
        end = "" if succeeded(one.status) else f", {one.status.name}"
        yield _figure(file, f"trajectory {one.index:,}{end}")


def _default(results: Results) -> list[int]:
    worst = [
        int(number)
        for found in results.statistics.values()
        if "index" in found and "q" in found
        for number in np.ravel(found["index"])[:1]
    ]
    first = [int(b) * int(results.config["block"]) for b in results.blocks[:1]]
    failed = []
    if results.has_trajectories:
        ended_well = np.asarray(succeeded(results.status[: int(results.config["block"])]))
        bad, good = np.flatnonzero(~ended_well), np.flatnonzero(ended_well)
        failed = [first[0] + int(k) for k in bad[:1]]
        first = [first[0] + int(k) for k in good[:2]]
    return list(dict.fromkeys([*worst, *failed, *first]))[:_SHOWN]


def _figure(file: Path, caption: str) -> Html:
    data = base64.b64encode(file.read_bytes()).decode()
    kind = _TYPES[file.suffix]
    image = Html(
        element("img", src=f"data:{kind};base64,{data}", alt=caption).removesuffix("</img>")
    )
    return element("figure", image, element("figcaption", caption))
