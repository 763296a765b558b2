"""The scalar graph: every number that a function computes, made once.

Nodes are numbered in the order of their making, so the inputs of a node always come before it.
Equal nodes are shared, and what is the same in every iteration of a loop is done outside of it.

Leaves are `const`, `input` (of the whole function), `carry` and `element` (of a loop, in the graph
of its body), `capture` (a node of the graph around the loop) and `result` (of a loop).

A `branch` is a choice whose last input is a rare case: (whether it holds, the usual value, its own
value), numbered with the others of the same case. What only it needs is computed only if it holds
in some lane.
"""

from typing import Any, NamedTuple

import numpy as np


class Node(NamedTuple):
    """One scalar.

    Attributes:
        op: name of the operation or kind of leaf.
        inputs: numbers of the nodes that it is made of.
        params: whatever else the operation needs.
        dtype: type of the scalar.
    """

    op: str
    inputs: tuple[int, ...]
    params: Any
    dtype: np.dtype


class Graph:
    """Scalars and the operations that make them.

    Attributes:
        nodes: in the order of their making.
        values: the value of each constant as a numpy scalar, None for other nodes.
        outer: the graph around the loop whose body this is.
        requested: operations asked for, before any was folded or shared.
        marks: a number for each node that is the same whenever the same program is read.
        watched: marks of nodes that may hide that they are not finite (`zeros.py`).
        doubtful: whether a node is watched, or made of one that is.
        zeros: products and quotients of zero that were folded: the operation and the other number.
        folded: what the operations that were asked for have become.
        depth: how many graphs there are around it.
    """

    def __init__(self, outer: "Graph | None" = None, watched: frozenset[int] = frozenset()) -> None:
        self.nodes: list[Node] = []
        self.values: list[Any] = []
        self.outer = outer
        self.requested = 0
        self.marks: list[int] = []
        self.watched: frozenset[int] = watched if outer is None else outer.watched
        self.doubtful: list[bool] = []
        self.zeros: dict[tuple[str, int], None] = {}
        self.folded: dict[tuple[str, tuple[int, ...], Any], int] = {}
        self.depth: int = 0 if outer is None else outer.depth + 1
        self._known: dict[Node, int] = {}

    def add(self, op: str, inputs: tuple[int, ...], params: Any, dtype: Any) -> int:
        """The node as it is, or the equal one that exists already."""
        node = Node(op, inputs, params, np.dtype(dtype))
        number = self._known.get(node)
        if number is None:
            if self.outer is not None and self._is_invariant(inputs):
                return self._hoisted(node)
            number = self._known[node] = len(self.nodes)
            self.nodes.append(node)
            self.values.append(None)
            self._note(node)
        return number

    def _note(self, node: Node) -> None:
        """Marks a new node; inputs may come in another order when the program is read again."""
        if node.op == "capture":
            assert self.outer is not None
            self.marks.append(self.outer.marks[node.params])
            self.doubtful.append(self.outer.doubtful[node.params])
            return
        made_of = sorted(self.marks[i] for i in node.inputs) or [self.depth]
        mark = hash((node.op, node.op != "branch" and node.params, *made_of))
        self.marks.append(mark)
        is_float = node.dtype.kind == "f"
        is_doubtful = mark in self.watched or any(self.doubtful[i] for i in node.inputs)
        self.doubtful.append(is_float and is_doubtful)

    def known(self, node: Node) -> int | None:
        """The number of a node if it exists already."""
        return self._known.get(node)

    def const(self, value: Any, dtype: Any) -> int:
        """A constant; its text tells 0.0 from -0.0 and makes NaN equal to itself."""
        scalar = np.asarray(value, dtype)[()]
        number = self.add("const", (), repr(scalar), dtype)
        self.values[number] = scalar
        return number

    def capture(self, number: int) -> int:
        """A node of the graph around the loop, as a node of this one."""
        assert self.outer is not None
        if self.outer.values[number] is not None:
            return self.const(self.outer.values[number], self.outer.nodes[number].dtype)
        return self.add("capture", (), number, self.outer.nodes[number].dtype)

    def _is_invariant(self, inputs: tuple[int, ...]) -> bool:
        ops = {self.nodes[i].op for i in inputs}
        return "capture" in ops and ops <= {"capture", "const"}

    def _hoisted(self, node: Node) -> int:
        """An operation that is the same in every iteration, done once outside of the loop."""
        assert self.outer is not None
        inputs = tuple(self._outside(i) for i in node.inputs)
        return self.capture(self.outer.add(node.op, inputs, node.params, node.dtype))

    def _outside(self, number: int) -> int:
        node = self.nodes[number]
        assert self.outer is not None
        if node.op == "capture":
            return int(node.params)
        return self.outer.const(self.values[number], node.dtype)
