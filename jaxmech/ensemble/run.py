"""`run_study`: compute a study block by block into its run folder, or complete an existing one."""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from jaxmech.config import npz, write_whole
from jaxmech.config.errors import RunWarning
from jaxmech.ensemble.blocks import BlockProgram, compile_kernel, compute_here
from jaxmech.ensemble.cluster import MAY_DIFFER, compute_away, connected
from jaxmech.ensemble.plan import origin, planned, require_used, with_steps
from jaxmech.ensemble.store import SUMMARY, StudyFolder, open_results, open_run
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.summary import as_table, summarize


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
    plan = planned(study, folder, out)
    require_used(plan)
    facts, may_differ = origin(plan), MAY_DIFFER if client else ()
    plan = with_steps(plan)
    kernel = compile_kernel(plan)
    kernel.require_possible(out)

    def write(name: str, content: bytes) -> None:
        # An unchanged file is left alone: a run that is only looked at again writes nothing.
        if not (out / name).is_file() or (out / name).read_bytes() != content:
            write_whole(out / name, content)

    with (
        connected(client) as workers,
        open_run(out, kernel, facts, may_differ, tell) as target,
    ):
        merged, missing, total = MergedStates(kernel, target), target.missing(), target.size
        done, disable = total - target.trajectories(missing), None if progress else True
        with tqdm(total=total, initial=done, unit=" trajectories", disable=disable) as report:

            def finished(block: int) -> None:
                report.update(target.trajectories([block]))
                merged.follow()

            if workers is not None:
                study = replace(kernel.plan.named, block=kernel.block)
                compute_away(workers, study, folder, target, missing, stop, finished)
            else:
                compute_here(kernel, missing, target.write, stop, finished)
        merged.follow()
        if study.statistics:
            results = kernel.results(merged.states)
            arrays = ((f"{name}/{key}", x) for name, of in results.items() for key, x in of.items())
            write(SUMMARY[2], npz({name: np.asarray(x) for name, x in arrays}))
        summary = summarize(open_results(out))
        text = json.dumps(summary, indent=2, allow_nan=False)
        write(SUMMARY[0], f"{text}\n".encode())
        write(SUMMARY[1], as_table(summary).encode())
        return summary


@dataclass(eq=False)
class MergedStates:
    """The states of the statistics of the first blocks of a run, merged in their order."""

    kernel: BlockProgram
    run: StudyFolder
    count: int = 0  # of the blocks
    states: Any = None

    def follow(self) -> None:
        """Merge the blocks that have been finished, up to the first one that is not."""
        while self.kernel.study.statistics and self.run.is_finished(self.count):
            states = self.kernel.unpacked(self.run.states(self.count))
            self.states = self.kernel.merge(self.states, states) if self.count else states
            self.count += 1
