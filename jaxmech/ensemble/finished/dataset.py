"""A run as an `xarray.Dataset`, read when it is needed, and `run_study`, which computes it first."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmech.config.convert import plain
from jaxmech.config.errors import InputError
from jaxmech.ensemble.checksums import RESULTS
from jaxmech.ensemble.results import Results, open_results
from jaxmech.ensemble.study import Study

if TYPE_CHECKING:
    import xarray


def require_xarray() -> None:
    """Raise an InputError if xarray is not installed."""
    try:
        import xarray  # noqa: F401
    except ImportError as error:
        raise InputError(
            "datasets need xarray, which is not installed: pip install 'jaxmech[xarray]'; without "
            "it, jaxmech.ensemble.open_results reads a run folder"
        ) from error


def dataset(path: Path | str) -> "xarray.Dataset":
    """The results of a run folder, finished or not, as a dataset that reads them when needed.

    Beside the stored arrays, it has what the statistics say, as `<statistic>_<what>`. The
    dimension `trajectory` ends where an adaptive study has stopped; trajectories of blocks that are
    not yet computed have the status -1. With dask installed, arrays are divided as they are stored.

    Args:
        path: the run folder.

    Raises:
        InputError: xarray is not installed.
        FolderError: the folder holds no run, or a damaged one.
    """
    require_xarray()
    import xarray

    results = open_results(Path(path))
    found: xarray.Dataset = xarray.open_zarr(results.path / RESULTS, consolidated=False)
    if "trajectory" in found.sizes:
        found = found.isel(trajectory=slice(0, _end(results)))
    for name, said in results.statistics.items():
        found = found.assign(_variables(name, said))
    summary = results.path / "summary.json"
    text = summary.read_text(encoding="utf-8") if summary.is_file() else ""
    return found.assign_attrs(run=str(results.path), summary=text)


def _end(results: Results) -> int:
    """Where the trajectories end: earlier than planned in a study that has stopped."""
    summary = results.path / "summary.json"
    if summary.is_file():
        return int(json.loads(summary.read_text(encoding="utf-8"))["done"])
    return results.size


def _variables(name: str, said: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What a statistic says, each array with dimensions of its own."""
    found = {}
    for what, value in said.items():
        array = np.asarray(value)
        key = f"{name}_{what}"
        found[key] = (tuple(f"{key}_{axis}" for axis in range(array.ndim)), array)
    return found


def folder_of(study: Study) -> Path:
    """The run folder of a study that names none: the same study has the same one.

    Example:
        >>> from jaxmech.ensemble import Times
        >>> print(folder_of(Study(model="pendulum", size=8, times=Times(end=1.0))))
        runs/pendulum-67e0
    """
    told = {k: x for k, x in plain(study).items() if k not in ("chunk", "cluster")}
    code = hashlib.sha256(json.dumps(told, sort_keys=True, default=repr).encode()).hexdigest()
    return Path("runs") / f"{study.model.rpartition(':')[2]}-{code[:8]}"
