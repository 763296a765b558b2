"""A whole batch by native code, in blocks of as many trajectories as a vector has lanes."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from jaxmech.lanes.assembly import Assembler, Memory
from jaxmech.lanes.graph import Node
from jaxmech.lanes.kernel import Kernel
from jaxmech.lanes.loops import Given, Saved
from jaxmech.lanes.native import array_address, call, module
from jaxmech.lanes.text import Text

LANES = 16  # two vectors of AVX-512: one is computed while the other waits


def blocks(
    kernel: Kernel, moving: dict[int, Array], fixed: dict[int, Array], count: int
) -> list[Array]:
    """The results of all blocks, (blocks, numbers, lanes), (blocks, iterations, numbers, lanes).

    Args:
        kernel: what is computed for one trajectory.
        moving: arguments by number that differ between trajectories, in blocks likewise.
        fixed: arguments that all share.
        count: number of blocks.

    Raises:
        UnsupportedError: an operation or a type for which there is no instruction.
    """
    source = _Source(kernel, frozenset(moving)).module()
    shapes = {
        k: jax.ShapeDtypeStruct((count, *_shape(kernel, k)), aval.dtype)
        for k, aval in enumerate(kernel.out_avals)
    }
    some = _not_empty(kernel)

    @custom_vmap
    def run(moving: dict[int, Array], fixed: dict[int, Array]) -> list[Array]:
        args = [{**moving, **fixed}[k] for k in range(len(kernel.avals))]
        return call(source, [jnp.asarray(count, jnp.int32), *args], [shapes[k] for k in some])

    @run.def_vmap
    def over_batches(
        batches: int, batched: Any, moving: dict[int, Array], fixed: dict[int, Array]
    ) -> tuple[list[Array], list[bool]]:
        moves, differs = batched
        merged = {k: _merged(x, moves[k], batches) for k, x in moving.items()}
        for k, x in fixed.items():
            if differs[k]:
                merged[k] = _spread(kernel, k, x, count)
        shared = {k: x for k, x in fixed.items() if not differs[k]}
        outs = blocks(kernel, merged, shared, batches * count)
        return [outs[k].reshape(batches, *shapes[k].shape) for k in some], [True] * len(some)

    results = dict(zip(some, run(moving, fixed), strict=True))
    return [results.get(k, jnp.zeros(x.shape, x.dtype)) for k, x in shapes.items()]


def _merged(x: Array, is_batched: bool, batches: int) -> Array:
    """(batches, blocks, ...) as one long row of blocks."""
    x = x if is_batched else jnp.broadcast_to(x, (batches, *x.shape))
    return x.reshape(-1, *x.shape[2:])


def _spread(kernel: Kernel, k: int, x: Array, count: int) -> Array:
    """What all blocks of a batch share, (batches, ...), as a row of blocks of all batches."""
    aval = kernel.avals[k]
    shape: tuple[int, ...] = (aval.size,)
    if k in kernel.sequences:
        shape = aval.shape[0], math.prod(aval.shape[1:])
    x = jnp.broadcast_to(x.reshape(-1, 1, *shape, 1), (x.shape[0], count, *shape, LANES))
    return x.reshape(-1, *shape, LANES)


def _shape(kernel: Kernel, k: int) -> tuple[int, ...]:
    """Shape of a result of one block."""
    out = kernel.outs[k]
    if isinstance(out, Saved):
        return out.length, math.prod(out.shape), LANES
    return math.prod(kernel.out_avals[k].shape), LANES


def _not_empty(kernel: Kernel) -> list[int]:
    return [k for k in range(len(kernel.outs)) if math.prod(_shape(kernel, k))]


class _Source:
    """Writes the module of a kernel, for a choice of the arguments that differ in a batch."""

    def __init__(self, kernel: Kernel, moving: frozenset[int]) -> None:
        self.kernel, self.moving, self.some = kernel, moving, _not_empty(kernel)
        self.text = Text(LANES)
        self.text.label("entry")
        avals = kernel.avals
        scalars = [k for k in range(len(avals)) if k not in kernel.sequences]
        self.places = [(k, place) for k in scalars for place in range(avals[k].size)]
        self.starts = {k: self._start(1 + k, avals[k], k in moving) for k in range(len(avals))}
        self.ends = {
            k: self._start(1 + len(avals) + place, kernel.out_avals[k], True)
            for place, k in enumerate(self.some)
        }

    def module(self) -> str:
        """The text of the module."""
        kernel, text = self.kernel, self.text
        graph, loops = kernel.reader.graph, kernel.reader.loops
        assembler = Assembler(graph, loops, kernel.needs, text, self._input, self._sequence)
        assembler.write()
        for k in self.some:
            out, end = kernel.outs[k], self.ends[k]
            if isinstance(out, Saved):
                assembler.saved(out)
                continue
            assert isinstance(out, np.ndarray)
            for place, number in enumerate(out.ravel().tolist()):
                dtype = kernel.out_avals[k].dtype
                address = text.address(end, dtype, place * LANES)
                text.store(assembler.names[number], address, dtype)
        text.lines.append("ret void")
        return module(text, len(kernel.avals), len(self.some))

    def _start(self, number: int, aval: Any, is_batched: bool) -> str:
        """Where the numbers of this block begin in an array."""
        base = array_address(self.text, number)
        if not is_batched:
            return base
        offset = self.text.line(f"mul i64 %block, {aval.size * LANES}")
        return self.text.address(base, aval.dtype, offset)

    def _input(self, node: Node) -> str:
        params: Any = node.params
        k, place = self.places[params]
        lanes = LANES if k in self.moving else 1
        address = self.text.address(self.starts[k], node.dtype, place * lanes)
        return self.text.load(address, node.dtype, lanes)

    def _sequence(self, steps: Given | Saved) -> Memory | None:
        """Where a sequence lies that is an argument or a result."""
        kernel = self.kernel
        if isinstance(steps, Given):
            k = kernel.sequences.start + steps.number
            lanes = LANES if k in self.moving else 1
            return Memory(self.starts[k], math.prod(steps.shape), steps.dtype, lanes)
        for k in self.some:
            out = kernel.outs[k]
            if isinstance(out, Saved) and (out.loop, out.number) == (steps.loop, steps.number):
                return Memory(self.ends[k], math.prod(out.shape), out.dtype, LANES)
        return None
