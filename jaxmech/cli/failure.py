"""`jaxmech failure`: the probability of a failure from its configuration file."""

import json
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from jaxmech.cli.interrupt import graceful, resumable, tell
from jaxmech.cli.report.failure_page import write_failure_report
from jaxmech.config import named_files, read
from jaxmech.ensemble import Study, failure_probability, read_failure
from jaxmech.plot import draw_failure


def report(
    run: Path, out: Path | None, animated: Sequence[int] | None, study: Study | None, folder: Path
) -> Path:
    """Write the page about a folder again; of a model in a file, with the study as configured."""
    result, config = read_failure(run, study), run / "config.toml"
    if study is None:
        study = read(config, Study)
        if named_files(config):  # which the folder does not hold
            if animated is None:
                tell("a model in a file is animated with --config CONFIG only")
            animated = animated or ()
    return write_failure_report(
        result, out or run / "report.html", study, run.name, folder, animated
    )


def compute(arguments: Namespace, study: Study, config: Path) -> tuple[str, bool]:
    """Compute a probability, or continue it; return the output, and whether nothing is doubtful."""
    out = Path(arguments.out) if arguments.out else Path("runs") / f"{config.stem}_failure"
    start = time.perf_counter()
    with graceful() as stop, resumable(arguments, "out"):
        result = failure_probability(study, out, folder=config.parent, stop=stop, tell=tell)
    pictures = draw_failure(result, out / "pictures")
    page = write_failure_report(result, out / "report.html", study, config.stem, config.parent)
    if arguments.json:
        return json.dumps(result.as_dict(), indent=2), not result.doubts
    lines = [str(result), f"{time.perf_counter() - start:.1f} s; results in {out}"]
    lines += [f"a page about it is {page}"]
    lines += [f"pictures in {out / 'pictures'}: {', '.join(file.name for file in pictures)}"]
    return "\n".join(lines), not result.doubts
