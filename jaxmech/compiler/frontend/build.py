"""A function or a loop of one trajectory as a scalar graph, with the arrays that go in and out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from jaxmech.compiler.frontend.from_jaxpr import JaxprReader
from jaxmech.compiler.frontend.jaxprs import loop_content
from jaxmech.compiler.ir.liveness import Needs, most_carried, needed, operations
from jaxmech.compiler.ir.loops import Given, Saved, UnsupportedError, Value
from jaxmech.compiler.optimize.fold_zeros import hidden
from jaxmech.utils.digests import jaxpr_digest

MOST_READINGS = 4  # of one program


class Reading:
    """A function of one trajectory, read into a scalar graph when that is asked for.

    Args:
        closed: the function.
        read: reads it into the graph of a reader, and gives its results.
    """

    def __init__(self, closed: ClosedJaxpr, read: Callable[[JaxprReader], list[Value]]) -> None:
        self.closed, self._read = closed, read

    @cached_property
    def digest(self) -> str:
        """What is computed, in short."""
        return jaxpr_digest(self.closed)

    @cached_property
    def settled(self) -> tuple[JaxprReader, list[Value]]:
        """The graph and the results, read anew until no folded zero hides a non-finite number."""
        watched = frozenset[int]()
        for _ in range(MOST_READINGS):
            reader = JaxprReader(watched=watched)
            outs = self._read(reader)
            found = hidden(reader.graph, reader.loops, _needs(reader, outs), outs)
            if not found:
                return reader, outs
            watched |= found
        raise UnsupportedError("a product with zero that may be NaN")


@dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """What a batch computes of a function, with the arrays that go in and come out.

    Attributes:
        reading: the function.
        sequences: which of its arguments are sequences, read by a loop.
        results: which of its results are computed.
        programs: native code made of it, by the kind of batch.
    """

    reading: Reading
    sequences: range
    results: tuple[int, ...]
    programs: dict[Any, Any] = field(default_factory=dict)

    @property
    def avals(self) -> Sequence[Any]:
        """Shapes and types of the arguments of one trajectory."""
        return self.reading.closed.in_avals

    @property
    def out_avals(self) -> Sequence[Any]:
        """Shapes and types of the results of one trajectory."""
        return [self.reading.closed.out_avals[k] for k in self.results]

    def restricted(self, used: Sequence[bool]) -> "Kernel":
        """The kernel that computes some of the results."""
        results = tuple(k for k, is_used in zip(self.results, used, strict=True) if is_used)
        return Kernel(self.reading, self.sequences, results)

    @property
    def reader(self) -> JaxprReader:
        """Holds the graph."""
        return self.reading.settled[0]

    @property
    def outs(self) -> list[Value]:
        """The results in the graph."""
        return [self.reading.settled[1][k] for k in self.results]

    @cached_property
    def needs(self) -> Needs:
        """What of the graph has to be computed."""
        return _needs(self.reader, self.outs)

    @cached_property
    def hidden(self) -> set[int]:
        """Where numbers begin that a folded zero would hide."""
        return hidden(self.reader.graph, self.reader.loops, self.needs, self.outs)

    @cached_property
    def operations(self) -> int:
        """Number of operations, each of the body of a loop counted once."""
        return operations(self.reader.graph, self.reader.loops, self.needs)

    @cached_property
    def most_carried(self) -> int:
        """The largest number of values that one of its loops carries."""
        return most_carried(self.reader.loops, self.needs)


def _needs(reader: JaxprReader, outs: Sequence[Value]) -> Needs:
    scalars = [int(i) for out in outs if isinstance(out, np.ndarray) for i in out.ravel()]
    saved = [out for out in outs if isinstance(out, Saved)]
    return needed(reader.graph, reader.loops, scalars, saved)


def loop_kernel(
    eqn: JaxprEqn, leading: Sequence[JaxprEqn] = (), wanted: Sequence[Var] = ()
) -> tuple[Kernel, list[Var]]:
    """The kernel of a `scan`, and of equations that lead to its constants and its initial carry.

    Args:
        eqn: the loop.
        leading: those equations, in order.
        wanted: what they compute that the kernel should give as well, after what the loop gives.

    Returns:
        The kernel, and the variables that are its arguments; the sequences of the loop follow.
    """
    _, fixed, carries = loop_content(eqn)
    first = fixed + carries
    inner = {var for one in leading for var in one.outvars}
    atoms = [*chain(*(one.invars for one in leading)), *eqn.invars[:first]]
    given = [atom for atom in atoms if not isinstance(atom, Literal) and atom not in inner]
    args = list(dict.fromkeys(given))
    sequences = [atom for atom in eqn.invars[first:] if not isinstance(atom, Literal)]
    whole = Jaxpr((), [*args, *sequences], [*eqn.outvars, *wanted], [*leading, eqn])

    def read(reader: JaxprReader) -> list[Value]:
        return _read_loop(reader, eqn, leading, wanted, args)

    reading = Reading(ClosedJaxpr(whole, ()), read)
    places = range(len(args), len(args) + len(sequences))
    return Kernel(reading, places, tuple(range(len(whole.outvars)))), args


def _read_loop(
    reader: JaxprReader,
    eqn: JaxprEqn,
    leading: Sequence[JaxprEqn],
    wanted: Sequence[Var],
    args: Sequence[Var],
) -> list[Value]:
    p = eqn.params
    body, fixed, carries = loop_content(eqn)
    first = fixed + carries
    env: dict[Any, Value] = dict(zip(args, reader.inputs([var.aval for var in args]), strict=True))
    reader.equations(leading, env)
    values = [reader.value(atom, env) for atom in eqn.invars[:first]]
    reads = [
        Given(k, p["length"], aval.shape, aval.dtype)
        for k, aval in enumerate(body.in_avals[first:])
    ]
    outs = reader.loop(body, values[:fixed], values[fixed:], reads, p["length"], p["reverse"])
    return outs + [env[var] for var in wanted]


def function_kernel(closed: ClosedJaxpr) -> Kernel:
    """The kernel of a whole function of small arrays."""

    def read(reader: JaxprReader) -> list[Value]:
        outs = reader.read(closed, reader.inputs(closed.in_avals))
        if any(isinstance(out, Given) for out in outs):
            raise UnsupportedError("a sequence that passes through")
        return outs

    return Kernel(Reading(closed, read), range(0), tuple(range(len(closed.out_avals))))
