"""Folding of products with zero, though 0 times NaN or infinity is NaN.

Most zeros of a mechanical system come from derivatives, and much of the speed comes from folding
the products with them. A folded product differs from a computed one only where its other factor is
NaN or infinite. So it is folded where that cannot happen unnoticed:

- Sums, products, sines, selects and the like of finite numbers are finite. NaN and infinity can
  only originate in an argument or in an operation such as a division or a square root, unless the
  divisor or radicand is known to be positive, say by the condition that selects the result.
  (Overflow, as of 1e308, is excepted, and so are infinite arguments that are only divided by.)
- Where such an origin reaches a result (`nan_propagation`), folding does no harm. An origin that
  reaches it only under a condition covers uses under this condition only.

All other products are computed: the program is read again with their origins noted in the graph.
So a trajectory in which something is not finite under plain `vmap` is reported in native code too.
"""

import numpy as np

from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.liveness import Live
from jaxmech.compiler.ir.loops import Loop, Value
from jaxmech.compiler.optimize.nan_propagation import Propagation
from jaxmech.compiler.optimize.path_conditions import (
    ALWAYS,
    Condition,
    alternatives,
    conjunction,
    is_finite,
    is_positive,
)

# Finite if all inputs are, but for overflow.
_FINITE = frozenset((
    "add", "add_any", "sub", "neg", "mul", "abs", "max", "min", "sin", "cos", "tan", "tanh", "atan",
    "atan2", "sign", "floor", "ceil", "round", "convert_element_type", "exp", "exp2", "expm1",
    "sinh", "cosh", "asinh", "cbrt", "logistic", "erf", "erfc",
))  # fmt: skip
_NAN_ONLY = frozenset(("sqrt", "asin", "acos"))  # NaN, but not infinite, for a finite input


def unsafe_origins(
    graph: Graph, loops: list[Loop], live: Live, outs: list[Value], is_finite: bool = False
) -> set[int]:
    """Fingerprints of the nodes that can originate a NaN which only a folded product would show.

    `is_finite` tells that all arguments of the function are finite.
    """
    return _OriginSearch(graph, loops, live, outs, is_finite).found


class _OriginSearch:
    """A search from the folded products back to the origins of NaN, through each graph once."""

    def __init__(
        self, graph: Graph, loops: list[Loop], live: Live, outs: list[Value], is_finite: bool
    ) -> None:
        self.found = set[int]()
        self.is_finite = is_finite
        graphs = _graphs(graph, loops, live)
        if not any(g.zeros for g in graphs):
            return
        self.infinite, self.nan = (
            Propagation(flag, graph, loops, live, outs) for flag in (True, False)
        )
        self.pending: dict[Graph, dict[int, set[Condition]]] = {g: {} for g in graphs}
        for g in graphs:
            self._add_zeros(g)
        # Users of a node have larger numbers, and a loop body is processed before the graph around
        # it: so all conditions of a node are known when it is visited.
        for g in reversed(graphs):
            pending = self.pending[g]
            for number in reversed(range(len(g.nodes))):
                for condition in list(pending.get(number, ())):
                    self._visit(g, number, condition)

    def _add_zeros(self, g: Graph) -> None:
        """Add the other operands of the folded products and quotients of zero."""
        quotients: dict[int, list[int]] = {}
        for i, node in enumerate(g.nodes):
            if node.op == "div":
                quotients.setdefault(node.inputs[1], []).append(i)
        for op, operand in g.zeros:
            self._add(g, operand, ALWAYS)
            if op == "mul" or is_positive(g, operand):
                continue
            # 0 / 0 is NaN: harmless if another quotient by the same number reaches a result.
            if not any(self._reaches_result(g, i) for i in quotients.get(operand, ())):
                self.found.add(g.fingerprints[operand])

    def _add(self, g: Graph, number: int, condition: Condition) -> None:
        """Add a node under a condition, unless it was added under a weaker one."""
        conditions = self.pending[g].setdefault(number, set())
        if not any(weaker <= condition for weaker in conditions):
            conditions.difference_update(
                [stronger for stronger in conditions if condition < stronger]
            )
            conditions.add(condition)

    def _reaches_result(self, g: Graph, number: int, condition: Condition = ALWAYS) -> bool:
        return all(kind.reaches_result(g, number, condition) for kind in (self.infinite, self.nan))

    def _visit(self, g: Graph, number: int, condition: Condition) -> None:
        """Record an origin that does not reach a result, or continue with the inputs of a node."""
        node, value = g.nodes[number], g.values[number]
        if node.dtype.kind != "f" or (value is not None and np.isfinite(value)):
            return
        if is_finite(g, number, condition) or self._reaches_result(g, number, condition):
            return
        if node.op == "capture":
            assert g.outer is not None
            self._add(g.outer, node.params, ALWAYS)
        elif values := alternatives(g, number):
            for i, branch_condition in values:
                self._add(g, i, conjunction(condition, branch_condition))
        elif self._is_safe(g, number, condition):
            for i in node.inputs:
                self._add(g, i, condition)
        else:
            self.found.add(g.fingerprints[number])

    def _is_safe(self, g: Graph, number: int, condition: Condition) -> bool:
        """Whether a node is finite if its inputs are, or reaches a result if it is not."""
        node = g.nodes[number]
        if node.op in _FINITE or (self.is_finite and node.op in ("input", "read")):
            return True
        if node.op == "lookup":
            return bool(np.isfinite(np.frombuffer(node.params, node.dtype)).all())
        if node.op in ("div", "rsqrt", "log"):
            return is_positive(g, node.inputs[-1], condition)
        if node.op == "sqrt" and is_positive(g, node.inputs[0], condition, or_zero=True):
            return True
        may_be_nan_only = node.op in _NAN_ONLY or node.op in ("input", "read")
        return may_be_nan_only and self.nan.reaches_result(g, number, condition)


def _graphs(graph: Graph, loops: list[Loop], live: Live) -> list[Graph]:
    """A graph and those of its live loops."""
    graphs = [graph]
    for k, part in live.loops.items():
        assert part.body is not None
        graphs += _graphs(loops[k].body, loops[k].inner, part.body)
    return graphs
