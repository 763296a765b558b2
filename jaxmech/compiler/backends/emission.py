"""From the scalar graph to JAX operations in which every scalar is a row of lanes.

The carry of a loop is a tuple of rows, one for each scalar: so XLA can make one kernel of a whole
iteration. What an iteration saves leaves it as one stacked array behind an optimization barrier:
saved row by row, each row would compute the iteration again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.liveness import LoopNeeds, Needs
from jaxmech.compiler.ir.loops import Given, Listed, Loop, Saved, Steps

_NAMES: dict[str, Callable[..., Array]] = {
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "not": lax.bitwise_not,
}


class Emitter:
    """Emits one graph; the body of a loop gets an emitter of its own.

    Args:
        graph: the scalars.
        loops: the loops among them.
        needs: which of them are wanted.
        leaf: the row of an `input`, `carry`, `element` or `capture`.
        given: the array of a sequence from outside, (iterations, size, lanes or 1).
        lanes: length of a row.
    """

    def __init__(
        self,
        graph: Graph,
        loops: list[Loop],
        needs: Needs,
        leaf: Callable[[Node], Array],
        given: Callable[[Given], Array],
        lanes: int,
    ) -> None:
        self.graph, self.loops, self.needs = graph, loops, needs
        self.leaf, self.given, self.lanes = leaf, given, lanes
        self.rows: dict[int, Array] = {}
        self._ends: dict[int, tuple[dict[int, Array], dict[int, Array]]] = {}

    def run(self) -> None:
        """Emits every node that is needed, in the order of their making, branches always."""
        for number in sorted(self.needs.nodes.union(*self.needs.branches.values())):
            self.rows[number] = self._row(number, self.graph.nodes[number])

    def saved(self, steps: Saved) -> Array:
        """A saved sequence, (iterations, size, lanes)."""
        return self._loop(steps.loop)[1][steps.number]

    def _row(self, number: int, node: Node) -> Array:
        match node.op:
            case "const":
                return jnp.full((self.lanes,), self.graph.values[number], node.dtype)
            case "result":
                loop, place = node.params
                return self._loop(loop)[0][place]
            case "input" | "carry" | "element" | "capture":
                return self.leaf(node)
            case "convert_element_type":
                return lax.convert_element_type(self.rows[node.inputs[0]], node.dtype)
            case "branch":
                return lax.select_n(*(self.rows[i] for i in node.inputs))
        fn = _NAMES.get(node.op) or getattr(lax, node.op)
        params: Any = node.params
        return fn(*(self.rows[i] for i in node.inputs), **dict(params))

    def _steps(self, steps: Steps) -> Array:
        if isinstance(steps, Saved):
            return self.saved(steps)
        if isinstance(steps, Given):
            return self.given(steps)
        return self._listed(steps)

    def _listed(self, steps: Listed) -> Array:
        lines = steps.ids.reshape(len(steps.ids), -1)
        values = [[self.graph.values[int(i)] for i in line] for line in lines]
        if all(value is not None for line in values for value in line):
            return jnp.asarray(np.array(values, steps.dtype).reshape(*lines.shape, 1))
        return jnp.stack([jnp.stack([self.rows[int(i)] for i in line]) for line in lines])

    def _loop(self, number: int) -> tuple[dict[int, Array], dict[int, Array]]:
        """The wanted results and saved sequences of a loop, which is emitted once."""
        if number not in self._ends:
            self._ends[number] = self._emit(self.loops[number], self.needs.loops[number])
        return self._ends[number]

    def _emit(self, loop: Loop, part: LoopNeeds) -> tuple[dict[int, Array], dict[int, Array]]:
        inner = part.body
        assert inner is not None
        places, saves = sorted(part.carry), _by_type(loop, part)
        leaves = (loop.body.nodes[i] for i in inner.nodes)
        read = sorted({leaf.params[0] for leaf in leaves if leaf.op == "element"})
        start = tuple(self.rows[loop.init[k]] for k in places)
        elements = {k: self._steps(loop.reads[k]) for k in read}

        def iteration(
            carry: tuple[Array, ...], element: dict[int, Array]
        ) -> tuple[tuple[Array, ...], list[Array]]:
            rows = dict(zip(places, carry, strict=True))
            leaf = partial(self._inner_leaf, rows, element)
            body = Emitter(loop.body, loop.inner, inner, leaf, self.given, self.lanes)
            body.run()
            saved = [jnp.stack([body.rows[i] for _, i in group]) for group in saves.values()]
            return tuple(body.rows[loop.carry[k]] for k in places), lax.optimization_barrier(saved)

        end, stacks = lax.scan(iteration, start, elements, length=loop.length, reverse=loop.reverse)
        sequences: dict[int, Array] = {}
        for group, stack in zip(saves.values(), stacks, strict=True):
            owners = [owner for owner, _ in group]
            for owner in dict.fromkeys(owners):
                first = owners.index(owner)
                sequences[owner] = stack[:, first : first + owners.count(owner)]
        for k in part.saves - set(sequences):
            sequences[k] = jnp.zeros((loop.length, 0, self.lanes))
        return dict(zip(places, end, strict=True)), sequences

    def _inner_leaf(self, carry: dict[int, Array], element: dict[int, Array], node: Node) -> Array:
        params: Any = node.params
        if node.op == "carry":
            return carry[params]
        if node.op == "capture":
            return self.rows[params]
        steps, place = params
        return jnp.broadcast_to(element[steps][place], (self.lanes,))


def _by_type(loop: Loop, part: LoopNeeds) -> dict[np.dtype, list[tuple[int, int]]]:
    """What an iteration saves: (sequence, node of the body), one list for each type."""
    groups: dict[np.dtype, list[tuple[int, int]]] = {}
    for k in sorted(part.saves):
        for i in loop.saves[k].ravel().tolist():
            groups.setdefault(loop.body.nodes[i].dtype, []).append((k, i))
    return groups
