"""What a member of a study is made of: its draws, guess and parameters, and shared arrays."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config import Subject
from jaxmech.ensemble.draws.sampler import Variable
from jaxmech.ensemble.study import SECTIONS
from jaxmech.system import System
from jaxmech.utils.units import columns, shown_coordinates, units_of

Tree = dict[str, dict[str, Any]]  # section, name -> value
Dims = tuple[str, ...]  # names of the dimensions of an array
COORDINATE_UNITS = "coordinate_units"  # attribute of the names of the coordinates
VELOCITY = "velocity"  # dimension of quasi-velocities
VELOCITY_UNITS = "velocity_units"  # attribute of their names


class StoredArray(NamedTuple):
    """An array of a run folder that is the same for all members.

    Attributes:
        name: of the array.
        values: numbers or texts.
        dims: names of its dimensions.
        attributes: what readers show of it, such as `units`.
    """

    name: str
    values: np.ndarray
    dims: Dims
    attributes: dict[str, Any]


def merged(shared: Tree, varying: Tree) -> Tree:
    """Merge all inputs of one member."""
    return {section: shared[section] | varying[section] for section in SECTIONS}


def first_of(varying: Tree, shared: Tree) -> Tree:
    """All inputs of the first member of some."""
    return merged(shared, jax.tree.map(lambda x: x[0], varying))


def params_of(subject: Subject, inputs: Tree) -> dict[str, Any]:
    """The parameters of one member, with the defaults of the model."""
    defaults = subject.model.params if subject.model else {}
    params = {**defaults, **inputs["parameters"]}
    return params | subject.inputs.of(params)


def guess(subject: Subject, inputs: Tree, dtype: Any) -> tuple[Array, Array]:
    """The state of the model, with the drawn values in place."""
    system, model = subject.system, subject.model
    q, v = jnp.zeros(system.n, dtype), jnp.zeros(system.n_velocities, dtype)
    if model:
        state = model.state(inputs["start"], params_of(subject, inputs))
        q, v = (jnp.asarray(x, dtype) for x in state)
    for name, value in inputs["coordinates"].items():
        q = q.at[system.coordinates.index(name)].set(value)
    for name, value in inputs["velocities"].items():
        v = v.at[system.velocity_names.index(name)].set(value)
    return q, v


def inputs_of(
    variables: Iterable[Variable], dtype: np.dtype[Any], padding: int = 0
) -> tuple[Tree, Tree]:
    """Split draws into varying ones, padded with copies of the last member, and shared ones."""
    varying: Tree = {section: {} for section in SECTIONS}
    shared: Tree = {section: {} for section in SECTIONS}
    for variable in variables:
        values = variable.values
        if variable.varies and padding:
            values = np.concatenate([values, np.repeat(values[-1:], padding, axis=0)])
        tree = varying if variable.varies else shared
        values = values.astype(dtype) if values.dtype.kind == "f" else values
        tree[variable.section][variable.name] = values
    return varying, shared


def quantity_entries(system: System) -> dict[str, tuple[str, int]]:
    """The names in q, those in v that are no rates, and those of controllers: array and index."""
    kept = memory_names(system)
    entries = columns(system.coordinates, system.velocity_names, kept)
    named = {*shown_coordinates(system.coordinates), *system.velocities, *system.states, *kept}
    return {name: entry for name, entry in entries.items() if name in named}


def memory_names(system: System) -> tuple[str, ...]:
    """The names of what controllers keep, which the stored q and v end with."""
    return () if system.sampling is None else system.sampling.names


def name_arrays(system: System) -> Iterable[StoredArray]:
    """The names of coordinates and states, and of quasi-velocities, with their units."""
    kept = memory_names(system)
    names = (*shown_coordinates(system.coordinates), *system.states, *kept)
    yield _name_array(system, "coordinate", names, COORDINATE_UNITS)
    if system.velocities:
        yield _name_array(system, VELOCITY, (*system.velocity_names, *kept), VELOCITY_UNITS)


def _name_array(system: System, dim: str, names: Sequence[str], key: str) -> StoredArray:
    units = units_of(system.units, names)
    return StoredArray(dim, np.array(names), (dim,), {key: units} if units else {})


def velocity_dimension(system: System) -> str:
    """The name of the dimension of v: that of the coordinates, unless v are quasi-velocities."""
    return VELOCITY if system.velocities else "coordinate"


def plain_attributes(name: str, units: str | None = None) -> dict[str, Any]:
    """The attributes of an array that is named by what it holds."""
    return {"long_name": name.replace("_", " ")} | ({"units": units} if units else {})
