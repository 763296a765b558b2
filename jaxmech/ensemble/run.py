"""`run`: compute a study block by block into its run folder, or finish what is there."""

import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.analysis.states import State
from jaxmech.analysis.unused import unused_parameters
from jaxmech.config.errors import Problem, StudyError, refuse
from jaxmech.config.load import Subject, load
from jaxmech.config.run_folder import warn
from jaxmech.ensemble.accumulate import Accumulator, as_file
from jaxmech.ensemble.checksums import SUMMARY
from jaxmech.ensemble.device_size import sized
from jaxmech.ensemble.draws import Sampler, stored_name
from jaxmech.ensemble.estimate import LARGE, LONG, StudyEstimate, in_time, require_possible
from jaxmech.ensemble.kernel import (
    Block,
    BlockProgram,
    Inputs,
    compile_kernel,
    with_substeps,
)
from jaxmech.ensemble.layout import STATES, Layout
from jaxmech.ensemble.progress import RunProgress, Shown
from jaxmech.ensemble.provenance import origin
from jaxmech.ensemble.quantities import copies_of, loaded, name_problems_of, stored_study
from jaxmech.ensemble.results import open_results
from jaxmech.ensemble.store import (
    RunFolder,
    open_run,
    with_stored_block,
    with_stored_substeps,
)
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.summary import as_json, as_table, summarize
from jaxmech.ensemble.trajectory import save_times


def run(
    study: Study,
    out: Path,
    *,
    folder: Path = Path(),
    progress: bool | Shown = False,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run a study, or continue it where it was interrupted.

    The whole study is checked before any work. Results and statistics have the same bits whatever
    the chunks and the number of devices, and however often the run was interrupted. Every device of
    this process computes a block, or the one that `jax.default_device` names; meanwhile the one
    before it is copied and stored. No more than a chunk and a few blocks are in memory at a time.

    Args:
        study: what to compute.
        out: the run folder; it is created, or continued if it holds this study.
        folder: the folder to which relative paths of the study refer.
        progress: what to show of it on the standard error: a bar, if that is a terminal ("bar" or
            True), lines of JSON ("json"), or nothing.
        tell: called with messages, such as damage that is repaired, the disk and memory of a large
            study, and the time that a long one will take; by default a `RunWarning`.

    Returns:
        The summary, as it is stored in `summary.json`.

    Raises:
        StudyError: the study is impossible, naming the keys.
        FolderError: the run folder cannot be used.
    """
    tell = tell or warn
    planned_ = planned(with_stored_block(study, out), out, folder)
    study, subject, sampler = planned_.study, planned_.subject, planned_.sampler
    named = replace(
        study, method=with_substeps(with_stored_substeps(study, out), subject, sampler).method
    )
    study = replace(named, observe=planned_.observe, statistics=planned_.statistics)
    kernel = compile_kernel(study, subject, sampler)
    shapes = kernel.shapes()
    first = kernel.inputs(0)
    require_use(subject, first)
    accumulator = Accumulator(kernel, shapes.states, study.until)
    layout = _layout(study, kernel, shapes, accumulator.state_bytes)
    facts = origin(subject, kernel, layout.variables, study)
    files = copies_of(planned_.files, subject)
    at_rest = stored_study(named, files, folder)
    copies = {name: path for path, name in files.items() if path != subject.source}
    with open_run(out, at_rest, subject, layout, facts, tell, copies) as target:
        missing = target.missing()
        if missing and max(planned_.forecast.disk, planned_.forecast.memory) > LARGE:
            tell(f"{study.size:,} trajectories take {planned_.forecast}")
        shown: Shown = "bar" if progress is True else progress or "none"
        with RunProgress(study.size, study.size - _trajectories(target, missing), shown) as told:
            work = Work(kernel, accumulator, target, told, study, tell)
            work.all(set(missing))
        return _conclude(target, accumulator)


@dataclass(frozen=True, eq=False)
class Planned:
    """A study that can be computed.

    Attributes:
        study: with its sizes.
        subject: its system.
        sampler: its draws.
        forecast: what it needs.
        observe: its quantities with functions in place of names.
        statistics: likewise.
        files: Python files that hold those functions.
    """

    study: Study
    subject: Subject
    sampler: Sampler
    forecast: StudyEstimate
    observe: dict[str, Any]
    statistics: dict[str, Any]
    files: list[Path]


def planned(study: Study, out: Path, folder: Path = Path()) -> Planned:
    """The study with its sizes, its system, draws and estimate: all checks without tracing."""
    _require_precision(study)
    subject = load(study.model, study.model_options, folder)
    coordinates = subject.system.coordinates
    problems = name_problems_of(study.observe, study.statistics, study.store, coordinates)
    if problems:
        raise StudyError(problems)
    observe, statistics, files = loaded(study.observe, study.statistics, folder)
    sampler = Sampler(study, subject, study.sampling, folder)
    study = sized(study, subject.system.n, sampler.points.group)
    forecast = require_possible(study, subject.system.n, out)
    return Planned(study, subject, sampler, forecast, observe, statistics, files)


def _layout(study: Study, kernel: BlockProgram, shapes: Block, state_bytes: int) -> Layout:
    """The arrays of the run folder."""
    last = min(kernel.block, study.size)
    ts = save_times(study)
    return Layout(
        size=study.size,
        coordinates=tuple(kernel.trajectory.system.coordinates),
        ts=ts[-1:] if study.store == "final" else ts,
        shapes=shapes.arrays,
        variables=kernel.sampler.rows(0, last),
        block=kernel.block,
        dimensions={
            name: () if quantity.keep != "all" else (f"time_every_{quantity.every}",)
            for name, quantity in study.observe.items()
            if quantity.keep != "all" or (quantity.every > 1 and study.store != "final")
        },
        state_bytes=state_bytes if study.statistics else 0,
        compression=study.compression,
        attributes={"model": study.model},
    )


@dataclass(frozen=True, eq=False)
class Work:
    """The computation of the blocks of a run, in order.

    Attributes:
        kernel: of a block.
        accumulator: of the statistics.
        target: the run folder.
        progress: is told what is done.
        study: with its chunk.
        tell: is told how long it will take.
    """

    kernel: BlockProgram
    accumulator: Accumulator
    target: RunFolder
    progress: RunProgress
    study: Study
    tell: Callable[[str], None]

    def all(self, missing: set[int]) -> None:
        """Compute the missing blocks, and add up the statistics of all of them.

        One thread writes; as many blocks wait for it as a chunk has, and no more.
        """
        most = max(self.study.chunk_size // self.study.block_size, 1)
        waiting: list[Future[None]] = []
        with_states = bool(self.study.statistics)
        clock = _Clock(len(missing), self.tell)
        computed = computed_blocks(self.kernel, sorted(missing))
        with ThreadPoolExecutor(1) as writer:
            try:
                for block in range(self.target.count):
                    if block in missing:
                        clock.tick()
                        inputs, found = next(computed)
                        arrays = self._arrays(inputs, found)
                        waiting.append(writer.submit(self.target.write, block, arrays))
                        while len(waiting) > most:
                            waiting.pop(0).result()
                        states = found.states
                    elif with_states:
                        states = self.accumulator.unpacked(self.target.states(block))
                    if with_states:
                        self.accumulator.add(states)
                    if block in missing:
                        done = _trajectories(self.target, [block])
                        failed = int(found.failed)
                        self.progress.add(done, failed, self.accumulator.estimates())
                    if self.accumulator.enough:
                        break
            finally:
                computed.close()
                for one in waiting:
                    one.result()

    def _arrays(self, inputs: Inputs, found: Block) -> dict[str, np.ndarray]:
        """What is stored of a block: results, draws, and the states of the statistics."""
        arrays = dict(found.arrays)
        if arrays:
            block = int(inputs.first) // self.kernel.block
            last = min(int(inputs.first) + self.kernel.block, self.target.size)
            drawn = self.kernel.sampler.rows(block * self.kernel.block, last)
            arrays |= {stored_name(v): v.values for v in drawn if v.varies}
        if self.study.statistics:
            arrays[STATES] = self.accumulator.packed(found.states)[None]
        return arrays


def computed_blocks(kernel: BlockProgram, blocks: list[int]) -> Generator[tuple[Inputs, Block]]:
    """The results of one block after the other; every device computes one at a time.

    What follows on a device is computed while a block is copied and stored.
    """
    prepared = map(kernel.inputs, blocks)
    devices = kernel.devices() if blocks else []

    def begun(device: jax.Device, inputs: Any) -> Any:
        there = jax.device_put(inputs, device)
        return device, inputs, there, kernel.run(there)

    running = deque(begun(*pair) for pair in zip(devices, prepared, strict=False))
    while running:
        device, inputs, there, ahead = running.popleft()
        following = next(prepared, None)
        ready = kernel.finished(there, ahead)
        if following is not None:
            running.append(begun(device, following))
        yield inputs, jax.device_get(ready)


@dataclass
class _Clock:
    """Estimates the time of all blocks after the second one, the first that is not compiled."""

    count: int
    tell: Callable[[str], None]
    place: int = -1
    begun: float = 0.0

    def tick(self) -> None:
        """A block begins."""
        self.place += 1
        if self.place == 2:
            left = (self.count - 2) * (time.perf_counter() - self.begun)
            if left > LONG:
                rest = f"the other {self.count - 2} of {self.count} blocks"
                self.tell(f"about {in_time(left)} for {rest}")
        self.begun = time.perf_counter()


def _conclude(target: RunFolder, accumulator: Accumulator) -> dict[str, Any]:
    statistics = accumulator.results()
    summary = summarize(open_results(target.path), statistics)
    json_, text, arrays = SUMMARY
    files = {json_: as_json(summary).encode(), text: as_table(summary).encode()}
    if accumulator.has_own:
        files[arrays] = as_file(statistics)
    target.conclude(files)
    return summary


def _trajectories(target: RunFolder, blocks: list[int]) -> int:
    return sum(min(target.block, target.size - block * target.block) for block in blocks)


def require_use(subject: Subject, inputs: Inputs) -> None:
    """Raise a StudyError for parameters that a bare `System` does not use."""
    first = {name: values[0] for name, values in inputs.varying["parameters"].items()}
    require_used(subject, first | inputs.same["parameters"])


def require_used(subject: Subject, params: dict[str, Any]) -> None:
    """Raise a StudyError for parameters that a bare `System` does not use."""
    if subject.model:
        return
    zero = jnp.zeros(subject.system.n)
    state = State(zero, zero, zero[0], params)
    unused = unused_parameters(subject.system, state, energy=True)
    known = ", ".join(sorted(params.keys() - set(unused))) or "none"
    problems = [
        Problem(("parameters", name), f"is not used by the system; it uses {known}")
        for name in unused
    ]
    if problems:
        raise StudyError(problems)


def _require_precision(study: Study) -> None:
    if study.precision == "float64" and not jax.config.read("jax_enable_x64"):
        advice = 'call jax.config.update("jax_enable_x64", True) first, or ask for float32'
        raise refuse("precision", f"must be float32, as this process computes; {advice}")
