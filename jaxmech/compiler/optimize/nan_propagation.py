"""NaN propagation: the nodes that cannot be NaN or infinite without a trace in a result.

A result shows it by being NaN or infinite itself, or, if it is an integer or a boolean such as a
status, by depending on an `isfinite` of the node.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.liveness import Live, LiveLoop
from jaxmech.compiler.ir.loops import Loop, SequenceOfNodes, Stacked, Value, WrittenRow
from jaxmech.compiler.optimize.path_conditions import (
    ALWAYS,
    SELECTS,
    Condition,
    add_condition,
    alternatives,
    literal,
)

# Operations that are NaN or infinite if an input is infinite; a quotient, if its dividend is.
_KEEP_INFINITE = frozenset((
    "add", "add_any", "sub", "neg", "mul", "abs", "sqrt", "log", "log1p", "cbrt", "sin", "cos",
    "tan", "floor", "ceil", "round", "cosh", "sinh", "acosh", "asinh", "asin", "acos", "atanh",
    "convert_element_type",
))  # fmt: skip
# Operations that are NaN if an input is.
_KEEP_NAN = _KEEP_INFINITE | frozenset((
    "exp", "exp2", "expm1", "tanh", "atan", "atan2", "max", "min", "rsqrt", "logistic", "erf",
    "erfc", "sign", "rem", "erf_inv", "lgamma", "digamma", "nextafter",
))  # fmt: skip

# Shared by many nodes: nothing is ever added to it, because every condition implies `ALWAYS`.
_ONLY_ALWAYS = {ALWAYS}
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


class Propagation:
    """The nodes of a graph and of its loops that propagate NaN (or infinities) to a result.

    A carry of a loop propagates if it does so within every iteration: its value after the last one
    is a result that shows it, and after any other the next iteration passes it on.

    Args:
        infinite: whether to follow infinities or NaN.
        graph: the scalar graph.
        loops: the loops of the graph.
        live: the live nodes of both.
        outs: the results.
    """

    def __init__(
        self, infinite: bool, graph: Graph, loops: list[Loop], live: Live, outs: Iterable[Value]
    ) -> None:
        self._infinite = infinite
        self._keep = _KEEP_INFINITE if infinite else _KEEP_NAN
        self._divided = slice(1) if infinite else slice(2)
        self._conditions: dict[Graph, dict[int, set[Condition]]] = {}
        self._tested: dict[Graph, set[int]] = {}
        self._stacked: dict[tuple[Graph, int, int], set[int]] = {}
        self._propagating: dict[Graph, set[int]] = {}
        self._swept: dict[Graph, set[int]] = {}  # the ends of the last sweep of each body
        self._after: dict[Graph, Any] = {}
        self._in_comparisons: dict[Graph, set[int]] = {}
        self._floating: dict[Graph, bytes] = {}  # for each node, whether its type is floating
        ends = list[int]()
        for out in outs:
            if isinstance(out, Stacked):
                self._stacked[graph, out.loop, out.number] = set(range(int(np.prod(out.shape))))
            elif isinstance(out, np.ndarray):
                ends += [int(i) for i in out.ravel()]
        self._sweep(graph, loops, live, ends)

    def reaches_result(self, g: Graph, number: int, condition: Condition = ALWAYS) -> bool:
        """Whether a node propagates to a result, at least under a condition."""
        conditions = self._conditions.get(g, {}).get(number, ())
        return any(known_condition <= condition for known_condition in conditions)

    def _sweep(
        self, g: Graph, loops: list[Loop], live: Live, ends: Iterable[int],
        written: Iterable[WrittenRow] = (),
    ) -> None:  # fmt: skip
        """Make one backward pass; `tested` are the integers and booleans that results depend on."""
        conditions, tested = defaultdict[int, set[Condition]](set), set[int]()
        self._conditions[g], self._tested[g] = conditions, tested
        for i in ends:
            self._mark(g, i, ALWAYS) if g.nodes[i].dtype.kind == "f" else tested.add(i)
        self._mark_rows(g, written)
        waiting = sorted(live.loops, key=lambda k: loops[k].position)
        for number in reversed(range(len(g.nodes))):
            while waiting and loops[waiting[-1]].position > number:
                k = waiting.pop()
                self._enter(g, k, loops[k], live)
            node = g.nodes[number]
            if number in tested:
                tested.update(i for i in node.inputs if g.nodes[i].dtype.kind != "f")
                if node.op == "is_finite":
                    self._mark(g, node.inputs[0], ALWAYS)
            if number in conditions:
                self._mark_inputs(g, number)

    def _mark_rows(self, g: Graph, written: Iterable[WrittenRow]) -> None:
        """Mark the values of a written row as shown where the row is written."""
        for row in written:
            for i in row.row.ravel().tolist():
                if g.nodes[i].dtype.kind == "f":
                    self._mark(g, i, frozenset([(row.condition, True)]))

    def _mark(self, g: Graph, number: int, condition: Condition) -> None:
        if condition and number in self._compared(g):
            # A comparison with NaN has a known outcome, so it adds no condition on NaN.
            condition = frozenset(
                literal for literal in condition if not _holds_for_nan(g, number, *literal)
            )
        add_condition(self._conditions[g][number], condition)

    def _mark_inputs(self, g: Graph, number: int) -> None:
        node, conditions = g.nodes[number], self._conditions[g]
        reached = conditions[number]
        if node.op in SELECTS:
            for condition in list(reached):
                self._mark_values(g, number, condition)
            self._test(g, node)
        elif ALWAYS in reached:  # by far the most
            conditions.update(dict.fromkeys(self._passed(g, node), _ONLY_ALWAYS))
        else:
            for i in self._passed(g, node):
                self._mark_all(g, i, reached)

    def _mark_all(self, g: Graph, number: int, reached: set[Condition]) -> None:
        """Add the conditions of another node."""
        conditions = self._conditions[g]
        if number not in conditions and number not in self._compared(g):
            conditions[number] = set(reached)
        elif conditions.get(number) != reached:
            for condition in reached:
                self._mark(g, number, condition)

    def _compared(self, g: Graph) -> set[int]:
        """The nodes that are compared, so that their NaN decides a condition."""
        if self._infinite:
            return set()
        if g not in self._in_comparisons:
            inputs = (node.inputs for node in g.nodes if node.op in _COMPARED)
            self._in_comparisons[g] = set(chain.from_iterable(inputs))
        return self._in_comparisons[g]

    def _mark_values(self, g: Graph, number: int, condition: Condition) -> None:
        """Mark the values of a select under their conditions."""
        values = alternatives(g, number)
        for i, branch_condition in values:
            alternatives_to = [g.values[j] for j, _ in values if j != i]
            if all(value is not None and not np.isfinite(value) for value in alternatives_to):
                self._mark(g, i, condition)
            elif branch_condition is not None:
                self._mark(g, i, condition | branch_condition)

    def _test(self, g: Graph, node: Node) -> None:
        """Note a condition that makes a number NaN, which a result then depends on."""
        selector, *values = node.inputs
        if any(g.values[i] is not None and not np.isfinite(g.values[i]) for i in values):
            self._tested[g].add(selector)

    def _passed(self, g: Graph, node: Node) -> list[int]:
        """The inputs whose NaN or infinity an operation other than a select passes on."""
        if node.op == "div":
            inputs = node.inputs[self._divided]
        else:
            inputs = node.inputs if node.op in self._keep else ()
        if g not in self._floating:
            self._floating[g] = bytes(x.dtype.kind == "f" for x in g.nodes)
        is_floating = self._floating[g]
        return [i for i in inputs if is_floating[i]]

    def _enter(self, g: Graph, number: int, loop: Loop, live: Live) -> None:
        """Sweep the body of a loop, and mark the nodes around it that its leaves represent."""
        part, (positions, saved) = live.loops[number], self._read_after(g, number)
        if loop.length == 0:
            self._pass_over(g, loop, positions)
            return
        body = loop.body
        leaves = {(n.op, n.params): i for i, n in enumerate(body.nodes) if not n.inputs}
        stacked = self._shown_stacked(g, number, loop, part, saved)
        stacked += [i for row in part.written for i in row.nodes if body.nodes[i].dtype.kind != "f"]
        integers = [loop.carry[k] for k in part.carry if g.nodes[loop.init[k]].dtype.kind != "f"]
        if loop.length is None:  # no result shows its number of iterations
            integers.remove(loop.carry[0])
        # The greatest fixed point: assume that all carries propagate, and drop those that do not.
        # What the last iteration carries on does not matter where it is not read.
        read = set(part.carry).intersection(positions)
        read = {k for k in read if live.holds(positions[k])}
        propagating = {
            k for k in part.carry if k not in read or self.reaches_result(g, positions[k])
        }
        # Those that did not when the loop around this one was swept before do not now.
        propagating &= self._propagating.get(body, propagating)
        if loop.is_branch:
            self._enter_once(g, loop, part, propagating & read, {*integers, *stacked})
            return
        previous: set[int] | None = None
        while propagating != previous:
            previous = propagating
            ends = {*(loop.carry[k] for k in propagating), *integers, *stacked}
            self._sweep_body(loop, part, ends)
            propagating = {
                k for k in propagating if self.reaches_result(body, leaves.get(("carry", k), -1))
            }
        self._propagating[body] = propagating
        for i, node in enumerate(body.nodes):
            if not node.inputs and i in self._tested[body]:
                self._tested[g].update(self._sources(g, loop, node.op, node.params))
            elif not node.inputs and self.reaches_result(body, i):
                for source in self._sources(g, loop, node.op, node.params):
                    self._mark(g, source, ALWAYS)

    def _pass_over(self, g: Graph, loop: Loop, positions: dict[int, int]) -> None:
        """Mark what a loop that never runs begins with, which its results are."""
        for k, i in positions.items():
            for condition in list(self._conditions[g].get(i, ())):
                self._mark(g, loop.init[k], condition)

    def _enter_once(
        self, g: Graph, loop: Loop, part: LiveLoop, shown: set[int], others: set[int]
    ) -> None:
        """Sweep the body of a loop that runs at most once, of which results show some carries.

        Each of its results is the value in its body where it runs, and that before it elsewhere.
        """
        body, runs = loop.body, loop.init[0]
        running = next(i for i, n in enumerate(body.nodes) if (n.op, n.params) == ("carry", 0))
        ends = set(others)
        for k in shown:
            node = body.nodes[loop.carry[k]]
            is_select = node.op in SELECTS and node.inputs[0] == running
            ends.add(node.inputs[-1] if is_select else loop.carry[k])
        self._sweep_body(loop, part, ends)
        for k in shown:
            self._mark(g, loop.init[k], literal(g, runs, holds=False))
        for i, node in enumerate(body.nodes):
            if node.op != "capture":
                continue
            if i in self._tested[body]:
                self._tested[g].add(node.params)
            elif self.reaches_result(body, i):
                self._mark(g, node.params, literal(g, runs, holds=True))

    def _sweep_body(self, loop: Loop, part: LiveLoop, ends: set[int]) -> None:
        """Sweep the body of a loop, unless it was last swept from the same nodes."""
        body, inner = loop.body, part.body
        assert inner is not None
        if ends != self._swept.get(body):  # each sweep around it comes here again
            self._swept[body] = ends
            self._stacked = {key: x for key, x in self._stacked.items() if key[0] is not body}
            self._sweep(body, loop.inner, inner, ends, part.written)

    def _shown_stacked(
        self, g: Graph, number: int, loop: Loop, part: LiveLoop,
        saved: dict[tuple[int, int], list[int]],
    ) -> list[int]:  # fmt: skip
        """The nodes of the stacked outputs of a loop that a result shows."""
        visible = {k: self._stacked.get((g, number, k), set()) for k in part.stacked}
        for (k, position), ids in saved.items():
            # One number shows the NaN of its own iteration only; all are always read together.
            if all(self.reaches_result(g, i) for i in ids):
                visible[k] = visible[k] | {position}
        return [
            int(i)
            for k in part.stacked
            for position, i in enumerate(loop.stacked[k].ravel())
            if position in visible[k] or loop.body.nodes[i].dtype.kind != "f"
        ]

    def _read_after(
        self, g: Graph, number: int
    ) -> tuple[dict[int, int], dict[tuple[int, int], list[int]]]:
        """The nodes that read the final carry of a loop, by position, and its stacked outputs.

        The latter by output and position in an element.
        """
        if g not in self._after:
            positions: dict[int, dict[int, int]] = defaultdict(dict)
            saved = defaultdict[int, dict[tuple[int, int], list[int]]](lambda: defaultdict(list))
            for i, node in enumerate(g.nodes):
                if node.op == "result":
                    positions[node.params[0]][node.params[1]] = i
                elif node.op == "saved":
                    loop, k, _, position = node.params
                    saved[loop][k, position].append(i)
            self._after[g] = positions, saved
        positions, saved = self._after[g]
        return positions[number], saved[number]

    def _sources(self, g: Graph, loop: Loop, op: str, params: Any) -> list[int]:
        """The nodes around a loop that a leaf of its body represents."""
        if op == "capture":
            return [params]
        if op == "carry":
            return [loop.init[params]]
        if op == "element":
            sequence, position = loop.scanned[params[0]], params[1]
            if isinstance(sequence, SequenceOfNodes):
                return [int(element.ravel()[position]) for element in sequence.ids]
            if isinstance(sequence, Stacked):
                self._stacked.setdefault((g, sequence.loop, sequence.number), set()).add(position)
        return []


def _holds_for_nan(g: Graph, number: int, comparison: int, holds: bool) -> bool:
    """Whether a comparison has this outcome whenever the number is NaN."""
    node = g.nodes[comparison]
    return number in node.inputs and node.op in _COMPARED and holds == (node.op == "ne")
