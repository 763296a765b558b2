"""`jaxmech ensemble`: a study from its configuration file to its summary and pictures."""

import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxmech.cli.interrupt import graceful, resumable, tell
from jaxmech.config import read
from jaxmech.config.errors import InputError, StudyError
from jaxmech.ensemble import (
    Cluster,
    Study,
    as_json,
    as_table,
    failed,
    name_problems,
    open_results,
    run_study,
)
from jaxmech.plot import draw_pictures


def study_of(arguments: Namespace, config: Path, kind: type[Study]) -> Study:
    """Read the study of a configuration file, with the keys replaced by options."""
    study = read(config, kind, lambda data: name_problems(data, config.parent))
    if arguments.chunk is not None:
        study = replace(study, chunk=arguments.chunk)
    return replace(study, cluster=cluster_of(study.cluster, arguments.cluster))


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


def compute(arguments: Namespace, study: Study, config: Path, out: Path) -> tuple[str, bool]:
    """Run a study or a part of it; return its output, and whether few members failed."""
    start = time.perf_counter()
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
    if getattr(arguments, "json", False):
        return as_json(summary).rstrip(), _is_good(study, summary)
    lines = [as_table(summary), f"{seconds:.1f} s; results in {out / 'results.zarr'}"]
    if pictures:
        names = ", ".join(file.name for file in pictures)
        lines.append(f"pictures in {out / 'pictures'}: {names}")
    return "\n".join(lines), _is_good(study, summary)


def _is_good(study: Study, summary: dict[str, Any]) -> bool:
    return failed(summary) <= study.failed_allowed * study.size


def _part_message(summary: dict[str, Any], seconds: float) -> str:
    (first, last), finished, count = summary["part"], summary["done"], summary["blocks"]
    remedy = "the same command without --blocks computes the rest and the summary of all"
    if finished == count:
        remedy = "the same command without --blocks summarizes all of them"
    return f"{seconds:.1f} s; blocks {first}:{last} are done, {finished} of all {count}; {remedy}"
