"""What shows: numbers that are NaN or infinite only if a result is, or if a status tells of it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.liveness import LoopNeeds, Needs
from jaxmech.compiler.ir.loops import Listed, Loop, Saved, Value
from jaxmech.compiler.optimize.cases import ALWAYS, Case, add_case, alternatives

# Operations that give NaN or an infinite number if an input is infinite; a quotient, if the first.
_KEEP_INFINITE = frozenset((
    "add", "add_any", "sub", "neg", "mul", "abs", "sqrt", "log", "log1p", "cbrt", "sin", "cos",
    "tan", "floor", "ceil", "round", "cosh", "sinh", "acosh", "asinh", "asin", "acos", "atanh",
))  # fmt: skip
# Operations that give NaN if an input is.
_KEEP_NAN = _KEEP_INFINITE | frozenset((
    "exp", "exp2", "expm1", "tanh", "atan", "atan2", "max", "min", "rsqrt", "logistic", "erf",
    "erfc", "sign", "rem", "erf_inv", "lgamma", "digamma", "nextafter",
))  # fmt: skip

_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


class Shown:
    """What shows in a graph and in its loops.

    A carry of a loop shows if it does in every turn: what it is after the last is a result that
    shows, and in any other the next turn has an end that does.

    Args:
        infinite: whether it is asked for infinite numbers or for NaN.
        graph: the scalars.
        loops: the loops among them.
        needs: which of them are computed.
        outs: the results.
    """

    def __init__(
        self, infinite: bool, graph: Graph, loops: list[Loop], needs: Needs, outs: Iterable[Value]
    ) -> None:
        self._infinite = infinite
        self._keep = _KEEP_INFINITE if infinite else _KEEP_NAN
        self._divided = slice(1) if infinite else slice(2)
        self._cases: dict[Graph, dict[int, set[Case]]] = {}
        self._told: dict[Graph, set[int]] = {}
        self._saved: dict[tuple[Graph, int, int], set[int]] = {}
        ends = list[int]()
        for out in outs:
            if isinstance(out, Saved):
                self._saved[graph, out.loop, out.number] = set(range(int(np.prod(out.shape))))
            elif isinstance(out, np.ndarray):
                ends += [int(i) for i in out.ravel()]
        self._sweep(graph, loops, needs, ends)

    def shows(self, g: Graph, number: int, case: Case = ALWAYS) -> bool:
        """Whether a node shows, at least in a case."""
        known = self._cases.get(g, {}).get(number, ())
        return any(one <= case for one in known)

    def _sweep(self, g: Graph, loops: list[Loop], needs: Needs, ends: Iterable[int]) -> None:
        """From the ends to the beginnings; `told` is what whole numbers and truths are made of."""
        cases, told = defaultdict[int, set[Case]](set), set[int]()
        self._cases[g], self._told[g] = cases, told
        for i in ends:
            self._show(g, i, ALWAYS) if g.nodes[i].dtype.kind == "f" else told.add(i)
        waiting = sorted(needs.loops, key=lambda k: loops[k].place)
        for number in reversed(range(len(g.nodes))):
            while waiting and loops[waiting[-1]].place > number:
                k = waiting.pop()
                self._enter(g, k, loops[k], needs.loops[k])
            node = g.nodes[number]
            if number in told:
                told.update(i for i in node.inputs if g.nodes[i].dtype.kind != "f")
                if node.op == "is_finite":
                    self._show(g, node.inputs[0], ALWAYS)
            if number in cases:
                for case in list(cases[number]):
                    self._hand_on(g, number, case)

    def _show(self, g: Graph, number: int, case: Case) -> None:
        if not self._infinite:
            case = frozenset(one for one in case if not _follows(g, number, *one))
        add_case(self._cases[g][number], case)

    def _hand_on(self, g: Graph, number: int, case: Case) -> None:
        node, choices = g.nodes[number], alternatives(g, number)
        for i, own in choices:
            others = [g.values[j] for j, _ in choices if j != i]
            if all(value is not None and not np.isfinite(value) for value in others):
                self._show(g, i, case)
            elif own is not None:
                self._show(g, i, case | own)
        if node.op in self._keep or node.op == "convert_element_type":
            inputs = node.inputs
        else:
            inputs = node.inputs[self._divided] if node.op == "div" else ()
        for i in inputs:
            if g.nodes[i].dtype.kind == "f":
                self._show(g, i, case)

    def _enter(self, g: Graph, number: int, loop: Loop, part: LoopNeeds) -> None:
        """Sweeps the body of a loop, and goes on to the numbers around it that it is made of."""
        places = {
            node.params[1]: i
            for i, node in enumerate(g.nodes)
            if node.op == "result" and node.params[0] == number
        }
        if loop.length == 0:
            for k, i in places.items():
                for case in list(self._cases[g].get(i, ())):
                    self._show(g, loop.init[k], case)
            return
        body, inner = loop.body, part.body
        assert inner is not None
        leaves = {(n.op, n.params): i for i, n in enumerate(body.nodes) if not n.inputs}
        saved = [
            int(i)
            for k in part.saves
            for place, i in enumerate(loop.saves[k].ravel())
            if place in self._saved.get((g, number, k), ()) or body.nodes[i].dtype.kind != "f"
        ]
        whole = [loop.carry[k] for k in part.carry if g.nodes[loop.init[k]].dtype.kind != "f"]
        kept = {k for k in part.carry if k in places and self.shows(g, places[k])}
        before: set[int] | None = None
        while kept != before:
            before = kept
            self._saved = {key: some for key, some in self._saved.items() if key[0] is not body}
            self._sweep(body, loop.inner, inner, [*(loop.carry[k] for k in kept), *whole, *saved])
            kept = {k for k in kept if self.shows(body, leaves.get(("carry", k), -1))}
        for i, node in enumerate(body.nodes):
            if not node.inputs and i in self._told[body]:
                self._told[g].update(self._sources(g, loop, node.op, node.params))
            elif not node.inputs and self.shows(body, i):
                for source in self._sources(g, loop, node.op, node.params):
                    self._show(g, source, ALWAYS)

    def _sources(self, g: Graph, loop: Loop, op: str, params: Any) -> list[int]:
        """The nodes around a loop that a leaf of its body stands for."""
        if op == "capture":
            return [params]
        if op == "carry":
            return [loop.init[params]]
        if op == "element":
            steps, place = loop.reads[params[0]], params[1]
            if isinstance(steps, Listed):
                return [int(line.ravel()[place]) for line in steps.ids]
            if isinstance(steps, Saved):
                self._saved.setdefault((g, steps.loop, steps.number), set()).add(place)
        return []


def _follows(g: Graph, number: int, which: int, holds: bool) -> bool:
    """Whether a comparison comes out so because the number is NaN."""
    node = g.nodes[which]
    return number in node.inputs and node.op in _COMPARED and holds == (node.op == "ne")
