"""Translation of a jaxpr to a scalar graph.

An array is read as a numpy array of node numbers. A short loop is unrolled, unless it is large or
contains another loop; a long one becomes a `Loop` with a graph of its own, and so does a `while`. A
`cond` becomes a select, or a branch if one of its sides computes nothing. Calls are inlined.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxmech.compiler.frontend.jaxprs import (
    LONGEST_UNROLLED,
    call_content,
    holds_loop,
    loop_condition,
    loop_content,
)
from jaxmech.compiler.frontend.primitives import PRIMITIVES, constant
from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.loops import (
    LARGEST_ARRAY,
    Ids,
    Loop,
    Rows,
    Scanned,
    SequenceOfNodes,
    Stacked,
    UnsupportedError,
    Value,
    WrittenRow,
    dtype_of,
)
from jaxmech.compiler.optimize.fold import folded

LARGEST_UNROLLED = 60_000  # nodes of all iterations; a larger number compiles slowly
LARGEST_GRAPH = 200_000  # nodes of one graph
LARGEST_STACKED = 1024  # numbers of a sequence that are read one by one
# Unique over all graphs, because a branch can be hoisted from a loop into the graph around it.
_BRANCH_NUMBERS = count()

Values = Sequence[Value]

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

    def __init__(
        self,
        outer: Graph | None = None,
        unsafe_origins: frozenset[int] = frozenset(),
        active: int | None = None,
    ) -> None:
        self.graph = Graph(outer, unsafe_origins)
        self.loops: list[Loop] = []
        self.written: list[WrittenRow] = []
        self.active: int | None = None if active is None else self.graph.capture(active)
        self.structured: dict[str, Callable[[JaxprEqn, list[Value]], list[Value]]] = {
            "scan": self._scan,
            "while": self._while,
            "empty_rows": _empty_rows,
            "write_row": lambda eqn, values: [self._write(*values)],
        }

    def leaves(self, op: str, shape: tuple[int, ...], dtype: Any, params: Sequence[Any]) -> Ids:
        """An array of leaves of one kind, with their parameters."""
        ids = [self.graph.add(op, (), p, dtype) for p in params]
        return np.array(ids, np.int64).reshape(shape)

    def inputs(self, avals: Sequence[Any]) -> list[Ids]:
        """Consecutive `input` leaves for arrays of these shapes and types."""
        return self._numbered("input", avals)

    def read(self, closed: ClosedJaxpr, args: Values) -> list[Value]:
        """Add the operations of a function to the graph, or raise an UnsupportedError."""
        consts = [c if isinstance(c, np.ndarray) else np.asarray(c) for c in closed.consts]
        env: dict[Any, Value] = {
            var: constant(self.graph, const)
            for var, const in zip(closed.jaxpr.constvars, consts, strict=True)
        }
        env.update(zip(closed.jaxpr.invars, args, strict=True))
        self.equations(closed.jaxpr.eqns, env)
        return [self.value(atom, env) for atom in closed.jaxpr.outvars]

    def equations(self, eqns: Sequence[JaxprEqn], env: dict[Any, Value]) -> None:
        """Add equations, reading and extending the values of variables in `env`."""
        for eqn in eqns:
            values = [
                self.value(atom, env) if isinstance(atom, Literal) else env[atom]
                for atom in eqn.invars
            ]
            outs = self._equation(eqn, values)
            env.update(zip(eqn.outvars, outs, strict=True))
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
        if name in PRIMITIVES:
            arrays = self._arrays(values, f"`{name}` of a whole sequence")
            return list(PRIMITIVES[name](self.graph, eqn, *arrays))
        if name in self.structured:
            return self.structured[name](eqn, values)
        if (content := call_content(eqn)) is not None:
            return self.read(content, values)
        if name in _IDENTITIES:
            return values
        if name == "cond":
            arrays = self._arrays(values, "`cond` of a whole sequence")
            return self._cond(eqn.params["branches"], arrays)
        raise UnsupportedError(f"the primitive `{name}`")

    def _write(self, rows: Value, place: Value, row: Value, when: Value) -> Rows:
        """Write a row in this iteration, if the lane is active and the index is in range."""
        if not isinstance(rows, Rows) or self.graph.outer is None:
            raise UnsupportedError("a row write outside of a loop")
        assert isinstance(place, np.ndarray)
        assert isinstance(when, np.ndarray)
        assert isinstance(row, np.ndarray)
        g, number, holds = self.graph, int(place), int(when)
        dtype = g.nodes[number].dtype
        inside = [
            folded(g, "ge", number, g.const(0, dtype)),
            folded(g, "lt", number, g.const(rows.count, dtype)),
        ]
        for other in (*inside, *([] if self.active is None else [self.active])):
            holds = folded(g, "and", holds, other)
        self.written.append(WrittenRow(rows, number, holds, row))
        return rows

    def _cond(self, branches: Sequence[ClosedJaxpr], values: list[Ids]) -> list[Value]:
        """Add one side if the predicate is known; else both, joined by selects or a branch."""
        which, *rest = values
        known = self.graph.values[int(which)]
        if known is not None:
            return self.read(branches[int(np.clip(known, 0, len(branches) - 1))], rest)
        if len(branches) != 2:
            raise UnsupportedError("`switch` on a computed index")
        zero = self.graph.const(0, self.graph.nodes[int(which)].dtype)
        (no, no_works), (yes, yes_works) = (
            self._side(branch, rest, self._active_where(compare, int(which), zero, branch))
            for compare, branch in zip(("eq", "ne"), branches, strict=True)
        )
        usual, rare, compare = (yes, no, "eq") if no_works and not yes_works else (no, yes, "ne")
        holds = folded(self.graph, compare, int(which), zero)
        if no_works and yes_works:
            pairs = zip(no, yes, strict=True)
            return [self._selected("select_n", (), holds, *pair) for pair in pairs]
        number, pairs = next(_BRANCH_NUMBERS), zip(usual, rare, strict=True)
        return [self._selected("branch", number, holds, *pair) for pair in pairs]

    def _active_where(self, compare: str, which: int, zero: int, side: ClosedJaxpr) -> int | None:
        """The condition under which a side of a `cond` matters, if a loop in it needs to know."""
        if not holds_loop(side.jaxpr):
            return self.active
        holds = folded(self.graph, compare, which, zero)
        return holds if self.active is None else folded(self.graph, "and", self.active, holds)

    def _side(self, side: ClosedJaxpr, args: Values, active: int | None) -> tuple[list[Ids], bool]:
        """The results of one side of a `cond`, and whether they need any new node."""
        before, around, written = len(self.graph.nodes), self.active, len(self.written)
        self.active = active
        try:
            outs = self.read(side, args)
        finally:
            self.active = around
        arrays = self._arrays(outs, "`cond` with a loop that has stacked outputs")
        if len(self.written) > written:
            raise UnsupportedError("`cond` with a loop that writes rows")
        return arrays, any(node.op != "const" for node in self.graph.nodes[before:])

    def _selected(self, op: str, params: Any, which: int, no: Ids, yes: Ids) -> Ids:
        pairs = zip(no.ravel(), yes.ravel(), strict=True)
        ids = [folded(self.graph, op, which, int(a), int(b), params=params) for a, b in pairs]
        return np.array(ids, np.int64).reshape(no.shape)

    def _scan(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        body, first, carries = loop_content(eqn)
        length, sequences = eqn.params["length"], values[first + carries :]
        are_nodes = all(isinstance(x, np.ndarray) for x in sequences)
        if length > LONGEST_UNROLLED or not are_nodes:
            return self.kept_loop(eqn, values)
        if length > 1 and holds_loop(body.jaxpr):
            with suppress(UnsupportedError):
                return self.kept_loop(eqn, values)
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
        reverse: bool,
    ) -> list[Value]:  # fmt: skip
        order, before = -1 if reverse else 1, len(self.graph.nodes)
        init, stacked = carry, list[list[Ids]]()
        for k in range(length)[::order]:
            elements = [np.asarray(x[k]) for x in scanned if isinstance(x, np.ndarray)]
            outs = self.read(closed, [*consts, *carry, *elements])
            carry = outs[: len(carry)]
            otherwise = "a nested loop whose stacked outputs are used outside of the outer loop"
            stacked.append(self._arrays(outs[len(carry) :], otherwise))
            # The first iteration shows how large all of them would be.
            if len(stacked) == 1 and (len(self.graph.nodes) - before) * length > LARGEST_UNROLLED:
                with suppress(UnsupportedError):
                    return self._loop(closed, consts, init, scanned, length, reverse)
        return [*carry, *(np.stack(column[::order]) for column in zip(*stacked, strict=True))]

    def _loop(
        self, closed: ClosedJaxpr, consts: Values, init: Values, scanned: Values, length: int,
        reverse: bool,
    ) -> list[Value]:  # fmt: skip
        """Add a loop that is not unrolled; return its final carry and its stacked outputs."""
        otherwise = "a whole sequence as a constant or a carry of a loop"
        fixed, (start, rows) = self._arrays(consts, otherwise), self._without_rows(init, otherwise)
        avals = closed.in_avals[len(consts) : len(consts) + len(init)]
        carried = [aval for k, aval in enumerate(avals) if k not in rows]
        inside = JaxprReader(self.graph, active=self.active)
        pairs = zip(scanned, closed.in_avals[len(consts) + len(init) :], strict=True)
        sequences = [_sequence(x, aval) for x, aval in pairs]
        captured = inside._captured(fixed)
        elements = [
            inside.leaves(
                "element", s.shape, s.dtype, [(k, i) for i in range(int(np.prod(s.shape)))]
            )
            for k, s in enumerate(sequences)
        ]
        carry = _with_rows(inside._numbered("carry", carried), rows)
        outs = inside.read(closed, [*captured, *carry, *elements])
        ends = inside._ends(outs, rows)
        loop = Loop(
            body=inside.graph,
            inner=inside.loops,
            init=_flat(start),
            carry=_flat(ends[: len(start)]),
            scanned=sequences,
            stacked=ends[len(start) :],
            length=length,
            reverse=reverse,
            place=len(self.graph.nodes),
            active=self.active,
            written=inside.written,
        )
        number = len(self.loops)
        self.loops.append(loop)
        results = self._numbered("result", carried, number)
        avals = closed.out_avals[len(init) :]
        return [
            *_with_rows(results, rows),
            *(Stacked(number, k, length, a.shape, a.dtype) for k, a in enumerate(avals)),
        ]

    def _captured(self, arrays: Sequence[Ids]) -> list[Ids]:
        """Capture arrays of the graph around the loop."""
        capture = self.graph.capture
        return [
            np.array([capture(int(i)) for i in x.ravel()], int).reshape(x.shape) for x in arrays
        ]

    def _while(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        """Add a `while` loop, which carries whether the lane is active; return its final carry."""
        otherwise = "a whole sequence as a constant or a carry of a loop"
        (condition, first), (body, second, _) = loop_condition(eqn), loop_content(eqn)
        arrays = self._arrays(values[:second], otherwise)
        init, rows = self._without_rows(values[second:], otherwise)
        goes_on = self._goes_on(condition, arrays[:first], values[second:], self.active)
        if self.graph.values[goes_on] is not None and not self.graph.values[goes_on]:
            return values[second:]
        inside = JaxprReader(self.graph, active=self.active)
        captured = inside._captured(arrays)
        avals = [x for k, x in enumerate(body.in_avals[second - first :]) if k not in rows]
        running, *carry = inside._numbered("carry", [condition.out_avals[0], *avals])
        inside.active = int(running)
        outs = inside.read(body, [*captured[first:], *_with_rows(carry, rows)])
        new = inside._ends(outs, rows)
        more = inside._goes_on(condition, captured[:first], outs, inside.active)
        ends = [
            inside._selected("select_n", (), inside.active, old, x)
            for old, x in zip(carry, new, strict=True)
        ]
        number = len(self.loops)
        self.loops.append(
            Loop(
                body=inside.graph,
                inner=inside.loops,
                init=[goes_on, *_flat(init)],
                carry=[more, *_flat(ends)],
                scanned=[],
                stacked=[],
                length=None,
                reverse=False,
                place=len(self.graph.nodes),
                written=inside.written,
            )
        )
        results = self._numbered("result", [condition.out_avals[0], *avals], number)[1:]
        return _with_rows(results, rows)

    def _goes_on(
        self, condition: ClosedJaxpr, consts: Values, carry: Values, active: int | None
    ) -> int:
        """The condition of a `while` loop for a carry, false where nothing depends on it."""
        (holds,) = self.read(condition, [*consts, *carry])
        assert isinstance(holds, np.ndarray)
        return int(holds) if active is None else folded(self.graph, "and", active, int(holds))

    def _arrays(self, values: Values, otherwise: str) -> list[Ids]:
        """The values as arrays; an UnsupportedError unless they are arrays or short sequences."""
        arrays = []
        for x in values:
            if isinstance(x, np.ndarray):
                arrays.append(x)
            elif isinstance(x, Stacked) and x.length * math.prod(x.shape) <= LARGEST_STACKED:
                places = np.ndindex(x.length, math.prod(x.shape))
                params = [(x.loop, x.number, *at) for at in places]
                arrays.append(self.leaves("saved", (x.length, *x.shape), x.dtype, params))
            else:
                raise UnsupportedError(otherwise)
        return arrays

    def _without_rows(self, values: Values, otherwise: str) -> tuple[list[Ids], dict[int, Rows]]:
        """The values that are arrays, and the rows by index."""
        rows = {k: x for k, x in enumerate(values) if isinstance(x, Rows)}
        arrays = self._arrays([x for k, x in enumerate(values) if k not in rows], otherwise)
        return arrays, rows

    def _ends(self, outs: Values, rows: dict[int, Rows]) -> list[Ids]:
        """The results of the body of a loop except the rows, which must be the same as before."""
        otherwise = "a nested loop whose stacked outputs are used outside of the outer loop"
        arrays, after = self._without_rows(outs, otherwise)
        if after != rows:
            raise UnsupportedError("an array of rows that changes its place in the carry of a loop")
        return arrays

    def _numbered(self, op: str, avals: Sequence[Any], loop: int | None = None) -> list[Ids]:
        arrays, count = [], 0
        for aval in avals:
            size = int(np.prod(aval.shape))
            if size > LARGEST_ARRAY:
                raise UnsupportedError(f"an array of over {LARGEST_ARRAY} numbers")
            places = range(count, count + size)
            params = list(places) if loop is None else [(loop, k) for k in places]
            arrays.append(self.leaves(op, aval.shape, aval.dtype, params))
            count += size
        return arrays


def _sequence(value: Value, aval: Any) -> Scanned:
    if isinstance(value, Rows):
        raise UnsupportedError("a loop that scans over written rows")
    return SequenceOfNodes(value, aval.dtype) if isinstance(value, np.ndarray) else value


def _empty_rows(eqn: JaxprEqn, values: list[Value]) -> list[Value]:
    count, *shape = eqn.params["shape"]
    return [Rows(count, tuple(shape), np.dtype(eqn.params["dtype"]))]


def _with_rows(arrays: Sequence[Ids], rows: dict[int, Rows]) -> list[Value]:
    """Insert rows at their indices among arrays."""
    rest = iter(arrays)
    return [rows[k] if k in rows else next(rest) for k in range(len(arrays) + len(rows))]


def _flat(arrays: Sequence[Ids]) -> list[int]:
    return [int(i) for ids in arrays for i in ids.ravel()]
