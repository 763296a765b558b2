"""`open`: a run as an `xarray.Dataset`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmech.config.errors import InputError
from jaxmech.ensemble.store.results import RESULTS, STATES, open_results

if TYPE_CHECKING:
    import xarray

_OVER_TIME = ("moments", "quantiles", "first-passage")  # statistics that may be of each saved time


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
    try:
        import xarray
    except ImportError as error:
        raise InputError(
            "datasets need xarray, which is not installed: pip install xarray; without "
            "it, jaxmech.ensemble.open_results reads a run folder"
        ) from error
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
