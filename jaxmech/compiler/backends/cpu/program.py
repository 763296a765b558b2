"""Native code of a kernel for one kind of batch: loaded from the cache on disk, or generated.

A module for LLVM computes blocks of as many trajectories as there are lanes.
"""

import json
from enum import Enum, auto
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import llvmlite
import numpy as np
from jaxtyping import Array

from jaxmech.compiler.backends import disk_cache
from jaxmech.compiler.backends.cpu.runtime import (
    array_address,
    call,
    compile_module,
    has_fma,
    is_loaded,
    load,
    module,
    processor,
    vector_registers,
)
from jaxmech.compiler.backends.llvm.body import Body, computed_results
from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder
from jaxmech.compiler.backends.llvm.functions import Functions
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import Rows, UnsupportedError
from jaxmech.utils.digests import sha256, sources_digest
from jaxmech.utils.jit_cache import uncollected

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
    is_long |= kernel.written - kernel.operations > VERY_LONG  # which LLVM compiles faster
    if has_doubles and (is_long or kernel.most_carried > MANY):
        return width
    has_room = registers >= 32
    return 2 * two_registers if kernel.written <= FEW and has_room else two_registers


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
        functions = Functions(builder) if self.kernel.written > LARGEST_FUNCTION else None
        body = Body(
            builder, self.kernel, self.batched, first, lambda k: array_address(builder, 1 + k),
            functions, self.kernel.operations > LARGEST_FUNCTION,
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


BRIEF = 500  # times that each operation is executed: fewer take less time than optimizing the code


class Facts(NamedTuple):
    """Properties of native code that its caller needs.

    Attributes:
        name: name of its function.
        lanes: number of trajectories computed side by side.
        results: indices of the results that it computes: those that are not empty.
    """

    name: str
    lanes: int
    results: tuple[int, ...]


class Program:
    """Native code, generated and compiled at most once, on first use.

    Args:
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch.
        kind: the kind of batch.
    """

    def __init__(self, kernel: Kernel, batched: frozenset[int], kind: Kind) -> None:
        self.kernel, self.batched, self.kind = kernel, batched, kind
        self._module = ""  # the text, between generation and compilation
        self._is_optimized = False

    @cached_property
    def facts(self) -> Facts:
        """The name, lanes and results of the code.

        Raises:
            UnsupportedError: for an operation or a type without an instruction.
        """
        if self._stored is None:
            try:
                return self._generated()
            except UnsupportedError as error:
                self._store({"unsupported": str(error)})
                raise
        header = json.loads(self._stored.partition(b"\n")[0])
        if "unsupported" in header:
            raise UnsupportedError(header["unsupported"])
        return Facts(header["name"], header["lanes"], tuple(header["results"]))

    def require_supported(self) -> None:
        """Raise `UnsupportedError` for an operation or a type for which there is no instruction."""
        _ = self.facts

    def prepare(self) -> None:
        """Compile and register it, or raise the error of the compiler."""
        self.registered_name()

    def registered_name(self) -> str:
        """The name under which the code is registered with XLA, compiled unless it was stored."""
        name = self.facts.name
        if not is_loaded(name):
            if self._stored is not None:
                code = self._stored.partition(b"\n")[2]
            else:
                if not self._module:
                    self._generated()
                code = compile_module(self._module, self._is_optimized)
                self._store(self.facts._asdict(), code)
            load(name, code)
        self._module = ""
        return name

    @uncollected
    def _generated(self) -> Facts:
        source = Source(self.kernel, self.batched, self.kind)
        name, self._module, self._is_optimized = source.module(self._should_optimize)
        return Facts(name, source.lanes, tuple(source.computed))

    @cached_property
    def _should_optimize(self) -> bool:
        kernel = self.kernel
        # The same code serves batches of many sizes, and the length of a `while` is unknown.
        has_many = self.kind is not Kind.ONE or kernel.has_while
        return kernel.is_optimized and (has_many or kernel.executed > BRIEF * kernel.operations)

    @cached_property
    def _key(self) -> str:
        kernel = self.kernel
        kind = sorted(self.batched), self.kind.name, kernel.results, kernel.sequences
        how = kernel.is_optimized, kernel.reading.origins.name
        return sha256(kernel.reading.digest, repr((kind, how)), _environment())

    @cached_property
    def _stored(self) -> bytes | None:
        return disk_cache.load(self._key) if disk_cache.cache_folder() else None

    def _store(self, header: dict[str, Any], code: bytes = b"") -> None:
        if disk_cache.cache_folder():
            disk_cache.store(self._key, json.dumps(header).encode() + b"\n" + code)


def program(kernel: Kernel, batched: frozenset[int], size: int) -> Program:
    """The native code of a kernel for a batch of a given size."""
    kind = batched, kind_of(size)
    if kind not in kernel.programs:
        kernel.programs[kind] = Program(kernel, *kind)
    return kernel.programs[kind]


@cache
def _environment() -> str:
    """A key of everything but the kernel: the compiler's source, its libraries, the processor."""
    sources = sources_digest(Path(__file__).parents[2])
    return repr((sources, jax.__version__, llvmlite.__version__, processor()))


def cpu_call(*args: Array, kernel: Kernel, batched: frozenset[int], size: int) -> list[Array]:
    """Call native code from a program that is being lowered; a batch fills at least one block.

    Raises:
        UnsupportedError: for an operation or a type without an instruction.
    """
    code = program(kernel, batched, size)
    indices = code.facts.results
    spare = max(code.facts.lanes - size, 0)
    padded_size = jnp.asarray(size + spare, jnp.int32)
    filled = [_filled(x, spare) if k in batched else x for k, x in enumerate(args)]
    shapes = [
        jax.ShapeDtypeStruct((size + spare, *aval.shape), aval.dtype) for aval in kernel.out_avals
    ]
    outs = call(code.registered_name(), [padded_size, *filled], [shapes[k] for k in indices])
    results = dict(zip(indices, outs, strict=True))
    return [results.get(k, jnp.zeros(x.shape, x.dtype))[:size] for k, x in enumerate(shapes)]


def _filled(x: Array, spare: int) -> Array:
    """Append copies of the last trajectory."""
    return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (spare, *x.shape[1:]))]) if spare else x
