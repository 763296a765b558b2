"""Fused multiply-adds: which product becomes a part of which sum.

LLVM could choose by itself, but its choice depends on the code around, such as the number of lanes.
Made here, it depends on the graph alone: so a trajectory has the same bits alone and in any batch,
on every processor that has the instruction.
"""

from collections import Counter
from collections.abc import Iterable

from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.liveness import Live
from jaxmech.compiler.ir.loops import Loop, SequenceOfNodes

_SUMS = ("add", "add_any", "sub")


def multiply_adds(
    graph: Graph, loops: list[Loop], live: Live, ends: Iterable[int]
) -> dict[int, int]:
    """The product that becomes a part of each sum, by number: one that nothing else uses.

    Args:
        graph: the scalar graph.
        loops: the loops of the graph.
        live: the live nodes of both.
        ends: the nodes that are results of the graph.
    """
    nodes, joined = graph.nodes, dict[int, int]()
    uses = uses_of(graph, loops, live, ends)
    for block in (live.nodes, *live.branches.values()):
        for number in block:
            node = nodes[number]
            if node.op in _SUMS and node.dtype.kind == "f":
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
