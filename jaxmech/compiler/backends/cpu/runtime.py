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
from jaxmech.compiler.backends.llvm import ffi
from jaxmech.compiler.backends.llvm.builder import Text
from jaxmech.utils.digests import sha256

# The arguments of XLA are followed by the state that all threads of a call share: next block,
# blocks done, threads that hold it, number of blocks, blocks to take at a time, and the addresses
# of all arrays. Large results are requested in large pages (advice 14 of Linux, elsewhere refused
# without harm): most of the time of a run that saves every state went into the first touch of small
# ones. The weights keep rare cases out of the way. A helper may begin when the call has long
# returned. Then it finds no block, and the state still exists: the last thread to release it frees
# it. The caller waits for blocks, never for helpers.
_MODULE = """\
{types}
%schedule = type {{ i64, ptr, ptr, ptr, ptr }}
%state = type {{ i64, i64, i64, i64, i64, [{arrays} x ptr] }}

{tables}
{declared}
declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @sched_yield()
declare i32 @madvise(ptr, i64, i32)

!0 = !{{!"branch_weights", i32 1, i32 1000}}

define internal void @block(ptr %state, i64 %block, ptr %scratch) {options} {{
{lines}
}}

define internal void @work(ptr %state) {options} {{
entry:
  %memory = call ptr @malloc(i64 {scratch})
  %address = ptrtoint ptr %memory to i64
  %up = add i64 %address, 63
  %even = and i64 %up, -64
  %scratch = inttoptr i64 %even to ptr
  %count.at = getelementptr %state, ptr %state, i64 0, i32 3
  %count = load i64, ptr %count.at
  %share.at = getelementptr %state, ptr %state, i64 0, i32 4
  %share = load i64, ptr %share.at
  %done.at = getelementptr %state, ptr %state, i64 0, i32 1
  br label %take
take:
  %first = atomicrmw add ptr %state, i64 %share acq_rel
  %more = icmp ult i64 %first, %count
  br i1 %more, label %some, label %end
some:
  %last = add i64 %first, %share
  %within = icmp ult i64 %last, %count
  %stop = select i1 %within, i64 %last, i64 %count
  br label %each
each:
  %b = phi i64 [ %first, %some ], [ %next, %each ]
  call void @block(ptr %state, i64 %b, ptr %scratch)
  %next = add i64 %b, 1
  %again = icmp ult i64 %next, %stop
  br i1 %again, label %each, label %told
told:
  %finished = sub i64 %stop, %first
  %before = atomicrmw add ptr %done.at, i64 %finished acq_rel
  br label %take
end:
  call void @free(ptr %memory)
  ret void
}}

define internal void @release(ptr %state) {{
entry:
  %held.at = getelementptr %state, ptr %state, i64 0, i32 2
  %held = atomicrmw sub ptr %held.at, i64 1 acq_rel
  %last = icmp eq i64 %held, 1
  br i1 %last, label %gone, label %end
gone:
  call void @free(ptr %state)
  br label %end
end:
  ret void
}}

define internal void @task(ptr %state) {{
entry:
  call void @work(ptr %state)
  call void @release(ptr %state)
  ret void
}}

define internal void @large_pages(ptr %memory, i64 %bytes) {{
entry:
  %large = icmp uge i64 %bytes, 4194304
  br i1 %large, label %advise, label %end
advise:
  %from = ptrtoint ptr %memory to i64
  %up = add i64 %from, 4095
  %first = and i64 %up, -4096
  %past = add i64 %from, %bytes
  %length = sub i64 %past, %first
  %page = inttoptr i64 %first to ptr
  %ignored = call i32 @madvise(ptr %page, i64 %length, i32 14)
  br label %end
end:
  ret void
}}

define ptr @{name}(ptr %frame) {{
entry:
{described}
  %execute = icmp eq i32 %stage.is, {execute}
  br i1 %execute, label %run, label %leave
leave:
  ret ptr null
run:
  %state = call ptr @malloc(i64 {state_bytes})
  %args.at = getelementptr %frame, ptr %frame, i64 0, i32 5, i32 4
  %args = load ptr, ptr %args.at
  %rets.at = getelementptr %frame, ptr %frame, i64 0, i32 6, i32 4
  %rets = load ptr, ptr %rets.at
{copies}
  %size.pointer = load ptr, ptr %array0
  %size32 = load i32, ptr %size.pointer
  %size = zext i32 %size32 to i64
  %size.up = add i64 %size, {spare_lanes}
  %count = udiv i64 %size.up, {lanes}
{advice}
  %pieces = udiv i64 %count, {pieces}
  %least = icmp ugt i64 %pieces, 1
  %share = select i1 %least, i64 %pieces, i64 1
  store i64 0, ptr %state
  %done.at = getelementptr %state, ptr %state, i64 0, i32 1
  store i64 0, ptr %done.at
  %held.at = getelementptr %state, ptr %state, i64 0, i32 2
  store i64 1, ptr %held.at
  %count.at = getelementptr %state, ptr %state, i64 0, i32 3
  store i64 %count, ptr %count.at
  %share.at = getelementptr %state, ptr %state, i64 0, i32 4
  store i64 %share, ptr %share.at
  %api.pointer = getelementptr %frame, ptr %frame, i64 0, i32 2
  %api = load ptr, ptr %api.pointer
  %schedule.at = getelementptr %api, ptr %api, i64 0, i32 4, i64 {schedule}
  %schedule = load ptr, ptr %schedule.at
  %context.at = getelementptr %frame, ptr %frame, i64 0, i32 3
  %context = load ptr, ptr %context.at
  %request = alloca %schedule
  store i64 40, ptr %request
  %request.1 = getelementptr %schedule, ptr %request, i64 0, i32 1
  store ptr null, ptr %request.1
  %request.2 = getelementptr %schedule, ptr %request, i64 0, i32 2
  store ptr %context, ptr %request.2
  %request.3 = getelementptr %schedule, ptr %request, i64 0, i32 3
  store ptr @task, ptr %request.3
  %request.4 = getelementptr %schedule, ptr %request, i64 0, i32 4
  store ptr %state, ptr %request.4
  %spare = sub i64 %count, 1
  %enough = icmp ult i64 %spare, {helpers}
  %wanted = select i1 %enough, i64 %spare, i64 {helpers}
  br label %ask
ask:
  %k = phi i64 [ 0, %run ], [ %k.next, %next ]
  %all = icmp uge i64 %k, %wanted
  br i1 %all, label %own, label %one
one:
  %held.before = atomicrmw add ptr %held.at, i64 1 acq_rel
  %problem = call ptr %schedule(ptr %request)
  %refused = icmp ne ptr %problem, null
  br i1 %refused, label %back, label %next
back:
  call void @release(ptr %state)
  br label %next
next:
  %k.next = add i64 %k, 1
  br label %ask
own:
  call void @work(ptr %state)
  br label %wait
wait:
  %done = load atomic i64, ptr %done.at acquire, align 8
  %complete = icmp eq i64 %done, %count
  br i1 %complete, label %end, label %yield
yield:
  %ignored = call i32 @sched_yield()
  br label %wait
end:
  call void @release(ptr %state)
  ret ptr null
}}
"""
# Without the last two, vectors spilled to the stack lie across cache lines in most runs.
_OPTIONS = '"prefer-vector-width"="512" nounwind "stackrealign" "frame-pointer"="all"'


def module(
    text: Text, arguments: int, results: Sequence[int], is_optimized: bool
) -> tuple[str, str]:
    """Return the name of a function, and the module that contains the lines of its block.

    Args:
        text: the lines, with `array_address` for the addresses of arrays.
        arguments: number of input arrays, before which the batch size is passed as an int32.
        results: bytes of a trajectory in each of the output arrays.
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
        source, place = ("args", k) if k <= arguments else ("rets", k - arguments - 1)
        copies += [
            f"%buffer{k}.at = getelementptr ptr, ptr %{source}, i64 {place}",
            f"%buffer{k} = load ptr, ptr %buffer{k}.at",
            f"%data{k}.at = getelementptr %buffer, ptr %buffer{k}, i64 0, i32 3",
            f"%data{k} = load ptr, ptr %data{k}.at",
            f"%array{k} = getelementptr %state, ptr %state, i64 0, i32 5, i64 {k}",
            f"store ptr %data{k}, ptr %array{k}",
        ]
    parts = {
        "arrays": arrays,
        "tables": "\n".join(text.tables),
        "declared": "\n".join(sorted(text.declared.values())),
        "lines": "\n".join(text.lines),
        "options": _OPTIONS,
        "scratch": text.bytes + 64,
        "types": ffi.TYPES,
        "described": ffi.described(traits=0),
        "execute": ffi.EXECUTE,
        "schedule": ffi.SCHEDULE,
        "state_bytes": 8 * (5 + arrays),
        "copies": "\n".join(copies),
        "advice": "\n".join(advice),
        "lanes": text.lanes,
        "spare_lanes": text.lanes - 1,
        # Blocks differ in time (rare cases, loops until the last lane is done), so each thread
        # takes many small shares rather than one large one.
        "pieces": 16 * threads,
        "helpers": threads - 1,
    }
    name = f"jaxmech_{sha256(_MODULE, str((parts, is_optimized)), processor())[:32]}"
    return name, _MODULE.format(name=name, **parts)


def array_address(text: Text, number: int) -> str:
    """Write the load of the address of an array: 0 is the batch size, then come the inputs."""
    place = text.line(f"getelementptr %state, ptr %state, i64 0, i32 5, i64 {number}")
    return text.line(f"load ptr, ptr {place}")


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
