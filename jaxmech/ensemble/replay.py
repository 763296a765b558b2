"""`replay`: recompute one trajectory of a run alone and bit-identically, from its number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.config import RunFolder, Subject, environment, python_files, structure
from jaxmech.config.errors import InputError
from jaxmech.ensemble.blocks import BlockProgram
from jaxmech.ensemble.member import first_of
from jaxmech.ensemble.plan import planned
from jaxmech.ensemble.store import MAY_CHANGE, Results, open_results
from jaxmech.ensemble.study import LANES, SAVED, Study
from jaxmech.ensemble.summary import WORST
from jaxmech.status import Status, succeeded

SERIES = (*SAVED, "rates")
_ENVIRONMENT = ("jaxmech_sha256", "jax", "jaxlib", "platform", "device", "processor", "xla_flags")


@dataclass(frozen=True, eq=False)
class ReplayedTrajectory:
    """One trajectory of a run; prints itself."""

    results: Results  # the run
    subject: Subject  # the system of the run
    index: int  # index of the trajectory
    drawn: dict[str, np.ndarray]  # its drawn values, by the names of the stored arrays
    params: dict[str, Any]  # all parameters
    ts: np.ndarray  # saved times [s], shape (T,)
    values: dict[str, np.ndarray]  # series of `simulate`, shape (T, ...), and its audit, by name
    compared: dict[str, bool]  # whether the bits are as stored, by array; empty if nothing is
    other: tuple[str, ...]  # differences between the environment of the run and this one

    @property
    def status(self) -> Status:
        return Status(int(self.values["status"]))

    @property
    def last_good(self) -> int:
        """The last saved time at which the state is finite."""
        finite = np.isfinite(self.values["q"]).all(1) & np.isfinite(self.values["v"]).all(1)
        return int(np.flatnonzero(finite)[-1]) if finite.any() else 0

    def __str__(self) -> str:
        return "\n".join(_card(self))


def replay(
    path: Path | str, index: int, study: Study | None = None, folder: Path | str = Path()
) -> ReplayedTrajectory:
    """Compute one trajectory of a run again, alone.

    The Python files in the run folder are not executed. If its configuration names some, pass the
    study from which the run was made.

    Args:
        path: the run folder, of a finished run or not.
        index: the number of the trajectory, from 0.
        study: the study of the run; by default the stored one, for a model of the catalogue or an
            MJCF or URDF file.
        folder: the folder to which relative paths of `study` refer.

    Raises:
        InputError: if there is no such trajectory, or the run needs its `study`.
        FolderError: if the run folder cannot be read, is damaged, or is of another study.
        StudyError: if a file that the configuration names is missing.
    """
    return replays(path, [index], study, folder)[0]


def replays(
    path: Path | str, indices: Sequence[int], study: Study | None = None,
    folder: Path | str = Path(),
) -> list[ReplayedTrajectory]:  # fmt: skip
    """Compute some trajectories of a run again, one after the other, as `replay` does."""
    path, folder = Path(path), Path(folder)
    results = open_results(path)
    if study is None:
        if files := python_files(results.config, path):
            names = ", ".join(file.name for file in files)
            raise InputError(
                f"the configuration of {path} names {names}, whose copies in the run folder are "
                "not executed; name the configuration from which the run was made, by --config "
                "(`study` and `folder` in Python)"
            )
        study, folder = structure(results.config, Study), path
    else:  # with the sizes of the run, which it must be of
        whole = planned(study, folder, path)
        config, _ = whole.recorded
        RunFolder(path).require_same_config(config, MAY_CHANGE)
        study = whole.named
    for index in indices:
        if not 0 <= index < study.size:
            range_text = f"the trajectories 0 to {study.size - 1}"
            raise InputError(f"{path} has {range_text}, but {index} is not one of them")
    quantities = {item.of for item in study.events.values()}  # which are part of the program
    observe = {name: item for name, item in study.observe.items() if name in quantities}
    alone = replace(study, observe=observe, statistics={}, store="all", save=SERIES)
    plan = planned(alone, folder)
    program = BlockProgram(plan, LANES)
    differing = tuple(RunFolder(path).changes(environment(), _ENVIRONMENT))
    replayed = []
    for index in indices:
        # The same trajectory in every lane: a program for a single one might round differently.
        inputs = program.inputs_between(index, index + 1)
        block = jax.device_get(program.finished(inputs, program.run(inputs)))
        values = {name: np.asarray(array[0]) for name, array in block.arrays.items()}
        compared = {}
        if index // int(results.config["block"]) in results.blocks:
            for name in filter(results.has, values):
                last = name in SERIES and study.store == "final"
                value = values[name][-1:] if last else values[name]
                compared[name] = value.tobytes() == results.rows(name, index).tobytes()
        rows = plan.sampler.rows(index, index + 1)
        drawn = {v.stored_name: np.asarray(v.values[0]) for v in rows if v.varies}
        params = plan.member.params(first_of(inputs.varying, inputs.shared))
        parts = results, plan.subject, index, drawn, params, plan.member.ts, values, compared
        replayed.append(ReplayedTrajectory(*parts, differing))
    return replayed


def _card(trajectory: ReplayedTrajectory) -> Iterator[str]:
    results, values, status = trajectory.results, trajectory.values, trajectory.status
    seed = results.config.get("seed", 0)
    yield f"trajectory {trajectory.index:,} of {results.size:,} of {results.name}, seed {seed}"
    yield f"  {'status':<19}{status.name}: {status.message}"
    if not succeeded(status):
        last = trajectory.last_good
        yield f"  {'failed at':<19}t = {float(values['t_failed']):.6g} s"
        q, v = (_vector(values[name][last]) for name in ("q", "v"))
        yield f"  {'last finite save':<19}t = {trajectory.ts[last]:.6g} s, number {last}"
        yield f"  {'  q':<19}{q}"
        yield f"  {'  v':<19}{v}"
    for key, name in WORST.items():
        number = float(values[name])
        is_open = name == "energy_drift" and succeeded(status) and np.isnan(number)
        yield f"  {key.replace('_', ' '):<19}{'not conserved' if is_open else f'{number:.3g}'}"
    yield f"  {'smallest rank':<19}{int(values['rank'])}"
    width = max([19, *(len(name) + 1 for name in trajectory.drawn)])
    for name, value in trajectory.drawn.items():
        yield f"  {name:<{width}}{_vector(np.atleast_1d(value))}"
    wrong = [name for name, is_identical in trajectory.compared.items() if not is_identical]
    if not trajectory.compared:
        yield "  the run stores no array of this trajectory to compare with"
    elif not wrong:
        yield f"  bit-identical to what is stored: {', '.join(trajectory.compared)}"
    else:
        why = f", since {'; '.join(trajectory.other)}" if trajectory.other else ""
        yield f"  differs from what is stored{why}: {', '.join(wrong)}"


def _vector(values: np.ndarray) -> str:
    return ", ".join(f"{x:.8g}" for x in np.ravel(values))
