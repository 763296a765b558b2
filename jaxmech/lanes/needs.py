"""What has to be computed of a graph for what is asked of it: nodes, and parts of its loops."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from jaxmech.lanes.graph import Graph
from jaxmech.lanes.loops import Listed, Loop, Saved


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
        loops: by number of the loop.
    """

    nodes: set[int] = field(default_factory=set)
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
            else:
                work += node.inputs
    return found


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


_LEAVES = {"const", "input", "carry", "element", "capture", "result"}


def operations(graph: Graph, loops: list[Loop], needs: Needs) -> int:
    """How many operations of a graph are needed, each of the body of a loop counted once."""
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
