"""Translation of a jaxpr to a scalar graph.

An array is read as a numpy array of node numbers, and loops by `loop_reader`. A `cond` becomes a
select, or a branch if one of its sides computes nothing; long sides become loops that run at most
once. Calls are inlined. The body of an unrolled loop, and a call of some length, is read once
(`scalar_function`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxmech.compiler.frontend.indexing import empty_rows, reads_row, row_place, row_read
from jaxmech.compiler.frontend.jaxprs import (
    call_content,
    holds_loop,
    is_apart,
    is_long,
    require_native,
    size_of,
    takes_finite,
)
from jaxmech.compiler.frontend.loop_reader import AbstractLoopReader, Values
from jaxmech.compiler.frontend.primitives import PRIMITIVES, constant
from jaxmech.compiler.frontend.scalar_function import function_of
from jaxmech.compiler.ir.graph import BRANCH_NUMBERS, Graph, Origins
from jaxmech.compiler.ir.loops import (
    LARGEST_ARRAY,
    ArgumentRows,
    Ids,
    Rows,
    UnsupportedError,
    Value,
    WrittenRow,
    arrays_of,
    captured,
    dtype_of,
    flat,
    leaves,
    native_dtype,
)
from jaxmech.compiler.optimize.fold import folded
from jaxmech.utils.jax_internals import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, ShapedArray

LARGEST_GRAPH = 1_000_000  # nodes of one graph
# Equations of a call that is read on its own: a shorter one is read as fast as it is added, and a
# longer one is rarely used again.
CALL_READ_ONCE = range(30, 1000)

_COND_OF_ROWS = "`cond` of a whole sequence"
_IDENTITIES = {"stop_gradient", "copy", "copy_p", "optimization_barrier"}


class JaxprReader(AbstractLoopReader):
    """Reads jaxprs into one graph."""

    def __init__(self, graph: Graph, active: int | None = None) -> None:
        super().__init__(graph, active)
        self.structured: dict[str, Callable[[JaxprEqn, list[Value]], list[Value]]] = {
            "scan": self.scan,
            "while": self.while_loop,
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
            operands = self.without_sequences(values, _COND_OF_ROWS)
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
            return [self.selected("select_n", (), holds, *pair) for pair in pairs]
        number, pairs = next(BRANCH_NUMBERS), zip(usual, rare, strict=True)
        return [self.selected("branch", number, holds, *pair) for pair in pairs]

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
        if self.active is not None:
            holds = folded(self.graph, "and", self.active, holds)
        inside = JaxprReader(Graph(self.graph, is_rare=True), self.active)
        outer = captured(inside.graph, self.without_sequences(operands, _COND_OF_ROWS))
        flag = ShapedArray((), np.dtype(bool))
        running, *carry = leaves(inside.graph, "carry", [flag, *closed.out_avals])
        inside.active = int(running)
        outs = inside.ends_of(inside.read(closed, outer), {})
        if inside.written:
            raise UnsupportedError("`cond` with a loop that writes rows")
        ends = [
            inside.selected("select_n", (), inside.active, old, x)
            for old, x in zip(carry, outs, strict=True)
        ]
        return self.added_while(
            inside, [holds, *flat(otherwise)],
            [inside.graph.const(False, np.dtype(bool)), *flat(ends)], [flag, *closed.out_avals],
            is_usual,
        )  # fmt: skip

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
