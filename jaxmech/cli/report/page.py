"""`write_report`: one page about a run that opens anywhere, without a network.

Pictures and animations are inside the page as data.
"""

import base64
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from string import Template

import numpy as np

from jaxmech.cli.report import sections
from jaxmech.cli.report.elements import Html, element, html, section, together
from jaxmech.config.errors import InputError, StudyError
from jaxmech.config.run_folder import FolderError, write_whole
from jaxmech.config.trust import python_files
from jaxmech.display.animate import animate
from jaxmech.ensemble import Results, open_results
from jaxmech.ensemble.finished.replay import ReplayedTrajectory, replays
from jaxmech.ensemble.summary import summarize
from jaxmech.plot.ensemble_figures import draw_pictures
from jaxmech.status import succeeded

_SHOWN = 3  # trajectories that are animated by default
_SECONDS, _FPS, _DPI = 8.0, 12.5, 72.0
_TYPES = {".png": "image/png", ".gif": "image/gif"}
# The policy forbids the page to load anything: no script, and no image but those inside it.
_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem auto;
 max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.lead { font-size: 1.05rem; color: #444; margin: .2rem 0 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid #ddd;
 vertical-align: top; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
th { font-weight: 600; }
figure { display: inline-block; margin: 0 1rem 1rem 0; vertical-align: top;
 width: min(31rem, 100%); }
figure img { max-width: 100%; height: auto; border: 1px solid #eee; }
figcaption { color: #555; font-size: .9rem; }
details { margin: 1.5rem 0; } summary { font-size: 1.15rem; font-weight: 600; cursor: pointer; }
pre, code { font: 13px/1.4 ui-monospace, monospace; background: #f6f6f6; }
pre { padding: .8rem; overflow-x: auto; } code { padding: .1rem .3rem; white-space: nowrap; }
footer { color: #777; font-size: .85rem; margin-top: 3rem; }
</style>
</head>
<body>
$body
<footer>$footer</footer>
</body>
</html>
""")


def write_report(
    path: Path,
    out: Path | None = None,
    animated: Sequence[int] | None = None,
    folder: Path | None = None,
    tell: Callable[[str], None] = lambda message: None,
    *,
    trust: bool = False,
) -> Path:
    """Write the page about a run, finished or not, by default into its folder.

    Python files of the run are executed, to animate trajectories, only with `trust`.
    """
    results = open_results(path)
    if not results.blocks:
        raise FolderError(f"{path} has no finished block yet; there is nothing to report")
    if not (results.summary or results.has_trajectories):
        message = "finish it with `jaxmech ensemble`: it stores statistics only"
        raise FolderError(f"{path} is not finished, and there is nothing to report; {message}")
    summary = results.summary or summarize(results)
    parts = [
        sections.headline(results, summary),
        sections.answers(results),
        sections.audit(summary),
        sections.bands(summary),
        _pictures(results),
        _animations(results, animated, folder, tell, trust),
        sections.failures(results, summary),
        sections.configuration(results),
        sections.surroundings(results),
    ]
    timestamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = _PAGE.substitute(
        title=html(f"{results.name}: {summary['done']:,} trajectories"),
        body=together(part for part in parts if part is not None),
        footer=html(f"{path}; written {timestamp} by jaxmech {version('jaxmech')}"),
    )
    out = path / "report.html" if out is None else out
    write_whole(out, page)
    return out


def _pictures(results: Results) -> Html | None:
    """Embed all pictures of the run, which are drawn if they do not exist."""
    files = sorted((results.path / "pictures").glob("*.png")) or sorted(draw_pictures(results))
    if not files:
        return None
    return section("Pictures", *(_figure(file, file.stem.replace("_", " ")) for file in files))


def _animations(
    results: Results,
    chosen: Sequence[int] | None,
    folder: Path | None,
    tell: Callable[[str], None],
    trust: bool,
) -> Html | None:
    """Some trajectories in motion: the named ones, or the worst, a failed one and the first."""
    numbers = _shown_by_default(results) if chosen is None else list(chosen)
    if not numbers:
        return None
    if (files := python_files(results.config, results.path)) and not trust:
        message = f"animations execute {', '.join(map(str, files))}; --trust allows it"
        if chosen is not None:
            raise InputError(message)
        tell(f"the page has no animation: {message}")
        return None
    if files:
        tell(f"executing {', '.join(map(str, files))}")
    try:
        trajectories = replays(results.path, numbers, folder, trust=trust)
    except (InputError, StudyError) as error:
        if chosen is not None:
            raise
        tell(f"the page has no animation: {error}")
        return None
    model = trajectories[0].subject.model
    if model is None or model.geometry is None:
        if chosen is not None:
            raise InputError(f"{results.name} has no geometry, without which nothing is animated")
        return None
    with tempfile.TemporaryDirectory() as place:
        scenes = list(_animated(trajectories, Path(place)))
    return section("In motion", *scenes) if scenes else None


def _animated(trajectories: list[ReplayedTrajectory], folder: Path) -> Iterator[Html]:
    for trajectory in trajectories:
        model = trajectory.subject.model
        if model is None or trajectory.last_good < 1:
            continue
        speed = max(float(trajectory.ts[-1] - trajectory.ts[0]) / _SECONDS, 1.0)
        motion = animate(
            model, (trajectory.ts, trajectory.values["q"]), trajectory.params, speed=speed, fps=_FPS
        )
        file = motion.save(folder / f"{trajectory.index}.gif", dpi=_DPI, progress=False)
        end = "" if succeeded(trajectory.status) else f", {trajectory.status.name}"
        yield _figure(file, f"trajectory {trajectory.index:,}{end}")


def _shown_by_default(results: Results) -> list[int]:
    worst = [
        int(number)
        for statistic in results.statistics.values()
        if "index" in statistic and "q" in statistic
        for number in np.ravel(statistic["index"])[:1]
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
