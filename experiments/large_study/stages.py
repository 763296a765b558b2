"""One study as computed by `jaxmech ensemble`, with the CPU seconds of each stage of the work.

Calls from Python are timed by the CPU clock of their thread, without inner calls that have a stage
of their own. XLA and Zarr have threads of their own, whose clocks are read when the stage changes.
The remaining CPU time of the whole process is the `rest`.

Usage: python -m experiments.large_study.stages CONFIG OUT RESULT
"""

import json
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

STAGES = {
    "start": "interpreter, imports",
    "compile": "checks, tracing, compiling",
    "draw": "draws",
    "kernel": "kernel",
    "copy": "copies",
    "merge": "merging statistics",
    "write": "writing",
    "summarize": "summary",
    "pictures": "pictures",
    "rest": "rest",
}
_THREADS = ("native", "zarr", "asyncio")  # of XLA and Zarr, which Python calls do not time


class Stages:
    """CPU seconds by stage, of all threads."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._own = threading.local()
        self._timed: set[int] = set()  # threads whose calls are timed
        self._others: dict[int, float] = {}

    def timed(self, stage: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Make fn add its CPU time in its thread to a stage."""

        @wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._timed.add(threading.get_native_id())
            begun, outer = time.thread_time(), getattr(self._own, "inner", 0.0)
            self._own.inner = 0.0
            try:
                return fn(*args, **kwargs)
            finally:
                whole = time.thread_time() - begun
                self.seconds[stage] += whole - self._own.inner
                self._own.inner = outer + whole

        return call

    def note_others(self, native: str, zarr: str) -> None:
        """Add the CPU time of the threads of XLA and Zarr since the last call to two stages."""
        names = {one.native_id: one.name for one in threading.enumerate()}
        for folder in Path("/proc/self/task").iterdir():
            number = int(folder.name)
            name = names.get(number, "native")
            if number in self._timed or not name.startswith(_THREADS):
                continue
            try:
                now = int((folder / "schedstat").read_text().split()[0]) / 1e9
            except (FileNotFoundError, ProcessLookupError):  # the thread has just ended
                continue
            self.seconds[native if name == "native" else zarr] += now - self._others.get(number, 0)
            self._others[number] = now


def instrument(stages: Stages) -> None:
    """Time the parts of a study."""
    import jax

    import jaxmech.ensemble.blocks.local as here
    from jaxmech import ensemble, plot
    from jaxmech.ensemble.blocks.accumulate import Accumulator
    from jaxmech.ensemble.blocks.kernel import BlockProgram
    from jaxmech.ensemble.draws.sampler import Sampler
    from jaxmech.ensemble.store.folder import RunFolder

    run = sys.modules["jaxmech.ensemble.run"]  # the package has a function of that name
    begin, blocks, pictures = BlockProgram.run, here.Work.all, plot.draw_pictures
    compiled: set[BlockProgram] = set()

    def compiled_first(self: Any, inputs: Any) -> Any:
        if isinstance(inputs.first, jax.core.Tracer):
            return begin(self, inputs)
        if self in compiled:
            return stages.timed("kernel", begin)(self, inputs)
        compiled.add(self)
        stages.note_others("kernel", "write")
        found = stages.timed("compile", begin)(self, inputs)
        stages.note_others("compile", "write")
        return found

    def all_blocks(self: Any, *args: Any) -> None:
        stages.note_others("compile", "compile")
        blocks(self, *args)
        stages.note_others("kernel", "write")

    def all_pictures(*args: Any) -> Any:
        stages.note_others("summarize", "summarize")
        found = stages.timed("pictures", pictures)(*args)
        stages.note_others("pictures", "pictures")
        return found

    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (ensemble, "run_study", stages.timed("compile", ensemble.run_study)),
        (plot, "draw_pictures", all_pictures),
        (run, "_conclude", stages.timed("summarize", vars(run)["_conclude"])),
        (here.Work, "all", stages.timed("rest", all_blocks)),
        (here, "arrays_of", stages.timed("copy", here.arrays_of)),
        (BlockProgram, "run", compiled_first),
        (BlockProgram, "finished", stages.timed("kernel", BlockProgram.finished)),
        (BlockProgram, "inputs", stages.timed("draw", BlockProgram.inputs)),
        (Sampler, "rows", stages.timed("draw", Sampler.rows)),
        (Accumulator, "add", stages.timed("merge", Accumulator.add)),
        (RunFolder, "write", stages.timed("write", RunFolder.write)),
        (jax, "device_get", stages.timed("copy", jax.device_get)),
    ]
    for owner, name, fn in replaced:
        setattr(owner, name, fn)


def main(config: Path, out: Path, result: Path) -> None:
    """Compute a study, and write its stages, its CPU and wall seconds and its peak memory."""
    from jaxmech.cli.main import main as jaxmech

    sys.argv = ["jaxmech", "ensemble", str(config), "--out", str(out)]
    stages = Stages()
    instrument(stages)
    stages.note_others("start", "start")
    stages.seconds["start"] = time.process_time()
    begun = time.perf_counter()
    code = jaxmech()
    wall, cpu = time.perf_counter() - begun, time.process_time()
    stages.seconds["rest"] += cpu - sum(stages.seconds.values())
    table = {
        "code": code,
        "cpu_seconds": cpu,
        "wall_seconds_after_start": wall,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "stages": {stage: stages.seconds[stage] for stage in STAGES},
    }
    result.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
