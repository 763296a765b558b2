"""A kernel as a module for LLVM on a CPU, in blocks of as many trajectories as there are lanes."""

from enum import Enum, auto

import numpy as np

from jaxmech.compiler.backends.cpu.runtime import array_address, has_fma, module, vector_registers
from jaxmech.compiler.backends.llvm.body import Body, computed_results
from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder
from jaxmech.compiler.backends.llvm.functions import Functions
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import Rows

FEW = 500  # operations: most wait for another one, and code for twice the lanes is still short
LONG = 4000  # operations of a kernel with a `while`: with fewer lanes, less waiting for the slowest
VERY_LONG = 11_000  # operations: their numbers are in memory, of which fewer lanes need less
MANY = 45  # values that a loop carries: they do not wait for each other, and would be spilled
LARGEST_FUNCTION = 60_000  # operations; LLVM takes ever longer for each of more in one function
SMALL = 256  # trajectories of a batch that gains less from two registers than LLVM takes for them


class Kind(Enum):
    """The kinds of batches that have their own code, with identical results."""

    ONE = auto()
    SMALL = auto()
    LARGE = auto()


# Lines of code: the time of LLVM grows faster than they do. One trajectory makes up for less of it.
LONGEST_OPTIMIZED = {Kind.ONE: 100_000, Kind.SMALL: 200_000, Kind.LARGE: 200_000}
# Code that is not optimized keeps each value on the stack, of which a thread has 8 MiB.
MOST_ON_STACK = 900_000  # lines times lanes, at most 8 bytes each


def kind_of(size: int) -> Kind:
    """The kind of a batch of a given size."""
    return Kind.ONE if size == 1 else Kind.SMALL if size <= SMALL else Kind.LARGE


def _lanes_of(kernel: Kernel, kind: Kind) -> int:
    """The number of trajectories computed side by side."""
    if kind is Kind.ONE:
        return 1
    width, registers = vector_registers()
    two_registers = 2 * width  # of float64: one is computed while the other waits
    has_doubles = any(aval.dtype == np.float64 for aval in (*kernel.avals, *kernel.out_avals))
    if kind is Kind.SMALL:
        return width if has_doubles else two_registers
    is_long = kernel.operations > (LONG if kernel.has_while else VERY_LONG)
    if has_doubles and (is_long or kernel.most_carried > MANY):
        return width
    has_room = registers >= 32
    return 2 * two_registers if kernel.operations <= FEW and has_room else two_registers


class Source:
    """Writes the module of a kernel.

    Args:
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch.
        kind: the kind of batch.

    Attributes:
        lanes: number of trajectories computed side by side.
        computed: indices of the results that are not empty; native code has no others.
    """

    def __init__(self, kernel: Kernel, batched: frozenset[int], kind: Kind) -> None:
        self.kernel, self.batched, self.kind = kernel, batched, kind
        self.lanes = _lanes_of(kernel, kind)
        self.computed = computed_results(kernel)

    def module(self, should_optimize: bool) -> tuple[str, str, bool]:
        """The name of the function, its module, and whether to optimize it.

        The name depends on how it is compiled. Long code is not optimized.

        Raises:
            UnsupportedError: for an operation or a type without an instruction.
        """
        builder = self._code()
        length = len(builder.lines)
        is_optimized = should_optimize and length <= LONGEST_OPTIMIZED[self.kind]
        if not is_optimized and length * self.lanes > MOST_ON_STACK and self.lanes > 1:
            self.lanes = 1
            builder = self._code()
        sizes = [self._written(k) for k in self.computed]
        return *module(builder, len(self.kernel.avals), sizes, is_optimized), is_optimized

    def _written(self, k: int) -> int:
        """Bytes of a result that are written for each trajectory, 0 if hardly any."""
        out, aval = self.kernel.outs[k], self.kernel.out_avals[k]
        return 0 if isinstance(out, Rows) and out.sparse else aval.size * aval.dtype.itemsize

    def _code(self) -> AssemblyBuilder:
        builder = AssemblyBuilder(self.lanes, has_fma=has_fma())
        builder.label("entry")
        first = _first(builder)
        functions = Functions(builder) if self.kernel.operations > LARGEST_FUNCTION else None
        body = Body(
            builder, self.kernel, self.batched, first, lambda k: array_address(builder, 1 + k),
            functions,
        )  # fmt: skip
        body.write()
        builder.lines.append("ret void")
        return builder


def _first(builder: AssemblyBuilder) -> str:
    """Write the index of the block's first trajectory; the last block overlaps its predecessor."""
    # A few trajectories are computed twice, to the same bits: simpler and faster than a masked
    # remainder.
    size = builder.line(f"load i32, ptr {array_address(builder, 0)}")
    last = builder.line(f"sub i64 {builder.line(f'zext i32 {size} to i64')}, {builder.lanes}")
    usual = builder.line(f"mul i64 %block, {builder.lanes}")
    is_before = builder.line(f"icmp ult i64 {usual}, {last}")
    return builder.line(f"select i1 {is_before}, i64 {usual}, i64 {last}")
