"""The arrays of a run folder: names, dimensions, types and units."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from jaxmech.ensemble.draws import stored_name
from jaxmech.ensemble.kernel import BlockProgram
from jaxmech.ensemble.observed import event_dimensions
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.trajectory import save_times
from jaxmech.status import Status

_META = {
    "q": ("generalized coordinates", None),
    "v": ("generalized velocities", None),
    "qdd": ("generalized accelerations", None),
    "constraint_force": ("generalized force of the constraints on the system, A^T lambda", None),
    "energy": ("energy v . dL/dv - L", "J"),
    "position_residual": ("largest |phi|, of all steps where they are not projected", None),
    "velocity_residual": ("largest |dphi/dt| and |psi| likewise", None),
    "worst_position_residual": ("largest |phi| of all saves", None),
    "worst_velocity_residual": ("largest |dphi/dt| and |psi| of all saves", None),
    "energy_drift": ("largest |E - E(start)|, NaN where E is not conserved", "J"),
    "integration_error": ("estimated error of the integration relative to the motion", None),
    "rank": ("smallest number of independent constraint equations", None),
    "status": ("how the trajectory ended; -1 is not yet computed", None),
    "t_failed": ("time of the failure, NaN where there was none", "s"),
}
_TITLES = {
    "start": "start variable",
    "coordinates": "initial coordinate",
    "velocities": "initial velocity of",
    "parameters": "parameter",
}
STATES = "statistics"  # the array that holds the states of the statistics
_BY_COORDINATE = {"q", "v", "qdd", "constraint_force"}
Dims = tuple[str, ...]  # names of the dimensions of an array


@dataclass(frozen=True, eq=False)
class Layout:
    """The arrays of a run folder."""

    kernel: BlockProgram  # which computes them
    shapes: Mapping[str, Any]  # its results for one block, by name
    state_bytes: int  # bytes of the states of all statistics of one block

    @property
    def study(self) -> Study:
        """The study that is stored."""
        return self.kernel.trajectory.study

    def create(self, path: Path) -> None:
        """Create the Zarr group, with times and draws, and all other arrays empty."""
        study, block = self.study, self.kernel.block
        # `coordinates` makes xarray take `t` as a coordinate (CF conventions, section 5)
        attributes: dict[str, Any] = {"model": study.model, "coordinates": "t"}
        group = zarr.open_group(path, mode="w", zarr_format=3, attributes=attributes)
        ts = save_times(study)[-1 if study.store == "final" else 0 :]
        names = np.array(tuple(self.kernel.trajectory.system.coordinates))
        self._whole(group, "t", ts, ("time",), {"long_name": "time", "units": "s"})
        self._whole(group, "coordinate", names, ("coordinate",), {})
        for variable in self.kernel.sampler.rows(0, min(block, study.size)):
            name = stored_name(variable)
            extra = variable.values.ndim - variable.varies
            dims = tuple(f"{name}_{k}" for k in range(extra))
            title = {"long_name": f"{_TITLES[variable.section]} {variable.name}"}
            if not variable.varies:
                self._whole(group, name, variable.values, dims, title)
            elif self.shapes:  # else no arrays of single trajectories are stored
                self._empty(group, name, variable.values, dims, title)
        for name, shape in self.shapes.items():
            dims = self._dimensions(name, len(shape.shape) - 1)
            self._empty(group, name, shape, dims, _attributes(name))
        if study.statistics and self.state_bytes:
            group.create_array(
                STATES,
                shape=(-(-study.size // block), self.state_bytes),
                chunks=(1, self.state_bytes),
                dtype="uint8",
                compressors=self.codecs,
                dimension_names=("block", "byte"),
                attributes={"long_name": "states of the statistics of each block"},
            )

    @property
    def codecs(self) -> list[Any]:
        """Compression, and a checksum by which other readers notice damage, too."""
        by: dict[str, list[Any]] = {
            "zstd": [ZstdCodec(level=1)],
            "blosc": [BloscCodec(cname="zstd", shuffle="shuffle")],
            "none": [],
        }
        return [*by[self.study.compression], Crc32cCodec()]

    def _whole(
        self,
        group: zarr.Group,
        name: str,
        values: np.ndarray,
        dims: Dims,
        attributes: dict[str, Any],
    ) -> None:
        """Create an array and write it at once."""
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
        self, group: zarr.Group, name: str, block: Any, dims: Dims, attributes: dict[str, Any]
    ) -> None:
        if name == "status":  # CF conventions, section 3.5
            attributes["flag_values"] = [int(status) for status in Status]
            attributes["flag_meanings"] = " ".join(status.name for status in Status)
        group.create_array(
            name,
            shape=(self.study.size, *block.shape[1:]),
            chunks=(self.kernel.block, *(max(1, n) for n in block.shape[1:])),
            dtype=block.dtype,
            compressors=self.codecs,
            fill_value=_fill(block.dtype),
            dimension_names=("trajectory", *dims),
            attributes=attributes,
        )

    @property
    def _first_dimensions(self) -> dict[str, Dims]:
        """Those of other arrays than the series of `simulate`."""
        study, found = self.study, event_dimensions(self.study.events)
        for name, quantity in study.observe.items():
            if quantity.keep != "all":
                found[name] = ()
            elif quantity.every > 1 and study.store != "final":
                found[name] = (f"time_every_{quantity.every}",)
        return found

    def _dimensions(self, name: str, count: int) -> Dims:
        first = self._first_dimensions.get(name, ("time",))
        last = "coordinate" if name in _BY_COORDINATE else f"{name}_row"
        return (*first, last, *(f"{name}_{k}" for k in range(count)))[:count]


def _attributes(name: str) -> dict[str, Any]:
    long_name, units = _META.get(name, (name.replace("_", " "), None))
    return {"long_name": long_name} | ({"units": units} if units else {})


def _fill(dtype: Any) -> Any:
    if np.issubdtype(dtype, np.floating):
        return np.nan
    return False if np.issubdtype(dtype, np.bool_) else -1


def array_of(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """The array of that name, or a KeyError."""
    array = group[name]
    if not isinstance(array, zarr.Array):
        raise KeyError(name)
    return array
