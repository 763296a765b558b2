"""Translation of a jaxpr to a scalar graph.

An array is read as a numpy array of node numbers. A short loop is unrolled, unless it is large or
contains another loop; a long one becomes a `Loop` with a graph of its own, and so does a `while`. A
`cond` becomes a select, or a branch if one of its sides computes nothing; long sides become loops
that run at most once. Calls are inlined. The body of an unrolled loop, and a call of some length,
is read once (`scalar_function`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxmech.compiler.frontend.indexing import empty_rows, reads_row, row_place, row_read
from jaxmech.compiler.frontend.jaxprs import (
    LONGEST_UNROLLED,
    call_content,
    holds_loop,
    is_apart,
    is_long,
    loop_condition,
    loop_content,
    require_native,
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

LARGEST_UNROLLED = 50_000  # nodes of all iterations; a larger number compiles slowly
LARGEST_GRAPH = 1_000_000  # nodes of one graph
# Equations of a call that is read on its own: a shorter one is read as fast as it is added, and a
# longer one is rarely used again.
CALL_READ_ONCE = range(30, 1000)

Values = Sequence[Value]

_COND_OF_ROWS = "`cond` of a whole sequence"
_IDENTITIES = {"stop_gradient", "copy", "copy_p", "optimization_barrier"}


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
        self.structured: dict[str, Callable[[JaxprEqn, list[Value]], list[Value]]] = {
            "scan": self._scan,
            "while": self._while,
            "empty_rows": lambda eqn, _: [empty_rows(eqn)],
            "write_row": lambda eqn, values: [self._write(*values)],
        }

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
            starts = arrays_of(self.graph, values[1:2], "a position in a sequence")
            place = row_place(self.graph, eqn, starts)
            return [row_read(self.graph, eqn, table.first, place)]
        if name in PRIMITIVES:
            require_native((*eqn.invars, *eqn.outvars), f"`{name}`")
            arrays = arrays_of(self.graph, values, f"`{name}` of a whole sequence")
            return list(PRIMITIVES[name](self.graph, eqn, *arrays))
        if name in self.structured:
            return self.structured[name](eqn, values)
        if (content := call_content(eqn)) is not None:
            origins = Origins.OPERATIONS if takes_finite(eqn) else Origins.ANYWHERE
            with self.graph.hiding(origins):
                return self.inlined(content, values)
        if name in _IDENTITIES:
            return values
        if name == "cond":
            operands = self._without_sequences(values, _COND_OF_ROWS)
            return self._cond(eqn.params["branches"], operands)
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
        (no, no_works), (yes, yes_works) = (
            self._side(branch, operands, self._active_where(compare, int(index), zero, branch))
            for compare, branch in zip(("eq", "ne"), branches, strict=True)
        )
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
        pairs = list(zip(("eq", "ne"), branches, strict=True))
        short = [side for _, side in pairs if not is_long(side.jaxpr)]
        if short:
            outs = self._side(short[0], operands, self.active)[0]
        else:
            zeros = (np.zeros(x.shape, native_dtype(x.dtype)) for x in branches[0].out_avals)
            outs = [constant(self.graph, x) for x in zeros]
        for compare, side in pairs:
            if is_long(side.jaxpr):
                outs = self._once(side, folded(self.graph, compare, index, zero), operands, outs)
        return list(outs)

    def _once(
        self, closed: ClosedJaxpr, holds: int, operands: Values, otherwise: list[Ids]
    ) -> list[Ids]:
        """Add a loop that runs once where a condition holds; return its results."""
        if self.active is not None:
            holds = folded(self.graph, "and", self.active, holds)
        inside = JaxprReader(Graph(self.graph, is_rare=True), self.active)
        outer = captured(inside.graph, self._without_sequences(operands, _COND_OF_ROWS))
        flag = ShapedArray((), np.dtype(bool))
        running, *carry = leaves(inside.graph, "carry", [flag, *closed.out_avals])
        inside.active = int(running)
        outs = inside._ends(inside.read(closed, outer), {})
        if inside.written:
            raise UnsupportedError("`cond` with a loop that writes rows")
        ends = [
            inside._selected("select_n", (), inside.active, old, x)
            for old, x in zip(carry, outs, strict=True)
        ]
        return self._added_while(
            inside, [holds, *flat(otherwise)],
            [inside.graph.const(False, np.dtype(bool)), *flat(ends)], [flag, *closed.out_avals],
        )  # fmt: skip

    def _added_while(
        self, inside: "JaxprReader", init: list[int], carry: list[int], avals: Sequence[Any]
    ) -> list[Ids]:
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
            )
        )
        return leaves(self.graph, "result", avals, number)[1:]

    def _active_where(self, compare: str, index: int, zero: int, side: ClosedJaxpr) -> int | None:
        """The condition under which a side of a `cond` matters, if a loop in it needs to know."""
        if not holds_loop(side.jaxpr):
            return self.active
        holds = folded(self.graph, compare, index, zero)
        return holds if self.active is None else folded(self.graph, "and", self.active, holds)

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

    def _selected(self, op: str, params: Any, condition: int, no: Ids, yes: Ids) -> Ids:
        pairs = zip(no.ravel(), yes.ravel(), strict=True)
        ids = [folded(self.graph, op, condition, int(a), int(b), params=params) for a, b in pairs]
        return np.array(ids, np.int64).reshape(no.shape)

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

    def _scan(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
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
            return self._while(eqn, values)
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

    def inlined(self, closed: ClosedJaxpr, args: Values, is_repeated: bool = False) -> list[Value]:
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

    def _loop(
        self, closed: ClosedJaxpr, consts: Values, init: Values, scanned: Values, length: int,
        reverse: bool,
    ) -> list[Value]:  # fmt: skip
        """Add a loop that is not unrolled; return its final carry and its stacked outputs."""
        otherwise = "a whole sequence as a constant or a carry of a loop"
        fixed = self._without_sequences(consts, otherwise)
        start, rows = self._without_rows(init, otherwise)
        avals = closed.in_avals[len(consts) : len(consts) + len(init)]
        carried = [aval for k, aval in enumerate(avals) if k not in rows]
        inside = JaxprReader(Graph(self.graph), self.active)
        pairs = zip(scanned, closed.in_avals[len(consts) + len(init) :], strict=True)
        sequences = [scanned_value(split(self.graph, x), aval) for x, aval in pairs]
        outer = captured(inside.graph, fixed)
        elements = [_elements(inside.graph, k, s) for k, s in enumerate(sequences)]
        carry = with_rows(leaves(inside.graph, "carry", carried), rows)
        outs = inside.read(closed, [*outer, *carry, *elements])
        ends = inside._ends(outs, rows)
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

    def _while(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        """Add a `while` loop, which carries whether the lane is active; return its final carry."""
        otherwise = "a whole sequence as a constant or a carry of a loop"
        (condition, first), (body, second, _) = loop_condition(eqn), loop_content(eqn)
        fixed = self._without_sequences(values[:second], otherwise)
        init, rows = self._without_rows(values[second:], otherwise)
        goes_on = self._goes_on(condition, fixed[:first], values[second:], self.active)
        if self.graph.values[goes_on] is not None and not self.graph.values[goes_on]:
            return values[second:]
        inside = JaxprReader(Graph(self.graph), self.active)
        outer = captured(inside.graph, fixed)
        avals = [x for k, x in enumerate(body.in_avals[second - first :]) if k not in rows]
        running, *carry = leaves(inside.graph, "carry", [condition.out_avals[0], *avals])
        inside.active = int(running)
        outs = inside.read(body, [*outer[first:], *with_rows(carry, rows)])
        new = inside._ends(outs, rows)
        goes_on_after = inside._goes_on(condition, outer[:first], outs, inside.active)
        ends = [
            inside._selected("select_n", (), inside.active, old, x)
            for old, x in zip(carry, new, strict=True)
        ]
        start, end = [goes_on, *flat(init)], [goes_on_after, *flat(ends)]
        results = self._added_while(inside, start, end, [condition.out_avals[0], *avals])
        return with_rows(results, rows)

    def _goes_on(
        self, condition: ClosedJaxpr, consts: Values, carry: Values, active: int | None
    ) -> int:
        """The condition of a `while` loop for a carry, false where nothing depends on it."""
        (holds,) = self.read(condition, [*consts, *carry])
        assert isinstance(holds, np.ndarray)
        return int(holds) if active is None else folded(self.graph, "and", active, int(holds))

    def _without_sequences(self, values: Values, otherwise: str) -> list[Value]:
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

    def _ends(self, outs: Values, rows: dict[int, Rows]) -> list[Ids]:
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
