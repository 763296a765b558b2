"""Kernels as native code for this processor, called by XLA through its foreign function interface.

LLVM compiles the assembly language; the result is a function that XLA's CPU backend calls like one
of its own. It distributes the blocks of a batch over the threads of that backend: each idle thread
takes the next blocks. The calling thread takes part, so it never waits for a thread that has not
started.

LLVM does not return to Python before it is done: an interruption would wait for it, and an error
that aborts it would end the process. So a long module is compiled by a child, which is stopped by
an interruption, and whose failure is an exception.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import llvmlite
import llvmlite.binding as llvm

from jaxmech.compiler.backends.llvm.builder import (
    FFI_TYPES,
    AssemblyBuilder,
    answer_query,
    template,
)
from jaxmech.utils.digests import sha256

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


_MODULE = template("cpu/module.ll")


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
        _register(name, engine.get_function_address(name))
        _ENGINES[name] = engine


def _register(name: str, address: int) -> None:
    handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")


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
