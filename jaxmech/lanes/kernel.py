"""A function or a loop over a batch, as blocks of lanes.

The batch is cut into blocks of `LANES` trajectories; in a block every scalar is one row, and a
block stays in the nearest cache from the first step to the last. On several CPU devices each takes
its share of the blocks.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from jaxmech.lanes.emission import Emitter
from jaxmech.lanes.graph import Node
from jaxmech.lanes.loops import Given, Saved, UnsupportedError, Value
from jaxmech.lanes.needs import needed
from jaxmech.lanes.reading import Reader, loop_content

LANES = 64  # on a CPU: a block of rows of float64 that fits the first cache


class Kernel:
    """A scalar graph with the arrays that go in and come out.

    Args:
        reader: holds the graph.
        avals: shapes and types of the arguments of one trajectory.
        sequences: which of the arguments are sequences, read by a loop.
        outs: the results of one trajectory.
        out_avals: their shapes and types.
    """

    def __init__(
        self,
        reader: Reader,
        avals: Sequence[Any],
        sequences: range,
        outs: list[Value],
        out_avals: Sequence[Any],
    ) -> None:
        self.reader, self.avals, self.sequences = reader, avals, sequences
        self.outs, self.out_avals = outs, out_avals
        scalars = [int(i) for out in outs if isinstance(out, np.ndarray) for i in out.ravel()]
        saved = [out for out in outs if isinstance(out, Saved)]
        self.needs = needed(reader.graph, reader.loops, scalars, saved)

    def __call__(self, batched: Sequence[bool], size: int, args: Sequence[Array]) -> list[Array]:
        """The results for a batch; every result has the batch as its first axis."""
        on_cpu = jax.default_backend() == "cpu"
        devices = jax.devices() if on_cpu else jax.devices()[:1]
        lanes = min(LANES, -(-size // 8) * 8) if on_cpu else size
        count = -(-size // lanes)
        shares = min(len(devices), count)
        count = -(-count // shares) * shares
        moving = {
            k: _blocks(x, count, lanes, k in self.sequences)
            for k, (x, is_batched) in enumerate(zip(args, batched, strict=True))
            if is_batched
        }
        fixed = {k: x for k, x in enumerate(args) if k not in moving}

        def all_blocks(moving: dict[int, Array], fixed: dict[int, Array]) -> list[Array]:
            return lax.map(lambda block: self._block(block, fixed, lanes, on_cpu), moving)

        if shares > 1:
            mesh = Mesh(np.array(devices[:shares]), ("share",))
            split, whole = PartitionSpec("share"), PartitionSpec()
            all_blocks = jax.shard_map(
                all_blocks, mesh=mesh, in_specs=(split, whole), out_specs=split, check_vma=False
            )
        results = all_blocks(moving, fixed)
        return [_unblocked(x, aval, size) for x, aval in zip(results, self.out_avals, strict=True)]

    def _block(
        self, moving: dict[int, Array], fixed: dict[int, Array], lanes: int, on_cpu: bool
    ) -> list[Array]:
        """One block: arguments (size, lanes), sequences (iterations, size, lanes)."""
        rows: list[Array] = []
        sequences: dict[int, Array] = {}
        for k, aval in enumerate(self.avals):
            if k in self.sequences:
                flat = moving[k] if k in moving else fixed[k].reshape(aval.shape[0], -1, 1)
                sequences[k - self.sequences.start] = flat
            elif k in moving:
                rows += list(moving[k])
            else:
                rows += [jnp.broadcast_to(x, (lanes,)) for x in fixed[k].ravel()]

        def leaf(node: Node) -> Array:
            params: Any = node.params
            return rows[params]

        def given(steps: Given) -> Array:
            return sequences[steps.number]

        emitter = Emitter(
            self.reader.graph, self.reader.loops, self.needs, leaf, given, lanes, on_cpu
        )
        emitter.run()
        return [self._result(emitter, out, lanes) for out in self.outs]

    def _result(self, emitter: Emitter, out: Value, lanes: int) -> Array:
        if isinstance(out, Saved):
            return emitter.saved(out)
        assert isinstance(out, np.ndarray)
        if out.size == 0:
            return jnp.zeros((0, lanes))
        return jnp.stack([emitter.rows[int(i)] for i in out.ravel()])


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


def _blocks(x: Array, count: int, lanes: int, is_sequence: bool) -> Array:
    """(size, ...) as (blocks, numbers, lanes), a sequence as (blocks, iterations, numbers, lanes).

    The last block is filled up with copies of the last trajectory.
    """
    spare = jnp.broadcast_to(x[-1:], (count * lanes - x.shape[0], *x.shape[1:]))
    x = jnp.concatenate([x, spare])
    if is_sequence:
        return jnp.moveaxis(x.reshape(count, lanes, x.shape[1], math.prod(x.shape[2:])), 1, -1)
    return jnp.moveaxis(x.reshape(count, lanes, math.prod(x.shape[1:])), 1, -1)


def _unblocked(x: Array, aval: Any, size: int) -> Array:
    """The way back: (blocks, ..., lanes) as (size, ...) of the right shape and type."""
    x = jnp.moveaxis(x, -1, 1)
    return x.reshape(x.shape[0] * x.shape[1], *aval.shape)[:size].astype(aval.dtype)
