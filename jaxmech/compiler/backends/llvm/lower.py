"""Lowering of a scalar graph to LLVM assembly, in which every scalar is a vector over the lanes.

A loop of the graph becomes a loop here, with its carry in registers as far as they suffice; a
`while` runs until all lanes are done, and is skipped if they are from the beginning, as is any loop
on which nothing depends in any lane. A branch is a jump around the nodes that only it depends on.
Products become a part of sums (`multiply_add`), nothing else is rearranged.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder, splat, type_of
from jaxmech.compiler.backends.llvm.instructions import instruction
from jaxmech.compiler.backends.llvm.multiply_add import multiply_adds
from jaxmech.compiler.backends.llvm.trigonometry import sine_and_cosine
from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.liveness import Live, LiveLoop, branch_outputs
from jaxmech.compiler.ir.loops import (
    Loop,
    Rows,
    Scanned,
    SequenceInput,
    SequenceOfNodes,
    Stacked,
    WrittenRow,
)

ARRAY_ALIGN = 16  # bytes, of the arrays that XLA passes (`kEntryParameterAlignBytes`)


class Memory(NamedTuple):
    """The location of a sequence: element (at, i) is at `base + (at * numbers + i) * lanes`.

    Attributes:
        base: pointer to its first number.
        numbers: number of scalars in an element.
        dtype: type of the scalars.
        lanes: number of lanes side by side; 1 where all share the sequence, or each has its own.
        apart: distance from the sequence of one lane to that of the next, or 0.
    """

    base: str
    numbers: int
    dtype: np.dtype
    lanes: int
    apart: int = 0

    def align(self, place: int) -> int:
        """The alignment of one number of an element of an argument or a result [bytes]."""
        return array_alignment(self.dtype, self.apart, self.numbers, place)


def array_alignment(dtype: np.dtype, *distances: int) -> int:
    """The alignment of a number at a distance from the start of an array of JAX [bytes].

    An array begins at a multiple of `ARRAY_ALIGN`; each distance counts any number of times.
    """
    return math.gcd(ARRAY_ALIGN, *(distance * dtype.itemsize for distance in distances))


_Place = Callable[[SequenceInput | Stacked | Rows], Memory | None]


class Assembler:
    """Writes one graph; the body of a loop gets an assembler of its own.

    Args:
        graph: the scalar graph.
        loops: the loops of the graph.
        live: the live nodes of both.
        ends: the nodes that are results of the graph.
        builder: builder to which the lines are added.
        leaf: writes the load of an `input`, or the `read` of one of several at an index.
        memory: the location of a sequence that is an argument or a result of the kernel, else None.
        around: the assembler of the graph around the loop whose body this is.
        carry: names of the carry of that loop.
        in_memory: leaves of the carry that lie in memory, with their addresses.
    """

    def __init__(
        self, graph: Graph, loops: list[Loop], live: Live, ends: Iterable[int],
        builder: AssemblyBuilder, leaf: Callable[..., str], memory: _Place,
        around: "Assembler | None" = None, carry: dict[int, str] | None = None,
        in_memory: dict[int, str] | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.loops, self.live, self.builder = graph, loops, live, builder
        self.products = multiply_adds(graph, loops, live, ends) if builder.has_fma else {}
        self._within_sums = set(self.products.values())
        self.leaf, self.memory, self.around, self.carry = leaf, memory, around, carry or {}
        self.in_memory = in_memory or {}
        self.names: dict[int, str] = {}
        self.elements: dict[int, Memory] = {}
        self.at = ""
        self._ends: dict[int, tuple[dict[int, str], dict[int, Memory]]] = {}
        self._pairs: dict[int, tuple[str, str]] = {}
        self._after: dict[int, str] = {}

    def write(self) -> None:
        """Write all live nodes, with the loops that they depend on or that write rows."""
        # Constants first: one of a later output of a branch may precede its first output.
        written = self.live.nodes - self.in_memory.keys() - self._within_sums
        for number in sorted(written, key=self._is_computed):
            self._add(number)
        for number, part in self.live.loops.items():
            if part.writes:
                self._loop(number)

    def _is_computed(self, number: int) -> tuple[bool, int]:
        return self.graph.values[number] is None, number

    def stacked(self, sequence: Stacked) -> Memory:
        """The location of a stacked output of a loop."""
        return self._loop(sequence.loop)[1][sequence.number]

    def _add(self, number: int) -> None:
        node, product = self.graph.nodes[number], self.products.get(number)
        self.names[number] = (
            self._written(node, number) if product is None else self._multiply_add(node, product)
        )

    def _written(self, node: Node, number: int) -> str:
        params: Any = node.params
        match node.op:
            case "const":
                return splat(self.builder, self.graph.values[number], node.dtype)
            case "result":
                loop, place = params
                return self._loop(loop)[0][place]
            case "saved":
                loop, sequence, offset, place = params
                return self._element(self._loop(loop)[1][sequence], offset, place)
            case "input" | "read":
                index = [(self.names[i], self.graph.nodes[i].dtype) for i in node.inputs]
                return self.leaf(node, *index)
            case "carry":
                return self.carry[params]
            case "capture":
                assert self.around is not None
                return self.around.names[params]
            case "element":
                return self._element(self.elements[params[0]], self.at, params[1])
            case "sin" | "cos":
                return self._sine_or_cosine(node)
            case "branch" if params in self.live.branches:
                return self._branch(params, number)
        inputs = [(self.names[i], self.graph.nodes[i].dtype) for i in node.inputs]
        return instruction(self.builder, node, inputs)

    def _multiply_add(self, node: Node, product: int) -> str:
        """Write a sum or a difference of a product and another number."""
        builder, kind = self.builder, type_of(node.dtype, self.builder.lanes)
        x, y = (self.names[i] for i in self.graph.nodes[product].inputs)
        is_first = node.inputs[0] == product
        addend = self.names[node.inputs[is_first]]
        if node.op == "sub" and is_first:
            addend = builder.line(f"fneg {kind} {addend}")
        elif node.op == "sub":
            x = builder.line(f"fneg {kind} {x}")
        return builder.intrinsic("fma", node.dtype, x, y, addend)

    def _sine_or_cosine(self, node: Node) -> str:
        (angle,) = node.inputs
        # Reduction and both polynomials are written once: most angles need sine and cosine.
        if angle not in self._pairs:
            self._pairs[angle] = sine_and_cosine(self.builder, self.names[angle], node.dtype)
        return self._pairs[angle][node.op == "cos"]

    def _branch(self, branch: int, number: int) -> str:
        """The name of a branch's output; all outputs are written together with the first."""
        if number not in self._after:
            nodes, exclusive = (
                self.graph.nodes,
                sorted(self.live.branches[branch] - self._within_sums),
            )
            gives = {i: nodes[i].inputs for i in branch_outputs(self.graph, self.live, branch)}
            # An output that replaces a value in memory is stored, and has no name after the jump.
            stored = {i: inputs[1] for i, inputs in gives.items() if inputs[1] in self.in_memory}
            available = [i for i in gives if i not in stored]
            types = [type_of(nodes[i].dtype, self.builder.lanes) for i in available]
            usual = [self.names[gives[i][1]] for i in available]
            condition = self.names[nodes[number].inputs[0]]
            pairs = dict(self._pairs)
            with self.builder.branch(condition, list(zip(types, usual, strict=True))) as (
                merged,
                ends,
            ):
                for leaf in stored.values():
                    address = self.in_memory[leaf]
                    self.names[leaf] = self.builder.load(
                        address, nodes[leaf].dtype, self.builder.lanes
                    )
                for i in exclusive:
                    self._add(i)
                rare = {
                    i: self.builder.select(condition, self.names[c], self.names[b], nodes[i].dtype)
                    for i, (_, b, c) in gives.items()
                }
                for i, leaf in stored.items():
                    self.builder.store(rare[i], self.in_memory[leaf], nodes[i].dtype)
                ends += [rare[i] for i in available]
            self._pairs = pairs
            for i in (*exclusive, *stored.values()):  # not defined after the jump
                del self.names[i]
            self._after.update(zip(available, merged, strict=True))
            self._after.update(dict.fromkeys(stored, ""))
        return self._after[number]

    def _element(self, memory: Memory, offset: str | int, place: int) -> str:
        address = self._address(memory, offset, place)
        if memory.apart:
            return self.builder.gather(address, memory.dtype, memory.apart, memory.align(place))
        return self.builder.load(address, memory.dtype, memory.lanes)

    def _store(self, number: int, memory: Memory, offset: str | int, place: int) -> None:
        address = self._address(memory, offset, place)
        if memory.apart:
            align = memory.align(place)
            self.builder.scatter(self.names[number], address, memory.dtype, memory.apart, align)
        else:
            self.builder.store(self.names[number], address, memory.dtype)

    def _address(self, memory: Memory, offset: str | int, place: int) -> str:
        """The address of one number of an element; `offset` is a constant or a name."""
        base, stride = memory.base, memory.numbers * memory.lanes
        if isinstance(offset, str):
            first: str | int = self.builder.line(f"mul i64 {offset}, {stride}")
        else:
            first = offset * stride
        start = self.builder.address(base, memory.dtype, first)
        return self.builder.address(start, memory.dtype, place * memory.lanes)

    def _sequence(self, sequence: Scanned) -> Memory:
        if isinstance(sequence, Stacked):
            return self.stacked(sequence)
        if isinstance(sequence, SequenceInput):
            memory = self.memory(sequence)
            assert memory is not None
            return memory
        return self._sequence_of_nodes(sequence)

    def _sequence_of_nodes(self, sequence: SequenceOfNodes) -> Memory:
        """Store nodes side by side in memory; constants become a table."""
        dtype, ids = sequence.dtype, sequence.ids.reshape(len(sequence.ids), -1)
        values = [self.graph.values[int(i)] for i in ids.ravel()]
        if all(value is not None for value in values):
            return Memory(self.builder.table(np.array(values, dtype)), ids.shape[1], dtype, 1)
        base = self.builder.scratch(ids.size, dtype)
        memory = Memory(base, ids.shape[1], dtype, self.builder.lanes)
        for index, line in enumerate(ids.tolist()):
            for place, i in enumerate(line):
                self._store(i, memory, index, place)
        return memory

    def _loop(self, number: int) -> tuple[dict[int, str], dict[int, Memory]]:
        """The live results and stacked outputs of a loop, which is written once."""
        if number not in self._ends:
            self._ends[number] = self._write_loop(
                number, self.loops[number], self.live.loops[number]
            )
        return self._ends[number]

    def _write_loop(
        self, number: int, loop: Loop, part: LiveLoop
    ) -> tuple[dict[int, str], dict[int, Memory]]:
        inner = part.body
        assert inner is not None
        start = {k: self.names[loop.init[k]] for k in sorted(part.carry)}
        stacked = {k: self._place_for(number, loop, k) for k in sorted(part.stacked)}
        if loop.length == 0:
            return start, stacked
        leaves = (loop.body.nodes[i] for i in inner.nodes)
        read = sorted({leaf.params[0] for leaf in leaves if leaf.op == "element"})
        elements = {k: self._sequence(loop.scanned[k]) for k in read}
        builder = self.builder
        dtypes = {k: loop.body.nodes[loop.carry[k]].dtype for k in start}
        in_memory = {k: builder.scratch(1, dtypes[k]) for k in sorted(part.in_memory)}
        for k, address in in_memory.items():
            builder.store(start.pop(k), address, dtypes[k])
        carried = [(type_of(dtypes[k], builder.lanes), start[k]) for k in start]
        active = loop.init[0] if loop.length is None else loop.active
        condition = None if active is None else self.names[active]
        with builder.loop(loop.length, carried, condition) as (turn, carry, ends):
            body = Assembler(
                loop.body, loop.inner, inner, _ends(loop), builder, self.leaf, _inside(self.memory),
                self, dict(zip(start, carry, strict=True)),
                {part.in_memory[k]: address for k, address in in_memory.items()},
            )  # fmt: skip
            body.elements = elements
            body.at = turn
            if loop.reverse and loop.length is not None:
                body.at = builder.line(f"sub i64 {loop.length - 1}, {turn}")
            body.write()
            for k, memory in stacked.items():
                for place, i in enumerate(loop.stacked[k].ravel().tolist()):
                    body._store(i, memory, body.at, place)
            for row in part.written:
                body._write_row(row)
            ends += [body.names[loop.carry[k]] for k in start]
        results = dict(zip(start, ends, strict=True))
        for k, address in in_memory.items():
            results[k] = builder.load(address, dtypes[k], builder.lanes)
        return results, stacked

    def _write_row(self, row: WrittenRow) -> None:
        """Write a row at the index of each lane."""
        memory = self.memory(row.rows)
        assert memory is not None
        values = [self.names[int(i)] for i in row.row.ravel()]
        place, kind = self.names[row.place], self.graph.nodes[row.place].dtype
        condition = self.names[row.condition]
        with self.builder.branch(condition, []):
            self.builder.write_row(
                values, memory.base, memory.dtype, memory.apart, place, kind, condition
            )

    def _place_for(self, number: int, loop: Loop, k: int) -> Memory:
        """The location of a stacked output: in a result of the kernel, else in scratch memory."""
        nodes = loop.stacked[k].ravel().tolist()
        assert loop.length is not None
        dtype = loop.body.nodes[nodes[0]].dtype if nodes else np.dtype(float)
        shape = loop.stacked[k].shape
        memory = self.memory(Stacked(number, k, loop.length, shape, dtype))
        if memory is not None:
            return memory
        base = self.builder.scratch(loop.length * len(nodes), dtype)
        return Memory(base, len(nodes), dtype, self.builder.lanes)


def _ends(loop: Loop) -> Iterator[int]:
    """The nodes of the body of a loop that are used after an iteration."""
    yield from loop.carry
    for sequence in loop.stacked:
        yield from sequence.ravel().tolist()
    for row in loop.written:
        yield from row.nodes


def _inside(memory: _Place) -> _Place:
    """The locations as seen by the body of a loop, whose stacked outputs are not results."""
    return lambda sequence: None if isinstance(sequence, Stacked) else memory(sequence)
