"""From the scalar graph to LLVM's assembly language, in which every scalar is one vector of lanes.

A loop of the graph is a loop here, its carry a set of vectors that stay in registers as long as
there are enough; a branch is a jump around what only it needs. Sums and products may be contracted
to one rounding, nothing else is rearranged.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxmech.compiler.backends.llvm.builder import Text, splat, type_of
from jaxmech.compiler.backends.llvm.instructions import instruction
from jaxmech.compiler.backends.llvm.trigonometry import sine_and_cosine
from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.liveness import LoopNeeds, Needs, given
from jaxmech.compiler.ir.loops import Given, Listed, Loop, Saved, Steps


class Memory(NamedTuple):
    """Where a sequence lies: element (at, place) at `base + (at * numbers + place) * lanes`.

    Attributes:
        base: pointer.
        numbers: numbers of an element.
        dtype: their type.
        lanes: lanes that lie side by side; 1 where all share the sequence, or each has its own.
        apart: numbers from the sequence of one lane to that of the next, or 0.
    """

    base: str
    numbers: int
    dtype: np.dtype
    lanes: int
    apart: int = 0


class Assembler:
    """Writes one graph; the body of a loop gets an assembler of its own.

    Args:
        graph: the scalars.
        loops: the loops among them.
        needs: which of them are wanted.
        text: where the lines go.
        leaf: writes the load of an `input`.
        memory: where a sequence from outside lies, or one that is a result.
        around: the assembler of the graph around the loop whose body this is.
        carry: names of the carry of that loop.
    """

    def __init__(
        self,
        graph: Graph,
        loops: list[Loop],
        needs: Needs,
        text: Text,
        leaf: Callable[[Node], str],
        memory: Callable[[Given | Saved], Memory | None],
        around: "Assembler | None" = None,
        carry: dict[int, str] | None = None,
    ) -> None:
        self.graph, self.loops, self.needs, self.text = graph, loops, needs, text
        self.leaf, self.memory, self.around, self.carry = leaf, memory, around, carry or {}
        self.names: dict[int, str] = {}
        self.elements: dict[int, Memory] = {}
        self.at = ""
        self._ends: dict[int, tuple[dict[int, str], dict[int, Memory]]] = {}
        self._pairs: dict[int, tuple[str, str]] = {}
        self._after: dict[int, str] = {}

    def write(self) -> None:
        """Every node that is needed, in the order of their making."""
        for number in sorted(self.needs.nodes):
            self.names[number] = self._written(self.graph.nodes[number], number)

    def saved(self, steps: Saved) -> Memory:
        """Where a saved sequence lies."""
        return self._loop(steps.loop)[1][steps.number]

    def _written(self, node: Node, number: int) -> str:
        params: Any = node.params
        match node.op:
            case "const":
                return splat(self.text, self.graph.values[number], node.dtype)
            case "result":
                loop, place = params
                return self._loop(loop)[0][place]
            case "input":
                return self.leaf(node)
            case "carry":
                return self.carry[params]
            case "capture":
                assert self.around is not None
                return self.around.names[params]
            case "element":
                return self._element(self.elements[params[0]], params[1])
            case "sin" | "cos":
                return self._sine_or_cosine(node)
            case "branch" if params in self.needs.branches:
                return self._branch(params, number)
        inputs = [(self.names[i], self.graph.nodes[i].dtype) for i in node.inputs]
        return instruction(self.text, node, inputs)

    def _sine_or_cosine(self, node: Node) -> str:
        (angle,) = node.inputs
        if angle not in self._pairs:
            self._pairs[angle] = sine_and_cosine(self.text, self.names[angle], node.dtype)
        return self._pairs[angle][node.op == "cos"]

    def _branch(self, branch: int, number: int) -> str:
        """The name of a branch's node; all nodes of a branch are written with the first of them."""
        if number not in self._after:
            nodes, own = self.graph.nodes, sorted(self.needs.branches[branch])
            gives = [(i, nodes[i].inputs) for i in given(self.graph, self.needs, branch)]
            which = self.names[nodes[number].inputs[0]]
            usual = [
                (type_of(nodes[i].dtype, self.text.lanes), self.names[inputs[1]])
                for i, inputs in gives
            ]
            pairs = dict(self._pairs)
            with self.text.branch(which, usual) as (after, ends):
                for i in own:
                    self.names[i] = self._written(nodes[i], i)
                for i, inputs in gives:
                    rare = self.names[inputs[2]]
                    ends.append(
                        self.text.select(which, rare, self.names[inputs[1]], nodes[i].dtype)
                    )
            self._pairs = pairs
            for i in own:  # another branch computes it anew
                del self.names[i]
            self._after.update(zip((i for i, _ in gives), after, strict=True))
        return self._after[number]

    def _element(self, memory: Memory, place: int) -> str:
        address = self._address(memory, self.at, place)
        if memory.apart:
            return self.text.gather(address, memory.dtype, memory.apart)
        return self.text.load(address, memory.dtype, memory.lanes)

    def _store(self, number: int, memory: Memory, at: str | int, place: int) -> None:
        address = self._address(memory, at, place)
        if memory.apart:
            self.text.scatter(self.names[number], address, memory.dtype, memory.apart)
        else:
            self.text.store(self.names[number], address, memory.dtype)

    def _address(self, memory: Memory, at: str | int, place: int) -> str:
        """Of one number of an element; `at` is a number or the name of one."""
        base, stride = memory.base, memory.numbers * memory.lanes
        offset = self.text.line(f"mul i64 {at}, {stride}") if isinstance(at, str) else at * stride
        start = self.text.address(base, memory.dtype, offset)
        return self.text.address(start, memory.dtype, place * memory.lanes)

    def _steps(self, steps: Steps) -> Memory:
        if isinstance(steps, Saved):
            return self.saved(steps)
        if isinstance(steps, Given):
            memory = self.memory(steps)
            assert memory is not None
            return memory
        return self._listed(steps)

    def _listed(self, steps: Listed) -> Memory:
        lines = steps.ids.reshape(len(steps.ids), -1)
        values = [self.graph.values[int(i)] for i in lines.ravel()]
        if all(value is not None for value in values):
            base = self.text.table(np.array(values, steps.dtype))
            return Memory(base, lines.shape[1], steps.dtype, 1)
        lanes = self.text.lanes
        memory = Memory(
            self.text.scratch(lines.size, steps.dtype), lines.shape[1], steps.dtype, lanes
        )
        for at, line in enumerate(lines.tolist()):
            for place, i in enumerate(line):
                self._store(i, memory, at, place)
        return memory

    def _loop(self, number: int) -> tuple[dict[int, str], dict[int, Memory]]:
        """The wanted results and saved sequences of a loop, which is written once."""
        if number not in self._ends:
            self._ends[number] = self._write_loop(
                number, self.loops[number], self.needs.loops[number]
            )
        return self._ends[number]

    def _write_loop(
        self, number: int, loop: Loop, part: LoopNeeds
    ) -> tuple[dict[int, str], dict[int, Memory]]:
        inner = part.body
        assert inner is not None
        start = {k: self.names[loop.init[k]] for k in sorted(part.carry)}
        saves = {k: self._place_for(number, loop, k) for k in sorted(part.saves)}
        if loop.length == 0:
            return start, saves
        leaves = (loop.body.nodes[i] for i in inner.nodes)
        read = sorted({leaf.params[0] for leaf in leaves if leaf.op == "element"})
        elements = {k: self._steps(loop.reads[k]) for k in read}
        text = self.text
        types = {k: type_of(loop.body.nodes[loop.carry[k]].dtype, text.lanes) for k in start}
        with text.loop(loop.length, [(types[k], start[k]) for k in start]) as (turn, carry, ends):
            body = Assembler(
                loop.body, loop.inner, inner, text, self.leaf, _nowhere(self.memory), self,
                dict(zip(start, carry, strict=True)),
            )  # fmt: skip
            body.elements = elements
            body.at = turn if not loop.reverse else text.line(f"sub i64 {loop.length - 1}, {turn}")
            body.write()
            for k, memory in saves.items():
                for place, i in enumerate(loop.saves[k].ravel().tolist()):
                    body._store(i, memory, body.at, place)
            ends += [body.names[loop.carry[k]] for k in start]
        return dict(zip(start, ends, strict=True)), saves

    def _place_for(self, number: int, loop: Loop, k: int) -> Memory:
        """Where a loop saves a sequence: in a result, or else in memory for a while."""
        nodes = loop.saves[k].ravel().tolist()
        dtype = loop.body.nodes[nodes[0]].dtype if nodes else np.dtype(float)
        shape = loop.saves[k].shape
        found = self.memory(Saved(number, k, loop.length, shape, dtype))
        if found is not None:
            return found
        base = self.text.scratch(loop.length * len(nodes), dtype)
        return Memory(base, len(nodes), dtype, self.text.lanes)


def _nowhere(
    memory: Callable[[Given | Saved], Memory | None],
) -> Callable[[Given | Saved], Memory | None]:
    """Inside of a loop: sequences from outside are where they are, what is saved is no result."""
    return lambda steps: memory(steps) if isinstance(steps, Given) else None
