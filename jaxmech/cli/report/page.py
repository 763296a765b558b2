"""`write_report`: one page about a run that opens anywhere, without a network."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from string import Template

from jaxmech.cli.report import sections
from jaxmech.cli.report.elements import html, together
from jaxmech.cli.report.media import animations, pictures
from jaxmech.config.run_folder import FolderError, write_whole
from jaxmech.ensemble import open_results
from jaxmech.ensemble.summary import summarize

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
    tell: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write the page about a run, finished or not, by default into its folder."""
    results = open_results(path)
    if not results.blocks:
        raise FolderError(f"{path} has no finished block yet; there is nothing to report")
    if not (results.summary or results.has_trajectories):
        text = "finish it with `jaxmech ensemble`: it stores statistics only"
        raise FolderError(f"{path} is not finished, and there is nothing to report; {text}")
    summary = results.summary or summarize(results)
    parts = [
        sections.headline(results, summary),
        sections.answers(results),
        sections.audit(summary),
        sections.bands(summary),
        pictures(results),
        animations(results, animated, folder, tell),
        sections.failures(results, summary),
        sections.configuration(results),
        sections.surroundings(results),
    ]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = _PAGE.substitute(
        title=html(f"{results.name}: {summary['done']:,} trajectories"),
        body=together(part for part in parts if part is not None),
        footer=html(f"{path}; written {now} by jaxmech {version('jaxmech')}"),
    )
    out = path / "report.html" if out is None else out
    write_whole(out, page)
    return out
