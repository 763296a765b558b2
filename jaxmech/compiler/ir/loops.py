"""Loops that are not unrolled, and the sequences that they scan and stack (as `xs` and `ys`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.dtypes import float0

from jaxmech.compiler.ir.graph import Graph

LARGEST_STACKED = 1024  # numbers of a sequence that are read one by one
LARGEST_ARRAY = 262_144  # largest size of an array that is split into scalars
LARGEST_SPLIT = 1024  # size of an argument that is split even if only rows of it are read

NATIVE = {  # types of the scalars of native code
    np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float32", "float64",
    )
}  # fmt: skip

Ids = np.ndarray  # node numbers, in the shape of the array that they represent


class UnsupportedError(Exception):
    """A program that cannot be split into scalars; the text names the reason."""


def native_dtype(dtype: Any) -> np.dtype:
    """The type of a scalar of native code, or an `UnsupportedError`.

    Native code has no complex numbers, no floating-point numbers of 8 or 16 bits, no integers of
    fewer than 8 bits, and no random keys. Tangents of integers are nothing: false stands for them.
    """
    if dtype == float0:
        return np.dtype(bool)
    if dtype not in NATIVE:
        raise UnsupportedError(f"values of type {dtype}")
    return np.dtype(dtype)


def dtype_of(atom: Any) -> np.dtype:
    """The type of a variable or a literal of a jaxpr."""
    return np.dtype(atom.aval.dtype)


def shape_of(atom: Any) -> tuple[int, ...]:
    """The shape of a variable or a literal of a jaxpr."""
    return tuple(atom.aval.shape)


@dataclass(frozen=True, eq=False)
class SequenceInput:
    """An argument of the kernel that a loop scans; `shape` and `dtype` are those of an element."""

    number: int
    length: int
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class Stacked:
    """A stacked output of a loop of the same graph: the loop, and its index among the outputs."""

    loop: int
    number: int
    length: int
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class SequenceOfNodes:
    """Nodes of the graph around a loop, shape (iterations, ...), which the loop scans."""

    ids: Ids
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ids.shape[1:]


@dataclass(frozen=True, eq=False)
class Rows:
    """A result in memory that loops write, each lane at an index of its own (`compiler.rows`).

    `shape` and `dtype` are those of a row; of `sparse` rows usually few are written.
    """

    count: int
    shape: tuple[int, ...]
    dtype: np.dtype
    sparse: bool = False


@dataclass(frozen=True, eq=False)
class WrittenRow:
    """A row of nodes that every iteration of a loop writes.

    Attributes:
        rows: the result that it is a row of.
        position: node of its index.
        condition: node of a boolean, whether it is written.
        row: nodes of the values.
    """

    rows: Rows
    position: int
    condition: int
    row: Ids

    @property
    def nodes(self) -> list[int]:
        """All nodes that the row depends on."""
        return [self.position, self.condition, *(int(i) for i in self.row.ravel())]


@dataclass(frozen=True, eq=False)
class ArgumentRows:
    """A large argument of the kernel that stays in memory as long as only rows of it are read.

    `first` is the number of its first scalar among those of the arguments.
    """

    first: int
    shape: tuple[int, ...]
    dtype: np.dtype


Scanned = SequenceInput | Stacked | SequenceOfNodes
Value = Ids | SequenceInput | Stacked | Rows | ArgumentRows


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop with a graph of its own.

    Attributes:
        body: graph of one iteration, with leaves `carry` k, `element` (sequence, k) and `capture`.
        inner: the loops inside the body.
        init: the initial carry, nodes of the graph around the loop.
        carry: the next carry, nodes of the body.
        scanned: sequences, of which every iteration reads an element.
        stacked: nodes of the body, stacked over the iterations.
        length: number of iterations; None for a `while` loop, in which a lane is active as long as
            the first number of its carry, a boolean, holds, and keeps its carry from then on.
        reverse: whether it scans from the last element to the first.
        active: node of the graph around it that is false where nothing depends on the loop.
        position: number of nodes of the graph around it that precede its results.
        written: rows that every iteration writes, after all inner loops.
        is_usual: whether it is the usual one of two long sides of a `cond`.
    """

    body: Graph
    inner: "list[Loop]"
    init: list[int]
    carry: list[int]
    scanned: list[Scanned]
    stacked: list[Ids]
    length: int | None
    reverse: bool
    position: int
    active: int | None = None
    written: "list[WrittenRow]" = field(default_factory=list)
    is_usual: bool = False

    @property
    def is_branch(self) -> bool:
        """Whether it is a side of a `cond`, which runs at most once: nothing starts it again."""
        return self.length is None and self.body.values[self.carry[0]] is not None

    @property
    def is_rare(self) -> bool:
        """Whether it is a side of a `cond` that usually does not run."""
        return self.is_branch and not self.is_usual


def has_while(loops: "list[Loop]") -> bool:
    """Whether one of the loops is a `while`, at any depth, outside of sides of a `cond`."""
    usual = [loop for loop in loops if not loop.is_rare]
    return any(
        (loop.length is None and not loop.is_branch) or has_while(loop.inner) for loop in usual
    )


def scanned_value(value: Value, aval: Any) -> Scanned:
    """A value as a sequence that a loop scans."""
    if isinstance(value, Rows | ArgumentRows):
        raise UnsupportedError("a loop that scans over rows in memory")
    return SequenceOfNodes(value, aval.dtype) if isinstance(value, np.ndarray) else value


def with_rows(arrays: Sequence[Ids], rows: dict[int, Rows]) -> list[Value]:
    """Insert rows at their indices among arrays."""
    remaining = iter(arrays)
    return [rows[k] if k in rows else next(remaining) for k in range(len(arrays) + len(rows))]


def flat(arrays: Sequence[Ids]) -> list[int]:
    """All nodes of arrays."""
    return [int(i) for ids in arrays for i in ids.ravel()]


def leaves(g: Graph, op: str, avals: Sequence[Any], loop: int | None = None) -> list[Ids]:
    """Leaves of one kind for arrays of these shapes and types, numbered through all of them."""
    arrays, count = [], 0
    for aval in avals:
        size = int(np.prod(aval.shape))
        if size > LARGEST_ARRAY:
            raise UnsupportedError(f"an array of over {LARGEST_ARRAY} numbers")
        positions = range(count, count + size)
        params = list(positions) if loop is None else [(loop, k) for k in positions]
        arrays.append(leaves_of(g, op, aval.shape, aval.dtype, params))
        count += size
    return arrays


def arguments(g: Graph, avals: Sequence[Any]) -> list[Value]:
    """The arguments of a kernel: arrays of leaves, and tables."""
    values, first = list[Value](), 0
    for aval in avals:
        size, dtype = math.prod(aval.shape), np.dtype(aval.dtype)
        params = range(first, first + size)
        is_table = size > LARGEST_SPLIT
        values.append(
            ArgumentRows(first, tuple(aval.shape), dtype)
            if is_table
            else leaves_of(g, "input", aval.shape, dtype, params)
        )
        first += size
    return values


def leaves_of(g: Graph, op: str, shape: tuple[int, ...], dtype: Any, params: Sequence[Any]) -> Ids:
    """An array of leaves of one kind, with their parameters."""
    native = native_dtype(dtype)
    ids = [g.add(op, (), p, native) for p in params]
    return np.array(ids, np.int64).reshape(shape)


def split(g: Graph, value: Value) -> Value:
    """Split a table into scalars; return any other value as it is."""
    if not isinstance(value, ArgumentRows):
        return value
    size = math.prod(value.shape)
    if size > LARGEST_ARRAY:
        raise UnsupportedError(f"an array of over {LARGEST_ARRAY} numbers")
    numbers = range(value.first, value.first + size)
    ids = [_argument(g, number, value.dtype) for number in numbers]
    return np.array(ids, np.int64).reshape(value.shape)


def _argument(g: Graph, number: int, dtype: np.dtype) -> int:
    """A scalar of the arguments of the kernel, captured through the loops around the graph."""
    if g.outer is None:
        return g.add("input", (), number, dtype)
    return g.capture(_argument(g.outer, number, dtype))


def captured(g: Graph, values: Sequence[Value]) -> list[Value]:
    """Values of the graph around a loop in that of its body; rows in memory are the same there."""
    return [
        np.array([g.capture(int(i)) for i in x.ravel()], int).reshape(x.shape)
        if isinstance(x, np.ndarray)
        else x
        for x in values
    ]


def arrays_of(graph: Graph, values: Sequence[Value], otherwise: str) -> list[Ids]:
    """The values as arrays; an UnsupportedError unless they are arrays or short sequences."""
    arrays = []
    for x in values:
        x = split(graph, x)
        if isinstance(x, np.ndarray):
            arrays.append(x)
        elif isinstance(x, Stacked) and x.length * math.prod(x.shape) <= LARGEST_STACKED:
            positions = np.ndindex(x.length, math.prod(x.shape))
            params = [(x.loop, x.number, *position) for position in positions]
            arrays.append(leaves_of(graph, "saved", (x.length, *x.shape), x.dtype, params))
        else:
            raise UnsupportedError(otherwise)
    return arrays
