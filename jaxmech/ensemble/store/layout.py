"""The arrays of a run folder: names, dimensions, types and units."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from jaxmech.ensemble.blocks.estimate import bytes_of
from jaxmech.ensemble.blocks.kernel import BlockProgram
from jaxmech.ensemble.draws.sampler import stored_name
from jaxmech.ensemble.members.base import Dims
from jaxmech.ensemble.study import Study

_TITLES = {
    "start": "start variable",
    "coordinates": "initial coordinate",
    "velocities": "initial velocity of",
    "parameters": "parameter",
}
STATES = "statistics"  # the array that holds the states of the statistics


@dataclass(frozen=True, eq=False)
class Layout:
    """The arrays of a run folder."""

    kernel: BlockProgram  # which computes them

    @property
    def study(self) -> Study:
        """The study that is stored."""
        return self.kernel.member.study

    def create(self, path: Path) -> None:
        """Create the Zarr group, with times and draws, and all other arrays empty."""
        study, block = self.study, self.kernel.block
        member = self.kernel.member
        shared = list(member.shared_arrays())
        attributes: dict[str, Any] = {"model": member.subject.name}
        if any(array.name == "t" for array in shared):
            attributes["coordinates"] = "t"  # which xarray takes as one (CF conventions, section 5)
        group = zarr.open_group(path, mode="w", zarr_format=3, attributes=attributes)
        for array in shared:
            self._whole(group, *array)
        for variable in self.kernel.sampler.rows(0, min(block, study.size)):
            name = stored_name(variable)
            extra = variable.values.ndim - variable.varies
            dims = tuple(f"{name}_{k}" for k in range(extra))
            title: dict[str, Any] = {"long_name": f"{_TITLES[variable.section]} {variable.name}"}
            if variable.section == "parameters":
                title |= member.subject.inputs.flags(variable.name)
            if not variable.varies:
                self._whole(group, name, variable.values, dims, title)
            elif self.kernel.shapes[0]:  # else no arrays of single trajectories are stored
                self._empty(group, name, variable.values[0], dims, title)
        for name, shape in self.kernel.shapes[0].items():
            dims = member.dimensions(name, len(shape.shape))
            self._empty(group, name, shape, dims, member.attributes(name))
        if state_bytes := bytes_of(self.kernel.states):
            group.create_array(
                STATES,
                shape=(-(-study.size // block), state_bytes),
                chunks=(1, state_bytes),
                dtype="uint8",
                compressors=self.codecs,
                dimension_names=("block", "byte"),
                attributes={"long_name": "states of the statistics of each block"},
            )

    @property
    def codecs(self) -> list[Any]:
        """The compression of the chunks, and their checksum, which every reader compares."""
        match self.study.compression:
            case "zstd":
                return [ZstdCodec(level=1), Crc32cCodec()]
            case "blosc":
                return [BloscCodec(cname="zstd", shuffle="shuffle"), Crc32cCodec()]
            case "none":
                return [Crc32cCodec()]

    def _whole(
        self,
        group: zarr.Group,
        name: str,
        values: np.ndarray,
        dims: Dims,
        attributes: dict[str, Any],
    ) -> None:
        array = group.create_array(
            name,
            shape=values.shape,
            chunks=tuple(max(1, n) for n in values.shape),
            dtype="str" if values.dtype.kind == "U" else values.dtype,
            compressors=self.codecs,
            dimension_names=dims,
            attributes=attributes,
        )
        array[...] = values

    def _empty(
        self, group: zarr.Group, name: str, member: Any, dims: Dims, attributes: dict[str, Any]
    ) -> None:
        group.create_array(
            name,
            shape=(self.study.size, *member.shape),
            chunks=(self.kernel.block, *(max(1, n) for n in member.shape)),
            dtype=member.dtype,
            compressors=self.codecs,
            fill_value=_fill(member.dtype),
            dimension_names=("trajectory", *dims),
            attributes=attributes,
        )


def _fill(dtype: Any) -> Any:
    if np.issubdtype(dtype, np.inexact):
        return np.nan
    return False if np.issubdtype(dtype, np.bool_) else -1


def array_of(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """The array of that name, or a KeyError."""
    array = group[name]
    if not isinstance(array, zarr.Array):
        raise KeyError(name)
    return array
