"""`jaxmech ensemble` and `jaxmech failure`, from a configuration file to results and pictures."""

import json
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxmech.cli.interrupt import graceful, resumable, tell
from jaxmech.cli.report.failure_page import write_failure_report
from jaxmech.config import named_files, read
from jaxmech.config.errors import InputError, StudyError
from jaxmech.ensemble import (
    Cluster,
    Study,
    as_table,
    failed,
    failure_probability,
    open_results,
    read_failure,
    run_study,
)
from jaxmech.plot import draw_failure, draw_pictures


def out_of(arguments: Namespace, name: str) -> Path:
    """The run folder: that of the option, or one of that name in `runs`."""
    return Path(arguments.out) if arguments.out else Path("runs") / name


def cluster_of(table: Cluster | None, scheduler: str | None) -> Cluster | None:
    """The table `cluster` with the scheduler of the option in place of its own."""
    if scheduler is None:
        return table
    try:
        if table is None:
            return Cluster(scheduler=scheduler)
        workers = None if ":" in scheduler else table.workers
        return replace(table, scheduler=scheduler, workers=workers)
    except StudyError as error:
        problems = (f"--cluster {scheduler}: cluster.{problem}" for problem in error.problems)
        raise InputError("; ".join(problems)) from error


def compute(arguments: Namespace, study: Study, config: Path) -> tuple[str, bool]:
    """Run a study or a part of it; return its output, and whether few members failed."""
    chunk = study.chunk if arguments.chunk is None else arguments.chunk
    study = replace(study, chunk=chunk, cluster=cluster_of(study.cluster, arguments.cluster))
    out, start = out_of(arguments, config.stem), time.perf_counter()
    with graceful() as stop, resumable(arguments, "out", "blocks", "cluster"):
        summary = run_study(
            study,
            out,
            folder=config.parent,
            progress=arguments.progress,
            tell=tell,
            part=arguments.blocks,
            stop=stop,
        )
    if arguments.blocks:
        return _part_message(summary, time.perf_counter() - start), True
    seconds, pictures = time.perf_counter() - start, draw_pictures(open_results(out))
    lines = [as_table(summary), f"{seconds:.1f} s; results in {out / 'results.zarr'}"]
    if pictures:
        names = ", ".join(file.name for file in pictures)
        lines.append(f"pictures in {out / 'pictures'}: {names}")
    return "\n".join(lines), failed(summary) <= study.failed_allowed * study.size


def _part_message(summary: dict[str, Any], seconds: float) -> str:
    (first, last), finished, count = summary["part"], summary["done"], summary["blocks"]
    remedy = "the same command without --blocks computes the rest and the summary of all"
    if finished == count:
        remedy = "the same command without --blocks summarizes all of them"
    return f"{seconds:.1f} s; blocks {first}:{last} are done, {finished} of all {count}; {remedy}"


def failure_report(
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


def compute_failure(arguments: Namespace, study: Study, config: Path) -> tuple[str, bool]:
    """Compute a probability, or continue it; return the output, and whether nothing is doubtful."""
    out = out_of(arguments, f"{config.stem}_failure")
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
