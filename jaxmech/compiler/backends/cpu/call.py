"""Calls of native code on the CPU, in blocks of as many trajectories as a vector has lanes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler.backends.cpu.program import program
from jaxmech.compiler.backends.cpu.runtime import call
from jaxmech.compiler.frontend.build import Kernel


def cpu_call(*args: Array, kernel: Kernel, batched: frozenset[int], size: int) -> list[Array]:
    """Call native code from a program that is being lowered; a batch fills at least one block.

    Raises:
        UnsupportedError: for an operation or a type without an instruction.
    """
    code = program(kernel, batched, size)
    indices = code.facts.results
    spare = max(code.facts.lanes - size, 0)
    padded_size = jnp.asarray(size + spare, jnp.int32)
    filled = [_filled(x, spare) if k in batched else x for k, x in enumerate(args)]
    shapes = [
        jax.ShapeDtypeStruct((size + spare, *aval.shape), aval.dtype) for aval in kernel.out_avals
    ]
    outs = call(code.registered_name(), [padded_size, *filled], [shapes[k] for k in indices])
    results = dict(zip(indices, outs, strict=True))
    return [results.get(k, jnp.zeros(x.shape, x.dtype))[:size] for k, x in enumerate(shapes)]


def _filled(x: Array, spare: int) -> Array:
    """Append copies of the last trajectory."""
    return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (spare, *x.shape[1:]))]) if spare else x
