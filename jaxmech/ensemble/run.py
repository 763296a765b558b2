"""`run`: compute a study block by block into its run folder, or finish what is there."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from jaxmech.analysis.states import State
from jaxmech.analysis.unused import unused_parameters
from jaxmech.config.errors import Problem, StudyError, refuse
from jaxmech.config.load import Subject, load
from jaxmech.config.run_folder import warn
from jaxmech.ensemble.checksums import SUMMARY
from jaxmech.ensemble.device_size import sized
from jaxmech.ensemble.draws import Variable, draw
from jaxmech.ensemble.estimate import LARGE, LONG, StudyEstimate, in_time, require_possible
from jaxmech.ensemble.kernel import BlockProgram, Tree, compile_kernel, save_times, with_substeps
from jaxmech.ensemble.layout import Layout
from jaxmech.ensemble.provenance import origin
from jaxmech.ensemble.results import open_results
from jaxmech.ensemble.store import (
    RunFolder,
    open_run,
    with_stored_block,
    with_stored_substeps,
)
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.summary import as_json, as_table, summarize


def run(
    study: Study,
    out: Path,
    *,
    folder: Path = Path(),
    progress: bool = False,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run a study, or continue it where it was interrupted.

    The whole study is checked before any work. The results have the same bits whatever the chunks,
    and however often the run was interrupted.

    Args:
        study: what to compute.
        out: the run folder; it is created, or continued if it holds this study.
        folder: the folder to which a model's relative path refers.
        progress: whether to show a progress bar on the standard error, if that is a terminal.
        tell: called with messages, such as damage that is repaired, the disk and memory of a large
            study, and the time that a long one will take; by default a `RunWarning`.

    Returns:
        The summary, as it is stored in `summary.json`.

    Raises:
        StudyError: the study is impossible, naming the keys.
        FolderError: the run folder cannot be used.
    """
    tell = tell or warn
    study, subject, variables, forecast = planned(with_stored_block(study, out), out, folder)
    study = with_substeps(with_stored_substeps(study, out), subject, variables)
    kernel = compile_kernel(study, subject, variables)
    shapes = kernel.shapes()
    require_use(subject, kernel.inputs(0))
    names, ts = tuple(subject.system.coordinates), save_times(study)
    layout = Layout(study.size, names, ts, shapes, variables, {"model": study.model})
    facts = origin(subject, kernel, variables)
    with open_run(out, study, subject, layout, facts, tell) as target:
        missing = target.missing()
        if missing and max(forecast.disk, forecast.memory) > LARGE:
            tell(f"{study.size:,} trajectories take {forecast}")
        with tqdm(
            total=study.size,
            initial=study.size - _trajectories(target, missing),
            unit=" trajectories",
            disable=None if progress else True,
        ) as bar:
            computed = _timed(_computed(kernel, missing), len(missing), tell)
            for blocks in _grouped(missing, study.chunk_size // study.block_size):
                held = list(islice(computed, len(blocks)))
                for block, arrays in zip(blocks, held, strict=True):
                    target.write(block, arrays)
                    bar.update(_trajectories(target, [block]))
        return _conclude(target)


def planned(
    study: Study, out: Path, folder: Path = Path()
) -> tuple[Study, Subject, tuple[Variable, ...], StudyEstimate]:
    """The study with its sizes, its system, draws and estimate: all checks without tracing."""
    _require_precision(study)
    subject = load(study.model, study.model_options, folder)
    study = sized(study, subject.system.n)
    forecast = require_possible(study, subject.system.n, out)
    return study, subject, draw(study, subject), forecast


def _computed(kernel: BlockProgram, blocks: list[int]) -> Iterator[dict[str, np.ndarray]]:
    """The results of one block after the other, the next computed while one is copied and stored.

    Never two at once: their LAPACK calls could wait for each other (see `BlockProgram`).
    """
    ahead = kernel.run(*kernel.inputs(blocks[0])) if blocks else {}
    for place in range(len(blocks)):
        inputs = kernel.inputs(blocks[place + 1]) if place + 1 < len(blocks) else None
        ready = jax.block_until_ready(ahead)
        ahead = kernel.run(*inputs) if inputs else {}
        yield jax.device_get(ready)


def _timed(
    computed: Iterator[dict[str, np.ndarray]], count: int, tell: Callable[[str], None]
) -> Iterator[dict[str, np.ndarray]]:
    """The same, with an estimate of the time after the second block, the first not to compile."""
    begun = 0.0
    for place, arrays in enumerate(computed):
        if place == 1:
            left = (count - 2) * (time.perf_counter() - begun)
            if left > LONG:
                tell(f"about {in_time(left)} for the other {count - 2} of {count} blocks")
        begun = time.perf_counter()
        yield arrays


def _conclude(target: RunFolder) -> dict[str, Any]:
    summary = summarize(open_results(target.path))
    json_, text = SUMMARY
    target.conclude({json_: as_json(summary), text: as_table(summary)})
    return summary


def _trajectories(target: RunFolder, blocks: list[int]) -> int:
    return sum(min(target.block, target.size - block * target.block) for block in blocks)


def _grouped(blocks: list[int], count: int) -> list[list[int]]:
    return [blocks[i : i + count] for i in range(0, len(blocks), count)]


def require_use(subject: Subject, inputs: tuple[Tree, Tree]) -> None:
    """Raise a StudyError for parameters that a bare `System` does not use."""
    varying, same = inputs
    first = {name: values[0] for name, values in varying["parameters"].items()}
    params = first | same["parameters"]
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
