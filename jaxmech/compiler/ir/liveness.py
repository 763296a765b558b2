"""What has to be computed of a graph for what is asked of it: nodes, and parts of its loops."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.loops import Listed, Loop, Saved, Steps

SMALLEST_BRANCH = 12  # operations and choices; fewer are sooner done than asked for
_LEAVES = {"const", "input", "carry", "element", "capture", "result"}


@dataclass
class LoopNeeds:
    """What is needed of one loop.

    Attributes:
        carry: places in the carry.
        saves: places among the saved sequences.
        body: what that needs of the body.
    """

    carry: set[int] = field(default_factory=set)
    saves: set[int] = field(default_factory=set)
    body: "Needs | None" = None


@dataclass
class Needs:
    """What is needed of one graph.

    Attributes:
        nodes: numbers of nodes.
        branches: by number of the branch, nodes that nothing else needs.
        loops: by number of the loop.
    """

    nodes: set[int] = field(default_factory=set)
    branches: dict[int, set[int]] = field(default_factory=dict)
    loops: dict[int, LoopNeeds] = field(default_factory=dict)


def needed(graph: Graph, loops: list[Loop], nodes: Iterable[int], saved: Iterable[Saved]) -> Needs:
    """Everything that the given nodes and saved sequences depend on, and nothing else."""
    whole = _Scope(graph, loops)
    search = _LivenessSearch([(whole, i) for i in nodes])
    for sequence in saved:
        search.save(whole, sequence)
    while search.work:
        search.visit_all()
        for scope in whole.scopes():
            search.divide(scope)
    return whole.found


class _Scope:
    """A graph with what is known to be needed of it.

    Attributes:
        around: the loop whose body this graph is, and the scope that holds the loop.
        part: what is needed of that loop.
        inner: the bodies of its own loops, by number.
        rare: what each branch gives where its case holds.
    """

    def __init__(
        self, graph: Graph, loops: list[Loop], around: "tuple[_Scope, Loop] | None" = None
    ) -> None:
        self.graph, self.loops = graph, loops
        self.around = around
        self.found = Needs()
        self.part = LoopNeeds(body=self.found)
        self.inner: dict[int, _Scope] = {}
        self.rare: dict[int, set[int]] = {}

    def body(self, number: int) -> "_Scope":
        """The scope of the body of one of its loops."""
        if number not in self.inner:
            loop = self.loops[number]
            scope = self.inner[number] = _Scope(loop.body, loop.inner, (self, loop))
            self.found.loops[number] = scope.part
        return self.inner[number]

    def scopes(self) -> "Iterator[_Scope]":
        """This scope and all inside of it."""
        yield self
        for scope in self.inner.values():
            yield from scope.scopes()


class _LivenessSearch:
    """Follows what is needed through all graphs at once, so that no node is visited twice."""

    def __init__(self, work: list[tuple[_Scope, int]]) -> None:
        self.work = work

    def visit_all(self) -> None:
        """Visits what is needed, but for the rare cases, until nothing is left."""
        while self.work:
            scope, number = self.work.pop()
            if number not in scope.found.nodes:
                scope.found.nodes.add(number)
                self._visit(scope, scope.graph.nodes[number])

    def save(self, scope: _Scope, sequence: Saved) -> None:
        """Needs a sequence that a loop saves."""
        body = scope.body(sequence.loop)
        if sequence.number not in body.part.saves:
            body.part.saves.add(sequence.number)
            ends = scope.loops[sequence.loop].saves[sequence.number]
            self.work += [(body, int(i)) for i in ends.ravel()]

    def _visit(self, scope: _Scope, node: Node) -> None:
        usual = node.inputs[:-1] if node.op == "branch" else node.inputs
        self.work += [(scope, i) for i in usual]
        if node.op == "branch":
            scope.rare.setdefault(node.params, set()).add(node.inputs[-1])
        elif node.op == "result":
            number, place = node.params
            self._carry(scope.body(number), scope, scope.loops[number], place)
        elif scope.around is not None:
            outer, loop = scope.around
            if node.op == "carry":
                self._carry(scope, outer, loop, node.params)
            elif node.op == "capture":
                self.work.append((outer, node.params))
            elif node.op == "element":
                self._read(outer, loop.reads[node.params[0]])

    def _read(self, scope: _Scope, steps: Steps) -> None:
        """Needs a sequence that a loop reads."""
        if isinstance(steps, Saved):
            self.save(scope, steps)
        elif isinstance(steps, Listed):
            self.work += [(scope, int(i)) for i in np.ravel(steps.ids)]

    def _carry(self, body: _Scope, outer: _Scope, loop: Loop, place: int) -> None:
        """Needs a place in the carry of a loop: how it starts, and how it goes on."""
        if place not in body.part.carry:
            body.part.carry.add(place)
            self.work += [(outer, loop.init[place]), (body, loop.carry[place])]

    def divide(self, scope: _Scope) -> None:
        """Leaves to each branch what only it needs; a small one is no branch."""
        found = scope.found
        found.branches.clear()
        for number, values in scope.rare.items():
            own, common = _own(scope.graph, found.nodes, values, set(scope.rare))
            if len(own) + len(values) < SMALLEST_BRANCH:
                self.work += [(scope, i) for i in values - found.nodes]
            else:
                found.branches[number] = own
                self.work += [(scope, i) for i in common]


def _own(
    graph: Graph, known: set[int], nodes: Iterable[int], branches: set[int]
) -> tuple[set[int], set[int]]:
    """What some nodes depend on beside the known ones: operations, and what is for all to have.

    That is leaves, and what some branches give: a branch is one jump, whoever asks for a part.
    """
    own, common, work = set[int](), set[int](), list(nodes)
    while work:
        number = work.pop()
        if number not in known and number not in own:
            node = graph.nodes[number]
            if node.op in _LEAVES or (node.op == "branch" and node.params in branches):
                common.add(number)
            else:
                own.add(number)
                work += node.inputs
    return own, common


def given(graph: Graph, needs: Needs, branch: int) -> list[int]:
    """The nodes of a branch that are needed, in the order of their making."""
    of_branches = (i for i in sorted(needs.nodes) if graph.nodes[i].op == "branch")
    return [i for i in of_branches if graph.nodes[i].params == branch]


def operations(graph: Graph, loops: list[Loop], needs: Needs) -> int:
    """How many operations of a graph are needed, each of the body of a loop counted once.

    Those of branches do not count.
    """
    own = sum(graph.nodes[i].op not in _LEAVES for i in needs.nodes)
    inner = [(loops[k], part.body) for k, part in needs.loops.items() if part.body is not None]
    return own + sum(operations(loop.body, loop.inner, body) for loop, body in inner)


def most_carried(loops: list[Loop], needs: Needs) -> int:
    """The largest number of values that one of the loops carries from turn to turn."""
    counts = [0]
    for k, part in needs.loops.items():
        if part.body is not None:
            counts += [len(part.carry), most_carried(loops[k].inner, part.body)]
    return max(counts)
