"""`run_study`: compute a study block by block into its run folder, or complete an existing one."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jaxmech.config import copies_of, plain, python_files, require_no_run_code, warn
from jaxmech.config.errors import InputError
from jaxmech.ensemble.blocks.accumulate import Accumulator, RunProgress, Shown, as_file
from jaxmech.ensemble.blocks.estimate import LARGE, bytes_of, in_bytes, require_possible
from jaxmech.ensemble.blocks.kernel import compile_kernel, with_steps
from jaxmech.ensemble.blocks.local import Work
from jaxmech.ensemble.blocks.plan import planned, require_used
from jaxmech.ensemble.cluster import MAY_DIFFER, compute_away, connected
from jaxmech.ensemble.finished.summary import as_json, as_table, summarize
from jaxmech.ensemble.members.observed import stored_study
from jaxmech.ensemble.statistics.worst import AUDIT
from jaxmech.ensemble.store.folder import RunContent, RunFolder, open_run, origin, with_stored_sizes
from jaxmech.ensemble.store.layout import Layout
from jaxmech.ensemble.store.marks import SUMMARY
from jaxmech.ensemble.store.results import open_results
from jaxmech.ensemble.study import Study


@dataclass(frozen=True)
class BlockRange:
    """The blocks from `first` up to, but not including, `last`."""

    first: int  # the first block
    last: int | None  # start of the next part; None for the end of the study

    @classmethod
    def parsed(cls, text: str) -> "BlockRange":
        """A part from a text such as "0:100", "100:" or "7"."""
        match = re.fullmatch(r"(\d+)(?::(\d*))?", text.strip())
        if not match:
            raise ValueError(f"must be of the form FIRST:LAST, such as 0:100, but is {text}")
        first, last = int(match[1]), match[2]
        part = cls(first, first + 1 if last is None else int(last) if last else None)
        if part.last is not None and part.last <= first:
            raise ValueError(f"must have a first block before the last, but is {text}")
        return part

    def of(self, count: int) -> range:
        """The blocks of the part, of `count` in all; the last part of an array may be shorter."""
        if self.first >= count:
            raise InputError(f"--blocks {self} must lie within the blocks of this study, 0:{count}")
        return range(self.first, count if self.last is None else min(self.last, count))

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.last is None else self.last}"


def run_study(
    study: Study,
    out: Path,
    *,
    folder: Path = Path(),
    progress: bool | Shown = False,
    tell: Callable[[str], None] | None = None,
    part: BlockRange | None = None,
    stop: Callable[[], bool] = lambda: False,
    client: Any = None,
) -> dict[str, Any]:
    """Run a study, or continue it where it was interrupted.

    The whole study is checked before any work. Results and statistics are bit-identical for all
    chunk sizes and numbers of devices, and after any interruption. Blocks are computed on all
    devices of this process, or on `jax.default_device` if set; meanwhile the previous block is
    copied and stored. No more than a chunk and a few blocks are in memory at a time.

    Args:
        study: the study.
        out: the run folder; it is created, or continued if it holds this study.
        folder: the folder to which relative paths of the study refer.
        progress: progress report on standard error: a bar if it is a terminal ("bar" or True),
            lines of JSON ("json"), or nothing.
        tell: function called with messages, such as the disk and memory that a large study needs,
            and the time that a long one will take; by default it issues a `RunWarning`.
        part: compute only these blocks, while other processes may compute other parts in the same
            folder; a run without a part then completes the study.
        stop: function called before each block; if it returns true, the run ends with
            `StoppedError`.
        client: a `distributed.Client` whose workers compute the blocks, in place of the `cluster`
            of the study; they must see the run folder and the files of the study.

    Returns:
        The summary, as it is stored in `summary.json`; for a part, the number of "blocks" of the
        study, the number "done", and "part", the first and last block.

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
    tell = tell or warn
    require_no_run_code(python_files(plain(study), folder), folder)
    plan = planned(with_stored_sizes(study, out), folder)
    subject, sampler = plan.subject, plan.sampler
    kernel = compile_kernel(
        with_steps(replace(plan.study, **plan.functions), subject, sampler), subject, sampler
    )
    study = kernel.member.study
    needs = require_possible(study, kernel.stored_bytes, bytes_of(kernel.states), out)
    require_used(subject, sampler, study)
    selection = None if part is None else part.of(-(-study.size // study.block_size))
    accumulator = Accumulator(kernel, study.until if selection is None else None)
    # What is stored names functions, by the copies of their files.
    named = replace(plan.study, steps=study.steps, block=study.block, chunk=study.chunk)
    files = copies_of(subject.name, subject.source, plan.files)
    at_rest = stored_study(named, files, folder)
    copies = {name: path for path, name in files.items() if path != subject.source}
    facts = origin(study, subject, sampler)
    may_differ = MAY_DIFFER if study.cluster or client else ()
    content = RunContent(at_rest, subject, Layout(kernel), facts, copies, may_differ)
    with (
        connected(client or study.cluster) as workers,
        open_run(out, content, tell, selection) as target,
    ):
        blocks = selection or range(target.count)
        missing = target.missing(blocks)
        if missing and max(needs) > LARGE:
            disk, memory = map(in_bytes, needs)
            tell(f"{study.size:,} trajectories take up to {disk} of disk and {memory} of memory")
        display: Shown = "bar" if progress is True else progress or "none"
        size = target.trajectories(blocks)
        with RunProgress(
            size, size - target.trajectories(missing), display, "trajectories"
        ) as report:
            if workers is not None:
                compute_away(
                    workers, named, folder, target, accumulator, report, stop, blocks,
                    set(missing),
                )  # fmt: skip
            else:
                work = Work(kernel, accumulator, target, report, tell, stop)
                work.all(blocks, set(missing))
        if selection is not None:
            finished = target.count - len(target.missing(range(target.count)))
            return {
                "blocks": target.count,
                "done": finished,
                "part": [selection.start, selection.stop],
            }
        return _conclude(target, accumulator)


def _conclude(target: RunFolder, accumulator: Accumulator) -> dict[str, Any]:
    target.discard_after(accumulator.blocks if accumulator.enough else target.count)
    statistics = accumulator.results()
    results = open_results(target.path)
    summary = summarize(results, statistics)
    json_, table, arrays = SUMMARY
    files = {json_: as_json(summary).encode(), table: as_table(summary).encode()}
    if statistics.keys() - {AUDIT}:
        files[arrays] = as_file(statistics)
    target.conclude(files)
    return summary
