"""Translation of a jaxpr to a scalar graph.

An array is read as a numpy array of node numbers. A `cond` becomes a select, or a branch if one of
its sides computes nothing; long sides become loops that run at most once. Calls are inlined. A
short loop is unrolled, unless it is large or contains another loop; a long one becomes a `Loop`
with a graph of its own, and so does a `while`. The body of an unrolled loop, and a call of some
length, is read once (`scalar_function`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxmech.compiler.frontend.indexing import empty_rows, reads_row, row_read
from jaxmech.compiler.frontend.jaxprs import (
    LONGEST_UNROLLED,
    call_content,
    holds_loop,
    is_apart,
    is_long,
    loop_condition,
    loop_content,
    require_native,
    runs_once,
    size_of,
    takes_finite,
)
from jaxmech.compiler.frontend.primitives import PRIMITIVES, constant
from jaxmech.compiler.frontend.scalar_function import function_of
from jaxmech.compiler.ir.graph import BRANCH_NUMBERS, Graph, Origins
from jaxmech.compiler.ir.loops import (
    LARGEST_ARRAY,
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
    dtype_of,
    flat,
    leaves,
    leaves_of,
    native_dtype,
    scanned_value,
    split,
    with_rows,
)
from jaxmech.compiler.optimize.fold import folded
from jaxmech.utils.jax_internals import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, ShapedArray

LARGEST_GRAPH = 1_000_000  # nodes of one graph
LARGEST_UNROLLED = 50_000  # nodes of all iterations; a larger number compiles slowly
# Equations of a call that is read on its own: a shorter one is read as fast as it is added, and a
# longer one is rarely used again.
CALL_READ_ONCE = range(30, 1000)

_COND_OF_ROWS = "`cond` of a whole sequence"
_SEQUENCE_IN_LOOP = "a whole sequence as a constant or a carry of a loop"
_STACKED_IN_LOOP = "a nested loop whose stacked outputs are used outside of the outer loop"
_IDENTITIES = {"stop_gradient", "copy", "copy_p", "optimization_barrier"}

Values = Sequence[Value]


class JaxprReader:
    """Reads jaxprs into one graph.

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

    def read(self, closed: ClosedJaxpr, args: Values) -> list[Value]:
        """Add the operations of a function to the graph, or raise an UnsupportedError."""
        consts = self._constants(closed)
        env: dict[Any, Value] = dict(zip(closed.jaxpr.constvars, consts, strict=True))
        env.update(zip(closed.jaxpr.invars, args, strict=True))
        self.equations(closed.jaxpr.eqns, env)
        return [self.value(atom, env) for atom in closed.jaxpr.outvars]

    def _constants(self, closed: ClosedJaxpr) -> list[Ids]:
        require_native(closed.jaxpr.constvars, "a constant")
        return [constant(self.graph, np.asarray(value)) for value in closed.consts]

    @classmethod
    def alone(cls, graph: Graph, jaxpr: Jaxpr, inputs: Sequence[Ids]) -> list[Ids] | None:
        """The results of a function in its own graph; None if it cannot be read without loops."""
        reader = cls(graph)
        env: dict[Any, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], inputs, strict=True))
        try:
            reader.equations(jaxpr.eqns, env)
            outs = arrays_of(graph, [reader.value(x, env) for x in jaxpr.outvars], "a sequence")
        except UnsupportedError:
            return None
        return None if reader.loops else outs

    def equations(self, eqns: Sequence[JaxprEqn], env: dict[Any, Value]) -> None:
        """Add equations, reading and extending the values of variables in `env`."""
        for eqn in eqns:
            values = [
                self.value(atom, env) if isinstance(atom, Literal) else env[atom]
                for atom in eqn.invars
            ]
            env.update(zip(eqn.outvars, self._equation(eqn, values), strict=True))
            if len(self.graph.nodes) > LARGEST_GRAPH:
                raise UnsupportedError(f"a loop body or function of over {LARGEST_GRAPH} scalars")

    def value(self, atom: Any, env: dict[Any, Value]) -> Value:
        """The value of a variable or a literal."""
        if isinstance(atom, Literal):
            return constant(self.graph, np.asarray(atom.val, dtype_of(atom)))
        return env[atom]

    def _equation(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if any(x.size > LARGEST_ARRAY for x in values if isinstance(x, np.ndarray)):
            raise UnsupportedError(f"an array of over {LARGEST_ARRAY} numbers")
        if values and isinstance(table := values[0], ArgumentRows) and reads_row(eqn):
            if name == "slice":
                start = self.graph.const(eqn.params["start_indices"][0], np.dtype(np.int32))
            else:
                start = int(arrays_of(self.graph, values[1:2], "a position in a sequence")[0])
            return [row_read(self.graph, eqn, table.first, start)]
        if name in PRIMITIVES:
            require_native((*eqn.invars, *eqn.outvars), f"`{name}`")
            arrays = arrays_of(self.graph, values, f"`{name}` of a whole sequence")
            return list(PRIMITIVES[name](self.graph, eqn, *arrays))
        match name:
            case "scan":
                return self._scan(eqn, values)
            case "while":
                return self._while(eqn, values)
            case "cond":
                return self._cond(eqn.params["branches"], self._in_memory(values, _COND_OF_ROWS))
            case "empty_rows":
                return [empty_rows(eqn)]
            case "write_row":
                return [self._write(*values)]
        if (content := call_content(eqn)) is not None:
            origins = Origins.OPERATIONS if takes_finite(eqn) else Origins.ANYWHERE
            with self.graph.hiding(origins):
                return self._inlined(content, values)
        if name in _IDENTITIES:
            return values
        raise UnsupportedError(f"the primitive `{name}`")

    def _write(self, rows: Value, position: Value, row: Value, condition: Value) -> Rows:
        """Write a row in this iteration, if the lane is active and the index is in range."""
        if not isinstance(rows, Rows) or self.graph.outer is None:
            raise UnsupportedError("a row write outside of a loop")
        assert isinstance(position, np.ndarray)
        assert isinstance(condition, np.ndarray)
        assert isinstance(row, np.ndarray)
        g, number, holds = self.graph, int(position), int(condition)
        dtype = g.nodes[number].dtype
        inside = [
            folded(g, "ge", number, g.const(0, dtype)),
            folded(g, "lt", number, g.const(rows.count, dtype)),
        ]
        for predicate in (*inside, *([] if self.active is None else [self.active])):
            holds = folded(g, "and", holds, predicate)
        self.written.append(WrittenRow(rows, number, holds, row))
        return rows

    def _cond(self, branches: Sequence[ClosedJaxpr], values: list[Value]) -> list[Value]:
        """Add one side if the predicate is known; else both, joined by selects or a branch."""
        index, *operands = values
        assert isinstance(index, np.ndarray)
        constant_index = self.graph.values[int(index)]
        if constant_index is not None:
            return self.read(branches[int(np.clip(constant_index, 0, len(branches) - 1))], operands)
        if len(branches) != 2:
            raise UnsupportedError("`switch` on a computed index")
        zero = self.graph.const(0, self.graph.nodes[int(index)].dtype)
        # Within a loop that runs at most once, no branch of a step is lost by another such loop.
        if is_apart(branches) or (self._is_in_side and any(is_long(x.jaxpr) for x in branches)):
            return self._sides_apart(branches, int(index), zero, operands)
        sides = []
        for compare, branch in zip(("eq", "ne"), branches, strict=True):
            active = self.active
            if holds_loop(branch.jaxpr):  # which has to know where it matters
                active = self._and_active(folded(self.graph, compare, int(index), zero))
            sides.append(self._side(branch, operands, active))
        (no, no_works), (yes, yes_works) = sides
        usual, rare, compare = (yes, no, "eq") if no_works and not yes_works else (no, yes, "ne")
        holds = folded(self.graph, compare, int(index), zero)
        if no_works and yes_works:
            pairs = zip(no, yes, strict=True)
            return [self._selected("select_n", (), holds, *pair) for pair in pairs]
        number, pairs = next(BRANCH_NUMBERS), zip(usual, rare, strict=True)
        return [self._selected("branch", number, holds, *pair) for pair in pairs]

    @property
    def _is_in_side(self) -> bool:
        """Whether this is read for a side of a `cond` that is a loop."""
        graph: Graph | None = self.graph
        while graph is not None and (graph.outer is None or graph.hoists):
            graph = graph.outer
        return graph is not None

    def _sides_apart(
        self, branches: Sequence[ClosedJaxpr], index: int, zero: int, operands: Values
    ) -> list[Value]:
        """Add the long sides of a `cond` as loops that run at most once, a short one as it is."""
        # Of two long sides, that for which the predicate is false counts as the usual one.
        pairs = list(zip(("eq", "ne"), branches, strict=True))
        short = [side for _, side in pairs if not is_long(side.jaxpr)]
        if short:
            outs = self._side(short[0], operands, self.active)[0]
        else:
            zeros = (np.zeros(x.shape, native_dtype(x.dtype)) for x in branches[0].out_avals)
            outs = [constant(self.graph, x) for x in zeros]
        for compare, side in pairs:
            if is_long(side.jaxpr):
                holds = folded(self.graph, compare, index, zero)
                outs = self._once(side, holds, operands, outs, not short and compare == "eq")
        return list(outs)

    def _once(
        self, closed: ClosedJaxpr, holds: int, operands: Values, otherwise: list[Ids],
        is_usual: bool = False,
    ) -> list[Ids]:  # fmt: skip
        """Add a loop that runs once where a condition holds; return its results."""
        holds = self._and_active(holds)
        inside = JaxprReader(Graph(self.graph, is_rare=True), self.active)
        outer = captured(inside.graph, self._in_memory(operands, _COND_OF_ROWS))
        avals = [ShapedArray((), np.dtype(bool)), *closed.out_avals]
        running, *carry = leaves(inside.graph, "carry", avals)
        inside.active = int(running)
        ends = inside._where_active(carry, inside._ends(inside.read(closed, outer), {}))
        if inside.written:
            raise UnsupportedError("`cond` with a loop that writes rows")
        never = inside.graph.const(False, np.dtype(bool))
        return self._loop_without_length(
            inside, [holds, *flat(otherwise)], [never, *flat(ends)], avals, is_usual
        )

    def _side(self, side: ClosedJaxpr, args: Values, active: int | None) -> tuple[list[Ids], bool]:
        """The results of one side of a `cond`, and whether they need any new node."""
        node_count, written, around = len(self.graph.nodes), len(self.written), self.active
        self.active = active
        outs = self.read(side, args)
        self.active = around
        arrays = arrays_of(self.graph, outs, "`cond` with a loop that has stacked outputs")
        if len(self.written) > written:
            raise UnsupportedError("`cond` with a loop that writes rows")
        return arrays, any(node.op != "const" for node in self.graph.nodes[node_count:])

    def _inlined(self, closed: ClosedJaxpr, args: Values, is_repeated: bool = False) -> list[Value]:
        """Add a function, which is read on its own if other uses of it are likely."""
        size = size_of(closed.jaxpr)
        is_once = size is not None if is_repeated else size in CALL_READ_ONCE
        arrays = [x for x in args if isinstance(x, np.ndarray)]
        if not is_once or len(arrays) < len(args):
            return self.read(closed, args)
        arrays = [*self._constants(closed), *arrays]
        # The zeros in its arguments shorten a function, but those of an unrolled loop change.
        constants = () if is_repeated else self.graph.constants(flat(arrays))
        function = function_of(closed.jaxpr, constants, JaxprReader.alone)
        added = None if function is None else function.added(self.graph, arrays)
        return self.read(closed, args) if added is None else list(added)

    def _scan(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        body, fixed, carries = loop_content(eqn)
        length, sequences = eqn.params["length"], values[fixed + carries :]
        if length > LONGEST_UNROLLED or not all(isinstance(x, np.ndarray) for x in sequences):
            return self.kept_loop(eqn, values)
        if length > 1 and holds_loop(body.jaxpr):
            loop = self._attempted(self.kept_loop, eqn, values)
            if loop is not None:
                return loop
        return self._unrolled(eqn, values)

    def _unrolled(self, eqn: JaxprEqn, values: list[Value], is_forced: bool = False) -> list[Value]:
        closed, fixed, carries = loop_content(eqn)
        consts, carry, scanned = values[:fixed], values[fixed:][:carries], values[fixed + carries :]
        length, order = eqn.params["length"], -1 if eqn.params["reverse"] else 1
        node_count, mark, stacked = len(self.graph.nodes), self._mark(), list[list[Ids]]()
        for k in range(length)[::order]:
            elements = [np.asarray(x[k]) for x in scanned if isinstance(x, np.ndarray)]
            outs = self._inlined(closed, [*consts, *carry, *elements], length > 1)
            carry = outs[:carries]
            stacked.append(arrays_of(self.graph, outs[carries:], _STACKED_IN_LOOP))
            # The first iteration shows how large all of them would be.
            size = (len(self.graph.nodes) - node_count) * length
            if length > 1 == len(stacked) and size > LARGEST_UNROLLED and not is_forced:
                # What was read must not stay: products with zero in it would count as unsafe.
                self._drop_since(mark)
                loop = self._attempted(self.kept_loop, eqn, values)
                return self._unrolled(eqn, values, is_forced=True) if loop is None else loop
        if length == 0:
            return [*carry, *(np.zeros((0, *x.shape), int) for x in closed.out_avals[carries:])]
        return [*carry, *(np.stack(column[::order]) for column in zip(*stacked, strict=True))]

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

    def kept_loop(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        """Add a loop that is not unrolled; return its final carry and its stacked outputs."""
        if eqn.primitive.name == "while":
            return self._while(eqn, values)
        closed, first, carries = loop_content(eqn)
        second, length = first + carries, eqn.params["length"]
        fixed = self._in_memory(values[:first], _SEQUENCE_IN_LOOP)
        start, rows = self._without_rows(values[first:second], _SEQUENCE_IN_LOOP)
        carried = [x for k, x in enumerate(closed.in_avals[first:second]) if k not in rows]
        inside = JaxprReader(Graph(self.graph), self.active)
        pairs = zip(values[second:], closed.in_avals[second:], strict=True)
        sequences = [scanned_value(split(self.graph, x), aval) for x, aval in pairs]
        outer = captured(inside.graph, fixed)
        elements = [_elements(inside.graph, k, s) for k, s in enumerate(sequences)]
        carry = with_rows(leaves(inside.graph, "carry", carried), rows)
        ends = inside._ends(inside.read(closed, [*outer, *carry, *elements]), rows)
        number = len(self.loops)
        self.loops.append(
            Loop(
                body=inside.graph,
                inner=inside.loops,
                init=flat(start),
                carry=flat(ends[: len(start)]),
                scanned=sequences,
                stacked=ends[len(start) :],
                length=length,
                reverse=eqn.params["reverse"],
                position=len(self.graph.nodes),
                active=self.active,
                written=inside.written,
            )
        )
        results = leaves(self.graph, "result", carried, number)
        avals = closed.out_avals[carries:]
        return [
            *with_rows(results, rows),
            *(Stacked(number, k, length, a.shape, a.dtype) for k, a in enumerate(avals)),
        ]

    def _while(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        """Add a `while` loop, which carries whether the lane is active; return its final carry."""
        (condition, first), (body, second, _) = loop_condition(eqn), loop_content(eqn)
        fixed = self._in_memory(values[:second], _SEQUENCE_IN_LOOP)
        init, rows = self._without_rows(values[second:], _SEQUENCE_IN_LOOP)
        goes_on = self._holds(condition, [*fixed[:first], *values[second:]])
        if self.graph.values[goes_on] is not None and not self.graph.values[goes_on]:
            return values[second:]
        # What only a rare loop needs is not computed before it.
        inside = JaxprReader(Graph(self.graph, is_rare=runs_once(eqn)), self.active)
        outer = captured(inside.graph, fixed)
        avals = [x for k, x in enumerate(body.in_avals[second - first :]) if k not in rows]
        avals = [condition.out_avals[0], *avals]
        running, *carry = leaves(inside.graph, "carry", avals)
        inside.active = int(running)
        outs = inside.read(body, [*outer[first:], *with_rows(carry, rows)])
        new = inside._ends(outs, rows)
        goes_on_after = inside._holds(condition, [*outer[:first], *outs])
        ends = inside._where_active(carry, new)
        results = self._loop_without_length(
            inside, [goes_on, *flat(init)], [goes_on_after, *flat(ends)], avals
        )
        return with_rows(results, rows)

    def _loop_without_length(
        self, inside: "JaxprReader", init: list[int], carry: list[int], avals: Sequence[Any],
        is_usual: bool = False,
    ) -> list[Ids]:  # fmt: skip
        """Add a loop that runs while the first number of its carry holds; return the others."""
        loop = Loop(
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
        self.loops.append(loop)
        return leaves(self.graph, "result", avals, len(self.loops) - 1)[1:]

    def _holds(self, condition: ClosedJaxpr, args: Values) -> int:
        (holds,) = self.read(condition, args)
        assert isinstance(holds, np.ndarray)
        return self._and_active(int(holds))

    def _and_active(self, holds: int) -> int:
        return holds if self.active is None else folded(self.graph, "and", self.active, holds)

    def _where_active(self, old: list[Ids], new: list[Ids]) -> list[Ids]:
        """The new numbers of a carry where the lane is active, the old ones elsewhere."""
        assert self.active is not None
        pairs = zip(old, new, strict=True)
        return [self._selected("select_n", (), self.active, *pair) for pair in pairs]

    def _selected(self, op: str, params: Any, condition: int, no: Ids, yes: Ids) -> Ids:
        """Add the choice of one of two arrays by a condition."""
        pairs = zip(no.ravel(), yes.ravel(), strict=True)
        ids = [folded(self.graph, op, condition, int(a), int(b), params=params) for a, b in pairs]
        return np.array(ids, np.int64).reshape(no.shape)

    def _in_memory(self, values: Values, otherwise: str) -> list[Value]:
        """The values as arrays, except those that are rows in memory."""
        stay = (Rows, ArgumentRows)
        return [
            x if isinstance(x, stay) else arrays_of(self.graph, [x], otherwise)[0] for x in values
        ]

    def _without_rows(self, values: Values, otherwise: str) -> tuple[list[Ids], dict[int, Rows]]:
        """The values that are arrays, and the rows by index."""
        rows = {k: x for k, x in enumerate(values) if isinstance(x, Rows)}
        others = [x for k, x in enumerate(values) if k not in rows]
        return arrays_of(self.graph, others, otherwise), rows

    def _ends(self, outs: Values, rows: dict[int, Rows]) -> list[Ids]:
        """The results of the body of a loop except the rows, which must be the same as before."""
        arrays, rows_after = self._without_rows(outs, _STACKED_IN_LOOP)
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
