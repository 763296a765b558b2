"""`ScalarFunction`: a function that is read once and added to graphs many times.

Reading the equations of a jaxpr takes ten times as long as adding the scalars that are left of
them. The body of an unrolled loop is added once per iteration, and the programs of a system have
most of their functions in common.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from jaxmech.compiler.ir.graph import BRANCH_NUMBERS, Graph, Node
from jaxmech.compiler.ir.loops import Ids, leaves
from jaxmech.compiler.optimize.fold import folded
from jaxmech.utils.digests import function_digest
from jaxmech.utils.jax_internals import Jaxpr

Constants = tuple[
    tuple[int, bytes], ...
]  # among the scalar inputs: their positions and their bytes
MOST_KEPT = 256  # functions
_KEPT: dict[tuple[str, Constants], "ScalarFunction | None"] = {}


class FunctionGraph(Graph):
    """The graph of a function, whose inputs may be constants wherever it is added."""

    def _annotate(self, node: Node) -> None:
        self.fingerprints.append(0)
        self.unsafe.append(0)


class ScalarFunction:
    """The operations from the inputs to the results of a graph.

    Args:
        graph: a `FunctionGraph`, whose first nodes are the inputs.
        count: number of the inputs.
        outs: the results.
    """

    def __init__(self, graph: Graph, count: int, outs: Sequence[Ids]) -> None:
        is_live = bytearray(len(graph.nodes))
        results = [i for out in outs for i in out.ravel().tolist()]
        for i in (*range(count), *results, *(operand for _, operand in graph.zeros)):
            is_live[i] = True
        for i in range(len(graph.nodes) - 1, -1, -1):
            for k in graph.nodes[i].inputs if is_live[i] else ():
                is_live[k] = True
        numbers = [total - 1 for total in accumulate(is_live)]
        rows = zip(graph.nodes, graph.values, is_live, strict=True)
        self._nodes = [
            (node._replace(inputs=tuple(numbers[k] for k in node.inputs)), value)
            for node, value, is_needed in [*rows][count:]
            if is_needed
        ]
        self._zeros = [(op, numbers[operand]) for op, operand in graph.zeros]
        self._outs = [np.array(numbers)[out] for out in outs]
        self._requested = graph.requested

    def added(self, g: Graph, args: Sequence[Ids]) -> list[Ids] | None:
        """Add the operations to another graph, and return the results in it.

        None if a product with zero that was folded in the function must not be folded there.
        """
        requested, folded_nodes, branches = g.requested, g.folded, dict[int, int]()
        numbers = [i for ids in args for i in ids.ravel().tolist()]
        for (op, inputs, params, dtype), value in self._nodes:
            if value is not None:
                numbers.append(g.const(value, dtype))
                continue
            if op == "branch":
                params = branches.setdefault(params, next(BRANCH_NUMBERS))
            ids = tuple([numbers[k] for k in inputs])
            number = folded_nodes.get((op, ids, params))
            numbers.append(folded(g, op, *ids, params=params) if number is None else number)
        g.requested = requested
        zeros = [(op, numbers[operand]) for op, operand in self._zeros]
        # A constant may be NaN or infinite, and 0 / 0 is NaN.
        is_exposed = (g.is_exposed(i) or g.values[i] is not None for _, i in zeros)
        if g.origins and any(is_exposed):
            return None
        g.requested += self._requested
        g.add_zeros(zeros)
        added = np.array(numbers, np.int64)
        return [np.asarray(added[out]) for out in self._outs]


Read = Callable[[Graph, Jaxpr, Sequence[Ids]], list[Ids] | None]


def function_of(jaxpr: Jaxpr, constants: Constants, read: Read) -> ScalarFunction | None:
    """A function for given constants among its inputs, read once for all equal jaxprs.

    `read` adds the function to a graph that holds nothing but its inputs, and returns the results,
    or None if they cannot be computed without loops.
    """
    key = function_digest(jaxpr), constants
    if key not in _KEPT:
        while len(_KEPT) >= MOST_KEPT:
            _KEPT.pop(next(iter(_KEPT)))
        graph = FunctionGraph()
        parameters = leaves(graph, "parameter", [x.aval for x in (*jaxpr.constvars, *jaxpr.invars)])
        count = len(graph.nodes)
        inputs = np.arange(count)
        for k, content in constants:
            dtype = graph.nodes[k].dtype
            inputs[k] = graph.const(np.frombuffer(content, dtype)[0], dtype)
        outs = read(graph, jaxpr, [np.asarray(inputs[ids]) for ids in parameters])
        _KEPT[key] = None if outs is None else ScalarFunction(graph, count, outs)
    return _KEPT[key]
