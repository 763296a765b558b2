"""Folding of products with zero, though 0 times NaN or infinity is NaN.

Most zeros of a mechanical system come from derivatives, and much of the speed comes from folding
the products with them. A folded product differs from a computed one only where its other factor is
NaN or infinite. So it is folded where that cannot happen unnoticed:

- Sums, products, sines, selects and the like of finite numbers are finite. NaN and infinity can
  only originate in an argument or in an operation such as a division or a square root, unless the
  divisor or radicand is known to be positive, say by the condition that selects the result.
  (Overflow, as of 1e308, is excepted, and so are infinite arguments that are only divided by.)
- Where such an origin reaches a result, folding does no harm. A result shows it by being NaN or
  infinite itself, or, if it is an integer or a boolean such as a status, by depending on an
  `isfinite` of the node. An origin that reaches it only under a condition covers uses under this
  condition only.

All other products are computed: the program is read again with their origins noted in the graph.
So a trajectory in which something is not finite under plain `vmap` is reported in native code too.

The derivative of a run takes its arguments for finite: where its motion is not, the run has a
status and the derivative is NaN. There, only operations are origins, also those of the iterations
before. Most are operations of the motion, whose NaN the derivative of each step shows
(`integrate.checks.checked_states`); the others are slopes such as that of a square root at zero.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import Graph, Node, Origins
from jaxmech.compiler.ir.liveness import Live, LiveLoop
from jaxmech.compiler.ir.loops import Loop, SequenceOfNodes, Stacked, Value, WrittenRow
from jaxmech.compiler.optimize.path_conditions import (
    ALWAYS,
    SELECTS,
    Condition,
    add_condition,
    alternatives,
    conjunction,
    is_finite,
    is_positive,
    literal,
)

# Finite if all inputs are, but for overflow.
_FINITE = frozenset((
    "add", "add_any", "sub", "neg", "mul", "abs", "max", "min", "sin", "cos", "tan", "tanh", "atan",
    "atan2", "sign", "floor", "ceil", "round", "convert_element_type", "exp", "exp2", "expm1",
    "sinh", "cosh", "asinh", "cbrt", "logistic", "erf", "erfc",
))  # fmt: skip
_FROM_LOOPS = ("carry", "element", "result", "saved")
_NAN_ONLY = frozenset(("sqrt", "asin", "acos"))  # NaN, but not infinite, for a finite input
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

_Scopes = dict[Graph, tuple[list[Loop], Loop | None]]  # its loops, and the loop whose body it is


def unsafe_origins(
    graph: Graph, loops: list[Loop], live: Live, outs: list[Value]
) -> dict[int, Origins]:
    """Fingerprints of the nodes that can originate a NaN which only a folded product would show.

    Each has the kinds of products that would: those of finite arguments, and any others.
    """
    scopes = _scopes(graph, loops, live)
    present = {kind for g in scopes for kind in g.zeros.values()}
    if not present:
        return {}
    infinite, nan = (_Propagation(flag, graph, loops, live, outs) for flag in (True, False))
    unsafe = dict[int, Origins]()
    for kind in present:
        for fingerprint in _OriginSearch(scopes, infinite, nan, kind).found:
            unsafe[fingerprint] = kind | unsafe.get(fingerprint, Origins.NOWHERE)
    return unsafe


class _OriginSearch:
    """A search from the folded products of a kind back to the origins of NaN.

    Each graph is searched once, or, where arguments are finite, until nothing is left: there the
    numbers that a loop carries are finite, unless an operation in it makes them infinite.
    """

    def __init__(
        self, scopes: _Scopes, infinite: "_Propagation", nan: "_Propagation", kind: Origins
    ) -> None:
        self.found = set[int]()
        self.infinite, self.nan, self.kind = infinite, nan, kind
        self.scopes = scopes
        self.follows_loops = kind == Origins.OPERATIONS
        self.quotients = {g: _quotients(g) for g in self.scopes}
        self.pending: dict[Graph, dict[int, set[Condition]]] = {g: {} for g in self.scopes}
        self.visited = set[tuple[Graph, int, Condition]]()
        for g in self.scopes:  # the other operands of the folded products and quotients of zero
            for (op, operand), zero_kind in g.zeros.items():
                if zero_kind != kind:
                    continue
                self._add(g, operand, ALWAYS)
                # 0 / 0 is NaN.
                is_safe = op == "mul" or is_positive(g, operand)
                if not (is_safe or self._divides(g, operand, ALWAYS)):
                    self.found.add(g.fingerprints[operand])
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
                    sources = self._sources(g, node) if node.op in _FROM_LOOPS else []
                    if node.op == "capture":
                        assert g.outer is not None
                        sources = [(g.outer, node.params)]
                    if any(number in unsafe[source] for source, number in sources):
                        self.found.add(g.fingerprints[i])
                    if g.fingerprints[i] in self.found or not inside.isdisjoint(node.inputs):
                        inside.add(i)
            count = sum(map(len, unsafe.values()))

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
        (loops, around), params = self.scopes[g], node.params
        if node.op in ("result", "saved"):
            loop, k, *rest = params
            body = loops[loop].body
            if node.op == "saved":
                return [(body, int(loops[loop].stacked[k].ravel()[rest[-1]]))]
            return [(body, loops[loop].carry[k]), (g, loops[loop].init[k])]
        assert around is not None
        assert g.outer is not None
        if node.op == "carry":
            return [(g, around.carry[params]), (g.outer, around.init[params])]
        sequence, position = around.scanned[params[0]], params[1]
        if isinstance(sequence, SequenceOfNodes):
            return [(g.outer, int(element.ravel()[position])) for element in sequence.ids]
        if isinstance(sequence, Stacked):
            loop_before = self.scopes[g.outer][0][sequence.loop]
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
    quotients = defaultdict[int, list[int]](list)
    for i, node in enumerate(g.nodes):
        if node.op == "div":
            quotients[node.inputs[1]].append(i)
    return quotients


def _scopes(graph: Graph, loops: list[Loop], live: Live, around: Loop | None = None) -> _Scopes:
    scopes: _Scopes = {graph: (loops, around)}
    for k, part in live.loops.items():
        assert part.body is not None
        scopes |= _scopes(loops[k].body, loops[k].inner, part.body, loops[k])
    return scopes


class _Propagation:
    """The nodes of a graph and of its loops that propagate NaN (or infinities) to a result.

    A carry of a loop propagates if it does so within every iteration: its value after the last one
    is a result that shows it, and after any other the next iteration passes it on.
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
        for row in written:  # its values are shown where the row is written
            for i in row.row.ravel().tolist():
                if g.nodes[i].dtype.kind == "f":
                    self._mark(g, i, frozenset([(row.condition, True)]))
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
            if number not in conditions:
                continue
            reached = conditions[number]
            if node.op in SELECTS:
                for condition in list(reached):
                    self._mark_values(g, number, condition)
                selector, *values = node.inputs
                if any(g.values[i] is not None and not np.isfinite(g.values[i]) for i in values):
                    tested.add(selector)  # it makes a number NaN, on which a result depends
            elif ALWAYS in reached:  # by far the most
                conditions.update(dict.fromkeys(self._passed(g, node), _ONLY_ALWAYS))
            else:
                for i in self._passed(g, node):
                    self._mark_all(g, i, reached)

    def _mark(self, g: Graph, number: int, condition: Condition) -> None:
        if condition and number in self._compared(g):
            # A comparison with NaN has a known outcome, so it adds no condition on NaN.
            condition = frozenset(
                literal for literal in condition if not _holds_for_nan(g, number, *literal)
            )
        add_condition(self._conditions[g][number], condition)

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
        values = alternatives(g, number)
        for i, branch_condition in values:
            alternatives_to = [g.values[j] for j, _ in values if j != i]
            if all(value is not None and not np.isfinite(value) for value in alternatives_to):
                self._mark(g, i, condition)
            elif branch_condition is not None:
                self._mark(g, i, condition | branch_condition)

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
        if loop.length == 0:  # its results are what it begins with
            for k, i in positions.items():
                for condition in list(self._conditions[g].get(i, ())):
                    self._mark(g, loop.init[k], condition)
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
