"""A kernel for the GPU, in PTX: loaded from the cache on disk, or generated."""

import json
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import llvmlite
from jaxtyping import Array

from jaxmech.compiler.backends import disk_cache
from jaxmech.compiler.backends.cpu.program import Facts
from jaxmech.compiler.backends.cuda.codegen import OLDEST, CudaProgram, cuda_program
from jaxmech.compiler.backends.cuda.driver import driver
from jaxmech.compiler.backends.cuda.runtime import load
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.utils.digests import sha256, sources_digest


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
