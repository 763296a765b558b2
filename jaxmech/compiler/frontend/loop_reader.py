"""Translation of loops to the scalar graph: unrolled, or as a `Loop` with a graph of its own.

A short loop is unrolled, unless it is large or contains another loop; a long one becomes a `Loop`,
and so does a `while`.
"""

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from jaxmech.compiler.frontend.jaxprs import (
    LONGEST_UNROLLED,
    holds_loop,
    loop_condition,
    loop_content,
    runs_once,
)
from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.loops import (
    ArgumentRows,
    Ids,
    Loop,
    Rows,
    Scanned,
    SequenceOfNodes,
    Stacked,
    UnsupportedError,
    Value,
    WrittenRow,
    arrays_of,
    captured,
    flat,
    leaves,
    leaves_of,
    native_dtype,
    scanned_value,
    split,
    with_rows,
)
from jaxmech.compiler.optimize.fold import folded
from jaxmech.utils.jax_internals import ClosedJaxpr, JaxprEqn

LARGEST_UNROLLED = 50_000  # nodes of all iterations; a larger number compiles slowly

Values = Sequence[Value]


class AbstractLoopReader(abc.ABC):
    """Reads loops into one graph.

    Attributes:
        graph: the scalar graph.
        loops: the loops of the graph.
        written: rows written in each iteration, if the graph is the body of a loop.
        active: a boolean among the scalars that is false where nothing depends on what is being
            read: on one side of a `cond`, or after the end of a `while`. None if all is needed.
    """

    def __init__(self, graph: Graph, active: int | None = None) -> None:
        self.graph = graph
        self.loops: list[Loop] = []
        self.written: list[WrittenRow] = []
        self.active: int | None = None if active is None else self.graph.capture(active)

    @abc.abstractmethod
    def read(self, closed: ClosedJaxpr, args: Values) -> list[Value]:
        """Add the operations of a function to the graph, or raise an UnsupportedError."""

    @abc.abstractmethod
    def inlined(self, closed: ClosedJaxpr, args: Values, is_repeated: bool = False) -> list[Value]:
        """Add a function, which is read on its own if other uses of it are likely."""

    def scan(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        """Add a `scan`, unrolled if it is short."""
        body, first, carries = loop_content(eqn)
        length, sequences = eqn.params["length"], values[first + carries :]
        if length > LONGEST_UNROLLED or not all(isinstance(x, np.ndarray) for x in sequences):
            return self.kept_loop(eqn, values)
        if length > 1 and holds_loop(body.jaxpr):
            loop = self._attempted(self.kept_loop, eqn, values)
            if loop is not None:
                return loop
        consts, init = values[:first], values[first : first + carries]
        return self._unrolled(body, consts, init, sequences, length, eqn.params["reverse"])

    def kept_loop(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        """Add a loop that is not unrolled, and return its results."""
        if eqn.primitive.name == "while":
            return self.while_loop(eqn, values)
        body, first, carries = loop_content(eqn)
        second, p = first + carries, eqn.params
        consts, init, sequences = values[:first], values[first:second], values[second:]
        return self._loop(body, consts, init, sequences, p["length"], p["reverse"])

    def _unrolled(
        self, closed: ClosedJaxpr, consts: Values, carry: Values, scanned: Values, length: int,
        reverse: bool, is_forced: bool = False,
    ) -> list[Value]:  # fmt: skip
        order, node_count, mark = -1 if reverse else 1, len(self.graph.nodes), self._mark()
        init, stacked = carry, list[list[Ids]]()
        for k in range(length)[::order]:
            elements = [np.asarray(x[k]) for x in scanned if isinstance(x, np.ndarray)]
            outs = self.inlined(closed, [*consts, *carry, *elements], length > 1)
            carry = outs[: len(carry)]
            otherwise = "a nested loop whose stacked outputs are used outside of the outer loop"
            stacked.append(arrays_of(self.graph, outs[len(carry) :], otherwise))
            # The first iteration shows how large all of them would be.
            size = (len(self.graph.nodes) - node_count) * length
            if length > 1 == len(stacked) and size > LARGEST_UNROLLED and not is_forced:
                # What was read must not stay: products with zero in it would count as unsafe.
                self._drop_since(mark)
                loop_args = closed, consts, init, scanned, length, reverse
                loop = self._attempted(self._loop, *loop_args)
                return self._unrolled(*loop_args, is_forced=True) if loop is None else loop
        if length == 0:
            avals = closed.out_avals[len(carry) :]
            return [*carry, *(np.zeros((0, *x.shape), int) for x in avals)]
        return [*carry, *(np.stack(column[::order]) for column in zip(*stacked, strict=True))]

    def _loop(
        self, closed: ClosedJaxpr, consts: Values, init: Values, scanned: Values, length: int,
        reverse: bool,
    ) -> list[Value]:  # fmt: skip
        """Add a loop that is not unrolled; return its final carry and its stacked outputs."""
        otherwise = "a whole sequence as a constant or a carry of a loop"
        fixed = self.without_sequences(consts, otherwise)
        start, rows = self._without_rows(init, otherwise)
        avals = closed.in_avals[len(consts) : len(consts) + len(init)]
        carried = [aval for k, aval in enumerate(avals) if k not in rows]
        inside = type(self)(Graph(self.graph), self.active)
        pairs = zip(scanned, closed.in_avals[len(consts) + len(init) :], strict=True)
        sequences = [scanned_value(split(self.graph, x), aval) for x, aval in pairs]
        outer = captured(inside.graph, fixed)
        elements = [_elements(inside.graph, k, s) for k, s in enumerate(sequences)]
        carry = with_rows(leaves(inside.graph, "carry", carried), rows)
        outs = inside.read(closed, [*outer, *carry, *elements])
        ends = inside.ends_of(outs, rows)
        loop = Loop(
            body=inside.graph,
            inner=inside.loops,
            init=flat(start),
            carry=flat(ends[: len(start)]),
            scanned=sequences,
            stacked=ends[len(start) :],
            length=length,
            reverse=reverse,
            position=len(self.graph.nodes),
            active=self.active,
            written=inside.written,
        )
        number = len(self.loops)
        self.loops.append(loop)
        results = leaves(self.graph, "result", carried, number)
        avals = closed.out_avals[len(init) :]
        return [
            *with_rows(results, rows),
            *(Stacked(number, k, length, a.shape, a.dtype) for k, a in enumerate(avals)),
        ]

    def while_loop(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        """Add a `while` loop, which carries whether the lane is active; return its final carry."""
        otherwise = "a whole sequence as a constant or a carry of a loop"
        (condition, first), (body, second, _) = loop_condition(eqn), loop_content(eqn)
        fixed = self.without_sequences(values[:second], otherwise)
        init, rows = self._without_rows(values[second:], otherwise)
        goes_on = self.goes_on(condition, fixed[:first], values[second:], self.active)
        if self.graph.values[goes_on] is not None and not self.graph.values[goes_on]:
            return values[second:]
        # What only a rare loop needs is not computed before it.
        inside = type(self)(Graph(self.graph, is_rare=runs_once(eqn)), self.active)
        outer = captured(inside.graph, fixed)
        avals = [x for k, x in enumerate(body.in_avals[second - first :]) if k not in rows]
        running, *carry = leaves(inside.graph, "carry", [condition.out_avals[0], *avals])
        inside.active = int(running)
        outs = inside.read(body, [*outer[first:], *with_rows(carry, rows)])
        new = inside.ends_of(outs, rows)
        goes_on_after = inside.goes_on(condition, outer[:first], outs, inside.active)
        ends = [
            inside.selected("select_n", (), inside.active, old, x)
            for old, x in zip(carry, new, strict=True)
        ]
        start, end = [goes_on, *flat(init)], [goes_on_after, *flat(ends)]
        results = self.added_while(inside, start, end, [condition.out_avals[0], *avals])
        return with_rows(results, rows)

    def added_while(
        self, inside: Self, init: list[int], carry: list[int], avals: Sequence[Any],
        is_usual: bool = False,
    ) -> list[Ids]:  # fmt: skip
        """Add a loop that runs while the first number of its carry holds; return the others."""
        number = len(self.loops)
        self.loops.append(
            Loop(
                body=inside.graph,
                inner=inside.loops,
                init=init,
                carry=carry,
                scanned=[],
                stacked=[],
                length=None,
                reverse=False,
                position=len(self.graph.nodes),
                written=inside.written,
                is_usual=is_usual,
            )
        )
        return leaves(self.graph, "result", avals, number)[1:]

    def goes_on(
        self, condition: ClosedJaxpr, consts: Values, carry: Values, active: int | None
    ) -> int:
        """The condition of a `while` loop for a carry, false where nothing depends on it."""
        (holds,) = self.read(condition, [*consts, *carry])
        assert isinstance(holds, np.ndarray)
        return int(holds) if active is None else folded(self.graph, "and", active, int(holds))

    def _attempted(self, read: Callable[..., list[Value]], *args: Any) -> list[Value] | None:
        """What an attempt reads; None, with all that it has added dropped, if it fails."""
        mark = self._mark()
        try:
            return read(*args)
        except UnsupportedError:
            self._drop_since(mark)
            return None

    def _mark(self) -> Any:
        return self.graph.mark(), len(self.loops), len(self.written), self.active

    def _drop_since(self, mark: Any) -> None:
        sizes, loops, written, self.active = mark
        self.graph.drop_since(sizes)
        del self.loops[loops:], self.written[written:]

    def selected(self, op: str, params: Any, condition: int, no: Ids, yes: Ids) -> Ids:
        """Add the choice of one of two arrays by a condition."""
        pairs = zip(no.ravel(), yes.ravel(), strict=True)
        ids = [folded(self.graph, op, condition, int(a), int(b), params=params) for a, b in pairs]
        return np.array(ids, np.int64).reshape(no.shape)

    def without_sequences(self, values: Values, otherwise: str) -> list[Value]:
        """The values as arrays, except those that are rows in memory."""
        stay = (Rows, ArgumentRows)
        return [
            x if isinstance(x, stay) else arrays_of(self.graph, [x], otherwise)[0] for x in values
        ]

    def _without_rows(self, values: Values, otherwise: str) -> tuple[list[Ids], dict[int, Rows]]:
        """The values that are arrays, and the rows by index."""
        rows = {k: x for k, x in enumerate(values) if isinstance(x, Rows)}
        arrays = arrays_of(
            self.graph, [x for k, x in enumerate(values) if k not in rows], otherwise
        )
        return arrays, rows

    def ends_of(self, outs: Values, rows: dict[int, Rows]) -> list[Ids]:
        """The results of the body of a loop except the rows, which must be the same as before."""
        otherwise = "a nested loop whose stacked outputs are used outside of the outer loop"
        arrays, rows_after = self._without_rows(outs, otherwise)
        if rows_after != rows:
            raise UnsupportedError(
                "an array of rows that changes its position in the carry of a loop"
            )
        return arrays


def _elements(g: Graph, number: int, sequence: Scanned) -> Ids:
    """The numbers of an element of a scanned sequence; those that are always the same as such."""
    params = [(number, position) for position in range(math.prod(sequence.shape))]
    if not isinstance(sequence, SequenceOfNodes):
        return leaves_of(g, "element", sequence.shape, sequence.dtype, params)
    ids = sequence.ids.reshape(len(sequence.ids), len(params))
    first, is_same = ids[:1].ravel().tolist(), (ids == ids[:1]).all(axis=0) & (len(ids) > 0)
    dtype = native_dtype(sequence.dtype)
    numbers = [
        g.capture(first[position]) if is_same[position] else g.add("element", (), param, dtype)
        for position, param in enumerate(params)
    ]
    return np.array(numbers, np.int64).reshape(sequence.shape)
