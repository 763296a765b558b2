"""GPU kernels: functions in which every thread loops over trajectories with a grid's stride."""

from dataclasses import dataclass

from jaxmech.compiler.backends.cpu.program import Facts
from jaxmech.compiler.backends.cuda.ptx import OLDEST, ptx
from jaxmech.compiler.backends.llvm.body import Body, computed_results
from jaxmech.compiler.backends.llvm.builder import Text
from jaxmech.compiler.backends.llvm.lower import ARRAY_ALIGN
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.utils.digests import sha256

# Threads of a block: two warps, so that for any number of registers at most one of the warps that
# fit a multiprocessor is missing, and a small batch spreads over all of them. Not measured.
BLOCK = 64
MOST_SCRATCH = 2**19 - 2**12  # bytes of a thread's local memory, with some left for spills
MOST_ARRAYS = 500  # pointers: a kernel has 4,352 bytes of parameters up to PTX 8.0

# Registers of the hardware hold the index of a thread. The weights keep rare cases out of the way.
# The largest number of threads is not stated: ptxas would spill rather than use a few more
# registers.
_MODULE = """\
{tables}
{declared}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()

!0 = !{{!"branch_weights", i32 1, i32 1000}}
{limit}

define ptx_kernel void @{name}(i32 %size, {arrays}) nounwind {{
entry:
  %scratch = alloca [{scratch} x i8], align 16
  %thread32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %threads32 = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %block32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %blocks32 = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %thread = zext i32 %thread32 to i64
  %threads = zext i32 %threads32 to i64
  %block = zext i32 %block32 to i64
  %blocks = zext i32 %blocks32 to i64
  %before = mul i64 %block, %threads
  %first = add i64 %before, %thread
  %grid = mul i64 %blocks, %threads
  %count = zext i32 %size to i64
  %any = icmp ult i64 %first, %count
  br i1 %any, label %body, label %end
body:
  %trajectory = phi i64 [ %first, %entry ], [ %following, %{last} ]
{lines}
  %following = add i64 %trajectory, %grid
  %more = icmp ult i64 %following, %count
  br i1 %more, label %body, label %end
end:
  ret void
}}
"""
_LIMIT = """\
!nvvm.annotations = !{{!1}}
!1 = !{{ptr @{name}, !"maxnreg", i32 {registers}}}
"""


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
    kernel: Kernel, moving: frozenset[int], size: int, *, target: str = OLDEST,
    registers: int | None = None,
) -> CudaProgram:  # fmt: skip
    """Generate the PTX of a kernel.

    Args:
        kernel: the kernel of one trajectory.
        moving: indices of the arguments that differ in a batch, which is their first axis.
        size: number of trajectories; the text is the same for all sizes.
        target: the oldest supported architecture; newer ones run the kernel too.
        registers: limit on the registers of a thread; by default as many as it needs, up to 255.

    Raises:
        UnsupportedError: an operation or a type for which there is no instruction, or more memory
            than a thread can have.
        LibdeviceError: a function such as `exp` is needed, and libdevice is not installed.
    """
    name, text = module(kernel, moving, registers)
    facts = Facts(name, 1, tuple(computed_results(kernel)))
    return CudaProgram(ptx(text, target), name, BLOCK, facts)


def module(kernel: Kernel, moving: frozenset[int], registers: int | None = None) -> tuple[str, str]:
    """The name of the function, and the text of its LLVM module.

    Raises:
        UnsupportedError: as for `cuda_program`.
    """
    text = Text(1, on_gpu=True)
    text.label("body")
    Body(text, kernel, moving, "%trajectory", lambda k: f"%array{k}").write()
    arguments = len(kernel.avals)
    arrays = arguments + len(computed_results(kernel))
    if text.bytes > MOST_SCRATCH or arrays > MOST_ARRAYS:
        raise UnsupportedError(
            f"{arrays} arrays and {text.bytes:,} bytes of memory for each thread of a GPU, "
            f"which has {MOST_ARRAYS} and {MOST_SCRATCH:,} at most"
        )
    parts = {
        "tables": "\n".join(text.tables),
        "declared": "\n".join(sorted(text.declared.values())),
        # `noalias` holds because XLA allocates results separately; it lets loads move across
        # stores.
        "arrays": ", ".join(
            f"ptr noalias {'readonly ' if k < arguments else ''}align {ARRAY_ALIGN} %array{k}"
            for k in range(arrays)
        ),
        "scratch": text.bytes,
        "last": text.block,
        "lines": "\n".join(text.lines[1:]),
    }
    name = f"jaxmech_{sha256(_MODULE, str(parts), str(registers))[:32]}"
    limit = _LIMIT.format(name=name, registers=registers) if registers else ""
    return name, _MODULE.format(name=name, limit=limit, **parts)
