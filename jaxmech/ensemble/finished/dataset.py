"""`open`: a run as an `xarray.Dataset`."""

from pathlib import Path
from typing import TYPE_CHECKING

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
        units = results.statistic_units(name)
        for key, value in values.items():
            array, full = np.asarray(value), f"{name}_{key}"
            dims = [f"{full}_{axis}" for axis in range(array.ndim)]
            if array.shape[:1] == (saves,) and key != "at":
                dims[0] = "time"
            variable = tuple(dims), array, {"units": units[key]} if key in units else {}
            full = f"statistic_{full}" if full in dataset else full
            dataset = dataset.assign({full: variable})
    summary = results.path / "summary.json"
    content = summary.read_text(encoding="utf-8") if summary.is_file() else ""
    return dataset.assign_attrs(run=str(results.path), summary=content)
