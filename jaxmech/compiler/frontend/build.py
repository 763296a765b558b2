"""`Kernel`: a function or loop of one trajectory as a graph, with its arguments and results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from jaxtyping import Array

from jaxmech.compiler.frontend.from_jaxpr import JaxprReader
from jaxmech.compiler.frontend.jaxprs import equations_as_fun, loop_content
from jaxmech.compiler.frontend.primitives import constant
from jaxmech.compiler.ir.graph import Graph, Node, Origins
from jaxmech.compiler.ir.liveness import Live, live_nodes, most_carried, operations
from jaxmech.compiler.ir.loops import (
    LARGEST_SPLIT,
    Rows,
    SequenceInput,
    Stacked,
    UnsupportedError,
    Value,
    arguments,
    has_while,
    split,
)
from jaxmech.compiler.optimize.fold_zeros import unsafe_origins
from jaxmech.compiler.platforms import optimizes, origins_of_nan
from jaxmech.utils.digests import equations_digest, jaxpr_digest
from jaxmech.utils.jax_internals import ClosedJaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

MOST_READINGS = 20  # of one program; steps with slips in space on bodies that turn need over 8


class Reading:
    """A function of one trajectory, translated to a scalar graph on first use.

    Args:
        in_avals: shapes and types of its arguments.
        out_avals: those of its results.
        digest: returns a digest of the function.
        read: adds the function to the graph of a reader and returns its results.
        plain: the function itself, on arrays.

    Attributes:
        origins: what a folded zero must not hide.
    """

    def __init__(
        self,
        in_avals: Sequence[Any],
        out_avals: Sequence[Any],
        digest: Callable[[], str],
        read: Callable[[JaxprReader], list[Value]],
        plain: Callable[..., list[Array]],
    ) -> None:
        self.in_avals, self.out_avals, self.plain = in_avals, out_avals, plain
        self._digest, self._read = digest, read
        self.origins = origins_of_nan()

    @cached_property
    def digest(self) -> str:
        return self._digest()

    @cached_property
    def safe(self) -> tuple[JaxprReader, list[Value], Live]:
        """The graph, the results and what is live.

        It is read again until no folded zero hides a non-finite number.
        """
        unsafe = dict[int, Origins]()
        for _ in range(MOST_READINGS):
            reader = JaxprReader(Graph(None, self.origins, unsafe))
            outs = self._read(reader)
            live = _live(reader, outs)
            origins = unsafe_origins(reader.graph, reader.loops, live, outs)
            if not origins:
                return reader, outs, live
            for fingerprint, kinds in origins.items():
                unsafe[fingerprint] = kinds | unsafe.get(fingerprint, Origins.NOWHERE)
        raise UnsupportedError("a product with zero that may be NaN")


_READINGS = WeakValueDictionary[tuple[str, Origins], Reading]()


def _shared(*args: Any) -> Reading:
    """A reading, or an equal one that a program still uses, so that it is not read again."""
    reading = Reading(*args)
    return _READINGS.setdefault((reading.digest, reading.origins), reading)


@dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """The function that a batch computes, with its arguments and results.

    Attributes:
        reading: the function.
        sequences: range of the arguments that are scanned by a loop.
        results: indices of the computed results.
        is_optimized: whether its code may be optimized.
        programs: native code generated from it, by the kind of batch.
    """

    reading: Reading
    sequences: range
    results: tuple[int, ...]
    is_optimized: bool = field(default_factory=optimizes)
    programs: dict[Any, Any] = field(default_factory=dict)

    @property
    def avals(self) -> Sequence[Any]:
        """Shapes and types of the arguments of one trajectory."""
        return self.reading.in_avals

    @property
    def out_avals(self) -> Sequence[Any]:
        """Shapes and types of the results of one trajectory."""
        return [self.reading.out_avals[k] for k in self.results]

    def plain(self, *args: Array) -> list[Array]:
        """Compute the results for one trajectory with JAX."""
        outs = self.reading.plain(*args)
        return [outs[k] for k in self.results]

    def with_results(self, used_results: Sequence[bool]) -> "Kernel":
        """Return the kernel of the used results."""
        results = tuple(k for k, is_used in zip(self.results, used_results, strict=True) if is_used)
        return Kernel(self.reading, self.sequences, results, self.is_optimized)

    @property
    def reader(self) -> JaxprReader:
        return self.reading.safe[0]

    @property
    def outs(self) -> list[Value]:
        return [self.reading.safe[1][k] for k in self.results]

    @cached_property
    def splits_large(self) -> bool:
        """Whether a large argument is split into scalars, because not only rows of it are read."""
        first = np.cumsum([0, *(x.size for x in self.avals)]).tolist()
        large = [k for k, x in enumerate(self.avals) if x.size > LARGEST_SPLIT]
        nodes = (Node("input", (), first[k], np.dtype(self.avals[k].dtype)) for k in large)
        return any(self.reader.graph.find(node) is not None for node in nodes)

    @cached_property
    def live(self) -> Live:
        is_whole = len(self.results) == len(self.reading.out_avals)
        return self.reading.safe[2] if is_whole else _live(self.reader, self.outs)

    @cached_property
    def unsafe_origins(self) -> dict[int, Origins]:
        """Fingerprints of the nodes whose NaN a folded zero would hide."""
        return unsafe_origins(self.reader.graph, self.reader.loops, self.live, self.outs)

    @cached_property
    def operations(self) -> int:
        """The number of operations without rare cases, each loop body counted once."""
        return operations(self.reader.graph, self.reader.loops, self.live)

    @cached_property
    def written(self) -> int:
        """The number of operations with those of rare loops."""
        return operations(self.reader.graph, self.reader.loops, self.live, with_rare=True)

    @cached_property
    def executed(self) -> int:
        """The number of operations executed for a trajectory, without rare cases."""
        return operations(self.reader.graph, self.reader.loops, self.live, repeated=True)

    @cached_property
    def has_while(self) -> bool:
        """Whether the number of executed operations is unknown."""
        return has_while(self.reader.loops)

    @cached_property
    def most_carried(self) -> int:
        """The largest number of values that an innermost loop carries in registers."""
        return most_carried(self.reader.loops, self.live)


def _live(reader: JaxprReader, outs: Sequence[Value]) -> Live:
    scalars = [int(i) for out in outs if isinstance(out, np.ndarray) for i in out.ravel()]
    stacked = [out for out in outs if isinstance(out, Stacked)]
    rows = [out for out in outs if isinstance(out, Rows)]
    return live_nodes(reader.graph, reader.loops, scalars, stacked, rows)


def loop_kernel(
    eqn: JaxprEqn,
    prologue: Sequence[JaxprEqn] = (),
    epilogue: Sequence[JaxprEqn] = (),
    extra: Sequence[Var] = (),
    constants: Mapping[Var, np.ndarray] = MappingProxyType({}),
) -> tuple[Kernel, list[Var]]:
    """The kernel of a loop and of equations around it.

    Args:
        eqn: the loop.
        prologue: the equations that compute its constants and initial carry, in order.
        epilogue: equations that need its final carry, in order.
        extra: variables of both that are also results of the kernel, after the loop's own.
        constants: values of variables that are the same in all calls.

    Returns:
        The kernel, and the variables that are its arguments; the scanned arguments follow.
    """
    p = eqn.params
    body, fixed, carries = loop_content(eqn)
    first = fixed + carries
    beside = [*prologue, *epilogue]
    inner = {var for equation in (*beside, eqn) for var in equation.outvars}
    # The equations before the loop are compiled with it, so that its constants are folded into the
    # loop; without that LLVM needed 11 s instead of 4 s for a chain of 30 links.
    atoms = [*chain(*(equation.invars for equation in beside)), *eqn.invars[:first]]
    variables_read = [atom for atom in atoms if not isinstance(atom, Literal) and atom not in inner]
    variables = dict.fromkeys(variables_read)
    fixed_values = {var: constants[var] for var in variables if var in constants}
    args = [var for var in variables if var not in fixed_values]
    sequences = [atom for atom in eqn.invars[first:] if not isinstance(atom, Literal)]
    inputs, outputs = [*args, *sequences], [*eqn.outvars, *extra]
    around = [*prologue, eqn, *epilogue]
    scanned = [
        SequenceInput(k, p["length"], aval.shape, aval.dtype)
        for k, aval in enumerate(body.in_avals[first:])
    ]

    def read(reader: JaxprReader) -> list[Value]:
        nodes = arguments(reader.graph, [var.aval for var in args])
        env: dict[Any, Value] = dict(zip(args, nodes, strict=True))
        env |= {var: constant(reader.graph, value) for var, value in fixed_values.items()}
        reader.equations(prologue, env)
        values = [reader.value(atom, env) for atom in eqn.invars[:first]]
        outs = reader.kept_loop(eqn, [*values, *scanned])
        env.update(zip(eqn.outvars, outs, strict=True))
        reader.equations(epilogue, env)
        return outs + [split(reader.graph, env[var]) for var in extra]

    reading = _shared(
        [var.aval for var in inputs],
        [var.aval for var in outputs],
        lambda: equations_digest(inputs, around, outputs, fixed_values),
        read,
        equations_as_fun(inputs, around, outputs, fixed_values),
    )
    positions = range(len(args), len(args) + len(sequences))
    return Kernel(reading, positions, tuple(range(len(outputs)))), args


def function_kernel(closed: ClosedJaxpr) -> Kernel:
    """The kernel of a whole function of small arrays."""

    def read(reader: JaxprReader) -> list[Value]:
        outs = reader.read(closed, arguments(reader.graph, closed.in_avals))
        return [split(reader.graph, x) for x in outs]

    plain = jaxpr_as_fun(closed)
    reading = _shared(closed.in_avals, closed.out_avals, lambda: jaxpr_digest(closed), read, plain)
    return Kernel(reading, range(0), tuple(range(len(closed.out_avals))))
