"""A function or a loop of one trajectory as a scalar graph, with the arrays that go in and out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from jaxmech.compiler.frontend.from_jaxpr import JaxprReader
from jaxmech.compiler.frontend.jaxprs import loop_content
from jaxmech.compiler.ir.liveness import Needs, most_carried, needed, operations
from jaxmech.compiler.ir.loops import Given, Saved, UnsupportedError, Value
from jaxmech.compiler.optimize.fold_zeros import hidden

MOST_READINGS = 4  # of one program


@dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """A scalar graph with the arrays that go in and come out.

    Attributes:
        reader: holds the graph.
        avals: shapes and types of the arguments of one trajectory.
        sequences: which of the arguments are sequences, read by a loop.
        outs: the results of one trajectory.
        out_avals: their shapes and types.
    """

    reader: JaxprReader
    avals: Sequence[Any]
    sequences: range
    outs: list[Value]
    out_avals: Sequence[Any]

    @cached_property
    def needs(self) -> Needs:
        """What of the graph has to be computed."""
        scalars = [int(i) for out in self.outs if isinstance(out, np.ndarray) for i in out.ravel()]
        saved = [out for out in self.outs if isinstance(out, Saved)]
        return needed(self.reader.graph, self.reader.loops, scalars, saved)

    @cached_property
    def hidden(self) -> set[int]:
        """Where numbers begin that a folded zero would hide."""
        return hidden(self.reader.graph, self.reader.loops, self.needs, self.outs)

    @cached_property
    def operations(self) -> int:
        """How many operations that are, each of the body of a loop counted once."""
        return operations(self.reader.graph, self.reader.loops, self.needs)

    @cached_property
    def most_carried(self) -> int:
        """The largest number of values that one of its loops carries from turn to turn."""
        return most_carried(self.reader.loops, self.needs)


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

    Raises:
        UnsupportedError: something in it cannot be taken apart into scalars.
    """
    _, fixed, carries = loop_content(eqn)
    first = fixed + carries
    inner = {var for one in leading for var in one.outvars}
    atoms = [*chain(*(one.invars for one in leading)), *eqn.invars[:first]]
    given = [atom for atom in atoms if not isinstance(atom, Literal) and atom not in inner]
    args = list(dict.fromkeys(given))
    return _settled(lambda reader: _read_loop(reader, eqn, leading, wanted, args)), args


def _read_loop(
    reader: JaxprReader,
    eqn: JaxprEqn,
    leading: Sequence[JaxprEqn],
    wanted: Sequence[Var],
    args: Sequence[Var],
) -> Kernel:
    p = eqn.params
    body, fixed, carries = loop_content(eqn)
    first = fixed + carries
    sequences = eqn.invars[first:]
    env: dict[Any, Value] = dict(zip(args, reader.inputs([var.aval for var in args]), strict=True))
    reader.equations(leading, env)
    values = [reader.value(atom, env) for atom in eqn.invars[:first]]
    reads = [
        Given(k, p["length"], aval.shape, aval.dtype)
        for k, aval in enumerate(body.in_avals[first:])
    ]
    outs = reader.loop(body, values[:fixed], values[fixed:], reads, p["length"], p["reverse"])
    outs += [env[var] for var in wanted]
    avals = [atom.aval for atom in (*args, *sequences)]
    out_avals = [var.aval for var in (*eqn.outvars, *wanted)]
    return Kernel(reader, avals, range(len(args), len(avals)), outs, out_avals)


def function_kernel(closed: ClosedJaxpr) -> Kernel:
    """The kernel of a whole function of small arrays.

    Raises:
        UnsupportedError: something in it cannot be taken apart into scalars.
    """

    def read(reader: JaxprReader) -> Kernel:
        outs = reader.read(closed, reader.inputs(closed.in_avals))
        if any(isinstance(out, Given) for out in outs):
            raise UnsupportedError("a sequence that passes through")
        return Kernel(reader, closed.in_avals, range(0), outs, closed.out_avals)

    return _settled(read)


def _settled(read: Callable[[JaxprReader], Kernel]) -> Kernel:
    """The kernel, read anew until no folded zero hides a number that is not finite."""
    watched = frozenset[int]()
    for _ in range(MOST_READINGS):
        kernel = read(JaxprReader(watched=watched))
        found = kernel.hidden
        if not found:
            return kernel
        watched |= found
    raise UnsupportedError("a product with zero that may be NaN")
