"""The operations of a graph, and functions of the pieces of long ones.

Which product becomes a part of which sum, LLVM could choose by itself, but its choice depends on
the code around, such as the number of lanes. Made here, it depends on the graph alone: so a
trajectory has the same bits alone and in any batch, on every processor that has the instruction.

A function reads and writes slots of the scratch memory. Those of functions with the same operations
are passed as a table of their positions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder, splat, type_of
from jaxmech.compiler.backends.llvm.instructions import instruction
from jaxmech.compiler.backends.llvm.trigonometry import sine_and_cosine
from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.liveness import Live
from jaxmech.compiler.ir.loops import Loop, SequenceOfNodes
from jaxmech.compiler.ir.pieces import Piece, ScalarOperation


class Operations:
    """Writes operations of a graph whose inputs have names.

    Args:
        graph: the scalar graph.
        products: the product that becomes a part of each sum (`multiply_adds`).
        builder: builder to which the lines are added.

    Attributes:
        names: the names of the nodes that have been written.
    """

    def __init__(self, graph: Graph, products: dict[int, int], builder: AssemblyBuilder) -> None:
        self.graph, self.products, self.builder = graph, products, builder
        self.names: dict[int, str] = {}
        self._pairs: dict[int, tuple[str, str]] = {}

    def name(self, number: int) -> str:
        """The name of a node."""
        return self.names[number]

    def add(self, number: int) -> None:
        """Write a node."""
        node, product = self.graph.nodes[number], self.products.get(number)
        self.names[number] = (
            self._written(node, number) if product is None else self._multiply_add(node, product)
        )

    def operation(self, number: int) -> ScalarOperation:
        """A node with what it reads, for a piece."""
        nodes = self.graph.nodes
        node, product = nodes[number], self.products.get(number)
        reads, params = node.inputs, node.op != "branch" and node.params
        if product is not None:
            params = node.inputs[0] == product
            reads = (*nodes[product].inputs, node.inputs[params])
        kinds = tuple(nodes[i].dtype.char for i in reads)
        return ScalarOperation(
            number, (node.op, product is None, params, node.dtype.char, kinds), reads
        )

    def _written(self, node: Node, number: int) -> str:
        if node.op == "const":
            return splat(self.builder, self.graph.values[number], node.dtype)
        if node.op in ("sin", "cos"):
            (angle,) = node.inputs
            # Reduction and both polynomials are written once: most angles need sine and cosine.
            if angle not in self._pairs:
                self._pairs[angle] = sine_and_cosine(self.builder, self.name(angle), node.dtype)
            return self._pairs[angle][node.op == "cos"]
        return instruction(self.builder, node, self._inputs(node))

    def _inputs(self, node: Node) -> list[tuple[str, Any]]:
        return [(self.name(i), self.graph.nodes[i].dtype) for i in node.inputs]

    def _multiply_add(self, node: Node, product: int) -> str:
        """Write a sum or a difference of a product and another number."""
        builder, kind = self.builder, type_of(node.dtype, self.builder.lanes)
        x, y = (self.name(i) for i in self.graph.nodes[product].inputs)
        is_first = node.inputs[0] == product
        addend = self.name(node.inputs[is_first])
        if node.op == "sub" and is_first:
            addend = builder.line(f"fneg {kind} {addend}")
        elif node.op == "sub":
            x = builder.line(f"fneg {kind} {x}")
        return builder.intrinsic("fma", node.dtype, x, y, addend)


def multiply_adds(
    graph: Graph, loops: list[Loop], live: Live, ends: Iterable[int]
) -> dict[int, int]:
    """The product that becomes a part of each sum, by number: one that nothing else uses."""
    nodes, joined = graph.nodes, dict[int, int]()
    uses = uses_of(graph, loops, live, ends)
    for block in (live.nodes, *live.branches.values()):
        for number in block:
            node = nodes[number]
            if node.op in ("add", "add_any", "sub") and node.dtype.kind == "f":
                products = [
                    i for i in node.inputs if nodes[i].op == "mul" and uses[i] == 1 and i in block
                ]
                if products:
                    joined[number] = products[0]
    return joined


def uses_of(graph: Graph, loops: list[Loop], live: Live, ends: Iterable[int]) -> Counter[int]:
    """How often each node is used: by other nodes, by loops and as a result."""
    blocks = live.nodes, *live.branches.values()
    uses = Counter(i for block in blocks for number in block for i in graph.nodes[number].inputs)
    uses.update(ends)
    uses.update(_used_by_loops(loops, live))
    return uses


def _used_by_loops(loops: list[Loop], live: Live) -> Iterable[int]:
    for k, part in live.loops.items():
        loop = loops[k]
        yield from loop.init
        if loop.active is not None:
            yield loop.active
        for sequence in loop.scanned:
            if isinstance(sequence, SequenceOfNodes):
                yield from sequence.ids.ravel().tolist()
        assert part.body is not None
        inside = (part.body.nodes, *part.body.branches.values())
        captured = (loop.body.nodes[i] for block in inside for i in block)
        yield from (node.params for node in captured if node.op == "capture")


_HEAD = (
    "define internal void @{}(ptr noalias %scratch, ptr noalias readonly %places) noinline "
    'nounwind "prefer-vector-width"="512" "stackrealign" "frame-pointer"="all" {{'
)

_COPY = """
define internal void @copy{bytes}(ptr %scratch, ptr %places, i64 %count) noinline nounwind {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %pair = getelementptr [2 x i32], ptr %places, i64 %k
  %second = getelementptr i32, ptr %pair, i64 1
  %from32 = load i32, ptr %pair
  %to32 = load i32, ptr %second
  %from64 = zext i32 %from32 to i64
  %to64 = zext i32 %to32 to i64
  %from = getelementptr i8, ptr %scratch, i64 %from64
  %to = getelementptr i8, ptr %scratch, i64 %to64
  %value = load <{bytes} x i8>, ptr %from, align 1
  store <{bytes} x i8> %value, ptr %to, align 1
  %next = add i64 %k, 1
  %again = icmp ult i64 %next, %count
  br i1 %again, label %loop, label %end
end:
  ret void
}}
"""


class Functions:
    """The functions of a module, and the slots of its scratch memory."""

    def __init__(self, builder: AssemblyBuilder) -> None:
        self.builder = builder
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._names: dict[Any, str] = {}

    def take(self, dtype: np.dtype) -> int:
        """Reserve a slot, and return its position [bytes]."""
        free = self._free[self.builder.size(dtype)]
        return free.pop() if free else self.builder.reserve(1, dtype)

    def give(self, position: int, dtype: np.dtype) -> None:
        """Return a slot."""
        self._free[self.builder.size(dtype)].append(position)

    def call(
        self, piece: Piece, positions: Sequence[int | range], at: str, length: int | None,
        graph: Graph, products: dict[int, int],
    ) -> None:  # fmt: skip
        """Write the call of a piece in iteration `at` of a loop of some length.

        `positions` are those of its inputs and outputs, or those in all iterations.
        """
        if piece.shape not in self._names:
            self._names[piece.shape] = self._written(piece, graph, products)
        rows = [[x if isinstance(x, int) else x[0] for x in positions]]
        if any(isinstance(x, range) for x in positions):
            assert length is not None
            rows = [[x if isinstance(x, int) else x[k] for x in positions] for k in range(length)]
        table = self.builder.table(np.array(rows, np.int32).ravel())
        if len(rows) > 1:
            row = self.builder.line(f"mul i64 {at}, {len(positions)}")
            table = self.builder.address(table, np.dtype(np.int32), row)
        name = self._names[piece.shape]
        self.builder.lines.append(f"call void @{name}(ptr %scratch, ptr {table})")

    def copy(self, pairs: Sequence[tuple[int, int]], dtype: np.dtype) -> None:
        """Write the copies of vectors from one position to another."""
        if not pairs:
            return
        size = self.builder.lanes * dtype.itemsize
        text = _COPY.format(bytes=size)
        if text not in self.builder.functions:
            self.builder.functions.append(text)
        table = self.builder.table(np.array(pairs, np.int32).ravel())
        self.builder.lines.append(
            f"call void @copy{size}(ptr %scratch, ptr {table}, i64 {len(pairs)})"
        )

    def _written(self, piece: Piece, graph: Graph, products: dict[int, int]) -> str:
        name, builder = f"piece{len(self._names)}", self.builder.function()
        builder.lines.append(_HEAD.format(name))
        builder.label("entry")
        writer = _FunctionOfPiece(piece, graph, products, builder)
        for operation in piece.operations:
            writer.add(operation.number)
            writer.store(operation.number)
        self.builder.functions.append("\n".join([*builder.lines, "ret void", "}"]))
        return name


class _FunctionOfPiece(Operations):
    """Writes the lines of a function: a number is loaded where it is first read."""

    def __init__(
        self, piece: Piece, graph: Graph, products: dict[int, int], builder: AssemblyBuilder
    ) -> None:
        super().__init__(graph, products, builder)
        numbers = [*piece.inputs, *piece.outputs]
        self.positions = {number: position for position, number in enumerate(numbers)}

    def name(self, number: int) -> str:
        if number not in self.names:
            value = self.graph.values[number]
            dtype = self.graph.nodes[number].dtype
            if value is not None:
                self.add(number)
            else:
                self.names[number] = self.builder.load_vector(self._address(number), dtype)
        return self.names[number]

    def store(self, number: int) -> None:
        """Store a number if it is an output."""
        if number in self.positions:
            dtype = self.graph.nodes[number].dtype
            self.builder.store(self.names[number], self._address(number), dtype)

    def _address(self, number: int) -> str:
        at = f"getelementptr inbounds i32, ptr %places, i64 {self.positions[number]}"
        position = self.builder.line(f"load i32, ptr {self.builder.line(at)}")
        offset = self.builder.line(f"zext i32 {position} to i64")
        return self.builder.line(f"getelementptr inbounds i8, ptr %scratch, i64 {offset}")
