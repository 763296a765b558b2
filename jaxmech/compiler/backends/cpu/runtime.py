"""Kernels as native code for this processor, called by XLA through its foreign function interface.

LLVM compiles the assembly language; the result is a function that XLA's CPU backend calls like one
of its own. It distributes the blocks of a batch over the threads of that backend: each idle thread
takes the next blocks. The calling thread takes part, so it never waits for a thread that has not
started.
"""

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import llvmlite.binding as llvm

from jaxmech.compiler.backends.cpu.compile import ONE_AT_A_TIME, OPTIMIZED, target_machine
from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder
from jaxmech.compiler.backends.llvm.template import FFI_TYPES, answer_query, template
from jaxmech.utils.digests import sha256

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
