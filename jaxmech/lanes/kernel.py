"""A function or a loop of one trajectory as a scalar graph, with the arrays that go in and out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxmech.lanes.loops import Given, Saved, UnsupportedError, Value
from jaxmech.lanes.needs import Needs, needed
from jaxmech.lanes.reading import Reader, loop_content


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

    reader: Reader
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


def loop_kernel(eqn: JaxprEqn) -> Kernel:
    """The kernel of a `scan`.

    Raises:
        UnsupportedError: something in it cannot be taken apart into scalars.
    """
    p = eqn.params
    closed, fixed, carries = loop_content(eqn)
    first = fixed + carries
    reader = Reader()
    arrays = reader.inputs(closed.in_avals[:first])
    reads = [
        Given(k, p["length"], aval.shape, aval.dtype)
        for k, aval in enumerate(closed.in_avals[first:])
    ]
    consts, init = arrays[:fixed], arrays[fixed:]
    outs = reader.loop(closed, consts, init, reads, p["length"], p["reverse"])
    avals = [atom.aval for atom in eqn.invars]
    return Kernel(reader, avals, range(first, len(avals)), outs, [v.aval for v in eqn.outvars])


def function_kernel(closed: ClosedJaxpr) -> Kernel:
    """The kernel of a whole function of small arrays.

    Raises:
        UnsupportedError: something in it cannot be taken apart into scalars.
    """
    reader = Reader()
    outs = reader.read(closed, reader.inputs(closed.in_avals))
    if any(isinstance(out, Given) for out in outs):
        raise UnsupportedError("a sequence that passes through")
    return Kernel(reader, closed.in_avals, range(0), outs, closed.out_avals)
