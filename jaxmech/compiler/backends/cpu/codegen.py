"""A kernel as a module for LLVM: loads, the lines of the graph, stores."""

import math
from typing import Any

import numpy as np

from jaxmech.compiler.backends.cpu.runtime import array_address, module
from jaxmech.compiler.backends.llvm.builder import Text
from jaxmech.compiler.backends.llvm.lower import Assembler, Memory
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.graph import Node
from jaxmech.compiler.ir.loops import SequenceInput, Stacked

LANES = 16  # two registers of AVX-512 for float64: one is computed while the other waits
FEW = 500  # operations: most wait for another one, and the code for twice the lanes is still short
ALONE = 2  # for a single trajectory: code for few lanes is short, and the spare one costs little
MANY = 45  # values that a loop carries: they do not wait for each other, and would be spilled


def _lanes_of(kernel: Kernel) -> int:
    """How many trajectories are computed side by side."""
    has_doubles = any(aval.dtype == np.float64 for aval in (*kernel.avals, *kernel.out_avals))
    if has_doubles and kernel.most_carried > MANY:
        return LANES // 2
    return 2 * LANES if kernel.operations <= FEW else LANES


class Source:
    """Writes the module of a kernel.

    Args:
        kernel: what is computed for one trajectory.
        moving: which of its arguments differ in a batch.
        size: number of trajectories; a batch of one has code of its own, with the same bits.

    Attributes:
        lanes: how many trajectories are computed side by side.
        some: which results hold any number: native code knows no others.
    """

    def __init__(self, kernel: Kernel, moving: frozenset[int], size: int) -> None:
        self.kernel, self.moving = kernel, moving
        self.lanes = ALONE if size == 1 else _lanes_of(kernel)
        self.some = [k for k, aval in enumerate(kernel.out_avals) if math.prod(aval.shape)]
        self.text = Text(self.lanes)
        self.text.label("entry")
        self.first = self._first()
        avals = kernel.avals
        scalars = [k for k in range(len(avals)) if k not in kernel.sequences]
        self.places = [(k, place) for k in scalars for place in range(avals[k].size)]
        self.starts = {k: self._start(1 + k, avals[k], k in moving) for k in range(len(avals))}
        self.ends = {
            k: self._start(1 + len(avals) + place, kernel.out_avals[k], True)
            for place, k in enumerate(self.some)
        }

    def module(self) -> tuple[str, str]:
        """The name of the function, and the text of its module.

        Raises:
            UnsupportedError: an operation or a type for which there is no instruction.
        """
        kernel, text = self.kernel, self.text
        graph, loops = kernel.reader.graph, kernel.reader.loops
        assembler = Assembler(graph, loops, kernel.live, text, self._input, self._sequence)
        assembler.write()
        for k in self.some:
            out, end = kernel.outs[k], self.ends[k]
            if isinstance(out, Stacked):
                assembler.stacked(out)
                continue
            assert isinstance(out, np.ndarray)
            for place, number in enumerate(out.ravel().tolist()):
                dtype = kernel.out_avals[k].dtype
                address = text.address(end, dtype, place)
                text.scatter(assembler.names[number], address, dtype, out.size)
        text.lines.append("ret void")
        results = [kernel.out_avals[k] for k in self.some]
        return module(text, len(kernel.avals), [x.size * x.dtype.itemsize for x in results])

    def _first(self) -> str:
        """The first trajectory of the block. The last block overlaps the one before."""
        text = self.text
        size = text.line(f"load i32, ptr {array_address(text, 0)}")
        last = text.line(f"sub i64 {text.line(f'zext i32 {size} to i64')}, {self.lanes}")
        usual = text.line(f"mul i64 %block, {self.lanes}")
        before = text.line(f"icmp ult i64 {usual}, {last}")
        return text.line(f"select i1 {before}, i64 {usual}, i64 {last}")

    def _start(self, number: int, aval: Any, is_batched: bool) -> str:
        """Where the numbers of this block begin in an array."""
        base = array_address(self.text, number)
        if not is_batched:
            return base
        offset = self.text.line(f"mul i64 {self.first}, {aval.size}")
        return self.text.address(base, aval.dtype, offset)

    def _input(self, node: Node) -> str:
        params: Any = node.params
        k, place = self.places[params]
        address = self.text.address(self.starts[k], node.dtype, place)
        if k in self.moving:
            return self.text.gather(address, node.dtype, self.kernel.avals[k].size)
        return self.text.load(address, node.dtype, 1)

    def _sequence(self, steps: SequenceInput | Stacked) -> Memory | None:
        """Where a sequence lies that is an argument or a result."""
        kernel, numbers = self.kernel, math.prod(steps.shape)
        if isinstance(steps, SequenceInput):
            k = kernel.sequences.start + steps.number
            apart = kernel.avals[k].size if k in self.moving else 0
            return Memory(self.starts[k], numbers, steps.dtype, 1, apart)
        for k in self.some:
            out = kernel.outs[k]
            if isinstance(out, Stacked) and (out.loop, out.number) == (steps.loop, steps.number):
                return Memory(self.ends[k], numbers, out.dtype, 1, out.length * numbers)
        return None
