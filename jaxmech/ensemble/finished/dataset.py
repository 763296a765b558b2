"""Runs as an `xarray.Dataset`: `open` an existing one, or `run` a study first."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmech.config import plain
from jaxmech.config.errors import InputError
from jaxmech.ensemble.run import run_study
from jaxmech.ensemble.store.layout import STATES
from jaxmech.ensemble.store.marks import RESULTS
from jaxmech.ensemble.store.results import open_results
from jaxmech.ensemble.study import Study

if TYPE_CHECKING:
    import xarray

_OVER_TIME = ("moments", "quantiles", "first-passage")  # statistics that may be of each saved time


def require_xarray() -> None:
    """Raise an InputError if xarray is not installed."""
    try:
        import xarray  # noqa: F401
    except ImportError as error:
        raise InputError(
            "datasets need xarray, which is not installed: pip install xarray; without "
            "it, jaxmech.ensemble.open_results reads a run folder"
        ) from error


def run(
    study: Study,
    out: Path | str | None = None,
    *,
    folder: Path | str = Path(),
    progress: bool = False,
    tell: Callable[[str], None] | None = None,
) -> "xarray.Dataset":
    """Compute a study, or its missing part, and open its results.

    Args:
        study: the study; its `cluster` says where to compute it.
        out: the run folder; by default one in `runs/` that is named by the model and the study, so
            that the same study is computed once.
        folder: to which relative paths of the study refer.
        progress: whether to show a progress bar, in a terminal.
        tell: function called with messages; by default a `RunWarning`.

    Returns:
        The dataset that `open` gives. `jaxmech.ensemble.run_study` is the same without xarray, and
        gives the summary.

    Raises:
        InputError: if xarray is not installed.
        StudyError: if the study is impossible; the message names the keys.
        FolderError: if the run folder cannot be used.
    """
    require_xarray()
    path = folder_of(study) if out is None else Path(out)
    run_study(study, path, folder=Path(folder), progress=progress, tell=tell)
    return open(path)


def open(run: Path | str) -> "xarray.Dataset":  # noqa: A001
    """The results of a run folder, finished or not, as a dataset that reads them when needed.

    Beside the stored arrays, it has the results of the statistics, as `<statistic>_<key>`, or as
    `statistic_<statistic>_<key>` where there is an array of that name. Trajectories of blocks that
    are not yet computed have the status -1. With dask installed, arrays are divided as they are
    stored.

    Args:
        run: the run folder.

    Raises:
        InputError: if xarray is not installed.
        FolderError: if the folder does not contain a run, or a file of a block is missing. Reading
            a chunk that was altered raises a ValueError of Zarr, by its checksum.
    """
    require_xarray()
    import xarray

    results = open_results(Path(run))
    dataset: xarray.Dataset = xarray.open_zarr(
        results.path / RESULTS, consolidated=False, zarr_format=3
    )
    dataset = dataset.drop_vars(STATES, errors="ignore")
    for name, values in results.statistics.items():
        kind = results.config.get("statistics", {}).get(name, {}).get("statistic")
        saves = len(results.ts) if kind in _OVER_TIME else -1
        variables = _variables(name, values, saves, results.statistic_units(name)).items()
        dataset = dataset.assign(
            {f"statistic_{key}" if key in dataset else key: x for key, x in variables}
        )
    summary = results.path / "summary.json"
    content = summary.read_text(encoding="utf-8") if summary.is_file() else ""
    return dataset.assign_attrs(run=str(results.path), summary=content)


def _variables(
    name: str, results: Mapping[str, np.ndarray], saves: int, units: Mapping[str, str]
) -> dict[str, Any]:
    variables = {}
    for key, value in results.items():
        array = np.asarray(value)
        dims = [f"{name}_{key}_{axis}" for axis in range(array.ndim)]
        if array.shape[:1] == (saves,) and key != "at":
            dims[0] = "time"
        attributes = {"units": units[key]} if key in units else {}
        variables[f"{name}_{key}"] = (tuple(dims), array, attributes)
    return variables


def folder_of(study: Study) -> Path:
    """The run folder of a study that names none: the same study has the same one."""
    settings = {k: x for k, x in plain(study).items() if k != "cluster"}
    code = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode()).hexdigest()
    return Path("runs") / f"{settings['model'].rpartition(':')[2]}-{code[:8]}"
