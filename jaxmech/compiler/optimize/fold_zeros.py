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

The derivative of a run takes its arguments for finite: where its motion is not, the run has a
status and the derivative is NaN. There, only operations are origins, also those of the iterations
before. Most are operations of the motion, whose NaN the derivative of each step shows
(`integrate.checks.checked_states`); the others are slopes such as that of a square root at zero.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from jaxmech.compiler.ir.graph import Graph, Node, Origins
from jaxmech.compiler.ir.liveness import Live
from jaxmech.compiler.ir.loops import Loop, SequenceOfNodes, Stacked, Value
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
_FROM_LOOPS = ("carry", "element", "result", "saved")
_NAN_ONLY = frozenset(("sqrt", "asin", "acos"))  # NaN, but not infinite, for a finite input


def unsafe_origins(
    graph: Graph, loops: list[Loop], live: Live, outs: list[Value]
) -> dict[int, Origins]:
    """Fingerprints of the nodes that can originate a NaN which only a folded product would show.

    Each has the kinds of products that would: those of finite arguments, and any others.
    """
    scopes = _scopes(graph, loops, live)
    present = {kind for scope in scopes for kind in scope.graph.zeros.values()}
    if not present:
        return {}
    infinite, nan = (Propagation(flag, graph, loops, live, outs) for flag in (True, False))
    unsafe = dict[int, Origins]()
    for kind in present:
        for fingerprint in _OriginSearch(scopes, infinite, nan, kind).found:
            unsafe[fingerprint] = kind | unsafe.get(fingerprint, Origins.NOWHERE)
    return unsafe


@dataclass(frozen=True, eq=False)
class _SearchedGraph:
    """A graph, its loops, and the loop whose body it is."""

    graph: Graph
    loops: list[Loop]
    loop: Loop | None


class _OriginSearch:
    """A search from the folded products of a kind back to the origins of NaN.

    Each graph is searched once, or, where arguments are finite, until nothing is left: there the
    numbers that a loop carries are finite, unless an operation in it makes them infinite.
    """

    def __init__(
        self, scopes: list[_SearchedGraph], infinite: Propagation, nan: Propagation, kind: Origins
    ) -> None:
        self.found = set[int]()
        self.infinite, self.nan, self.kind = infinite, nan, kind
        self.scopes = {scope.graph: scope for scope in scopes}
        self.follows_loops = kind == Origins.OPERATIONS
        self.quotients = {g: _quotients(g) for g in self.scopes}
        self.pending: dict[Graph, dict[int, set[Condition]]] = {g: {} for g in self.scopes}
        self.visited = set[tuple[Graph, int, Condition]]()
        for g in self.scopes:
            self._add_zeros(g)
        # Users of a node have larger numbers, and a loop body is processed before the graph around
        # it: so all conditions of a node are known when it is visited, but for those that a loop
        # adds to its body and to the loops before it.
        count = -1
        while count < len(self.visited):
            count = len(self.visited)
            for g in reversed(self.scopes):
                pending = self.pending[g]
                for number in reversed(range(len(g.nodes))):
                    for condition in list(pending.get(number, ())):
                        if (g, number, condition) not in self.visited:
                            self.visited.add((g, number, condition))
                            self._visit(g, number, condition)
        if self.follows_loops and self.found:
            self._add_leaves()

    def _add_zeros(self, g: Graph) -> None:
        """Add the other operands of the folded products and quotients of zero."""
        for (op, operand), kind in g.zeros.items():
            if kind != self.kind:
                continue
            self._add(g, operand, ALWAYS)
            if op == "mul" or is_positive(g, operand):
                continue
            if not self._divides(g, operand, ALWAYS):  # 0 / 0 is NaN
                self.found.add(g.fingerprints[operand])

    def _add(self, g: Graph, number: int, condition: Condition) -> None:
        """Add a node under a condition, unless it was added under a weaker one."""
        conditions = self.pending[g].setdefault(number, set())
        if not any(weaker <= condition for weaker in conditions):
            conditions.difference_update(
                [stronger for stronger in conditions if condition < stronger]
            )
            conditions.add(condition)

    def _add_leaves(self) -> None:
        """Add the leaves that stand for an origin in another graph or iteration."""
        unsafe: dict[Graph, set[int]] = {g: set() for g in self.scopes}
        count, last = 0, -1
        while count > last:
            last = count
            for g, inside in unsafe.items():
                for i, node in enumerate(g.nodes):
                    if i in inside or node.dtype.kind != "f":
                        continue
                    if self._stands_for(g, node, unsafe):
                        self.found.add(g.fingerprints[i])
                    if g.fingerprints[i] in self.found or not inside.isdisjoint(node.inputs):
                        inside.add(i)
            count = sum(map(len, unsafe.values()))

    def _stands_for(self, g: Graph, node: Node, numbers: dict[Graph, set[int]]) -> bool:
        """Whether a node is a leaf that stands for one of some nodes."""
        if node.op == "capture":
            assert g.outer is not None
            return node.params in numbers[g.outer]
        sources = self._sources(g, node) if node.op in _FROM_LOOPS else []
        return any(number in numbers[source] for source, number in sources)

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
        elif self.follows_loops and node.op in _FROM_LOOPS:
            for source, i in self._sources(g, node):
                self._add(source, i, ALWAYS)
        elif self._is_safe(g, number, condition):
            for i in node.inputs:
                self._add(g, i, condition)
        else:
            self.found.add(g.fingerprints[number])

    def _divides(self, g: Graph, number: int, condition: Condition) -> bool:
        """Whether a result shows another quotient by a number or by its factors: it is not zero."""
        if any(self._reaches_result(g, i, condition) for i in self.quotients[g][number]):
            return True
        node = g.nodes[number]
        if node.op == "capture":
            assert g.outer is not None
            return self._divides(g.outer, node.params, ALWAYS)
        return node.op == "mul" and all(self._divides(g, i, condition) for i in node.inputs)

    def _sources(self, g: Graph, node: Node) -> list[tuple[Graph, int]]:
        """The live nodes that a leaf stands for, in other graphs or other iterations."""
        return [pair for pair in self._all_sources(g, node) if pair[0] in self.scopes]

    def _all_sources(self, g: Graph, node: Node) -> list[tuple[Graph, int]]:
        scope, params = self.scopes[g], node.params
        if node.op in ("result", "saved"):
            loop, k, *rest = params
            values = scope.loops[loop].carry[k : k + 1]
            if node.op == "saved":
                values = [int(scope.loops[loop].stacked[k].ravel()[rest[-1]])]
            inside = [(scope.loops[loop].body, i) for i in values]
            return inside + ([(g, scope.loops[loop].init[k])] if node.op == "result" else [])
        assert scope.loop is not None
        assert g.outer is not None
        if node.op == "carry":
            return [(g, scope.loop.carry[params]), (g.outer, scope.loop.init[params])]
        sequence, position = scope.loop.scanned[params[0]], params[1]
        if isinstance(sequence, SequenceOfNodes):
            return [(g.outer, int(element.ravel()[position])) for element in sequence.ids]
        if isinstance(sequence, Stacked):
            loop_before = self.scopes[g.outer].loops[sequence.loop]
            return [(loop_before.body, int(loop_before.stacked[sequence.number].ravel()[position]))]
        return []  # an argument

    def _is_safe(self, g: Graph, number: int, condition: Condition) -> bool:
        """Whether a node is finite if its inputs are, or reaches a result if it is not."""
        node = g.nodes[number]
        is_argument = node.op in ("input", "read")
        if node.op in _FINITE or (is_argument and self.kind != Origins.ANYWHERE):
            return True
        if node.op == "lookup":
            return bool(np.isfinite(np.frombuffer(node.params, node.dtype)).all())
        if node.op in ("div", "rsqrt", "log"):
            operand = node.inputs[-1]
            is_divisor = node.op == "div" and self._divides(g, operand, condition)
            return is_divisor or is_positive(g, operand, condition)
        if node.op == "sqrt" and is_positive(g, node.inputs[0], condition, or_zero=True):
            return True
        may_be_nan_only = node.op in _NAN_ONLY or is_argument
        return may_be_nan_only and self.nan.reaches_result(g, number, condition)


def _quotients(g: Graph) -> dict[int, list[int]]:
    """The quotients by each node."""
    quotients = defaultdict[int, list[int]](list)
    for i, node in enumerate(g.nodes):
        if node.op == "div":
            quotients[node.inputs[1]].append(i)
    return quotients


def _scopes(
    graph: Graph, loops: list[Loop], live: Live, loop: Loop | None = None
) -> list[_SearchedGraph]:
    """A graph and those of its live loops."""
    scopes = [_SearchedGraph(graph, loops, loop)]
    for k, part in live.loops.items():
        assert part.body is not None
        scopes += _scopes(loops[k].body, loops[k].inner, part.body, loops[k])
    return scopes
