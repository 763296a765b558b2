"""What has to be computed of a graph for what is asked of it: nodes, and parts of its loops."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from jaxmech.lanes.graph import Graph
from jaxmech.lanes.loops import Listed, Loop, Saved

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
    return _collect(graph, loops, list(nodes), list(saved), None)


def _collect(
    graph: Graph, loops: list[Loop], nodes: list[int], saved: list[Saved], around: Loop | None
) -> Needs:
    """`around` is the loop whose body this graph is: its carry depends on its carry."""
    found = Needs()
    work: list[int | Saved] = [*nodes, *saved]
    rare: dict[int, set[int]] = {}  # what each branch gives where its case holds
    while work:
        _follow(graph, loops, work, around, found, rare)
        found.branches.clear()
        for number, values in rare.items():
            own, common = _own(graph, found.nodes, values, set(rare))
            if len(own) + len(values) < SMALLEST_BRANCH:
                work += values - found.nodes
            else:
                found.branches[number] = own
                work += common
    return found


def _follow(
    graph: Graph,
    loops: list[Loop],
    work: list[int | Saved],
    around: Loop | None,
    found: Needs,
    rare: dict[int, set[int]],
) -> None:
    """Adds what the items of the work depend on, but for the rare cases, until none is left."""
    while work:
        item = work.pop()
        if isinstance(item, Saved):
            part = found.loops.setdefault(item.loop, LoopNeeds())
            if item.number not in part.saves:
                part.saves.add(item.number)
                work += _inputs(loops[item.loop], part)
        elif item not in found.nodes:
            found.nodes.add(item)
            node = graph.nodes[item]
            if node.op == "result":
                number, place = node.params
                part = found.loops.setdefault(number, LoopNeeds())
                if place not in part.carry:
                    part.carry.add(place)
                    work += _inputs(loops[number], part)
            elif node.op == "carry" and around is not None:
                work.append(around.carry[node.params])
            elif node.op == "branch":
                which, usual, value = node.inputs
                work += [which, usual]
                rare.setdefault(node.params, set()).add(value)
            else:
                work += node.inputs


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


def _inputs(loop: Loop, part: LoopNeeds) -> list[int | Saved]:
    """Follows a loop's needs through its body; gives what it needs from the graph around it."""
    ends = [loop.carry[k] for k in part.carry]
    ends += [int(i) for k in part.saves for i in loop.saves[k].ravel()]
    part.body = _collect(loop.body, loop.inner, ends, [], loop)
    leaves = [loop.body.nodes[i] for i in part.body.nodes]
    part.carry |= {leaf.params for leaf in leaves if leaf.op == "carry"}
    wanted: list[int | Saved] = [loop.init[k] for k in part.carry]
    wanted += [leaf.params for leaf in leaves if leaf.op == "capture"]
    for place in {leaf.params[0] for leaf in leaves if leaf.op == "element"}:
        steps = loop.reads[place]
        if isinstance(steps, Saved):
            wanted.append(steps)
        elif isinstance(steps, Listed):
            wanted += [int(i) for i in np.ravel(steps.ids)]
    return wanted


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
