"""Kernels as foreign functions of XLA: the handler that starts one, in native code.

XLA calls the handler of a kernel from its own threads, several at once and for several devices. The
handler looks up the stream, and starts the kernel there: a thread for each trajectory, in a grid of
the size of the batch. The preceding stage loads the kernel for the device of the stream, if it is
not loaded yet: the call itself may be captured, to be replayed later.
"""

import ctypes
from collections.abc import Sequence
from threading import Lock
from typing import Any

import jax
import llvmlite.binding as llvm

from jaxmech.compiler.backends.cuda.driver import Driver, driver
from jaxmech.compiler.backends.llvm.template import CAPTURABLE, FFI_TYPES, answer_query, template

_CALLS = (
    "cuLaunchKernel",
    "cuStreamGetCtx",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuKernelGetFunction",
    "cuGetErrorName",
    "cuGetErrorString",
)
_MODULE = template("cuda/handler.ll")


class _Loaded:
    """The objects that keep kernels and handlers registered with XLA alive."""

    def __init__(self) -> None:
        self.engines: dict[str, Any] = {}
        self.one_at_a_time = Lock()


_LOADED = _Loaded()


def load(name: str, ptx: str, entry: str, block: int, arguments: int, results: int) -> None:
    """Register a kernel with XLA under a name; do nothing on a machine without a GPU.

    Args:
        name: a unique name.
        ptx: text of the kernel.
        entry: name of its function, of the batch size and the addresses of all arrays.
        block: threads in a block.
        arguments: number of input arrays.
        results: number of output arrays, at least one.

    Raises:
        CudaError: if the driver is too old, or refuses the kernel.
    """
    cuda = driver()
    if cuda is None:
        return  # the program can be inspected, but not run
    with _LOADED.one_at_a_time:
        if name in _LOADED.engines:
            return
        handle = cuda.kernel(ptx, entry)
        engine, address = handler(name, cuda, handle, block, arguments, results)
        capsule = jax.ffi.pycapsule(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address))
        stages = {"initialize": capsule, "execute": capsule}
        jax.ffi.register_ffi_target(name, stages, platform="CUDA")
        _LOADED.engines[name] = engine


def handler(
    name: str, cuda: Driver, kernel: int, block: int, arguments: int, results: int
) -> tuple[Any, int]:
    """The handler of a kernel: the object that keeps it alive, and its address."""
    source = module(name, cuda, kernel, block, arguments, results)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # A handler only passes addresses on: compile time matters more than run time.
    machine = llvm.Target.from_default_triple().create_target_machine(opt=0, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(source), machine)
    engine.finalize_object()
    return engine, engine.get_function_address(name)


def module(name: str, cuda: Driver, kernel: int, block: int, arguments: int, results: int) -> str:
    """The text of the module of a handler, with the arguments of `handler`."""
    return _MODULE.substitute(
        name=name,
        types=FFI_TYPES,
        described=answer_query(CAPTURABLE),
        parameters=1 + arguments + results,
        pointers="\n".join(_pointers(arguments, results)),
        first_result=arguments,
        kernel=_pointer(kernel),
        block=block,
        spare=block - 1,
        **{call: _pointer(cuda.address(call)) for call in _CALLS},
    )


def _pointers(arguments: int, results: int) -> Sequence[str]:
    """The lines that write the addresses of all arrays into the parameters."""
    lines = []
    for k in range(arguments + results):
        source, position = ("args", k) if k < arguments else ("rets", k - arguments)
        lines += [
            f"  %buffer{k}.at = getelementptr ptr, ptr %{source}, i64 {position}",
            f"  %buffer{k} = load ptr, ptr %buffer{k}.at",
            f"  %data{k}.at = getelementptr %buffer, ptr %buffer{k}, i64 0, i32 3",
            f"  %place{k} = getelementptr ptr, ptr %parameters, i64 {1 + k}",
            f"  store ptr %data{k}.at, ptr %place{k}",
        ]
    return lines


def _pointer(address: int) -> str:
    return f"inttoptr (i64 {address} to ptr)"
