"""`run_study`: compute a study block by block into its run folder, or complete an existing one."""

import json
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from jaxmech.config import RunWarning, copies_of, npz, plain, write_whole
from jaxmech.config.errors import StoppedError
from jaxmech.ensemble.blocks.estimate import require_possible
from jaxmech.ensemble.blocks.kernel import (
    Accumulator,
    BlockProgram,
    arrays_of,
    compile_kernel,
    computed_blocks,
    with_steps,
)
from jaxmech.ensemble.blocks.plan import planned, require_used
from jaxmech.ensemble.cluster import MAY_DIFFER, compute_away, connected
from jaxmech.ensemble.finished.summary import as_table, summarize
from jaxmech.ensemble.members.observed import stored_study
from jaxmech.ensemble.store.folder import RunFolder, open_run, origin, with_stored_sizes
from jaxmech.ensemble.store.results import SUMMARY, open_results
from jaxmech.ensemble.study import Study


def run_study(
    study: Study,
    out: Path | str,
    *,
    folder: Path | str = Path(),
    progress: bool = False,
    tell: Callable[[str], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    client: Any = None,
) -> dict[str, Any]:
    """Run a study, or continue it where it was interrupted.

    The whole study is checked before any work. Results and statistics are bit-identical for all
    numbers of devices, and after any interruption. Blocks are computed on all devices of this
    process, or on `jax.default_device` if set; meanwhile the previous block is copied and stored.

    Args:
        study: the study.
        out: the run folder; it is created, or continued if it holds this study.
        folder: the folder to which relative paths of the study refer.
        progress: whether to show a progress bar on standard error, if that is a terminal.
        tell: function called with messages; by default it issues a `RunWarning`.
        stop: function called before each block; if it returns true, the run ends with
            `StoppedError`.
        client: a `distributed.Client` whose workers compute the blocks, or "local:4" for four
            processes of this machine, or the address of a scheduler, "tcp://host:8786" or
            "file:scheduler.json"; they must see the run folder and the files of the study.

    Returns:
        The summary, as it is stored in `summary.json`.

    Raises:
        StudyError: if the study is impossible; the message names the keys.
        FolderError: if the run folder cannot be used.
        StoppedError: if `stop` returned true; finished results are kept.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from jaxmech.ensemble import Study, Times, Uniform, run_study
        >>> study = Study(
        ...     model="pendulum",
        ...     size=8,
        ...     times=Times(end=1.0, saves=11),
        ...     start={"theta": Uniform(-1.0, 1.0)},
        ... )
        >>> with tempfile.TemporaryDirectory() as out:
        ...     summary = run_study(study, Path(out))
        >>> summary["done"], summary["status"]["OK"]["count"]
        (8, 8)
        >>> summary["worst"]["energy_drift"] < 1e-6
        True
    """
    out, folder = Path(out), Path(folder)
    tell = tell or partial(warnings.warn, category=RunWarning, stacklevel=2)
    plan = planned(with_stored_sizes(study, out), folder)
    subject, sampler = plan.subject, plan.sampler
    kernel = compile_kernel(with_steps(plan.study, subject, sampler), subject, sampler)
    study = kernel.member.study
    require_possible(study, kernel.stored_bytes, out)
    require_used(subject, sampler, study)
    accumulator = Accumulator(kernel)
    # What is stored names functions, by the copies of their files.
    named = replace(plan.named, steps=study.steps, block=study.block)
    files = copies_of(subject.name, subject.source, plan.files)
    config = plain(stored_study(named, subject, files, folder))
    facts = origin(study, subject, sampler)
    may_differ = MAY_DIFFER if client else ()
    with (
        connected(client) as workers,
        open_run(out, kernel, config, facts, files, may_differ, tell) as target,
    ):
        missing = target.missing()
        done, disable = study.size - target.trajectories(missing), None if progress else True
        with tqdm(total=study.size, initial=done, unit=" trajectories", disable=disable) as report:
            if workers is None:
                compute_here(kernel, target, accumulator, report, stop, set(missing))
            else:
                away = workers, named, folder
                compute_away(*away, target, accumulator, report, stop, set(missing))
        statistics, results = accumulator.results(), open_results(out)
        summary = summarize(results, statistics)
        json_, table, arrays = SUMMARY
        text = json.dumps(summary, indent=2, allow_nan=False)
        contents = {json_: f"{text}\n".encode(), table: as_table(summary).encode()}
        if statistics:
            found = ((name, key, x) for name, of in statistics.items() for key, x in of.items())
            contents[arrays] = npz({f"{name}/{key}": np.asarray(x) for name, key, x in found})
        # An unchanged file is left alone: a run that is only looked at again writes nothing.
        for name, content in contents.items():
            if not (out / name).is_file() or (out / name).read_bytes() != content:
                write_whole(out / name, content)
        return summary


def compute_here(
    kernel: BlockProgram, target: RunFolder, accumulator: Accumulator, progress: "tqdm[Any]",
    stop: Callable[[], bool], missing: set[int],
) -> None:  # fmt: skip
    """Compute the missing blocks of a run, and add up the statistics of all of them."""
    waiting: Future[None] | None = None  # of the thread that writes
    computed = computed_blocks(kernel, sorted(missing))
    # One thread writes, so that blocks reach the disk in order while the next is computed.
    with ThreadPoolExecutor(1) as writer:
        try:
            for block in range(target.count):
                if block in missing:
                    if stop():
                        raise StoppedError
                    inputs, results = next(computed)
                    if waiting is not None:
                        waiting.result()
                    arrays = arrays_of(kernel, inputs, results)
                    waiting = writer.submit(target.write, block, arrays)
                    if kernel.statistics:
                        accumulator.add(results.states)
                    progress.update(target.trajectories([block]))
                elif kernel.statistics:
                    accumulator.add(accumulator.unpacked(target.states(block)))
        finally:
            # What was computed is kept, also after an interruption or an error, which the result
            # of a future raises here if it was one of writing.
            computed.close()
            if waiting is not None:
                waiting.result()
