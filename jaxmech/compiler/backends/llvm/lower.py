"""Lowering of a scalar graph to LLVM assembly, in which every scalar is a vector over the lanes.

A loop of the graph becomes a loop here, with its carry in registers as far as they suffice; a
`while` runs until all lanes are done, and is skipped if they are from the beginning, as is any loop
on which nothing depends in any lane. A branch is a jump around the nodes that only it depends on.
Products become a part of sums, nothing else is rearranged.

`Body` adds loads and stores. In a batch an argument or a result has the trajectories as its first
axis, as JAX lays them out.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder, type_of
from jaxmech.compiler.backends.llvm.functions import (
    Functions,
    Operations,
    multiply_adds,
    uses_of,
)
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.liveness import LEAVES, Live, LiveLoop, branch_outputs
from jaxmech.compiler.ir.loops import (
    Loop,
    Rows,
    Scanned,
    SequenceInput,
    SequenceOfNodes,
    Stacked,
    WrittenRow,
    flat,
)
from jaxmech.compiler.ir.pieces import Piece, pieces

MOST_TABLES = 64  # iterations of a loop whose functions have tables of positions for each of them
SHORTEST = 100  # operations of a run that is split into pieces
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


class _Assembler(Operations):
    """Writes one graph; the body of a loop gets an assembler of its own.

    Args:
        graph: the scalar graph.
        loops: the loops of the graph.
        live: the live nodes of both.
        ends: the nodes that are results of the graph.
        body: the loads and stores of the kernel.
        is_split: whether this code is split into functions; otherwise the long loops in it that
            rarely run are.
        around: the assembler of the graph around the loop whose body this is.
        carry: names of the carry of that loop.
        in_memory: leaves of the carry that lie in memory, with their addresses.
    """

    def __init__(
        self, graph: Graph, loops: list[Loop], live: Live, ends: Iterable[int], body: "Body",
        is_split: bool, around: "_Assembler | None" = None, carry: dict[int, str] | None = None,
        in_memory: dict[int, str] | None = None,
    ) -> None:  # fmt: skip
        ends = [*ends]
        products = multiply_adds(graph, loops, live, ends) if body.builder.has_fma else {}
        super().__init__(graph, products, body.builder)
        self.loops, self.live, self.ends, self.body = loops, live, ends, body
        self.functions = body.functions if is_split else None
        self.uses = {} if self.functions is None else uses_of(graph, loops, live, ends)
        self._within_sums = set(self.products.values())
        self.around, self.carry = around, carry or {}
        self.in_memory = in_memory or {}
        self.slots: dict[int, int] = {}
        self._own_slots: set[int] = set()
        self._starts: dict[SequenceOfNodes, int] = {}
        self._homes: dict[int, int] = {}
        self.length: int | None = None
        self.elements: dict[int, Memory] = {}
        self.at = ""
        self._ends: dict[int, tuple[dict[int, str], dict[int, Memory]]] = {}
        self._after: dict[int, str] = {}

    def write(self) -> None:
        """Write all live nodes, with the loops that they depend on or that write rows."""
        # Constants first: one of a later output of a branch may precede its first output.
        written = self.live.nodes - self.in_memory.keys() - self._within_sums
        self._write_nodes(
            sorted(written, key=lambda i: (self.graph.values[i] is None, i)), self.ends
        )
        for number, part in self.live.loops.items():
            if part.writes:
                self._loop(number)

    def _write_nodes(self, numbers: Sequence[int], ends: Iterable[int]) -> None:
        """Write nodes in order, those of long code as calls of functions."""
        if self.functions is None:
            for number in numbers:
                self.add(number)
            return
        for k, part in self.live.loops.items():
            self._reserve_elements(self.loops[k], part)
        items = self._items(numbers)
        planned = set[Any]()
        reads = [self._reads(item, planned) for item in items]
        last = {i: at for at, nodes in enumerate(reads) for i in nodes}
        late = [i for k, part in self.live.loops.items() for i in self._read_by_loops(k, planned)]
        last.update(dict.fromkeys([*ends, *late], len(items)))
        inside = {*numbers}
        for at, (item, nodes) in enumerate(zip(items, reads, strict=True)):
            if isinstance(item, Piece):
                self._call(item)
            else:
                self.add(item)
            self._free({i for i in nodes if last[i] == at and i in inside and i in self._own_slots})

    def _reserve_elements(self, loop: Loop, part: LiveLoop) -> None:
        """Let functions write nodes where a loop scans them."""
        for sequence, positions in _sequences_of_nodes(loop, part):
            ids = sequence.ids.reshape(len(sequence.ids), -1)
            if any(self.graph.values[i] is None for i in ids.ravel().tolist()):
                start, size = self._start(sequence), self.builder.lanes * sequence.dtype.itemsize
                for index, line in enumerate(ids.tolist()):
                    first = start + index * len(line) * size
                    self._homes |= {
                        line[position]: first + position * size for position in positions
                    }

    def _items(self, numbers: Sequence[int]) -> list[int | Piece]:
        """Pieces, and the nodes that are no part of any; leaves are written where they are read."""
        items, run = list[int | Piece](), list[int]()
        for i in numbers:
            node = self.graph.nodes[i]
            is_branch = node.op == "branch" and node.params in self.live.branches
            if is_branch or node.op in ("result", "saved", "read"):  # no operation of a piece
                items += [*self._split(run), i]
                run = []
            elif node.op not in LEAVES:
                run.append(i)
        return [*items, *self._split(run)]

    def _split(self, run: list[int]) -> Sequence[int | Piece]:
        if len(run) < SHORTEST:
            return run
        return pieces([self.operation(i) for i in run], self.uses, self.graph.values)

    def _reads(self, item: int | Piece, planned: set[Any]) -> list[int]:
        """The nodes that must be known before an item is written."""
        if isinstance(item, Piece):
            return item.inputs
        node = self.graph.nodes[item]
        params: Any = node.params
        if node.op in ("result", "saved"):
            return self._read_by_loops(params[0], planned)
        if node.op == "branch" and params in self.live.branches:
            return self._read_by_branch(params, planned)
        return [*self.operation(item).reads]

    def _read_by_loops(self, number: int, planned: set[Any]) -> list[int]:
        """What a loop reads, and the loops of which it reads stacked outputs."""
        if ("loop", number) in planned:
            return []
        planned.add(("loop", number))
        loop = self.loops[number]
        before = [x.loop for x in loop.scanned if isinstance(x, Stacked)]
        return [
            *(i for k in before for i in self._read_by_loops(k, planned)),
            *_read_by_loop(loop, self.live.loops[number]),
        ]

    def _read_by_branch(self, branch: int, planned: set[Any]) -> list[int]:
        if ("branch", branch) in planned:
            return []
        planned.add(("branch", branch))
        exclusive, nodes = self.live.branches[branch], self.graph.nodes
        outputs = [
            i for k in branch_outputs(self.graph, self.live, branch) for i in nodes[k].inputs
        ]
        inside = [i for k in exclusive - self._within_sums for i in self.operation(k).reads]
        return [i for i in (*outputs, *inside) if i not in exclusive]

    def _call(self, piece: Piece) -> None:
        assert self.functions is not None
        positions = [self._positions(i) for i in piece.inputs]
        for i in piece.outputs:
            if i in self._homes:
                self.slots[i] = self._homes[i]
                continue
            self.slots[i] = self.functions.take(self.graph.nodes[i].dtype)
            self._own_slots.add(i)
        positions += [self.slots[i] for i in piece.outputs]
        self.functions.call(piece, positions, self.at, self.length, self.graph, self.products)

    def _positions(self, number: int) -> int | range:
        """Where an input of a function is, or an element in all iterations."""
        node = self.graph.nodes[number]
        if node.op == "element" and self.length is not None and self.length <= MOST_TABLES:
            memory, size = self.elements[node.params[0]], self.builder.lanes * node.dtype.itemsize
            if memory.position is not None:
                start, step = memory.position + node.params[1] * size, memory.numbers * size
                return range(start, start + self.length * step, step)
        return self._slot(number)

    def _slot(self, number: int) -> int:
        """The position of a node in scratch memory, where it is stored unless it is there."""
        position = self.slot(number)
        if position is None:
            assert self.functions is not None
            dtype = self.graph.nodes[number].dtype
            position = self.functions.take(dtype)
            self.builder.store(self.name(number), self.builder.position(position), dtype)
            self._own_slots.add(number)
            self.slots[number] = position
        return position

    def slot(self, number: int) -> int | None:
        """The position of a node in scratch memory, None if it is not there."""
        node = self.graph.nodes[number]
        if number not in self.slots and node.op == "capture":
            assert self.around is not None
            return self.around.slot(node.params)
        return self.slots.get(number)

    def _free(self, numbers: set[int]) -> None:
        for i in numbers:
            assert self.functions is not None
            self.functions.give(self.slots.pop(i), self.graph.nodes[i].dtype)
        self._own_slots -= numbers

    def name(self, number: int) -> str:
        """The name of a node, which is loaded from its position or written where it has none."""
        if number not in self.names:
            if number in self.slots:
                dtype = self.graph.nodes[number].dtype
                return self.builder.load_vector(self.builder.position(self.slots[number]), dtype)
            self.add(number)
        return self.names[number]

    def stacked(self, sequence: Stacked) -> Memory:
        """The location of a stacked output of a loop."""
        return self._loop(sequence.loop)[1][sequence.number]

    def _written(self, node: Node, number: int) -> str:
        params: Any = node.params
        match node.op:
            case "result":
                loop, position = params
                return self._loop(loop)[0][position]
            case "saved":
                loop, sequence, offset, position = params
                return self._element(self._loop(loop)[1][sequence], offset, position)
            case "input" | "read":
                return self.body.input(node, *self._inputs(node))
            case "carry":
                return self.carry[params]
            case "capture":
                assert self.around is not None
                return self.around.name(params)
            case "element":
                return self._element(self.elements[params[0]], self.at, params[1])
            case "branch" if params in self.live.branches:
                return self._branch(params, number)
        return super()._written(node, number)

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
            usual = [self.name(gives[i][1]) for i in available]
            condition = self.name(nodes[number].inputs[0])
            pairs, names, slots = dict(self._pairs), dict(self.names), dict(self.slots)
            with self.builder.branch(condition, list(zip(types, usual, strict=True))) as (
                merged,
                ends,
            ):
                for leaf in stored.values():
                    address = self.in_memory[leaf]
                    self.names[leaf] = self.builder.load(
                        address, nodes[leaf].dtype, self.builder.lanes
                    )
                self._write_nodes(exclusive, [inputs[2] for inputs in gives.values()])
                rare = {
                    i: self.builder.select(condition, self.name(c), self.name(b), nodes[i].dtype)
                    for i, (_, b, c) in gives.items()
                }
                for i, leaf in stored.items():
                    self.builder.store(rare[i], self.in_memory[leaf], nodes[i].dtype)
                ends += [rare[i] for i in available]
            # What is written in a branch is not defined after the jump.
            self._pairs, self.names = pairs, names
            self._free(self._own_slots - slots.keys())
            self.slots = slots
            self._after.update(zip(available, merged, strict=True))
            self._after.update(dict.fromkeys(stored, ""))
        return self._after[number]

    def _element(self, memory: Memory, offset: str | int, position: int) -> str:
        address = self._address(memory, offset, position)
        if memory.apart:
            return self.builder.gather(address, memory.dtype, memory.apart, memory.align(position))
        return self.builder.load(address, memory.dtype, memory.lanes)

    def _store(self, number: int, memory: Memory, offset: str | int, position: int) -> None:
        address = self._address(memory, offset, position)
        if memory.apart:
            align = memory.align(position)
            self.builder.scatter(self.name(number), address, memory.dtype, memory.apart, align)
        else:
            self.builder.store(self.name(number), address, memory.dtype)

    def _address(self, memory: Memory, offset: str | int, position: int) -> str:
        """The address of one number of an element; `offset` is a constant or a name."""
        base, stride = memory.base, memory.numbers * memory.lanes
        if isinstance(offset, str):
            first: str | int = self.builder.line(f"mul i64 {offset}, {stride}")
        else:
            first = offset * stride
        start = self.builder.address(base, memory.dtype, first)
        return self.builder.address(start, memory.dtype, position * memory.lanes)

    def _memory(self, sequence: SequenceInput | Stacked | Rows) -> Memory | None:
        """The location of a sequence that is an argument or a result of the kernel, else None."""
        is_inside = isinstance(sequence, Stacked) and self.around is not None
        return None if is_inside else self.body.memory(sequence)

    def _sequence(self, sequence: Scanned, positions: list[int]) -> Memory:
        if isinstance(sequence, Stacked):
            return self.stacked(sequence)
        if isinstance(sequence, SequenceInput):
            memory = self._memory(sequence)
            assert memory is not None
            return memory
        return self._sequence_of_nodes(sequence, positions)

    def _sequence_of_nodes(self, sequence: SequenceOfNodes, positions: list[int]) -> Memory:
        """Store nodes side by side in memory, those that are read; constants become a table."""
        dtype, ids = sequence.dtype, sequence.ids.reshape(len(sequence.ids), -1)
        values = [self.graph.values[int(i)] for i in ids.ravel()]
        if all(value is not None for value in values):
            return Memory(self.builder.table(np.array(values, dtype)), ids.shape[1], dtype, 1)
        start, size = self._start(sequence), self.builder.lanes * dtype.itemsize
        base = self.builder.position(start)
        memory = Memory(base, ids.shape[1], dtype, self.builder.lanes, position=start)
        copies = list[tuple[int, int]]()
        for index, line in enumerate(ids.tolist()):
            for position in positions:
                at, slot = (
                    start + (index * ids.shape[1] + position) * size,
                    self.slots.get(line[position]),
                )
                if slot is None:
                    self._store(line[position], memory, index, position)
                elif slot != at:  # otherwise a function has written it there
                    copies.append((slot, at))
        if self.functions is not None:
            self.functions.copy(copies, dtype)
        return memory

    def _start(self, sequence: SequenceOfNodes) -> int:
        """The position of a sequence in scratch memory."""
        if sequence not in self._starts:
            self._starts[sequence] = self.builder.reserve(sequence.ids.size, sequence.dtype)
        return self._starts[sequence]

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
        # What only this loop reads and changes, which runs at most once, stays in memory.
        kept = {k: self.in_memory[i] for k in part.carry if (i := loop.init[k]) in self.in_memory}
        for i in _read_by_loop(loop, part):  # not inside the loop
            if i not in self.slots and i not in self.in_memory:
                self.name(i)
        start = {k: self.name(loop.init[k]) for k in sorted(part.carry - kept.keys())}
        stacked = {k: self._position_for(number, loop, k) for k in sorted(part.stacked)}
        if loop.length == 0:
            return start, stacked
        read = _read_elements(loop, part)
        elements = {k: self._sequence(loop.scanned[k], positions) for k, positions in read.items()}
        builder = self.builder
        dtypes = {k: loop.body.nodes[loop.carry[k]].dtype for k in part.carry}
        in_memory = {k: builder.scratch(1, dtypes[k]) for k in sorted(part.in_memory.keys() - kept)}
        for k, address in in_memory.items():
            builder.store(start.pop(k), address, dtypes[k])
        carried = [(type_of(dtypes[k], builder.lanes), start[k]) for k in start]
        active = loop.init[0] if loop.length is None else loop.active
        condition = None if active is None else self.name(active)
        if loop.is_branch and condition is not None:
            rounds = builder.once(condition, carried, loop.is_usual)
        else:
            rounds = builder.loop(loop.length, carried, condition)
        is_split = self.functions is not None or loop.is_rare
        with rounds as (turn, carry, ends):
            for k, address in kept.items():  # what it captures, too, as it is at the start
                value = builder.load(address, dtypes[k], builder.lanes)
                self.names[loop.init[k]] = value
            values = {k: self.names[loop.init[k]] for k in kept}
            addresses = in_memory | kept
            after = [*loop.carry, *flat(loop.stacked), *(i for x in loop.written for i in x.nodes)]
            body = _Assembler(
                loop.body, loop.inner, inner, after, self.body, is_split, self,
                dict(zip(start, carry, strict=True)) | values,
                {part.in_memory[k]: addresses[k] for k in part.in_memory},
            )  # fmt: skip
            body.elements, body.length = elements, loop.length
            body.at = turn
            if loop.reverse and loop.length is not None:
                body.at = builder.line(f"sub i64 {loop.length - 1}, {turn}")
            body.write()
            for k, memory in stacked.items():
                for position, i in enumerate(loop.stacked[k].ravel().tolist()):
                    body._store(i, memory, body.at, position)
            for row in part.written:
                body._write_row(row)
            for k in sorted(kept.keys() - part.in_memory.keys()):
                builder.store(body.name(loop.carry[k]), kept[k], dtypes[k])
            ends += [body.name(loop.carry[k]) for k in start]
            body._free(set(body._own_slots))
        results = dict(zip(start, ends, strict=True)) | dict.fromkeys(kept, "")
        for k in kept:
            del self.names[loop.init[k]]
        for k, address in in_memory.items():
            results[k] = builder.load(address, dtypes[k], builder.lanes)
        return results, stacked

    def _write_row(self, row: WrittenRow) -> None:
        memory = self._memory(row.rows)
        assert memory is not None
        values = [self.name(int(i)) for i in row.row.ravel()]
        position, kind = self.name(row.position), self.graph.nodes[row.position].dtype
        condition = self.name(row.condition)
        with self.builder.branch(condition, []):
            self.builder.write_row(
                values, memory.base, memory.dtype, memory.apart, position, kind, condition
            )

    def _position_for(self, number: int, loop: Loop, k: int) -> Memory:
        """The location of a stacked output: in a result of the kernel, else in scratch memory."""
        nodes = loop.stacked[k].ravel().tolist()
        assert loop.length is not None
        dtype = loop.body.nodes[nodes[0]].dtype if nodes else np.dtype(float)
        shape = loop.stacked[k].shape
        memory = self._memory(Stacked(number, k, loop.length, shape, dtype))
        if memory is not None:
            return memory
        start = self.builder.reserve(loop.length * len(nodes), dtype)
        base = self.builder.position(start)
        return Memory(base, len(nodes), dtype, self.builder.lanes, position=start)


def _read_by_loop(loop: Loop, part: LiveLoop) -> Iterator[int]:
    """The nodes of the graph around a loop that it reads."""
    yield from (loop.init[k] for k in part.carry)
    if loop.active is not None:
        yield loop.active
    assert part.body is not None
    leaves = [loop.body.nodes[i] for i in part.body.nodes]
    yield from (leaf.params for leaf in leaves if leaf.op == "capture")
    for sequence, positions in _sequences_of_nodes(loop, part):
        yield from sequence.ids.reshape(len(sequence.ids), -1)[:, positions].ravel().tolist()


def _sequences_of_nodes(loop: Loop, part: LiveLoop) -> Iterator[tuple[SequenceOfNodes, list[int]]]:
    """The sequences of nodes that a loop scans, and the positions of an element that it reads."""
    for k, positions in _read_elements(loop, part).items():
        sequence = loop.scanned[k]
        if isinstance(sequence, SequenceOfNodes):
            yield sequence, positions


def _read_elements(loop: Loop, part: LiveLoop) -> dict[int, list[int]]:
    """The scanned sequences of which a loop reads elements, and the positions that it reads."""
    assert part.body is not None
    read = dict[int, list[int]]()
    leaves = (loop.body.nodes[i] for i in sorted(part.body.nodes))
    for sequence, position in sorted(leaf.params for leaf in leaves if leaf.op == "element"):
        read.setdefault(sequence, []).append(position)
    return read


def computed_results(kernel: Kernel) -> list[int]:
    """The indices of the results that are not empty; native code computes no others."""
    return [k for k, aval in enumerate(kernel.out_avals) if math.prod(aval.shape)]


class Body:
    """Writes the code of a function for the trajectories side by side in its lanes.

    Args:
        builder: builder to which the lines are added.
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch.
        first: name of the index of the first of these trajectories.
        array: returns the address of an array: arguments from 0, then the computed results.
        functions: functions of the pieces into which long code is split; None if none is.
        is_split: whether all code is, or only the loops that rarely run.
    """

    def __init__(
        self, builder: AssemblyBuilder, kernel: Kernel, batched: frozenset[int], first: str,
        array: Callable[[int], str], functions: Functions | None = None, is_split: bool = False,
    ) -> None:  # fmt: skip
        self.builder, self.kernel, self.batched = builder, kernel, batched
        self.first, self.array = first, array
        self.functions, self.is_split = functions, is_split
        self.computed = computed_results(kernel)
        avals = kernel.avals
        scalars = [k for k in range(len(avals)) if k not in kernel.sequences]
        self.positions = [(k, position) for k in scalars for position in range(avals[k].size)]
        self.starts = {
            k: self._start(array(k), aval, first if k in batched else None)
            for k, aval in enumerate(avals)
        }
        self.ends: dict[int, str] = {}
        # A GPU computes addresses where they are used: registers would hold them in all loops.
        if not builder.on_gpu:
            self.ends = {k: self._end(k) for k in self.computed}

    def write(self) -> None:
        """Write the lines.

        Raises:
            UnsupportedError: for an operation or a type without an instruction.
        """
        kernel, builder = self.kernel, self.builder
        graph, loops = kernel.reader.graph, kernel.reader.loops
        ends = [
            i for out in kernel.outs if isinstance(out, np.ndarray) for i in out.ravel().tolist()
        ]
        live = kernel.live
        assembler = _Assembler(graph, loops, live, ends, self, self.is_split)
        assembler.write()
        for k in self.computed:
            out = kernel.outs[k]
            if isinstance(out, Stacked):
                assembler.stacked(out)
                continue
            if isinstance(out, Rows):
                continue
            end = self._end(k)
            assert isinstance(out, np.ndarray)
            for position, number in enumerate(out.ravel().tolist()):
                dtype = kernel.out_avals[k].dtype
                address = builder.address(end, dtype, position)
                align = array_alignment(dtype, out.size, position)
                builder.scatter(assembler.name(number), address, dtype, out.size, align)

    def _start(self, base: str, aval: Any, first: str | None) -> str:
        """The address of the numbers of these trajectories in an array, shared if first is None."""
        if first is None:
            return base
        return self.builder.address(
            base, aval.dtype, self.builder.line(f"mul i64 {first}, {aval.size}")
        )

    def input(self, node: Node, index: tuple[str, np.dtype] | None = None) -> str:
        """Write the load of an `input`, or the `read` of one of several at an index."""
        params: Any = node.params
        k, position = self.positions[params if index is None else params[0]]
        address = self.builder.address(self.starts[k], node.dtype, position)
        apart = self.kernel.avals[k].size if k in self.batched else 0
        if index is not None:
            return self.builder.read(address, node.dtype, apart, *index)
        align = array_alignment(node.dtype, apart, position)
        if apart:
            return self.builder.gather(address, node.dtype, apart, align)
        return self.builder.load(address, node.dtype, 1, align)

    def memory(self, steps: SequenceInput | Stacked | Rows) -> Memory | None:
        """The location of a sequence that is an argument or a result, else None."""
        kernel, numbers = self.kernel, math.prod(steps.shape)
        if isinstance(steps, SequenceInput):
            k = kernel.sequences.start + steps.number
            apart = kernel.avals[k].size if k in self.batched else 0
            return Memory(self.starts[k], numbers, steps.dtype, 1, apart)
        if isinstance(steps, Rows):
            k = next(k for k in self.computed if kernel.outs[k] is steps)
            return Memory(self._end(k), numbers, steps.dtype, 1, steps.count * numbers)
        for k in self.computed:
            out = kernel.outs[k]
            if isinstance(out, Stacked) and (out.loop, out.number) == (steps.loop, steps.number):
                return Memory(self._end(k), numbers, out.dtype, 1, out.length * numbers)
        return None

    def _end(self, k: int) -> str:
        """The address of the numbers of these trajectories in a result."""
        if self.builder.on_gpu or k not in self.ends:
            number = len(self.kernel.avals) + self.computed.index(k)
            return self._start(self.array(number), self.kernel.out_avals[k], self.first)
        return self.ends[k]
