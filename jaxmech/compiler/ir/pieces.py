"""Pieces of a long graph, which become functions of native code; equal ones become one function.

A compiler takes longer for an operation the longer a function is, and most operations of a long
graph are repeated with other numbers: in the stages of a step, for each body or leg, and in the
motion that a derivative computes again. A piece is a run of operations, in the order of the
program. It ends where few of the numbers that have just been computed are needed later, so that
repetitions end at the same operation without a search for them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

NEIGHBORS = 24  # operations before and after an end, at all of which more numbers are needed later
RECENT = 4 * NEIGHBORS  # operations whose results count as just computed
LONGEST_PIECE = 2_000  # operations


class ScalarOperation(NamedTuple):
    """An operation of a piece.

    Attributes:
        number: the node.
        name: what it does to the numbers that it reads.
        reads: the nodes that it reads.
    """

    number: int
    name: Any
    reads: tuple[int, ...]


class Piece(NamedTuple):
    """Operations that become one function.

    Attributes:
        operations: the operations, in order.
        inputs: the nodes that they read, except for their own and constants.
        outputs: those of their nodes that others read.
        shape: the operations with the positions of what they read: equal for equal functions.
    """

    operations: list[ScalarOperation]
    inputs: list[int]
    outputs: list[int]
    shape: Any


def pieces(
    operations: Sequence[ScalarOperation], uses: Mapping[int, int], constants: Sequence[Any]
) -> list[Piece]:
    """Cut a run of operations into pieces.

    Args:
        operations: the operations, in order.
        uses: how often each node is read, by these operations and all others.
        constants: the value of each node that is a constant, None for other nodes.
    """
    ends = _ends(operations)
    runs = [list(operations[a:b]) for a, b in pairwise([0, *ends])]
    return _joined([_piece(part, uses, constants) for part in runs], uses, constants)


def _ends(operations: Sequence[ScalarOperation]) -> list[int]:
    count = len(operations)
    needed = _needed(operations)
    ends, last = list[int](), 0
    for k in range(1, count):
        if k - last >= NEIGHBORS:
            around = needed[max(k - NEIGHBORS, 0) : k], needed[k + 1 : k + NEIGHBORS + 1]
            is_least = needed[k] < min(around[0]) and needed[k] <= min(around[1], default=count)
            if is_least or k - last >= LONGEST_PIECE:
                ends.append(k)
                last = k
    return [*ends, count]


def _needed(operations: Sequence[ScalarOperation]) -> list[int]:
    """How many recent results are needed at or after each operation."""
    positions = {operation.number: k for k, operation in enumerate(operations)}
    last_use = list(range(len(operations)))
    for k, operation in enumerate(operations):
        for i in operation.reads:
            if i in positions:
                last_use[positions[i]] = k
    change = np.zeros(len(operations) + 1, int)
    for k, last in enumerate(last_use):
        change[k + 1] += 1
        change[min(last, k + RECENT) + 1 if last > k else k + 1] -= 1
    return np.cumsum(change).tolist()


def _piece(part: list[ScalarOperation], uses: Mapping[int, int], constants: Sequence[Any]) -> Piece:
    positions, inputs, shape = dict[int, int](), dict[int, int](), list[Any]()
    within = Counter(i for operation in part for i in operation.reads)
    for operation in part:
        reads = list[Any]()
        for i in operation.reads:
            if i in positions:
                reads.append(positions[i])
            elif constants[i] is not None:
                reads.append(constants[i].tobytes())
            else:
                reads.append(~inputs.setdefault(i, len(inputs)))
        is_output = within[operation.number] < uses[operation.number]
        shape.append((operation.name, is_output, *reads))
        positions[operation.number] = len(positions)
    outputs = [i for i in positions if within[i] < uses[i]]
    return Piece(part, [*inputs], outputs, tuple(shape))


def _joined(parts: list[Piece], uses: Mapping[int, int], constants: Sequence[Any]) -> list[Piece]:
    """Join neighbors that always occur together, as long as they are short enough."""
    shapes, apart = dict[Any, int](), set[tuple[int, int]]()
    names = [shapes.setdefault(part.shape, len(shapes)) for part in parts]
    while pairs := _inseparable(parts, names) - apart:
        longer, forms = list[Piece](), dict[tuple[int, int], set[int]]()
        new_names, k = list[int](), 0
        while k < len(parts):
            pair = (names[k], names[k + 1]) if k + 1 < len(parts) else None
            if pair is None or pair not in pairs:
                longer.append(parts[k])
                new_names.append(names[k])
                k += 1
                continue
            operations = [*parts[k].operations, *parts[k + 1].operations]
            longer.append(_piece(operations, uses, constants))
            new_names.append(shapes.setdefault(longer[-1].shape, len(shapes)))
            forms.setdefault(pair, set()).add(new_names[-1])
            k += 2
        different = {pair for pair, form in forms.items() if len(form) > 1}
        apart |= different
        if not different:
            parts, names = longer, new_names
    return parts


def _inseparable(parts: list[Piece], names: list[int]) -> set[tuple[int, int]]:
    """Pairs of neighbors of which neither occurs without the other, if not too long together."""
    counts, pairs = Counter(names), Counter(pairwise(names))
    sizes = {name: len(part.operations) for name, part in zip(names, parts, strict=True)}
    return {
        (a, b)
        for (a, b), count in pairs.items()
        if a != b and count == counts[a] == counts[b] and sizes[a] + sizes[b] <= LONGEST_PIECE
    }
