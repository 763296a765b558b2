"""A whole batch by native code, in blocks of as many trajectories as a vector has lanes.

The call is a primitive of JAX, so that what nobody asks for is not computed: where a program drops
some of the results, JAX tells the primitive, and the code is written without them. It is compiled
when the program is, not before.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Primitive
from jax.interpreters import batching, mlir, partial_eval
from jaxtyping import Array

from jaxmech.compiler.backends.cpu.program import program
from jaxmech.compiler.backends.cpu.runtime import call
from jaxmech.compiler.frontend.build import Kernel


def blocks(
    kernel: Kernel, moving: dict[int, Array], fixed: dict[int, Array], size: int
) -> list[Array]:
    """The results of a batch; every result has the batch as its first axis.

    Args:
        kernel: what is computed for one trajectory.
        moving: arguments by number that differ between trajectories, likewise.
        fixed: arguments that all share.
        size: number of trajectories.

    Raises:
        UnsupportedError: an operation or a type for which there is no instruction.
    """
    program(kernel, frozenset(moving), size).require_supported()  # now, while there is another way
    args = [jnp.asarray({**moving, **fixed}[k]) for k in range(len(kernel.avals))]
    return list(_lanes.bind(*args, kernel=kernel, moving=frozenset(moving), size=size))


_lanes = Primitive("lanes")
_lanes.multiple_results = True
# A kernel is equal to itself alone, so a static argument that costs nothing to compare.
_lanes.def_impl(jax.jit(_lanes.bind, static_argnames=("kernel", "moving", "size")))


def _shapes(*avals: Any, kernel: Kernel, moving: frozenset[int], size: int) -> list[ShapedArray]:
    return [ShapedArray((size, *aval.shape), aval.dtype) for aval in kernel.out_avals]


_lanes.def_abstract_eval(_shapes)


def _called(*args: Array, kernel: Kernel, moving: frozenset[int], size: int) -> list[Array]:
    """The call itself, of a program that is being compiled. A batch fills one block at least."""
    if size == 0:
        return [jnp.zeros((0, *aval.shape), aval.dtype) for aval in kernel.out_avals]
    code = program(kernel, moving, size)
    some = code.facts.some
    spare = max(code.facts.lanes - size, 0)
    whole = jnp.asarray(size + spare, jnp.int32)
    filled = [_filled(x, spare) if k in moving else x for k, x in enumerate(args)]
    shapes = [
        jax.ShapeDtypeStruct((size + spare, *aval.shape), aval.dtype) for aval in kernel.out_avals
    ]
    outs = call(code.loaded(), [whole, *filled], [shapes[k] for k in some])
    results = dict(zip(some, outs, strict=True))
    return [results.get(k, jnp.zeros(x.shape, x.dtype))[:size] for k, x in enumerate(shapes)]


def _filled(x: Array, spare: int) -> Array:
    """With copies of the last trajectory at the end."""
    return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (spare, *x.shape[1:]))]) if spare else x


mlir.register_lowering(_lanes, mlir.lower_fun(_called, multiple_results=True), platform="cpu")


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
    merged, fixed = {}, {}
    for k, (x, axis) in enumerate(zip(args, axes, strict=True)):
        x = x if axis is None else jnp.moveaxis(x, axis, 0)
        if k in moving:
            x = jnp.broadcast_to(x, (batches, *x.shape)) if axis is None else x
            merged[k] = x.reshape(batches * size, *x.shape[2:])
        elif axis is None:
            fixed[k] = x
        else:
            merged[k] = jnp.repeat(x, size, axis=0)
    outs = blocks(kernel, merged, fixed, batches * size)
    return [x.reshape(batches, size, *x.shape[1:]) for x in outs], [0] * len(outs)


batching.primitive_batchers[_lanes] = _over_batches
