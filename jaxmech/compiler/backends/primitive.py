"""A kernel over a whole batch, as a primitive of JAX.

Unused results are eliminated: where a program drops some of them, JAX tells the primitive, and the
code is generated without them. It is compiled together with the program, and for the platform that
the program is lowered for; without native code for it, by `jax.vmap`.

Nested batches stay apart until then, because one of their axes may be divided among several
devices; each device merges its part of them into one long batch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler.backends.cpu import cpu_call, vector_registers
from jaxmech.compiler.backends.cpu import program as cpu_program
from jaxmech.compiler.backends.cuda import CudaError, cuda_call, driver
from jaxmech.compiler.backends.cuda import program as cuda_program
from jaxmech.compiler.backends.self_test import gpu, require_passed, verdict_on
from jaxmech.compiler.backends.sharding import Axes, lowered_for_devices, resharded
from jaxmech.compiler.explain import Part, reason_of, warn_of_plain
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.platforms import likely_platform, platform_of, why_not
from jaxmech.utils.jax_internals import (
    LoweringRuleContext,
    Narrow,
    Primitive,
    ShapedArray,
    lower_fun,
    set_rules,
)
from jaxmech.utils.jit_cache import jit_of

Content = Mapping[str, Any]  # the parameters of a primitive without `axes` and `sizes`


def batch_primitive(
    name: str,
    *,
    results: Callable[[Content], tuple[Sequence[Any], Any]],
    bind: Callable[..., list[Array]],
    narrow: Narrow,
    **lowerings: Any,
) -> Primitive:
    """Define a primitive over a batch.

    Args:
        name: its name.
        results: the shapes and types of the results of one trajectory, and the effects.
        bind: binds the primitive under one more axis, which is the first of `sizes`.
        narrow: the parameters without unused results, or None if all must be computed.
        **lowerings: as for `set_rules`.
    """
    primitive = Primitive(name)
    primitive.multiple_results = True

    def shapes(
        *avals: Any, axes: Axes, sizes: tuple[int, ...], **content: Any
    ) -> tuple[list[ShapedArray], Any]:
        single, effects = results(content)
        outs = [ShapedArray((*sizes, *x.shape), x.dtype) for x in single]
        return resharded(outs, avals, axes), effects

    def add_axis(
        args: Sequence[Any], positions: Sequence[int | None], *, axes: Axes, sizes: tuple[int, ...],
        **content: Any,
    ) -> tuple[list[Array], list[int]]:  # fmt: skip
        pairs = list(zip(args, positions, strict=True))
        size = next(x.shape[position] for x, position in pairs if position is not None)
        moved = [x if position is None else jnp.moveaxis(x, position, 0) for x, position in pairs]
        inner = [tuple(axis + 1 for axis in has) for has in axes]
        new_axes = tuple(
            has if position is None else (0, *has)
            for has, position in zip(inner, positions, strict=True)
        )
        outs = bind(*moved, axes=new_axes, sizes=(size, *sizes), **content)
        return outs, [0] * len(outs)

    @jit_of("params")
    def compiled(args: Sequence[Array], params: tuple[tuple[str, Any], ...]) -> list[Array]:
        return list(primitive.bind(*args, **dict(params)))

    def evaluate(*args: Array, **params: Any) -> list[Array]:
        # Native code exists in compiled programs only, also within `jax.disable_jit`.
        with jax.disable_jit(False):
            return list(compiled(args, tuple(sorted(params.items()))))

    primitive.def_impl(evaluate)
    primitive.def_effectful_abstract_eval(shapes)
    set_rules(primitive, batch=add_axis, narrow=narrow, **lowerings)
    return primitive


def mapped(
    fn: Callable[..., list[Array]], axes: Axes, sizes: Sequence[int]
) -> Callable[..., list[Array]]:
    """Map a function of one trajectory over the axes of a batch by `jax.vmap`."""
    for axis in reversed(range(len(sizes))):
        fn = jax.vmap(fn, [0 if axis in has else None for has in axes], axis_size=sizes[axis])
    return fn


_PROGRAMS: dict[str, Callable[..., Any]] = {"cpu": cpu_program, "cuda": cuda_program}
_CALLS = {"cpu": cpu_call, "cuda": cuda_call}


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
        UnsupportedError: for an operation or a type without an instruction.
    """
    axes = tuple((0,) if has else () for has in batched)
    return _over_axes(*map(jnp.asarray, args), kernel=kernel, axes=axes, sizes=(size,))


def _over_axes(*args: Array, kernel: Kernel, axes: Axes, sizes: tuple[int, ...]) -> list[Array]:
    program = _PROGRAMS["cuda" if likely_platform() == "cuda" else "cpu"]
    # An error here can still be caught, and another form chosen; one in lowering cannot.
    program(kernel, _batched_arguments(axes), math.prod(sizes)).require_supported()
    return list(_lanes.bind(*args, kernel=kernel, axes=axes, sizes=sizes))


def _batched_arguments(axes: Axes) -> frozenset[int]:
    return frozenset(k for k, has in enumerate(axes) if has)


def _without_results(params: Content, used_outs: Sequence[bool]) -> Content | None:
    kernel = params["kernel"].with_results(used_outs)
    if kernel.unsafe_origins:  # a dropped result may be the one that shows a NaN
        return None
    return {**params, "kernel": kernel}


def _plain(*args: Array, kernel: Kernel, axes: Axes, sizes: tuple[int, ...]) -> list[Array]:
    return mapped(kernel.plain, axes, sizes)(*args)


def _native(
    platform: str, kernel: Kernel, axes: Axes, sizes: tuple[int, ...], *args: Array
) -> list[Array]:
    """Compute the results by native code, or by `jax.vmap` if only another platform can."""
    size = math.prod(sizes)
    if size == 0:
        return [jnp.zeros((*sizes, *aval.shape), aval.dtype) for aval in kernel.out_avals]
    batched = _batched_arguments(axes)
    try:
        if platform == "cuda":
            require_passed(over_batch)
        _PROGRAMS[platform](kernel, batched, size).prepare()
    except Exception as error:  # noqa: BLE001 any error of the compiler
        warn_of_plain([Part("loop", 0, 0, reason_of(error))])
        return _plain(*args, kernel=kernel, axes=axes, sizes=sizes)
    merged = [_merged(x, has, sizes) for x, has in zip(args, axes, strict=True)]
    outs = _CALLS[platform](*merged, kernel=kernel, batched=batched, size=size)
    return [x.reshape(*sizes, *x.shape[1:]) for x in outs]


def _merged(x: Array, axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Merge all axes of the batch of x into one, if it has any of them."""
    if not axes:
        return x
    single = x.shape[len(axes) :]
    with_ones = [size if axis in axes else 1 for axis, size in enumerate(sizes)]
    spread = jnp.broadcast_to(x.reshape(*with_ones, *single), (*sizes, *single))
    return spread.reshape(math.prod(sizes), *single)  # -1 would fail where single holds a 0


def _lower(
    ctx: LoweringRuleContext, *args: Any, platform: str, kernel: Kernel, axes: Axes,
    sizes: tuple[int, ...],
) -> Any:  # fmt: skip
    return lowered_for_devices(ctx, partial(_native, platform, kernel, axes), axes, sizes, args)


_lanes = batch_primitive(
    "lanes",
    results=lambda content: (content["kernel"].out_avals, frozenset()),
    bind=_over_axes,
    narrow=_without_results,
    lower=lower_fun(_plain, multiple_results=True),
    lower_by_platform={platform: partial(_lower, platform=platform) for platform in _CALLS},
)


_THREADS = 1024  # of a GPU, which has as many for a batch as the batch has trajectories


def all_devices() -> list[jax.Device]:
    """The devices of the default platform, and those of the CPU if JAX has them."""
    devices = list(jax.devices())
    if devices[0].platform != "cpu":
        with suppress(RuntimeError):  # JAX_PLATFORMS may exclude it
            devices += jax.devices("cpu")
    return devices


def lanes(dtype: Any) -> int:
    """The trajectories of a small batch that the default device computes side by side."""
    side_by_side = vector_registers()[0] if likely_platform() == "cpu" else _THREADS
    return side_by_side * 8 // jnp.dtype(dtype).itemsize


def backend_of(device: jax.Device) -> str:
    """Describe how batches run on a device."""
    platform = platform_of(device)
    if (reason := why_not(platform)) is not None:
        return f"plain vmap, because of {reason}"
    if platform == "cpu":
        return "native code, in lanes"
    try:
        cuda = driver()
    except CudaError as error:
        return f"plain vmap, because {error}"
    driver_version = f" (driver for CUDA {cuda.version})" if cuda else ""
    if gpu() is None:
        return f"GPU kernels, a thread for each trajectory{driver_version}"
    verdict = verdict_on(device, over_batch)
    if not verdict.passed:
        return f"plain vmap, because GPU kernels failed the self-test: {verdict.text}"
    return (
        f"GPU kernels, a thread for each trajectory{driver_version}; the self-test {verdict.text}"
    )
