"""Liveness: the nodes that the results depend on, in all graphs, and those of rare cases."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.loops import Loop, Rows, SequenceOfNodes, Stacked, WrittenRow

SMALLEST_BRANCH = 12  # operations and selects; a jump around fewer costs more than it saves
LEAVES = {"const", "input", "carry", "element", "capture", "result", "saved"}


@dataclass
class LiveLoop:
    """The live part of a loop.

    Attributes:
        carry: indices of the live numbers of its carry.
        in_memory: those of them that only one branch reads and changes, with their leaves.
        stacked: live stacked outputs.
        written: live rows that it writes.
        body: the live nodes of its body.
    """

    carry: set[int] = field(default_factory=set)
    in_memory: dict[int, int] = field(default_factory=dict)
    stacked: set[int] = field(default_factory=set)
    written: list[WrittenRow] = field(default_factory=list)
    body: "Live | None" = None

    @property
    def writes(self) -> bool:
        """Whether it, or a loop inside it, writes rows."""
        inner = self.body.loops.values() if self.body is not None else ()
        return bool(self.written) or any(part.writes for part in inner)


@dataclass
class Live:
    """The live part of a graph.

    Attributes:
        nodes: numbers of the nodes that are always computed.
        branches: the nodes on which only one branch depends, by number of the branch.
        loops: live parts of loops, by number of the loop.
    """

    nodes: set[int] = field(default_factory=set)
    branches: dict[int, set[int]] = field(default_factory=dict)
    loops: dict[int, LiveLoop] = field(default_factory=dict)

    def holds(self, number: int) -> bool:
        """Whether a node is live."""
        return number in self.nodes or any(number in nodes for nodes in self.branches.values())


def live_nodes(
    graph: Graph, loops: list[Loop], nodes: Iterable[int], stacked: Iterable[Stacked],
    rows: Iterable[Rows] = (),
) -> Live:  # fmt: skip
    """Find everything that the given nodes, stacked outputs and rows depend on."""
    root = _Scope(graph, loops)
    search = _LivenessSearch([(root, i) for i in nodes])
    for sequence in stacked:
        search.add_stacked(root, sequence.loop, sequence.number)
    search.add_written(root, set(rows))
    while search.work:
        search.run()
        # Splitting off the branches may make more nodes live, in any scope.
        for scope in root.scopes():
            search.split_branches(scope)
    for scope in root.scopes():
        if scope.around is not None:
            scope.part.in_memory = _changed_by_one_branch(scope.around[1], scope.part)
    return root.live


class _Scope:
    """A graph and its live part.

    Attributes:
        around: the scope of the graph around it and the loop whose body it is.
        part: the live part of that loop.
        bodies: the scopes of the bodies of its own loops, by number.
        rare: the rare values of each branch.
        read: the scanned sequences, by number, of which elements are read.
    """

    def __init__(
        self, graph: Graph, loops: list[Loop], around: "tuple[_Scope, Loop] | None" = None
    ) -> None:
        self.graph, self.loops = graph, loops
        self.around = around
        self.live = Live()
        self.part = LiveLoop(body=self.live)
        self.bodies: dict[int, _Scope] = {}
        self.rare: dict[int, set[int]] = {}
        self.read: set[int] = set()

    def body(self, number: int) -> "_Scope":
        """The scope of the body of one of its loops."""
        if number not in self.bodies:
            loop = self.loops[number]
            scope = self.bodies[number] = _Scope(loop.body, loop.inner, (self, loop))
            self.live.loops[number] = scope.part
        return self.bodies[number]

    def scopes(self) -> "Iterator[_Scope]":
        """Yield this scope and all scopes inside it."""
        yield self
        for scope in self.bodies.values():
            yield from scope.scopes()


def _written_inside(loop: Loop) -> Iterator[WrittenRow]:
    """The rows that a loop or any loop inside it writes."""
    yield from loop.written
    for inner in loop.inner:
        yield from _written_inside(inner)


class _LivenessSearch:
    """A search backwards from the results, through all graphs at once: it visits a node once."""

    def __init__(self, work: list[tuple[_Scope, int]]) -> None:
        self.work = work

    def run(self) -> None:
        """Visit all live nodes, except for rare values, until none is left."""
        while self.work:
            scope, number = self.work.pop()
            if number not in scope.live.nodes:
                scope.live.nodes.add(number)
                self._visit(scope, scope.graph.nodes[number])

    def add_stacked(self, scope: _Scope, number: int, position: int) -> None:
        """Make a stacked output of a loop live."""
        body, loop = scope.body(number), scope.loops[number]
        if position not in body.part.stacked:
            body.part.stacked.add(position)
            self.work += [(body, int(i)) for i in loop.stacked[position].ravel()]
            self._add_control(body, scope, loop)

    def add_written(self, scope: _Scope, rows: set[Rows]) -> None:
        """Make the rows that loops write live."""
        for number, loop in enumerate(scope.loops):
            if any(row.rows in rows for row in _written_inside(loop)):
                body = scope.body(number)
                body.part.written = [row for row in loop.written if row.rows in rows]
                self.work += [(body, i) for row in body.part.written for i in row.nodes]
                self._add_control(body, scope, loop)
                self.add_written(body, rows)

    def _visit(self, scope: _Scope, node: Node) -> None:
        usual = node.inputs[:-1] if node.op == "branch" else node.inputs
        self.work += [(scope, i) for i in usual]
        if node.op == "branch":
            scope.rare.setdefault(node.params, set()).add(node.inputs[-1])
        elif node.op == "result":
            number, position = node.params
            self._add_carry(scope.body(number), scope, scope.loops[number], position)
        elif node.op == "saved":
            self.add_stacked(scope, *node.params[:2])
        elif scope.around is not None:
            outer, loop = scope.around
            if node.op == "carry":
                self._add_carry(scope, outer, loop, node.params)
            elif node.op == "capture":
                self.work.append((outer, node.params))
            elif node.op == "element" and node.params[0] not in scope.read:
                scope.read.add(node.params[0])
                sequence = loop.scanned[node.params[0]]
                if isinstance(sequence, Stacked):
                    self.add_stacked(outer, sequence.loop, sequence.number)
                elif isinstance(sequence, SequenceOfNodes):
                    self.work += [(outer, int(i)) for i in np.ravel(sequence.ids)]

    def _add_carry(self, body: _Scope, outer: _Scope, loop: Loop, position: int) -> None:
        """Make a number of a carry live, through its initial value and its next value."""
        if position not in body.part.carry:
            body.part.carry.add(position)
            self.work += [(outer, loop.init[position]), (body, loop.carry[position])]
            self._add_control(body, outer, loop)

    def _add_control(self, body: _Scope, outer: _Scope, loop: Loop) -> None:
        """Make the nodes that control the iterations of a loop live."""
        if loop.length is None:
            self._add_carry(body, outer, loop, 0)
        if loop.active is not None:
            self.work.append((outer, loop.active))

    def split_branches(self, scope: _Scope) -> None:
        """Assign to each branch the nodes that only it depends on, unless it is small."""
        live = scope.live
        live.branches.clear()
        for number, values in scope.rare.items():
            # Nodes that a branch shares with the rest are computed before the jump, so they become
            # live here.
            exclusive, common = _exclusive(scope.graph, live.nodes, values, set(scope.rare))
            if len(exclusive) + len(values) < SMALLEST_BRANCH:
                self.work += [(scope, i) for i in values - live.nodes]
            else:
                live.branches[number] = exclusive
                self.work += [(scope, i) for i in common]


def _exclusive(
    graph: Graph, live: set[int], nodes: Iterable[int], branches: set[int]
) -> tuple[set[int], set[int]]:
    """The operations that only the given nodes depend on, and the nodes to be computed before.

    The latter are leaves, and values of other branches: branches are not nested.
    """
    exclusive, common, work = set[int](), set[int](), list(nodes)
    while work:
        number = work.pop()
        if number not in live and number not in exclusive:
            node = graph.nodes[number]
            if node.op in LEAVES or (node.op == "branch" and node.params in branches):
                common.add(number)
            else:
                exclusive.add(number)
                work += node.inputs
    return exclusive, common


def _changed_by_one_branch(loop: Loop, part: LiveLoop) -> dict[int, int]:
    """Indices of a carry that only one branch or rare loop reads and changes, with their leaves."""
    # Registers would be moved, or spilled and loaded again, in every iteration.
    assert part.body is not None
    nodes, readers = loop.body.nodes, _readers(loop, part, part.body)
    changed = {}
    for position in part.carry:
        end = loop.carry[position]
        node = nodes[end]
        if node.op == "branch" and node.params in part.body.branches:
            leaf, reader = node.inputs[1], node.params
        elif node.op == "result" and loop.inner[node.params[0]].is_branch:
            leaf, reader = loop.inner[node.params[0]].init[node.params[1]], ~node.params[0]
        else:
            continue
        is_own = nodes[leaf].op == "carry" and nodes[leaf].params == position
        is_own &= loop.carry.count(end) == 1
        if is_own and readers.get(leaf, set()) <= {reader} and end not in readers:
            changed[position] = leaf
    return changed


def _readers(loop: Loop, part: LiveLoop, body: Live) -> dict[int, set[int | None]]:
    """The branches in which each node of a loop's body is read, or what they are of rare loops.

    None stands for everywhere else, and ~k for the rare loop k.
    """
    nodes, readers = loop.body.nodes, dict[int, set[int | None]]()
    reads: list[tuple[int | None, int]] = []
    for i in body.nodes:
        if nodes[i].op == "branch" and nodes[i].params in body.branches:
            condition, usual, rare = nodes[i].inputs
            # A branch that usually passes a number of the carry on does not read it: the value
            # stays in place.
            keeps = nodes[usual].op == "carry" and loop.carry[nodes[usual].params] == i
            reads += [(None, condition), (nodes[i].params, rare)] + [(None, usual)] * (not keeps)
        else:
            reads += [(None, k) for k in nodes[i].inputs]
    reads += [
        (b, k) for b, exclusive in body.branches.items() for i in exclusive for k in nodes[i].inputs
    ]
    reads += [(None, int(i)) for k in part.stacked for i in loop.stacked[k].ravel()]
    reads += [(None, i) for row in part.written for i in row.nodes]
    for number, live in body.loops.items():
        inside = loop.inner[number]
        scanned = [x.ids for x in inside.scanned if isinstance(x, SequenceOfNodes)]
        captured = [x.params for x in inside.body.nodes if x.op == "capture"]
        start = [inside.init[k] for k in sorted(live.carry)]
        twice = {i for i in start if start.count(i) > 1}
        once = ~number if inside.is_branch else None
        reads += [(None if i in twice else once, i) for i in start]
        reads += [(once, int(i)) for i in captured]
        reads += [
            (None, int(i)) for i in [*inside.init[:1], *(i for x in scanned for i in x.ravel())]
        ]
    for branch, number in reads:
        readers.setdefault(number, set()).add(branch)
    return readers


def branch_outputs(graph: Graph, live: Live, branch: int) -> list[int]:
    """The live nodes of a branch, in topological order."""
    of_branches = (i for i in sorted(live.nodes) if graph.nodes[i].op == "branch")
    return [i for i in of_branches if graph.nodes[i].params == branch]


def operations(
    graph: Graph, loops: list[Loop], live: Live, *, repeated: bool = False, with_rare: bool = False
) -> int:
    """The number of live operations, without those of branches and with loop bodies counted once.

    If `repeated`, they count as often as they are executed, those of a `while` once. Loops that
    rarely run count only `with_rare`.
    """
    count = sum(graph.nodes[i].op not in LEAVES for i in live.nodes)
    parts = [(loops[k], part.body) for k, part in live.loops.items()]
    return count + sum(
        (loop.length if repeated and loop.length is not None else 1)
        * operations(loop.body, loop.inner, body, repeated=repeated, with_rare=with_rare)
        for loop, body in parts
        if body is not None and (with_rare or not loop.is_rare)
    )


def most_carried(loops: list[Loop], live: Live) -> int:
    """The largest number of live values that an innermost loop, or a `while`, carries."""
    # A loop around another one may spill its carry: it does so rarely. A `while` around another one
    # mostly does its work itself, such as steps with a loop over the values that they save.
    counts = [0]
    for k, part in live.loops.items():
        if loops[k].is_rare:
            continue
        has_inner = part.body is not None and not all(
            loops[k].inner[i].is_branch for i in part.body.loops
        )
        if part.body is not None and has_inner:
            counts.append(most_carried(loops[k].inner, part.body))
        if (not has_inner or loops[k].length is None) and not loops[k].is_branch:
            counts.append(len(part.carry) - len(part.in_memory))
    return max(counts)
