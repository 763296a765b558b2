"""The scalar graph: one node for every distinct number that a function computes.

Nodes are in topological order: the inputs of a node have smaller numbers than the node. Equal nodes
are shared, and loop-invariant nodes are hoisted into the graph around the loop.

Leaves are `const`, `input` (of the whole function), `carry` and `element` (of a loop, in the graph
of its body), `capture` (a node of the graph around the loop), `result` (of a loop) and `saved` (one
number of a stacked output of a loop).

A `branch` is a select whose last input belongs to a rare case. Its inputs are the condition, the
usual value and the rare value; branches of the same `cond` share a number. Nodes that only the rare
values depend on are skipped unless the condition holds in some lane.

The fingerprint of a node says what it computes, as a number that does not depend on folding. That
of a sum, product or quotient is that of the fingerprints of its inputs modulo a prime, with random
numbers for leaves and other operations. So x and x + 0 y have the same one, however the program is
read: an origin of NaN that has been found once is found again when products with zero before it are
computed.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntFlag
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

INVARIANT = {"capture", "const"}  # kinds of leaves that are the same in all iterations
# Unique over all graphs, because a branch can be hoisted from a loop into the graph around it.
BRANCH_NUMBERS = count()
PRIME = 2**61 - 1
_ZERO_AT_ZERO = frozenset((
    "abs", "sin", "tan", "tanh", "asin", "atan", "sinh", "asinh", "atanh", "sqrt", "cbrt", "sign",
    "floor", "ceil", "round", "expm1", "log1p", "convert_element_type",
))  # fmt: skip


class Origins(IntFlag):
    """Where a NaN or an infinity may come from that a folded zero must not hide."""

    NOWHERE = 0  # it may hide any
    OPERATIONS = 1  # all arguments are finite
    ANYWHERE = 2


class Node(NamedTuple):
    """A scalar: its operation or kind of leaf, the numbers of its inputs, parameters and type."""

    op: str
    inputs: tuple[int, ...]
    params: Any
    dtype: np.dtype


class Graph:
    """Scalars and the operations that compute them.

    Attributes:
        nodes: the nodes in topological order.
        values: the value of each constant as a numpy scalar, None for other nodes.
        outer: the graph around the loop whose body this is.
        requested: number of operations before folding and sharing.
        fingerprints: of each node, a number that is the same when the program is read again.
        unsafe_origins: fingerprints of nodes whose NaN a folded zero would hide (`fold_zeros`), of
            either kind.
        unsafe: the kinds of those that a node is, or depends on.
        origins: what a folded zero must not hide in the part that is being read.
        zeros: folded products and quotients of zero, as the operation and the other operand, with
            what they must not hide.
        folded: memo from requested operations to the resulting nodes.
        zero_constants: the constants that are zero, of all types and signs.
        arrays: memo of arrays of constants, by their bytes, type and shape.
        depth: number of graphs around it.
        hoists: whether what is the same in all iterations is computed in the graph around.
    """

    def __init__(
        self, outer: "Graph | None" = None, origins: Origins = Origins.ANYWHERE,
        unsafe_origins: Mapping[int, Origins] = MappingProxyType({}), is_rare: bool = False,
    ) -> None:  # fmt: skip
        self.nodes: list[Node] = []
        self.values: list[Any] = []
        self.outer = outer
        self.hoists = outer is not None and not is_rare
        self.requested = 0
        self.fingerprints: list[int] = []
        self.unsafe_origins: Mapping[int, Origins] = (
            unsafe_origins if outer is None else outer.unsafe_origins
        )
        self.unsafe: list[int] = []
        self.origins: Origins = origins if outer is None else outer.origins
        self.zeros: dict[tuple[str, int], Origins] = {}
        self.folded: dict[tuple[str, tuple[int, ...], Any], int] = {}
        self.arrays: dict[tuple[bytes, np.dtype, tuple[int, ...]], np.ndarray] = {}
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.zero_constants: list[int] = []
        self._numbers: dict[Node, int] = {}
        self._constants: dict[tuple[bytes, np.dtype], int] = {}

    def add(self, op: str, inputs: tuple[int, ...], params: Any, dtype: Any) -> int:
        """Return the number of a node, which is added unless an equal one exists."""
        node = Node(op, inputs, params, np.dtype(dtype))
        number = self._numbers.get(node)
        if number is None:
            if self.hoists and self._is_invariant(inputs):
                return self._hoist(node)
            number = self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
            self.values.append(None)
            self._annotate(node)
        return number

    def find(self, node: Node) -> int | None:
        """The number of a node, or None if it does not exist."""
        return self._numbers.get(node)

    def const(self, value: Any, dtype: Any) -> int:
        """Add a constant, keyed by its bytes, which distinguish 0.0 from -0.0 and equate NaNs."""
        scalar = np.asarray(value, dtype)[()]
        key = scalar.tobytes(), scalar.dtype
        number = self._constants.get(key)
        if number is None:
            number = self._constants[key] = self.add("const", (), key[0], dtype)
            self.values[number] = scalar
            if scalar == 0:
                self.zero_constants.append(number)
        return number

    def constants(self, numbers: Iterable[int]) -> tuple[tuple[int, bytes], ...]:
        """The constants among nodes: their positions and their bytes."""
        pairs = ((k, self.values[i]) for k, i in enumerate(numbers))
        return tuple((k, value.tobytes()) for k, value in pairs if value is not None)

    def capture(self, number: int) -> int:
        """Add a leaf that stands for a node of the graph around the loop."""
        assert self.outer is not None
        if self.outer.values[number] is not None:
            return self.const(self.outer.values[number], self.outer.nodes[number].dtype)
        return self.add("capture", (), number, self.outer.nodes[number].dtype)

    @contextmanager
    def hiding(self, origins: Origins) -> Iterator[None]:
        """Read a function in which a folded zero must not hide what comes from these origins."""
        if origins >= self.origins:
            yield
            return
        # What is folded here may not be folded elsewhere.
        around, self.folded, self.origins = (self.folded, self.origins), {}, origins
        try:
            yield
        finally:  # an attempt to read a loop may fail, and another form of it is read
            self.folded, self.origins = around

    def add_zeros(self, zeros: Iterable[tuple[str, int]]) -> None:
        """Note folded products and quotients of zero, for the search of what they may hide."""
        if self.origins:
            for zero in zeros:
                if self.nodes[zero[1]].dtype.kind == "f":
                    self.zeros[zero] = max(self.origins, self.zeros.get(zero, Origins.NOWHERE))

    def is_exposed(self, number: int) -> bool:
        """Whether a product of a node with zero must be computed."""
        return bool(self.unsafe[number] & self.origins)

    def mark(self) -> list[tuple[int, ...]]:
        """The sizes of this graph and of those around it, to which `drop_since` returns."""
        around = [] if self.outer is None else self.outer.mark()
        return [(self.requested, *map(len, self._grown())), *around]

    def drop_since(self, mark: list[tuple[int, ...]]) -> None:
        """Drop all that was added since a mark, here and in the graphs around."""
        (self.requested, *sizes), *around = mark
        for grown, size in zip(self._grown(), sizes, strict=True):
            if isinstance(grown, list):
                del grown[size:]
                continue
            while len(grown) > size:
                grown.popitem()
        if self.outer is not None:
            self.outer.drop_since(around)

    def _grown(self) -> tuple[Any, ...]:
        lists = self.nodes, self.values, self.fingerprints, self.unsafe, self.zero_constants
        return (*lists, self.zeros, self.folded, self.arrays, self._numbers, self._constants)

    def _annotate(self, node: Node) -> None:
        if node.op == "capture":
            assert self.outer is not None
            self.fingerprints.append(self.outer.fingerprints[node.params])
            self.unsafe.append(self.outer.unsafe[node.params])
            return
        fingerprint = self._fingerprint(node)
        self.fingerprints.append(fingerprint)
        # An operation may be equal to a constant, but a finite constant is no origin.
        is_known = node.op == "const" and np.isfinite(np.frombuffer(node.params, node.dtype)[0])
        unsafe = 0 if is_known else int(self.unsafe_origins.get(fingerprint, 0))
        for i in node.inputs:
            if self.unsafe[i] and not self._is_finite_where_used(i, node):
                unsafe |= self.unsafe[i]
        self.unsafe.append(unsafe if node.dtype.kind == "f" else 0)

    def _fingerprint(self, node: Node) -> int:
        if node.op == "const":
            value = np.frombuffer(node.params, node.dtype)[0]
            if not np.isfinite(value):
                return hash(value.tobytes()) % PRIME
            numerator, denominator = value.item().as_integer_ratio()
            return int(numerator * pow(denominator, -1, PRIME) % PRIME)
        if not node.inputs:
            return hash((node.op, node.params, self.depth)) % PRIME
        op, inputs = node.op, [self.fingerprints[i] for i in node.inputs]
        if op in ("add", "add_any"):
            return sum(inputs) % PRIME
        if op == "sub":
            return (inputs[0] - inputs[1]) % PRIME
        if op == "neg":
            return -inputs[0] % PRIME
        if op == "mul":
            return inputs[0] * inputs[1] % PRIME
        if op == "div" and inputs[1] and node.dtype.kind == "f":
            return inputs[0] * pow(inputs[1], -1, PRIME) % PRIME
        if op in ("select_n", "branch") and len(set(inputs[1:])) == 1:
            return inputs[1]
        if op in _ZERO_AT_ZERO and not any(inputs):
            return 0
        # Sorted, because folding may order the inputs differently when the program is read again;
        # without the number of a branch, which is a global counter.
        return hash((op, op != "branch" and node.params, *sorted(inputs))) % PRIME

    def _is_finite_where_used(self, number: int, node: Node) -> bool:
        """Whether a node is a select that takes a number only where that is finite."""
        if node.op != "select_n" or number != node.inputs[-1]:
            return False
        selector = self.nodes[node.inputs[0]]
        return selector.op == "is_finite" and selector.inputs == (number,)

    def _is_invariant(self, inputs: tuple[int, ...]) -> bool:
        # Operations on constants alone have been folded, so one input is a capture.
        ops = [self.nodes[i].op for i in inputs]
        return "capture" in ops and all(op in INVARIANT for op in ops)

    def _hoist(self, node: Node) -> int:
        """Compute a loop-invariant operation in the graph around the loop."""
        assert self.outer is not None
        inputs = []
        for i in node.inputs:
            op, _, params, dtype = self.nodes[i]
            outer = int(params) if op == "capture" else self.outer.const(self.values[i], dtype)
            inputs.append(outer)
        return self.capture(self.outer.add(node.op, tuple(inputs), node.params, node.dtype))
