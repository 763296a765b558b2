"""The arrays of a run folder: names, dimensions, types and units."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from jaxmech.ensemble.blocks.estimate import bytes_of
from jaxmech.ensemble.blocks.kernel import BlockProgram
from jaxmech.ensemble.draws.sampler import stored_name
from jaxmech.ensemble.members.base import Dims

_TITLES = {
    "start": "start variable",
    "coordinates": "initial coordinate",
    "velocities": "initial velocity of",
    "parameters": "parameter",
}
STATES = "statistics"  # the array that holds the states of the statistics


def create_arrays(kernel: BlockProgram, path: Path) -> None:
    """Create the Zarr group of a run, with times and what all share, and all other arrays empty."""
    member, study = kernel.member, kernel.member.study
    # The checksum is what every reader compares.
    compressors: list[Any] = [ZstdCodec(level=1), Crc32cCodec()]
    shared = list(member.shared_arrays())
    attributes: dict[str, Any] = {"model": member.subject.name}
    if any(array.name == "t" for array in shared):
        attributes["coordinates"] = "t"  # which xarray takes as one (CF conventions, section 5)
    group = zarr.open_group(path, mode="w", zarr_format=3, attributes=attributes)

    def create(
        name: str, array: Any, dims: Dims, attributes: dict[str, Any], rows: int = 0
    ) -> zarr.Array[Any]:
        """An array of one value, or of so many, of which a chunk holds those of a block."""
        dtype, is_text = array.dtype, array.dtype.kind == "U"
        fill = np.nan if np.issubdtype(dtype, np.inexact) else dtype.kind != "b" and -1
        options: dict[str, Any] = {"fill_value": fill} if rows else {}
        chunk = tuple(max(1, n) for n in array.shape)
        return group.create_array(
            name,
            shape=(rows, *array.shape) if rows else array.shape,
            chunks=(kernel.block, *chunk) if rows else chunk,
            dtype="str" if is_text else dtype,
            **options,
            compressors=compressors,
            dimension_names=("trajectory", *dims) if rows else dims,
            attributes=attributes,
        )

    for name, values, dims, about in shared:
        create(name, values, dims, about)[...] = values
    arrays, _ = kernel.shapes
    for variable in kernel.sampler.rows(0, 1):
        name, values = stored_name(variable), variable.values
        one = values[0] if variable.varies else values
        dims = tuple(f"{name}_{k}" for k in range(one.ndim))
        about = {"long_name": f"{_TITLES[variable.section]} {variable.name}"}
        if not variable.varies:
            create(name, values, dims, about)[...] = values
        elif study.store != "statistics":
            create(name, one, dims, about, study.size)
    for name, shape in arrays.items():
        dims = member.dimensions(name, len(shape.shape))
        create(name, shape, dims, member.attributes(name), study.size)
    if size := bytes_of(kernel.states):
        group.create_array(
            STATES,
            shape=(-(-study.size // kernel.block), size),
            chunks=(1, size),
            dtype="uint8",
            compressors=compressors,
            dimension_names=("block", "byte"),
            attributes={"long_name": "states of the statistics of each block"},
        )
    with warnings.catch_warnings():  # xarray reads consolidated metadata first
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        zarr.consolidate_metadata(path)


def array_of(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """The array of that name, or a KeyError."""
    array = group[name]
    if not isinstance(array, zarr.Array):
        raise KeyError(name)
    return array
