"""A kernel over a whole batch, as a primitive of JAX.

So what nobody asks for is not computed: where a program drops some of the results, JAX tells the
primitive, and the code is written without them. It is compiled when the program is, not before, and
for the platform that the program is lowered for; where there is no native code, by `jax.vmap`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Primitive
from jax.interpreters import batching, mlir, partial_eval
from jaxtyping import Array

from jaxmech.compiler.backends.cpu import call as cpu
from jaxmech.compiler.backends.cpu.program import program
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import UnsupportedError

_CALLED = {"cpu": cpu.called}  # the call of native code by platform


def over_batch(
    kernel: Kernel, batched: Sequence[bool], size: int, args: Sequence[Array]
) -> list[Array]:
    """The results of a batch, with its axis in front, as the arguments that are flagged.

    Args:
        kernel: what is computed for one trajectory.
        batched: which of its arguments differ between trajectories.
        size: number of trajectories.
        args: the arguments.

    Raises:
        UnsupportedError: an operation or a type for which there is no instruction.
    """
    moving = frozenset(k for k, is_batched in enumerate(batched) if is_batched)
    program(kernel, moving, size).require_supported()  # now, while there is another way
    return list(_lanes.bind(*map(jnp.asarray, args), kernel=kernel, moving=moving, size=size))


_lanes = Primitive("lanes")
_lanes.multiple_results = True
# A kernel is equal to itself alone, so a static argument that costs nothing to compare.
_lanes.def_impl(jax.jit(_lanes.bind, static_argnames=("kernel", "moving", "size")))


def _shapes(*avals: Any, kernel: Kernel, moving: frozenset[int], size: int) -> list[ShapedArray]:
    return [ShapedArray((size, *aval.shape), aval.dtype) for aval in kernel.out_avals]


_lanes.def_abstract_eval(_shapes)


def _plain(*args: Array, kernel: Kernel, moving: frozenset[int], size: int) -> list[Array]:
    """The results by `jax.vmap`."""
    axes = [0 if k in moving else None for k in range(len(args))]
    return jax.vmap(kernel.plain, axes, axis_size=size)(*args)


def _called(*args: Array, platform: str, kernel: Kernel, **params: Any) -> list[Array]:
    """The results by native code; by `jax.vmap` what only another platform has instructions for."""
    if params["size"] == 0:
        return [jnp.zeros((0, *aval.shape), aval.dtype) for aval in kernel.out_avals]
    try:
        return _CALLED[platform](*args, kernel=kernel, **params)
    except UnsupportedError:
        return _plain(*args, kernel=kernel, **params)


mlir.register_lowering(_lanes, mlir.lower_fun(_plain, multiple_results=True))
for _platform in _CALLED:
    _call = mlir.lower_fun(partial(_called, platform=_platform), multiple_results=True)
    mlir.register_lowering(_lanes, _call, platform=_platform)


def _without_unused(used: Sequence[bool], *rest: Any) -> tuple[list[bool], JaxprEqn | None]:
    """The call for the results that are used; jax 0.12 says which arguments live, too."""
    eqn: JaxprEqn = rest[-1]
    if not any(used):
        return [False] * len(eqn.invars), None
    if all(used):
        return [True] * len(eqn.invars), eqn
    kernel = eqn.params["kernel"]

    kernel = kernel.restricted(used)
    if kernel.unsafe_origins:  # a dropped result may be what shows a NaN
        return [True] * len(eqn.invars), eqn
    params = {**eqn.params, "kernel": kernel}
    outvars = [x for x, is_used in zip(eqn.outvars, used, strict=True) if is_used]
    return [True] * len(eqn.invars), eqn.replace(outvars=outvars, params=params)


partial_eval.dce_rules[_lanes] = _without_unused


def _over_batches(
    args: Sequence[Any], axes: Sequence[int | None], *, kernel: Kernel, moving: frozenset[int],
    size: int,
) -> tuple[list[Array], list[int]]:  # fmt: skip
    """A batch of batches is one long batch."""
    batches = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    merged = []
    for k, (x, axis) in enumerate(zip(args, axes, strict=True)):
        x = x if axis is None else jnp.moveaxis(x, axis, 0)
        if k in moving:
            x = jnp.broadcast_to(x, (batches, *x.shape)) if axis is None else x
            x = x.reshape(batches * size, *x.shape[2:])
        elif axis is not None:
            x = jnp.repeat(x, size, axis=0)
        merged.append(x)
    flags = [k in moving or axis is not None for k, axis in enumerate(axes)]
    outs = over_batch(kernel, flags, batches * size, merged)
    return [x.reshape(batches, size, *x.shape[1:]) for x in outs], [0] * len(outs)


batching.primitive_batchers[_lanes] = _over_batches
