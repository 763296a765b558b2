"""The text of a GPU kernel, run by the processor, one thread after the other.

Only names are changed in the text: the registers that hold the index of a thread become functions,
and the functions of libdevice those of the C library.
"""

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from experiments.cuda.kernels import Called, Runner
from jaxmech.compiler.backends.cuda import module
from jaxmech.compiler.backends.llvm.lower import computed_results

_REGISTERS = ("tid", "ntid", "ctaid", "nctaid")
_PREFIX = "llvm.nvvm.read.ptx.sreg."


def on_host(called: Called, threads: int = 3, blocks: int = 2) -> Runner:
    """Make the kernel a function of arrays, on a grid of `threads` threads in `blocks` blocks."""
    name, text = module(*called)
    engine = _compiled(text)
    start = engine.get_function_address(name)
    place = (ctypes.c_int32 * len(_REGISTERS)).from_address(engine.get_global_value_address("at"))
    kernel = called.kernel
    some = computed_results(kernel)

    def run(args: list[np.ndarray], size: int) -> list[np.ndarray]:
        outs = [_unwritten((size, *x.shape), x.dtype) for x in kernel.out_avals]
        arrays = [_aligned(x) for x in args] + [outs[k] for k in some]
        kinds = [ctypes.c_int32, *[ctypes.c_void_p] * len(arrays)]
        function = ctypes.CFUNCTYPE(None, *kinds)(start)
        for block in range(blocks):
            for thread in range(threads):
                place[:] = thread, threads, block, blocks
                function(size, *(x.ctypes.data for x in arrays))
        return outs

    run.engine = engine  # type: ignore[attr-defined]  # keeps the code alive
    return run


def _compiled(text: str) -> Any:
    """Compile the module for this processor."""
    lines = [line for line in text.splitlines() if not line.startswith(f"declare i32 @{_PREFIX}")]
    text = "\n".join(lines).replace("define ptx_kernel", "define").replace("@__nv_", "@")
    registers = "\n".join(
        f"define internal i32 @register.{name}.x() {{\n"
        f"  %at = getelementptr [{len(_REGISTERS)} x i32], ptr @at, i64 0, i64 {k}\n"
        f"  %x = load i32, ptr %at\n  ret i32 %x\n}}"
        for k, name in enumerate(_REGISTERS)
    )
    text = text.replace(f"@{_PREFIX}", "@register.")
    text = f"@at = global [{len(_REGISTERS)} x i32] zeroinitializer\n{registers}\n{text}"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2,
        jit=True,
    )  # fmt: skip
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    return engine


def _unwritten(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Make an array whose unwritten elements can be recognized."""
    return np.full(shape, np.nan if dtype.kind == "f" else 77, dtype)


def _aligned(x: np.ndarray) -> np.ndarray:
    """Copy an array as XLA would pass it: contiguous, from a multiple of 16 bytes."""
    x = np.ascontiguousarray(x)
    return x if x.ctypes.data % 16 == 0 else x.copy()
