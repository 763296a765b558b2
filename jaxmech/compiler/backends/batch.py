"""A kernel over a batch: by native code on a CPU, elsewhere by XLA with the batch as last axis."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler.backends.primitive import blocks
from jaxmech.compiler.backends.xla import rows
from jaxmech.compiler.frontend.build import Kernel


def over_batch(
    kernel: Kernel, batched: Sequence[bool], size: int, args: Sequence[Array]
) -> list[Array]:
    """The results for a batch; every result has the batch as its first axis.

    Args:
        kernel: what is computed for one trajectory.
        batched: which arguments have the axis of the batch, in front.
        size: number of trajectories.
        args: the arguments.

    Raises:
        UnsupportedError: on a CPU, an operation or a type for which there is no instruction.
    """
    fixed = {k: x for k, x in enumerate(args) if not batched[k]}
    moving = {k: x for k, x in enumerate(args) if batched[k]}
    if jax.default_backend() == "cpu":
        return blocks(kernel, moving, fixed, size)
    last = {k: _batch_last(x, k in kernel.sequences) for k, x in moving.items()}
    results = rows(kernel, last, fixed, size)
    return [
        jnp.moveaxis(x, -1, 0).reshape(size, *aval.shape).astype(aval.dtype)
        for x, aval in zip(results, kernel.out_avals, strict=True)
    ]


def _batch_last(x: Array, is_sequence: bool) -> Array:
    """(size, ...) as (numbers, size), a sequence as (iterations, numbers, size)."""
    size, *shape = x.shape
    kept = shape[:1] if is_sequence else []
    return jnp.moveaxis(x.reshape(size, *kept, math.prod(shape[len(kept) :])), 0, -1)
