"""A kernel over a batch: into the layout of lanes, through native code or XLA, and back."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.lanes.blocks import blocks
from jaxmech.lanes.kernel import Kernel
from jaxmech.lanes.rows import rows
from jaxmech.lanes.source import LANES


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
    native = jax.default_backend() == "cpu"
    lanes = LANES if native else size
    count = -(-size // lanes)
    moving = {
        k: _blocked(x, count, lanes, k in kernel.sequences)
        for k, (x, is_batched) in enumerate(zip(args, batched, strict=True))
        if is_batched
    }
    fixed = {k: x for k, x in enumerate(args) if k not in moving}
    if native:
        results = blocks(kernel, moving, fixed, count)
    else:
        whole = {k: x[0] for k, x in moving.items()}
        results = [x[None] for x in rows(kernel, whole, fixed, size)]
    return [_unblocked(x, aval, size) for x, aval in zip(results, kernel.out_avals, strict=True)]


def _blocked(x: Array, count: int, lanes: int, is_sequence: bool) -> Array:
    """(size, ...) as (blocks, numbers, lanes), a sequence as (blocks, iterations, numbers, lanes).

    The last block is filled up with copies of the last trajectory.
    """
    spare = jnp.broadcast_to(x[-1:], (count * lanes - x.shape[0], *x.shape[1:]))
    x = jnp.concatenate([x, spare])
    if is_sequence:
        return jnp.moveaxis(x.reshape(count, lanes, x.shape[1], math.prod(x.shape[2:])), 1, -1)
    return jnp.moveaxis(x.reshape(count, lanes, math.prod(x.shape[1:])), 1, -1)


def _unblocked(x: Array, aval: Any, size: int) -> Array:
    """The way back: (blocks, ..., lanes) as (size, ...) of the right shape and type."""
    x = jnp.moveaxis(x, -1, 1)
    return x.reshape(x.shape[0] * x.shape[1], *aval.shape)[:size].astype(aval.dtype)
