"""Sequences and loops in native code: where a sequence lies in memory, and what a loop reads."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from jaxmech.compiler.ir.liveness import LiveLoop
from jaxmech.compiler.ir.loops import Loop, Rows, SequenceInput, SequenceOfNodes, Stacked

ARRAY_ALIGN = 16  # bytes, of the arrays that XLA passes (`kEntryParameterAlignBytes`)


class Memory(NamedTuple):
    """The location of a sequence: element (at, i) is at `base + (at * numbers + i) * lanes`.

    Attributes:
        base: pointer to its first number.
        numbers: number of scalars in an element.
        dtype: type of the scalars.
        lanes: number of lanes side by side; 1 where all share the sequence, or each has its own.
        apart: distance from the sequence of one lane to that of the next, or 0.
        position: where it begins in scratch memory, as vectors [bytes]; None if it is elsewhere.
    """

    base: str
    numbers: int
    dtype: np.dtype
    lanes: int
    apart: int = 0
    position: int | None = None

    def align(self, position: int) -> int:
        """The alignment of one number of an element of an argument or a result [bytes]."""
        return array_alignment(self.dtype, self.apart, self.numbers, position)


def array_alignment(dtype: np.dtype, *distances: int) -> int:
    """The alignment of a number at a distance from the start of an array of JAX [bytes].

    An array begins at a multiple of `ARRAY_ALIGN`; each distance counts any number of times.
    """
    return math.gcd(ARRAY_ALIGN, *(distance * dtype.itemsize for distance in distances))


Location = Callable[[SequenceInput | Stacked | Rows], Memory | None]  # of a sequence


def read_by_loop(loop: Loop, part: LiveLoop) -> Iterator[int]:
    """The nodes of the graph around a loop that it reads."""
    yield from (loop.init[k] for k in part.carry)
    if loop.active is not None:
        yield loop.active
    assert part.body is not None
    leaves = [loop.body.nodes[i] for i in part.body.nodes]
    yield from (leaf.params for leaf in leaves if leaf.op == "capture")
    for sequence, positions in sequences_of_nodes(loop, part):
        yield from sequence.ids.reshape(len(sequence.ids), -1)[:, positions].ravel().tolist()


def sequences_of_nodes(loop: Loop, part: LiveLoop) -> Iterator[tuple[SequenceOfNodes, list[int]]]:
    """The sequences of nodes that a loop scans, and the positions of an element that it reads."""
    for k, positions in read_elements(loop, part).items():
        sequence = loop.scanned[k]
        if isinstance(sequence, SequenceOfNodes):
            yield sequence, positions


def read_elements(loop: Loop, part: LiveLoop) -> dict[int, list[int]]:
    """The scanned sequences of which a loop reads elements, and the positions that it reads."""
    assert part.body is not None
    read = dict[int, list[int]]()
    leaves = (loop.body.nodes[i] for i in sorted(part.body.nodes))
    for sequence, position in sorted(leaf.params for leaf in leaves if leaf.op == "element"):
        read.setdefault(sequence, []).append(position)
    return read


def used_after_iteration(loop: Loop) -> Iterator[int]:
    """The nodes of the body of a loop that are used after an iteration."""
    yield from loop.carry
    for sequence in loop.stacked:
        yield from sequence.ravel().tolist()
    for row in loop.written:
        yield from row.nodes


def inside_loop(memory: Location) -> Location:
    """The locations as seen by the body of a loop, whose stacked outputs are not results."""
    return lambda sequence: None if isinstance(sequence, Stacked) else memory(sequence)
