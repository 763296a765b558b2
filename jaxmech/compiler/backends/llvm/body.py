"""The body of a kernel's function: its loads, lines and stores, with the layout of its arrays.

In a batch an argument or a result has the trajectories as its first axis, as JAX lays them out.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder
from jaxmech.compiler.backends.llvm.functions import Functions
from jaxmech.compiler.backends.llvm.lower import Assembler
from jaxmech.compiler.backends.llvm.sequences import Memory, array_alignment
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.graph import Node
from jaxmech.compiler.ir.loops import Rows, SequenceInput, Stacked


def computed_results(kernel: Kernel) -> list[int]:
    """The indices of the results that are not empty; native code computes no others."""
    return [k for k, aval in enumerate(kernel.out_avals) if math.prod(aval.shape)]


class Body:
    """Writes the code of a function for the trajectories side by side in its lanes.

    Args:
        builder: builder to which the lines are added.
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch.
        first: name of the index of the first of these trajectories.
        array: returns the address of an array: arguments from 0, then the computed results.
        functions: functions of the pieces into which long code is split; None if none is.
        is_split: whether all code is, or only the loops that rarely run.
    """

    def __init__(
        self, builder: AssemblyBuilder, kernel: Kernel, batched: frozenset[int], first: str,
        array: Callable[[int], str], functions: Functions | None = None, is_split: bool = False,
    ) -> None:  # fmt: skip
        self.builder, self.kernel, self.batched = builder, kernel, batched
        self.first, self.array = first, array
        self.functions, self.is_split = functions, is_split
        self.computed = computed_results(kernel)
        avals = kernel.avals
        scalars = [k for k in range(len(avals)) if k not in kernel.sequences]
        self.positions = [(k, position) for k in scalars for position in range(avals[k].size)]
        self.starts = {
            k: self._start(array(k), aval, first if k in batched else None)
            for k, aval in enumerate(avals)
        }
        self.ends: dict[int, str] = {}
        # A GPU computes addresses where they are used: registers would hold them in all loops.
        if not builder.on_gpu:
            self.ends = {k: self._end(k) for k in self.computed}

    def write(self) -> None:
        """Write the lines.

        Raises:
            UnsupportedError: for an operation or a type without an instruction.
        """
        kernel, builder = self.kernel, self.builder
        graph, loops = kernel.reader.graph, kernel.reader.loops
        ends = [
            i for out in kernel.outs if isinstance(out, np.ndarray) for i in out.ravel().tolist()
        ]
        assembler = Assembler(
            graph, loops, kernel.live, ends, builder, self._input, self._sequence, self.functions,
            self.is_split,
        )  # fmt: skip
        assembler.write()
        for k in self.computed:
            out = kernel.outs[k]
            if isinstance(out, Stacked):
                assembler.stacked(out)
                continue
            if isinstance(out, Rows):
                continue
            end = self._end(k)
            assert isinstance(out, np.ndarray)
            for position, number in enumerate(out.ravel().tolist()):
                dtype = kernel.out_avals[k].dtype
                address = builder.address(end, dtype, position)
                align = array_alignment(dtype, out.size, position)
                builder.scatter(assembler.name(number), address, dtype, out.size, align)

    def _start(self, base: str, aval: Any, first: str | None) -> str:
        """The address of the numbers of these trajectories in an array, shared if first is None."""
        if first is None:
            return base
        return self.builder.address(
            base, aval.dtype, self.builder.line(f"mul i64 {first}, {aval.size}")
        )

    def _input(self, node: Node, index: tuple[str, np.dtype] | None = None) -> str:
        params: Any = node.params
        k, position = self.positions[params if index is None else params[0]]
        address = self.builder.address(self.starts[k], node.dtype, position)
        apart = self.kernel.avals[k].size if k in self.batched else 0
        if index is not None:
            return self.builder.read(address, node.dtype, apart, *index)
        align = array_alignment(node.dtype, apart, position)
        if apart:
            return self.builder.gather(address, node.dtype, apart, align)
        return self.builder.load(address, node.dtype, 1, align)

    def _sequence(self, steps: SequenceInput | Stacked | Rows) -> Memory | None:
        """The location of a sequence that is an argument or a result, else None."""
        kernel, numbers = self.kernel, math.prod(steps.shape)
        if isinstance(steps, SequenceInput):
            k = kernel.sequences.start + steps.number
            apart = kernel.avals[k].size if k in self.batched else 0
            return Memory(self.starts[k], numbers, steps.dtype, 1, apart)
        if isinstance(steps, Rows):
            k = next(k for k in self.computed if kernel.outs[k] is steps)
            return Memory(self._end(k), numbers, steps.dtype, 1, steps.count * numbers)
        for k in self.computed:
            out = kernel.outs[k]
            if isinstance(out, Stacked) and (out.loop, out.number) == (steps.loop, steps.number):
                return Memory(self._end(k), numbers, out.dtype, 1, out.length * numbers)
        return None

    def _end(self, k: int) -> str:
        """The address of the numbers of these trajectories in a result."""
        if self.builder.on_gpu or k not in self.ends:
            number = len(self.kernel.avals) + self.computed.index(k)
            return self._start(self.array(number), self.kernel.out_avals[k], self.first)
        return self.ends[k]
