"""The operations of a scalar graph as lines, one after another."""

from typing import Any

from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder, splat, type_of
from jaxmech.compiler.backends.llvm.instructions import instruction
from jaxmech.compiler.backends.llvm.trigonometry import sine_and_cosine
from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.pieces import ScalarOperation


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
            return self._sine_or_cosine(node)
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

    def _sine_or_cosine(self, node: Node) -> str:
        (angle,) = node.inputs
        # Reduction and both polynomials are written once: most angles need sine and cosine.
        if angle not in self._pairs:
            self._pairs[angle] = sine_and_cosine(self.builder, self.name(angle), node.dtype)
        return self._pairs[angle][node.op == "cos"]
