"""`jaxmech failure`: the probability of a failure from its configuration file."""

import json
import time
from argparse import Namespace
from pathlib import Path

from jaxmech.cli.interrupt import graceful, resumable, tell
from jaxmech.cli.report.failure_page import write_failure_report
from jaxmech.ensemble import Study, failure_probability
from jaxmech.plot import draw_failure


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
