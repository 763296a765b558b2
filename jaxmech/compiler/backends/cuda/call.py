"""Calls of kernels on an NVIDIA GPU, with one thread for each trajectory."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler.backends.cuda.program import program
from jaxmech.compiler.frontend.build import Kernel

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
