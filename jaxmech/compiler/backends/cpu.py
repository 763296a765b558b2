"""Kernels as native code for this processor, called by XLA through its foreign function interface.

A module for LLVM computes blocks of as many trajectories as there are lanes. LLVM compiles the
assembly language, unless the code is in the cache on disk; the result is a function that XLA's CPU
backend calls like one of its own. It distributes the blocks of a batch over the threads of that
backend: each idle thread takes the next blocks. The calling thread takes part, so it never waits
for a thread that has not started.

LLVM does not return to Python before it is done: an interruption would wait for it, and an error
that aborts it would end the process. So a long module is compiled by a child, which is stopped by
an interruption, and whose failure is an exception.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from enum import Enum, auto
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import llvmlite
import llvmlite.binding as llvm
import numpy as np
from jaxtyping import Array

from jaxmech.compiler.backends.disk_cache import AbstractProgram, Facts
from jaxmech.compiler.backends.llvm.builder import (
    FFI_TYPES,
    AssemblyBuilder,
    answer_query,
    template,
)
from jaxmech.compiler.backends.llvm.functions import Functions
from jaxmech.compiler.backends.llvm.lower import Body, computed_results
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import Rows
from jaxmech.utils.digests import sha256
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
        # Bytes that are written for each trajectory; of sparse rows hardly any are.
        pairs = [(self.kernel.outs[k], self.kernel.out_avals[k]) for k in self.computed]
        sizes = [
            0 if isinstance(out, Rows) and out.sparse else aval.size * aval.dtype.itemsize
            for out, aval in pairs
        ]
        return *module(builder, len(self.kernel.avals), sizes, is_optimized), is_optimized

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


class Program(AbstractProgram):
    """Native code for a kind of batch."""

    def __init__(self, kernel: Kernel, batched: frozenset[int], kind: Kind) -> None:
        super().__init__(kernel, batched, (kind.name, kernel.is_optimized, processor()))
        self.kind = kind
        self._module = ""  # the text, between generation and compilation
        self._is_optimized = False

    def prepare(self) -> None:
        self.registered_name()

    def registered_name(self) -> str:
        """The name under which the code is registered with XLA, compiled unless it was stored."""
        name = self.facts.name
        if not is_loaded(name):
            code = self._stored_code
            if code is None:
                if not self._module:
                    self._generated()
                code = compile_module(self._module, self._is_optimized)
                self._store(self.facts._asdict(), code)
            load(name, code)
        self._module = ""
        return name

    @uncollected
    def _generated(self) -> Facts:
        kernel = self.kernel
        # The same code serves batches of many sizes, and the length of a `while` is unknown.
        has_many = self.kind is not Kind.ONE or kernel.has_while
        is_worthwhile = has_many or kernel.executed > BRIEF * kernel.operations
        source = Source(kernel, self.batched, self.kind)
        name, self._module, self._is_optimized = source.module(
            kernel.is_optimized and is_worthwhile
        )
        return Facts(name, source.lanes, tuple(source.computed))


def program(kernel: Kernel, batched: frozenset[int], size: int) -> Program:
    """The native code of a kernel for a batch of a given size."""
    kind = batched, kind_of(size)
    if kind not in kernel.programs:
        kernel.programs[kind] = Program(kernel, *kind)
    return kernel.programs[kind]


def cpu_call(*args: Array, kernel: Kernel, batched: frozenset[int], size: int) -> list[Array]:
    """Call native code from a program that is being lowered; a batch fills at least one block.

    Raises:
        UnsupportedError: for an operation or a type without an instruction.
    """
    code = program(kernel, batched, size)
    indices = code.facts.results
    spare = max(code.facts.lanes - size, 0)
    padded_size = jnp.asarray(size + spare, jnp.int32)
    # Copies of the last trajectory.
    filled = [
        jnp.concatenate([x, jnp.broadcast_to(x[-1:], (spare, *x.shape[1:]))])
        if spare and k in batched
        else x
        for k, x in enumerate(args)
    ]
    shapes = [
        jax.ShapeDtypeStruct((size + spare, *aval.shape), aval.dtype) for aval in kernel.out_avals
    ]
    outs = call(code.registered_name(), [padded_size, *filled], [shapes[k] for k in indices])
    results = dict(zip(indices, outs, strict=True))
    return [results.get(k, jnp.zeros(x.shape, x.dtype))[:size] for k, x in enumerate(shapes)]


ONE_AT_A_TIME = Lock()  # of the calls of LLVM, which is not safe for threads
OPTIMIZED = 2  # level of LLVM; without optimization, 0, it compiles seven times faster
LONGEST_INSIDE = 5_000  # lines, about a second; a child takes 0.2 s to start

# The child ends with its parent, where the system can tell it (PR_SET_PDEATHSIG of Linux).
_CHILD = """
import ctypes, sys
try:
    ctypes.CDLL(None).prctl(1, 9)
except (OSError, AttributeError):
    pass
sys.path.insert(0, sys.argv[1])
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
machine = llvm.Target.from_default_triple().create_target_machine(
    cpu=llvm.get_host_cpu_name(),
    features=llvm.get_host_cpu_features().flatten(),
    opt=int(sys.argv[2]),
    jit=True,
)
try:
    code = machine.emit_object(llvm.parse_assembly(sys.stdin.buffer.read().decode()))
except RuntimeError as error:
    sys.exit(" ".join(str(error).split()))
sys.stdout.buffer.write(code)
"""


def compile_module(module: str, is_optimized: bool) -> bytes:
    """The object code of a module, for this processor.

    Raises:
        RuntimeError: if LLVM refuses the module, or fails.
    """
    level = OPTIMIZED if is_optimized else 0
    if sys.executable and module.count("\n") > LONGEST_INSIDE:
        return _compiled_apart(module, level)
    # An engine that has compiled is forty times larger than the code: it is freed, and another one
    # loads the code.
    with ONE_AT_A_TIME:
        return bytes(target_machine(level).emit_object(llvm.parse_assembly(module)))


def _compiled_apart(module: str, level: int) -> bytes:
    folder = str(Path(llvmlite.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _CHILD, folder, str(level)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # an interruption by the keyboard is for this process
    ) as child:
        try:
            code, messages = child.communicate(module.encode())
        except BaseException:
            child.kill()
            child.wait()  # which `with` leaves out after an interruption
            raise
    if child.returncode != 0:
        lines = messages.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"LLVM ended with code {child.returncode}")
    return code


def target_machine(level: int) -> Any:
    """The machine of LLVM for this processor, with a level of optimization."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        jit=True,
    )


_MODULE = template("cpu_module.ll")


def module(
    builder: AssemblyBuilder, arguments: int, results: Sequence[int], is_optimized: bool
) -> tuple[str, str]:
    """Return the name of a function, and the module that contains the lines of its block.

    Args:
        builder: the lines, with `array_address` for the addresses of arrays.
        arguments: number of input arrays, before which the batch size is passed as an int32.
        results: bytes that are written for each trajectory in each of the output arrays.
        is_optimized: whether `compile_module` will optimize it.
    """
    arrays = arguments + len(results) + 1
    threads = os.cpu_count() or 1
    copies = []
    advice = []
    for k, bytes_each in enumerate(results):
        advice += [
            f"%bytes{k} = mul i64 %size, {bytes_each}",
            f"call void @large_pages(ptr %data{arguments + 1 + k}, i64 %bytes{k})",
        ]
    for k in range(arrays):
        source, position = ("args", k) if k <= arguments else ("rets", k - arguments - 1)
        copies += [
            f"%buffer{k}.at = getelementptr ptr, ptr %{source}, i64 {position}",
            f"%buffer{k} = load ptr, ptr %buffer{k}.at",
            f"%data{k}.at = getelementptr %buffer, ptr %buffer{k}, i64 0, i32 3",
            f"%data{k} = load ptr, ptr %data{k}.at",
            f"%array{k} = getelementptr %state, ptr %state, i64 0, i32 5, i64 {k}",
            f"store ptr %data{k}, ptr %array{k}",
        ]
    parts = {
        "arrays": arrays,
        "tables": "\n".join(builder.tables),
        "functions": "\n".join(builder.functions),
        "declared": "\n".join(sorted(builder.declared.values())),
        "lines": "\n".join(builder.lines),
        "scratch": builder.bytes + 64,
        "types": FFI_TYPES,
        "described": answer_query(traits=0),
        "state_bytes": 8 * (5 + arrays),
        "copies": "\n".join(copies),
        "advice": "\n".join(advice),
        "lanes": builder.lanes,
        "spare_lanes": builder.lanes - 1,
        # Blocks differ in time (rare cases, loops until the last lane is done), so each thread
        # takes many small shares rather than one large one.
        "pieces": 16 * threads,
        "helpers": threads - 1,
    }
    name = f"jaxmech_{sha256(_MODULE.template, str((parts, is_optimized)), processor())[:32]}"
    return name, _MODULE.substitute(parts, name=name)


def array_address(builder: AssemblyBuilder, number: int) -> str:
    """Write the load of the address of an array: 0 is the batch size, then come the inputs."""
    position = builder.line(f"getelementptr %state, ptr %state, i64 0, i32 5, i64 {number}")
    return builder.line(f"load ptr, ptr {position}")


def call(name: str, args: Sequence[Any], results: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
    """Call loaded code from the program that is being traced."""
    return list(jax.ffi.ffi_call(name, list(results))(*args))


_ENGINES: dict[str, Any] = {}  # keeps code alive that is registered with XLA


def is_loaded(name: str) -> bool:
    """Whether code of this name is registered with XLA."""
    return name in _ENGINES


def load(name: str, code: bytes) -> None:
    """Register object code with XLA under the name of its function."""
    with ONE_AT_A_TIME:
        if name in _ENGINES:
            return
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(OPTIMIZED))
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address = engine.get_function_address(name)
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")
        _ENGINES[name] = engine


@cache
def processor() -> str:
    """The properties of this processor that code depends on: kind, features, number of cores."""
    features = llvm.get_host_cpu_features().flatten()
    return f"{llvm.get_host_cpu_name()} {features} {os.cpu_count()}"


@cache
def has_fma() -> bool:
    """Whether the processor has fused multiply-adds; all but older ones of x86 have."""
    return not _is_x86() or llvm.get_host_cpu_features().get("fma", False)


@cache
def vector_registers() -> tuple[int, int]:
    """The float64 numbers in a vector register of this processor, and the number of registers."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f", False):
        return 8, 32
    if not _is_x86():
        return 2, 32
    return (4, 16) if features.get("avx", False) else (2, 16)


def _is_x86() -> bool:
    return llvm.get_default_triple().startswith(("x86", "i386", "i686"))
