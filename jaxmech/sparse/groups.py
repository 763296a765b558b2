"""Parts of one kind as a group, evaluated by one `vmap` over their members.

The parts of a group differ in numbers and names of parameters only. The first of them is the
template. In it a value that is not the same for all members is the name of a further parameter,
of which every member has its own number.
"""

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody
from jaxmech.sparse.order import Indices

_NAMES = ("name", "part", "kind", "bodies")  # fields that do not make a part different


@dataclass(frozen=True, eq=False)
class Group:
    """Parts of one kind.

    Attributes:
        template: the part that stands for all.
        members: numbers of the parts among those given, (k,).
        numbers: by name, the numbers of all members, (k,).
        names: by name, different parameters, and for each member which one it has, (k,).
        bodies: for each body of the template, the number of that of every member, (k,), -1 for the
            ground.
        entries: for each of them, the places of its coordinates, (k, d).
    """

    template: Any
    members: Indices
    numbers: dict[str, np.ndarray]
    names: dict[str, tuple[tuple[str, ...], Indices]]
    bodies: tuple[Indices, ...]
    entries: tuple[Indices, ...]

    def blocks(self, x: Array) -> tuple[Array, ...]:
        """The entries of all bodies in coordinates or velocities (n,), (k, d) each."""
        return tuple(x[places] for places in self.entries)

    def of_each(self, fn: Callable[..., Any], params: Any, *arguments: Any) -> Any:
        """The values of fn(template, params, *own arguments) for all members, (k, ...).

        The arguments have the members as their leading axes.
        """
        dtype = jnp.result_type(float)
        numbers = {slot: jnp.asarray(values, dtype) for slot, values in self.numbers.items()}
        for slot, (names, choice) in self.names.items():
            values = jnp.stack([1.0 * jnp.asarray(params[name]) for name in names])
            numbers[slot] = values[choice]
        merged = (lambda numbers: {**params, **numbers}) if numbers else (lambda numbers: params)

        def of_member(numbers: dict[str, Array], *arguments: Any) -> Any:
            return fn(self.template, merged(numbers), *arguments)

        return jax.vmap(of_member)(numbers, *arguments)


def grouped(
    parts: Sequence[Any], bodies_of: Callable[[Any], Sequence[AbstractBody]],
    place_of: Callable[[AbstractBody], tuple[int, Indices]],
) -> tuple[Group, ...]:  # fmt: skip
    """The groups of parts; `place_of` gives the number of a body and the places of its entries."""
    kinds: dict[Any, list[int]] = {}
    values = []
    for k, part in enumerate(parts):
        key, leaves = _read(part)
        key = key, tuple((type(b), b.dimension, b.letters) for b in bodies_of(part))
        kinds.setdefault(key, []).append(k)
        values.append(leaves)
    return tuple(
        _group(parts, values, np.array(members), bodies_of, place_of) for members in kinds.values()
    )


def _group(
    parts: Sequence[Any], values: Sequence[list[Any]], members: Indices,
    bodies_of: Callable[[Any], Sequence[AbstractBody]],
    place_of: Callable[[AbstractBody], tuple[int, Indices]],
) -> Group:  # fmt: skip
    numbers: dict[str, np.ndarray] = {}
    names: dict[str, tuple[tuple[str, ...], Indices]] = {}
    first = values[members[0]]
    leaves = []
    for j, leaf in enumerate(first):
        column = [values[k][j] for k in members]
        slot = f"value {j} of a group"  # no name that a user would choose
        if all(value == leaf for value in column):
            leaves.append(leaf)
        elif isinstance(leaf, str):
            places = {name: i for i, name in enumerate(dict.fromkeys(column))}
            names[slot] = tuple(places), np.array([places[name] for name in column])
            leaves.append(slot)
        else:
            numbers[slot] = np.array(column)
            leaves.append(slot)
    template = _written(parts[members[0]], iter(leaves))
    bodies = [[place_of(b) for b in bodies_of(parts[k])] for k in members]
    count = len(bodies[0])
    return Group(
        template,
        members,
        numbers,
        names,
        tuple(np.array([member[i][0] for member in bodies]) for i in range(count)),
        tuple(np.stack([member[i][1] for member in bodies]) for i in range(count)),
    )


def _read(part: Any) -> tuple[Any, list[Any]]:
    """What the parts of a group have in common, and the values in which they may differ."""
    if is_dataclass(part) and not isinstance(part, type):
        entries = [_read(getattr(part, name)) for name in _fields(part)]
        return (type(part), *(key for key, _ in entries)), [
            leaf for _, leaves in entries for leaf in leaves
        ]
    if isinstance(part, tuple):
        entries = [_read(entry) for entry in part]
        return ("tuple", *(key for key, _ in entries)), [
            leaf for _, leaves in entries for leaf in leaves
        ]
    if isinstance(part, float):
        return ("number", part == 0.0), [part]  # zeros shorten equations
    if isinstance(part, str):
        return ("name",), [part]
    return _identity(part), []


def _written(part: Any, leaves: Iterator[Any]) -> Any:
    """The part with other values, in the order of `_read`."""
    if is_dataclass(part) and not isinstance(part, type):
        entries = {name: _written(getattr(part, name), leaves) for name in _fields(part)}
        return replace(part, **entries)
    if isinstance(part, tuple):
        return tuple(_written(entry, leaves) for entry in part)
    return next(leaves) if isinstance(part, float | str) else part


def _fields(part: Any) -> list[str]:
    return [field.name for field in fields(part) if field.init and field.name not in _NAMES]


def _identity(value: Any) -> Any:
    """A key that functions with the same code and the same values share."""
    if isinstance(value, functools.partial):
        keywords = tuple((k, _identity(x)) for k, x in sorted(value.keywords.items()))
        return "partial", _identity(value.func), tuple(map(_identity, value.args)), keywords
    if isinstance(value, types.FunctionType):
        closed = tuple(_identity(cell.cell_contents) for cell in value.__closure__ or ())
        defaults = tuple(map(_identity, value.__defaults__ or ()))
        return value.__code__, id(value.__globals__), closed, defaults, id(value.__kwdefaults__)
    try:
        hash(value)
    except TypeError:
        return "object", id(value)
    return type(value), value
