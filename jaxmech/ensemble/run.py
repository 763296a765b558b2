"""`run`: computes a study block by block into its run folder, or finishes what is there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

from jaxmech.ensemble.draws import draw
from jaxmech.ensemble.environment import environment
from jaxmech.ensemble.errors import refuse
from jaxmech.ensemble.kernel import Kernel, compile_kernel, save_times
from jaxmech.ensemble.layout import Layout
from jaxmech.ensemble.results import open_results
from jaxmech.ensemble.store import RunFolder, open_run, write_whole
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.subject import load
from jaxmech.ensemble.summary import as_json, as_table, summarize


def run(
    study: Study, out: Path, *, folder: Path = Path(), progress: bool = False
) -> dict[str, Any]:
    """Runs a study, or continues it where it was interrupted.

    Everything about the study is checked before any work. The results have the same bits whatever
    the chunks, and however often the run was interrupted.

    Args:
        study: what to compute.
        out: the run folder; it is created, or continued if it holds this study.
        folder: the folder to which a model's relative path refers.
        progress: whether to show a bar on the standard error, if that is a terminal.

    Returns:
        The summary, as it is stored in `summary.json`.

    Raises:
        StudyError: the study is impossible, naming the keys.
        FolderError: the run folder cannot be used.
    """
    study = study.resolved()
    _require_precision(study)
    subject = load(study.model, study.model_options, folder)
    variables = draw(study, subject)
    kernel = compile_kernel(study, subject, variables)
    names, ts = tuple(subject.system.coordinates), save_times(study)
    layout = Layout(study.size, names, ts, kernel.shapes(), variables, {"model": study.model})
    with open_run(out, study, subject, layout, environment(subject)) as target:
        missing = target.missing()
        with tqdm(
            total=study.size,
            initial=study.size - _trajectories(target, missing),
            unit=" trajectories",
            disable=None if progress else True,
        ) as bar:
            for blocks in _grouped(missing, study.chunk_size // study.block_size):
                _compute(kernel, target, blocks, bar.update)
        return _conclude(target)


def _compute(
    kernel: Kernel, target: RunFolder, blocks: list[int], done: Callable[[int], object]
) -> None:
    """Starts every block of a chunk, then stores one after the other."""
    started = [kernel.run(*kernel.inputs(block)) for block in blocks]
    for block, arrays in zip(blocks, started, strict=True):
        target.write(block, jax.device_get(arrays))
        done(_trajectories(target, [block]))


def _conclude(target: RunFolder) -> dict[str, Any]:
    summary = summarize(open_results(target.path))
    write_whole(target.path / "summary.json", as_json(summary))
    write_whole(target.path / "summary.txt", as_table(summary))
    return summary


def _trajectories(target: RunFolder, blocks: list[int]) -> int:
    return sum(min(target.block, target.size - block * target.block) for block in blocks)


def _grouped(blocks: list[int], count: int) -> list[list[int]]:
    return [blocks[i : i + count] for i in range(0, len(blocks), count)]


def _require_precision(study: Study) -> None:
    if study.precision == "float64" and not jax.config.read("jax_enable_x64"):
        advice = 'call jax.config.update("jax_enable_x64", True) first, or ask for float32'
        raise refuse("precision", f"must be float32, as this process computes; {advice}")
