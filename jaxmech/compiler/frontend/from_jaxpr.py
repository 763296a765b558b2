"""Read a jaxpr into a scalar graph.

An array is read as a numpy array of node numbers. A short loop is unrolled, unless it is large or
contains another loop; a long one becomes a `Loop` with a graph of its own. A `cond` becomes a
select, or a branch if one of its sides computes nothing. Calls are inlined.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, count
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxmech.compiler.frontend.jaxprs import (
    LONGEST_UNROLLED,
    call_content,
    holds_loop,
    loop_content,
)
from jaxmech.compiler.frontend.primitives import PRIMITIVES, constant
from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.loops import (
    LARGEST_ARRAY,
    Ids,
    Loop,
    Scanned,
    SequenceOfNodes,
    Stacked,
    UnsupportedError,
    Value,
    dtype_of,
)
from jaxmech.compiler.optimize.fold import folded

LARGEST_UNROLLED = 60_000  # nodes of all iterations; more take long to compile
LARGEST_GRAPH = 200_000  # nodes of one graph
# Unique over all graphs, because a branch can be hoisted from a loop into the graph around it.
_BRANCH_NUMBERS = count()

Values = Sequence[Value]

_IDENTITIES = {"stop_gradient", "copy", "copy_p", "optimization_barrier"}


class JaxprReader:
    """Reads jaxprs into one graph.

    Attributes:
        graph: the scalars.
        loops: the loops among them.
    """

    def __init__(
        self, outer: Graph | None = None, unsafe_origins: frozenset[int] = frozenset()
    ) -> None:
        self.graph = Graph(outer, unsafe_origins)
        self.loops: list[Loop] = []

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
            outs = self._equation(eqn, [self.value(atom, env) for atom in eqn.invars])
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
        if any(np.size(v) > LARGEST_ARRAY for v in values if isinstance(v, np.ndarray)):
            raise UnsupportedError(f"an array of over {LARGEST_ARRAY} numbers")
        if name == "scan":
            return self._scan(eqn, values)
        content = call_content(eqn)
        if content is not None:
            return self.read(content, values)
        if name in _IDENTITIES:
            return values
        arrays = [v for v in values if isinstance(v, np.ndarray)]
        if len(arrays) < len(values):
            raise UnsupportedError(f"`{name}` of a whole sequence")
        if name == "cond":
            return self._cond(eqn.params["branches"], arrays)
        if name not in PRIMITIVES:
            raise UnsupportedError(f"the primitive `{name}`")
        return list(PRIMITIVES[name](self.graph, eqn, *arrays))

    def _cond(self, branches: Sequence[ClosedJaxpr], values: list[Ids]) -> list[Value]:
        """One side if the predicate is known; else both, joined by selects or a branch."""
        which, *rest = values
        known = self.graph.values[int(which)]
        if known is not None:
            return self.read(branches[int(np.clip(known, 0, len(branches) - 1))], rest)
        if len(branches) != 2:
            raise UnsupportedError("`switch` on a computed value")
        (no, no_works), (yes, yes_works) = (self._side(branch, rest) for branch in branches)
        usual, rare, compare = (yes, no, "eq") if no_works and not yes_works else (no, yes, "ne")
        zero = self.graph.const(0, self.graph.nodes[int(which)].dtype)
        holds = folded(self.graph, compare, int(which), zero)
        if no_works and yes_works:
            pairs = zip(no, yes, strict=True)
            return [self._selected("select_n", (), holds, *pair) for pair in pairs]
        number, pairs = next(_BRANCH_NUMBERS), zip(usual, rare, strict=True)
        return [self._selected("branch", number, holds, *pair) for pair in pairs]

    def _side(self, side: ClosedJaxpr, args: Values) -> tuple[list[Ids], bool]:
        """The results of one side of a `cond`, and whether they take any new node."""
        before = len(self.graph.nodes)
        outs = self.read(side, args)
        arrays = [out for out in outs if isinstance(out, np.ndarray)]
        if len(arrays) < len(outs):
            raise UnsupportedError("`cond` with a loop that saves a sequence")
        return arrays, any(node.op != "const" for node in self.graph.nodes[before:])

    def _selected(self, op: str, params: Any, which: int, no: Ids, yes: Ids) -> Ids:
        pairs = zip(no.ravel(), yes.ravel(), strict=True)
        ids = [folded(self.graph, op, which, int(a), int(b), params=params) for a, b in pairs]
        return np.array(ids, np.int64).reshape(no.shape)

    def _scan(self, eqn: JaxprEqn, values: list[Value]) -> list[Value]:
        p = eqn.params
        body, first, carries = loop_content(eqn)
        second = first + carries
        args = (
            body,
            values[:first],
            values[first:second],
            values[second:],
            p["length"],
            p["reverse"],
        )
        are_nodes = all(isinstance(x, np.ndarray) for x in values[second:])
        if p["length"] > LONGEST_UNROLLED or not are_nodes:
            return self.loop(*args)
        if p["length"] > 1 and holds_loop(body.jaxpr):
            with suppress(UnsupportedError):
                return self.loop(*args)
        return self._unrolled(*args)

    def _unrolled(
        self, closed: ClosedJaxpr, consts: Values, carry: Values, scanned: Values, length: int,
        reverse: bool,
    ) -> list[Value]:  # fmt: skip
        order, before = -1 if reverse else 1, len(self.graph.nodes)
        init, stacked = carry, list[list[Value]]()
        for k in range(length)[::order]:
            elements = [np.asarray(x[k]) for x in scanned if isinstance(x, np.ndarray)]
            outs = self.read(closed, [*consts, *carry, *elements])
            carry = outs[: len(carry)]
            stacked.append(outs[len(carry) :])
            # The first iteration tells how large all of them would be.
            if len(stacked) == 1 and (len(self.graph.nodes) - before) * length > LARGEST_UNROLLED:
                with suppress(UnsupportedError):
                    return self.loop(closed, consts, init, scanned, length, reverse)
        if not all(isinstance(x, np.ndarray) for x in chain(*stacked)):
            raise UnsupportedError("a loop inside of a loop that saves a sequence for the outside")
        return [*carry, *(np.stack(column[::order]) for column in zip(*stacked, strict=True))]

    def loop(
        self, closed: ClosedJaxpr, consts: Values, init: Values, scanned: Values, length: int,
        reverse: bool,
    ) -> list[Value]:  # fmt: skip
        """Add a loop that is not unrolled; return its final carry and its stacked outputs."""
        arrays = [v for v in (*consts, *init) if isinstance(v, np.ndarray)]
        if len(arrays) < len(consts) + len(init):
            raise UnsupportedError("a whole sequence as a constant or a carry of a loop")
        fixed, start = arrays[: len(consts)], arrays[len(consts) :]
        carried = closed.in_avals[len(consts) : len(arrays)]
        inside = JaxprReader(self.graph)
        pairs = zip(scanned, closed.in_avals[len(arrays) :], strict=True)
        sequences = [_sequence(x, aval) for x, aval in pairs]
        captured = [
            np.array([inside.graph.capture(int(i)) for i in c.ravel()], np.int64).reshape(c.shape)
            for c in fixed
        ]
        elements = [
            inside.leaves(
                "element", s.shape, s.dtype, [(k, i) for i in range(int(np.prod(s.shape)))]
            )
            for k, s in enumerate(sequences)
        ]
        outs = inside.read(closed, [*captured, *inside._numbered("carry", carried), *elements])
        ends = [out for out in outs if isinstance(out, np.ndarray)]
        if len(ends) < len(outs):
            raise UnsupportedError("a loop inside of a loop that saves a sequence for the outside")
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
        )
        number = len(self.loops)
        self.loops.append(loop)
        results = self._numbered("result", carried, number)
        avals = closed.out_avals[len(start) :]
        return [
            *results,
            *(Stacked(number, k, length, a.shape, a.dtype) for k, a in enumerate(avals)),
        ]

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
    return SequenceOfNodes(value, aval.dtype) if isinstance(value, np.ndarray) else value


def _flat(arrays: Sequence[Ids]) -> list[int]:
    return [int(i) for ids in arrays for i in ids.ravel()]
