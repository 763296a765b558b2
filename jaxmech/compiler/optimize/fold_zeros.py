"""Where zero times a number may be taken for zero, though it is NaN where the number is not finite.

Most zeros of a mechanical system come from derivatives, and much of the speed comes from folding
the products with them. A folded product differs from a computed one only where its other factor is
NaN or infinite. So it is folded where that cannot happen in silence:

- Sums, products, sines, choices and the like of finite numbers are finite. A number that is not can
  only begin in an argument or in an operation such as a division or a square root, unless the
  divisor or radicand is known to be positive, say by the test that chooses the result. (Beginning
  as a number that is too large for its type, 1e308, is excepted, and so are infinite arguments that
  do nothing but divide.)
- Where such a beginning *shows*, folding does no harm: it reaches a result through operations that
  keep it NaN or infinite, or a test by `isfinite` that a whole number or truth value tells of (a
  status). What holds in one case of a choice alone shows what is used in this case alone.

All other products are computed: the program is read again with what they begin in noted in the
graph. So where plain `vmap` gives a trajectory in which something is not finite, so do lanes.
"""

import numpy as np

from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.liveness import Needs
from jaxmech.compiler.ir.loops import Loop, Value
from jaxmech.compiler.optimize.cases import ALWAYS, Case, alternatives, is_positive, within
from jaxmech.compiler.optimize.observable import Shown

# Finite if all inputs are, and not too large.
_FINITE = frozenset((
    "add", "add_any", "sub", "neg", "mul", "abs", "max", "min", "sin", "cos", "tan", "tanh", "atan",
    "atan2", "sign", "floor", "ceil", "round", "convert_element_type", "exp", "exp2", "expm1",
    "sinh", "cosh", "asinh", "cbrt", "logistic", "erf", "erfc",
))  # fmt: skip
_NAN_ONLY = frozenset(("sqrt", "asin", "acos"))  # of a finite number


def hidden(graph: Graph, loops: list[Loop], needs: Needs, outs: list[Value]) -> set[int]:
    """Marks of the nodes in which a number that makes a folded product NaN begins, and hides."""
    return _ZeroSearch(graph, loops, needs, outs).found


class _ZeroSearch:
    """Goes from the folded products to the beginnings of their numbers, each graph once."""

    def __init__(self, graph: Graph, loops: list[Loop], needs: Needs, outs: list[Value]) -> None:
        self.found = set[int]()
        graphs = _graphs(graph, loops, needs)
        if not any(g.zeros for g in graphs):
            return
        self.infinite, self.nan = (Shown(flag, graph, loops, needs, outs) for flag in (True, False))
        self.asked: dict[Graph, dict[int, set[Case]]] = {g: {} for g in graphs}
        for g in graphs:
            self._ask(g)
        # What uses a number comes after it, and a loop is inside of the graph that it takes from:
        # so all cases of a node are known when its turn comes.
        for g in reversed(graphs):
            asked = self.asked[g]
            for number in reversed(range(len(g.nodes))):
                for case in list(asked.get(number, ())):
                    self._follow(g, number, case)

    def _ask(self, g: Graph) -> None:
        """Asks whether products with zero, and zeros over numbers, may be taken for zero."""
        over: dict[int, list[int]] = {}
        for i, node in enumerate(g.nodes):
            if node.op == "div":
                over.setdefault(node.inputs[1], []).append(i)
        for op, other in g.zeros:
            self._add(g, other, ALWAYS)
            if op == "mul" or is_positive(g, other):
                continue
            if not any(self._shows(g, i) for i in over.get(other, ())):
                self.found.add(g.marks[other])

    def _add(self, g: Graph, number: int, case: Case) -> None:
        """Asks for a number in a case, unless it is asked for in a wider one."""
        known = self.asked[g].setdefault(number, set())
        if not any(wider <= case for wider in known):
            known.difference_update([one for one in known if case < one])
            known.add(case)

    def _shows(self, g: Graph, number: int, case: Case = ALWAYS) -> bool:
        return all(kind.shows(g, number, case) for kind in (self.infinite, self.nan))

    def _follow(self, g: Graph, number: int, case: Case) -> None:
        """Notes a node that may be NaN or infinite and does not show, or goes to its inputs."""
        node, value = g.nodes[number], g.values[number]
        if node.dtype.kind != "f" or (value is not None and np.isfinite(value)):
            return
        if self._shows(g, number, case):
            return
        if node.op == "capture":
            assert g.outer is not None
            self._add(g.outer, node.params, ALWAYS)
        elif choices := alternatives(g, number):
            for i, own in choices:
                self._add(g, i, within(case, own))
        elif self._is_safe(g, number, case):
            for i in node.inputs:
                self._add(g, i, case)
        else:
            self.found.add(g.marks[number])

    def _is_safe(self, g: Graph, number: int, case: Case) -> bool:
        """Whether it is finite if its inputs are, or shows if it is not."""
        node = g.nodes[number]
        if node.op in _FINITE:
            return True
        if node.op in ("div", "rsqrt", "log"):
            return is_positive(g, node.inputs[-1], case)
        if node.op == "sqrt" and is_positive(g, node.inputs[0], case, or_zero=True):
            return True
        return (node.op in _NAN_ONLY or node.op == "input") and self.nan.shows(g, number, case)


def _graphs(graph: Graph, loops: list[Loop], needs: Needs) -> list[Graph]:
    """A graph and those of its loops that are needed."""
    found = [graph]
    for k, part in needs.loops.items():
        assert part.body is not None
        found += _graphs(loops[k].body, loops[k].inner, part.body)
    return found
