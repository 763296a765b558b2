"""GPU kernels: functions in which every thread loops over trajectories with a grid's stride."""

from dataclasses import dataclass

from jaxmech.compiler.backends.cpu.program import Facts
from jaxmech.compiler.backends.cuda.ptx import OLDEST, ptx
from jaxmech.compiler.backends.llvm.body import Body, computed_results
from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder
from jaxmech.compiler.backends.llvm.lower import ARRAY_ALIGN
from jaxmech.compiler.backends.llvm.template import template
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.utils.digests import sha256

# Threads of a block: two warps, so that for any number of registers at most one of the warps that
# fit a multiprocessor is missing, and a small batch spreads over all of them. Not measured.
BLOCK = 64
MOST_SCRATCH = 2**19 - 2**12  # bytes of a thread's local memory, with some left for spills
MOST_ARRAYS = 500  # pointers: a kernel has 4,352 bytes of parameters up to PTX 8.0

_MODULE = template("cuda/kernel.ll")
_LIMIT = template("cuda/register_limit.ll")


@dataclass(frozen=True)
class CudaProgram:
    """A kernel in the assembly language of NVIDIA's GPUs.

    Attributes:
        ptx: the text, which a driver compiles for the installed GPU.
        entry: name of its function, whose arguments are the batch size as an int32, then the
            addresses of the arguments of the kernel and of the results that are computed.
        block: threads in a block; any number of blocks computes any batch.
        facts: properties as for the CPU, with one lane.
    """

    ptx: str
    entry: str
    block: int
    facts: Facts


def cuda_program(
    kernel: Kernel, batched: frozenset[int], size: int, *, target: str = OLDEST,
    registers: int | None = None,
) -> CudaProgram:  # fmt: skip
    """Generate the PTX of a kernel.

    Args:
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch, which is their first axis.
        size: number of trajectories; the text is the same for all sizes.
        target: the oldest supported architecture; newer ones run the kernel too.
        registers: limit on the registers of a thread; by default as many as it needs, up to 255.

    Raises:
        UnsupportedError: for an operation or a type without an instruction, or if a thread cannot
            have as much memory.
        LibdeviceError: if a function such as `exp` is needed, and libdevice is not installed.
    """
    name, builder = module(kernel, batched, registers)
    facts = Facts(name, 1, tuple(computed_results(kernel)))
    return CudaProgram(ptx(builder, target), name, BLOCK, facts)


def module(
    kernel: Kernel, batched: frozenset[int], registers: int | None = None
) -> tuple[str, str]:
    """The name of the function, and the text of its LLVM module.

    Raises:
        UnsupportedError: as for `cuda_program`.
    """
    builder = AssemblyBuilder(1, on_gpu=True)
    builder.label("body")
    Body(builder, kernel, batched, "%trajectory", lambda k: f"%array{k}").write()
    arguments = len(kernel.avals)
    arrays = arguments + len(computed_results(kernel))
    if builder.bytes > MOST_SCRATCH or arrays > MOST_ARRAYS:
        raise UnsupportedError(
            f"{arrays} arrays and {builder.bytes:,} bytes of memory for each thread of a GPU, "
            f"which has {MOST_ARRAYS} and {MOST_SCRATCH:,} at most"
        )
    parts = {
        "tables": "\n".join(builder.tables),
        "declared": "\n".join(sorted(builder.declared.values())),
        # `noalias` holds because XLA allocates results separately; it lets loads move across
        # stores.
        "arrays": ", ".join(
            f"ptr noalias {'readonly ' if k < arguments else ''}align {ARRAY_ALIGN} %array{k}"
            for k in range(arrays)
        ),
        "scratch": builder.bytes,
        "last": builder.block,
        "lines": "\n".join(builder.lines[1:]),
    }
    name = f"jaxmech_{sha256(_MODULE.template, str(parts), str(registers))[:32]}"
    limit = _LIMIT.substitute(name=name, registers=registers) if registers else ""
    return name, _MODULE.substitute(parts, name=name, limit=limit)
