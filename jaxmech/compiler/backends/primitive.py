"""A kernel over a whole batch, as a primitive of JAX.

Unused results are eliminated: where a program drops some of them, JAX tells the primitive, and the
code is generated without them. It is compiled together with the program, and for the platform that
the program is lowered for; without native code for it, by `jax.vmap`.

Nested batches stay apart until then, because one of their axes may be divided among several
devices; each device merges its part of them into one long batch.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Primitive
from jax.interpreters import batching, mlir, partial_eval
from jaxtyping import Array

from jaxmech.compiler.backends.cpu.call import cpu_call
from jaxmech.compiler.backends.cpu.program import program as cpu_program
from jaxmech.compiler.backends.cuda.call import cuda_call
from jaxmech.compiler.backends.cuda.program import program as cuda_program
from jaxmech.compiler.backends.cuda.self_test import require_passed
from jaxmech.compiler.backends.partitioning import Axes, lowered_for_devices, resharded
from jaxmech.compiler.explain import Part, reason_of, warn_of_plain
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.platforms import likely_platform

_PROGRAMS: dict[str, Callable[..., Any]] = {"cpu": cpu_program, "cuda": cuda_program}
_CALLED = {"cpu": cpu_call, "cuda": cuda_call}  # the call of native code by platform


def over_batch(
    kernel: Kernel, batched: Sequence[bool], size: int, args: Sequence[Array]
) -> list[Array]:
    """The results of a batch along the first axis; flagged arguments have the same axis.

    Args:
        kernel: the kernel of one trajectory.
        batched: flags of the arguments that differ between trajectories.
        size: number of trajectories.
        args: the arguments.

    Raises:
        UnsupportedError: an operation or a type for which there is no instruction.
    """
    return _over_axes(kernel, tuple((0,) if has else () for has in batched), (size,), args)


def _over_axes(
    kernel: Kernel, axes: Axes, sizes: tuple[int, ...], args: Sequence[Array]
) -> list[Array]:
    """The results of a batch with several axes, the outermost first."""
    program = _PROGRAMS["cuda" if likely_platform() == "cuda" else "cpu"]
    moving, size = _moving(axes), math.prod(sizes)
    program(kernel, moving, size).require_supported()  # while a fallback is still possible
    return list(_lanes.bind(*map(jnp.asarray, args), kernel=kernel, axes=axes, sizes=sizes))


def _moving(axes: Axes) -> frozenset[int]:
    """The indices of the arguments that differ between trajectories."""
    return frozenset(k for k, own in enumerate(axes) if own)


_lanes = Primitive("lanes")
_lanes.multiple_results = True
# A kernel is equal to itself alone, so comparing it as a static argument is cheap.
_lanes.def_impl(jax.jit(_lanes.bind, static_argnames=("kernel", "axes", "sizes")))


def _shapes(*avals: Any, kernel: Kernel, axes: Axes, sizes: tuple[int, ...]) -> list[ShapedArray]:
    outs = [ShapedArray((*sizes, *aval.shape), aval.dtype) for aval in kernel.out_avals]
    return resharded(outs, avals, axes)


_lanes.def_abstract_eval(_shapes)


def _plain(*args: Array, kernel: Kernel, axes: Axes, sizes: tuple[int, ...]) -> list[Array]:
    """Compute the results by `jax.vmap`."""
    fn = kernel.plain
    for axis in reversed(range(len(sizes))):
        in_axes = [0 if axis in own else None for own in axes]
        fn = jax.vmap(fn, in_axes, axis_size=sizes[axis])
    return fn(*args)


def _called(
    platform: str, kernel: Kernel, axes: Axes, sizes: tuple[int, ...], *args: Array
) -> list[Array]:
    """Compute the results by native code, or by `jax.vmap` if only another platform can."""
    size = math.prod(sizes)
    if size == 0:
        return [jnp.zeros((*sizes, *aval.shape), aval.dtype) for aval in kernel.out_avals]
    try:
        if platform == "cuda":
            require_passed(over_batch)
        _PROGRAMS[platform](kernel, _moving(axes), size).prepare()
    except Exception as error:  # noqa: BLE001 any error of the compiler
        warn_of_plain([Part("loop", 0, 0, reason_of(error))])
        return _plain(*args, kernel=kernel, axes=axes, sizes=sizes)
    merged = [_merged(x, own, sizes) for x, own in zip(args, axes, strict=True)]
    outs = _CALLED[platform](*merged, kernel=kernel, moving=_moving(axes), size=size)
    return [x.reshape(*sizes, *x.shape[1:]) for x in outs]


def _merged(x: Array, own: Sequence[int], sizes: Sequence[int]) -> Array:
    """Merge all axes of the batch of x, if it has any of them."""
    if not own:
        return x
    single = x.shape[len(own) :]
    with_ones = [size if axis in own else 1 for axis, size in enumerate(sizes)]
    every = jnp.broadcast_to(x.reshape(*with_ones, *single), (*sizes, *single))
    return every.reshape(math.prod(sizes), *single)  # -1 would fail where single holds a 0


def _lowered(
    ctx: mlir.LoweringRuleContext, *args: Any, platform: str, kernel: Kernel, axes: Axes,
    sizes: tuple[int, ...],
) -> Any:  # fmt: skip
    return lowered_for_devices(ctx, partial(_called, platform, kernel, axes), axes, sizes, args)


mlir.register_lowering(_lanes, mlir.lower_fun(_plain, multiple_results=True))
for _platform in _CALLED:
    mlir.register_lowering(_lanes, partial(_lowered, platform=_platform), platform=_platform)


def _without_unused(used: Sequence[bool], *rest: Any) -> tuple[list[bool], JaxprEqn | None]:
    """The call for the used results; jax 0.12 passes the live arguments too."""
    eqn: JaxprEqn = rest[-1]
    if not any(used):
        return [False] * len(eqn.invars), None
    if all(used):
        return [True] * len(eqn.invars), eqn
    kernel = eqn.params["kernel"].with_results(used)
    if kernel.unsafe_origins:  # a dropped result may be the one that shows a NaN
        return [True] * len(eqn.invars), eqn
    params = {**eqn.params, "kernel": kernel}
    outvars = [x for x, is_used in zip(eqn.outvars, used, strict=True) if is_used]
    return [True] * len(eqn.invars), eqn.replace(outvars=outvars, params=params)


partial_eval.dce_rules[_lanes] = _without_unused


def _over_batches(
    args: Sequence[Any], places: Sequence[int | None], *, kernel: Kernel, axes: Axes,
    sizes: tuple[int, ...],
) -> tuple[list[Array], list[int]]:  # fmt: skip
    """Add one more axis for a batch of batches."""
    pairs = list(zip(args, places, strict=True))
    size = next(x.shape[place] for x, place in pairs if place is not None)
    args = [x if place is None else jnp.moveaxis(x, place, 0) for x, place in pairs]
    inner = [tuple(axis + 1 for axis in own) for own in axes]
    more = tuple(
        own if place is None else (0, *own) for own, place in zip(inner, places, strict=True)
    )
    outs = _over_axes(kernel, more, (size, *sizes), args)
    return outs, [0] * len(outs)


batching.primitive_batchers[_lanes] = _over_batches
