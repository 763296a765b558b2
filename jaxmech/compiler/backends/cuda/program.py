"""A kernel for the GPU, in PTX: loaded from the cache on disk, or generated.

It is a function in which every thread loops over trajectories with a grid's stride.
"""

import json
import os
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import llvmlite
import llvmlite.binding as llvm
from jaxtyping import Array

from jaxmech.compiler.backends import disk_cache
from jaxmech.compiler.backends.cpu.program import Facts
from jaxmech.compiler.backends.cuda.driver import driver, load
from jaxmech.compiler.backends.llvm.body import Body, computed_results
from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder, template
from jaxmech.compiler.backends.llvm.sequences import ARRAY_ALIGN
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.utils.digests import sha256, sources_digest

_FILE = "nvvm/libdevice/libdevice.10.bc"
_WHEELS = ("cuda_nvcc", "cu13")  # folders of CUDA 12's and CUDA 13's wheels in `nvidia`
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_USUAL = Path("/usr/local/cuda")


class LibdeviceError(RuntimeError):
    """libdevice is needed and not installed."""


@cache
def bitcode() -> bytes:
    """Return the content of the file.

    Raises:
        LibdeviceError: if it is not found; the message says how to install it.
    """
    positions = folders()
    for folder in positions:
        file = folder / _FILE
        if file.is_file():
            return file.read_bytes()
    raise LibdeviceError(
        f"A GPU kernel that needs exp, log, pow or the like needs {_FILE}, which is in none of "
        f"{', '.join(map(str, positions)) or 'the installed packages'}; install `jax[cuda12]` or "
        "`jax[cuda13]`, or set the environment variable CUDA_HOME to the folder of a "
        "CUDA toolkit."
    )


def folders() -> list[Path]:
    """Folders where CUDA may be: wheels, toolkits named in the environment, the default path."""
    spec = find_spec("nvidia")
    roots = spec.submodule_search_locations or [] if spec else []
    wheels = [Path(root, name) for root in roots for name in _WHEELS]
    configured = [Path(os.environ[name]) for name in _TOOLKITS if os.environ.get(name)]
    return [*wheels, *configured, _USUAL]


OLDEST = "sm_75"  # Turing: with PTX 6.3 it is accepted by every driver of CUDA 12 and 13
_TRIPLE = "nvptx64-nvidia-cuda"


def ptx(module: str, target: str) -> str:
    """Translate a module to PTX.

    Raises:
        LibdeviceError: if the module needs libdevice, which is not installed.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=target, opt=3)
    parsed = llvm.parse_assembly(module)
    parsed.triple, parsed.data_layout = _TRIPLE, str(machine.target_data)
    if "@__nv_" in module:
        _link_libdevice(parsed, machine)
    return machine.emit_assembly(parsed)


def _link_libdevice(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Link the functions of libdevice that the module calls, for internal use."""
    library = llvm.parse_bitcode(bitcode())
    library.triple, library.data_layout = module.triple, module.data_layout
    names = [function.name for function in library.functions if not function.is_declaration]
    module.link_in(library)
    for name in names:
        # Not exported, so that unused functions are dropped.
        module.get_function(name).linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


# Threads of a block: two warps, so that for any number of registers at most one of the warps that
# fit a multiprocessor is missing, and a small batch spreads over all of them. Not measured.
BLOCK = 64
MOST_SCRATCH = 2**19 - 2**12  # bytes of a thread's local memory, with some left for spills
MOST_ARRAYS = 500  # pointers: a kernel has 4,352 bytes of parameters up to PTX 8.0

_MODULE = template("cuda/kernel.ll")


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
    kernel: Kernel, batched: frozenset[int], size: int, *, target: str = OLDEST
) -> CudaProgram:
    """Generate the PTX of a kernel.

    Args:
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch, which is their first axis.
        size: number of trajectories; the text is the same for all sizes.
        target: the oldest supported architecture; newer ones run the kernel too.

    Raises:
        UnsupportedError: for an operation or a type without an instruction, or if a thread cannot
            have as much memory.
        LibdeviceError: if a function such as `exp` is needed, and libdevice is not installed.
    """
    name, builder = module(kernel, batched)
    facts = Facts(name, 1, tuple(computed_results(kernel)))
    return CudaProgram(ptx(builder, target), name, BLOCK, facts)


def module(kernel: Kernel, batched: frozenset[int]) -> tuple[str, str]:
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
    name = f"jaxmech_{sha256(_MODULE.template, str(parts))[:32]}"
    return name, _MODULE.substitute(parts, name=name)


class GpuKernel:
    """A kernel for the GPU, generated at most once, on first use.

    Args:
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch.
    """

    def __init__(self, kernel: Kernel, batched: frozenset[int]) -> None:
        self.kernel, self.batched = kernel, batched

    def require_supported(self) -> None:
        """Raise `UnsupportedError` for an operation or a type for which there is no instruction."""
        _ = self.generated

    def prepare(self) -> None:
        """Generate it, or raise the error of the compiler; the driver compiles it later."""
        _ = self.generated

    @cached_property
    def generated(self) -> CudaProgram:
        """The generated kernel.

        Raises:
            UnsupportedError: for an operation or a type without an instruction.
        """
        if (stored := self._stored) is None:
            return self._generated()
        header, _, ptx = stored.partition(b"\n")
        facts = json.loads(header)
        if "unsupported" in facts:
            raise UnsupportedError(facts["unsupported"])
        entry, results = facts["entry"], tuple(facts["results"])
        return CudaProgram(ptx.decode(), entry, facts["block"], Facts(entry, 1, results))

    def registered_name(self) -> str:
        """The name under which the kernel is registered with XLA.

        Raises:
            UnsupportedError: for an operation or a type without an instruction.
            CudaError: if the driver is too old, or refuses the kernel.
        """
        generated = self.generated
        arguments, results = len(self.kernel.avals), len(generated.facts.results)
        load(generated.entry, generated.ptx, generated.entry, generated.block, arguments, results)
        return generated.entry

    def _generated(self) -> CudaProgram:
        try:
            generated = cuda_program(self.kernel, self.batched, 1, target=_target())
        except UnsupportedError as error:
            self._store({"unsupported": str(error)})
            raise
        header = {
            "entry": generated.entry,
            "block": generated.block,
            "results": generated.facts.results,
        }
        self._store(header, generated.ptx.encode())
        return generated

    def _store(self, header: dict[str, Any], ptx: bytes = b"") -> None:
        if disk_cache.cache_folder():
            disk_cache.store(self._key, json.dumps(header).encode() + b"\n" + ptx)

    @cached_property
    def _key(self) -> str:
        kind = sorted(self.batched), self.kernel.results, self.kernel.sequences, _target()
        how = self.kernel.reading.origins.name
        return sha256("cuda", self.kernel.reading.digest, repr((kind, how)), _environment())

    @cached_property
    def _stored(self) -> bytes | None:
        return disk_cache.load(self._key) if disk_cache.cache_folder() else None


def program(kernel: Kernel, batched: frozenset[int], size: int) -> GpuKernel:
    """The GPU kernel of a kernel, for batches of any size."""
    kind = "cuda", batched
    if kind not in kernel.programs:
        kernel.programs[kind] = GpuKernel(kernel, batched)
    return kernel.programs[kind]


@cache
def _target() -> str:
    """The oldest supported architecture, whose kernels newer devices run too."""
    cuda = driver()
    oldest = int(OLDEST.removeprefix("sm_"))
    return f"sm_{min([oldest, *(cuda.capabilities() if cuda else [])])}"


@cache
def _environment() -> str:
    """A key of everything but the graph: the compiler's source and its libraries."""
    sources = sources_digest(Path(__file__).parents[2])
    return repr((sources, jax.__version__, llvmlite.__version__))


LARGEST = 2**31 - 1  # the largest number of trajectories of a kernel


def cuda_call(*args: Array, kernel: Kernel, batched: frozenset[int], size: int) -> list[Array]:
    """Call a kernel from a program that is being lowered.

    Raises:
        UnsupportedError: for an operation or a type without an instruction.
        ValueError: if too many trajectories.
        CudaError: if the driver is too old, or refuses the kernel.
    """
    if size > LARGEST:
        raise ValueError(
            f"A batch on one GPU must have at most {LARGEST:,} trajectories, but has {size:,}; run "
            "it in parts, such as with `jax.lax.map(..., batch_size=...)`."
        )
    code = program(kernel, batched, size)
    shapes = [jax.ShapeDtypeStruct((size, *aval.shape), aval.dtype) for aval in kernel.out_avals]
    indices = code.generated.facts.results
    out_shapes = [shapes[k] for k in indices]
    outs = jax.ffi.ffi_call(code.registered_name(), out_shapes)(*args) if indices else []
    results = dict(zip(indices, outs, strict=True))
    return [results.get(k, jnp.zeros(x.shape, x.dtype)) for k, x in enumerate(shapes)]
