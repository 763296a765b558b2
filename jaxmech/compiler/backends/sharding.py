"""The rule by which XLA divides a batch among several devices: each computes its part.

Axes of the batch may be split, alike in all arguments and results; no other axis may be.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule, custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from jaxmech.utils.jax_internals import (
    LoweringRuleContext,
    ShapedArray,
    lower_fun,
    program_devices,
    with_devices,
    without_mesh,
)

Axes = tuple[tuple[int, ...], ...]  # for each argument, the axes of a batch that it has


def lowered_for_devices(
    ctx: LoweringRuleContext, fn: Callable[..., list[Array]], axes: Axes,
    sizes: tuple[int, ...], args: Sequence[Any],
) -> Any:  # fmt: skip
    """Lower a function of a batch so that each device computes its part.

    Args:
        ctx: lowering context of the primitive.
        fn: function of the sizes of the axes of the batch and the arguments.
        axes: for each argument, the axes of the batch that it has, which come first.
        sizes: sizes of the axes, which are the first of every result.
        args: the arguments.
    """
    devices = program_devices(ctx)
    run: Callable[..., list[Array]] = partial(fn, sizes)
    if len(devices) > 1 and math.prod(sizes) > 1:
        ctx = with_devices(ctx, devices)
        partition = partial(_partition, fn, axes, sizes, devices)
        rule = _rule(axes, len(sizes), ctx.avals_in, ctx.avals_out)
        run = custom_partitioning(run)
        run.def_partition(partition, sharding_rule=rule, decode_shardings=False)
    return lower_fun(run, multiple_results=True)(ctx, *args)


def _rule(axes: Axes, count: int, args: Sequence[Any], results: Sequence[Any]) -> SdyShardingRule:
    batch_axes = tuple(range(count))
    replicated: list[str] = []

    def mapping(axes_of_array: Sequence[int], aval: Any) -> ArrayMapping:
        other_axes = [f"whole{len(replicated) + k}" for k in range(aval.ndim - len(axes_of_array))]
        replicated.extend(other_axes)
        return ArrayMapping(*(f"batch{axis}" for axis in axes_of_array), *other_axes)

    return SdyShardingRule(
        tuple(map(mapping, axes, args)),
        tuple(mapping(batch_axes, aval) for aval in results),
        need_replication_factors=tuple(replicated),
    )


def _partition(
    fn: Callable[..., list[Array]], axes: Axes, sizes: tuple[int, ...], devices: Sequence[Any],
    _: Any, args: Sequence[Any], results: Sequence[Any],
) -> Any:  # fmt: skip
    """The function of each device, and the shardings of results and arguments."""
    batch_axes = tuple(range(len(sizes)))
    arrays = zip((*[batch_axes] * len(results), *axes), (*results, *args), strict=True)
    starts = [(array_axes, _starts(x, len(devices))) for array_axes, x in arrays if array_axes]
    mesh, names = _mesh(devices, len(sizes), starts)
    parts = [math.prod(mesh.shape[name] for name in axis_names) for axis_names in names]
    # Rounded up, as XLA pads the parts of an axis that does not divide evenly.
    local = tuple(-(-size // count) for size, count in zip(sizes, parts, strict=True))

    def sharding(array_axes: Sequence[int]) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*(names[axis] or None for axis in array_axes)))

    shardings = (
        [sharding(batch_axes) for _ in results],
        tuple(sharding(array_axes) for array_axes in axes),
    )

    def part(*args: Array) -> list[Array]:
        with without_mesh():  # XLA asks for the part within `jax.set_mesh` of the user
            return fn(local, *args)

    return mesh, part, *shardings


def _starts(array: Any, count: int) -> np.ndarray:
    """The start of each device's part along each axis, if all axes had `count` members."""
    parts = array.sharding.devices_indices_map((count,) * len(array.shape)).values()
    return np.array([[span.start or 0 for span in part] for part in parts])


def _mesh(
    devices: Sequence[Any], count: int, arrays: Sequence[tuple[Sequence[int], np.ndarray]]
) -> tuple[Mesh, list[tuple[str, ...]]]:
    """A mesh of the devices, and the mesh axes along which each axis of the batch is split.

    XLA may split an axis by a part of an axis of the user's mesh, so every axis here has a prime
    number of devices.

    Args:
        devices: the devices of the program, in order.
        count: number of axes of the batch.
        arrays: axes of the batch that an array has, and the start of each device's part. If
            two arrays split an axis differently, the first one counts.
    """
    splits: list[tuple[int, Any]] = []
    shape: tuple[int, ...] = (len(devices),)
    for factors in factorizations(len(devices)):
        pairs = [
            pair
            for array_axes, starts in arrays
            for pair in zip(array_axes, starts.T, strict=False)
        ]
        tried = [(axis, mesh_axes(starts, factors)) for axis, starts in pairs]
        if all(shards is not None for _, shards in tried):
            splits, shape = tried, factors
            break
    shards_of_axis: dict[int, tuple[int, ...]] = {}
    for axis, shards in splits:
        if (
            shards
            and axis not in shards_of_axis
            and not any(set(shards) & set(other_shards) for other_shards in shards_of_axis.values())
        ):
            shards_of_axis[axis] = shards
    mesh = Mesh(np.array(devices).reshape(shape), [f"part{k}" for k in range(len(shape))])
    return mesh, [tuple(f"part{k}" for k in shards_of_axis.get(axis, ())) for axis in range(count)]


def factorizations(number: int) -> Iterator[tuple[int, ...]]:
    """The prime factors in every order."""
    if number == 1:
        yield ()
    prime = (k for k in range(2, number + 1) if number % k == 0 and all(k % j for j in range(2, k)))
    for first in prime:
        yield from ((first, *tail) for tail in factorizations(number // first))


def mesh_axes(starts: np.ndarray, factors: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of a mesh that split an axis of an array, the outermost first; None if none do.

    Args:
        starts: the start of each device's part, if the axis had one member for each device.
        factors: the shape of the mesh.
    """
    digits = np.indices(factors).reshape(len(factors), -1)
    # The shift of the start of a part by one step along an axis of the mesh. All starts must be
    # sums of such steps, and every axis must split the remainder of the ones before it.
    weights = starts[[math.prod(factors[k + 1 :]) for k in range(len(factors))]]
    order = sorted(np.flatnonzero(weights).tolist(), key=lambda k: -weights[k])
    sizes = np.cumprod([factors[k] for k in order])
    if (weights @ digits != starts).any() or (weights[order] * sizes != len(starts)).any():
        return None
    return tuple(order)


def resharded(
    outs: Sequence[ShapedArray], avals: Sequence[Any], axes: Sequence[Sequence[int]]
) -> list[ShapedArray]:
    """Cut results of a batch along explicit axes of a mesh as the arguments are.

    Within `jax.shard_map` they vary along the same axes of the mesh as the arguments, which all
    vary alike.

    Args:
        outs: shapes and types of the results, in which all axes of the batch come first.
        avals: the arguments.
        axes: for each argument, the axes of the batch that it has.
    """
    if not avals:
        return list(outs)
    template = next((x for x in avals if not x.sharding.mesh.empty), avals[0])
    splits: dict[int, Any] = {}
    used_names: set[str] = set()
    for x, array_axes in zip(avals, axes, strict=True):
        for axis, shards in zip(array_axes, x.sharding.spec, strict=False):
            names = {shards} if isinstance(shards, str) else {*(shards or ())}
            if names and axis not in splits and names.isdisjoint(used_names):
                splits[axis] = shards
                used_names |= names

    def with_splits(out: ShapedArray) -> ShapedArray:
        spec = PartitionSpec(*(splits.get(axis) for axis in range(out.ndim)))
        sharding = template.sharding.update(spec=spec)
        return template.update(shape=out.shape, dtype=out.dtype, weak_type=False, sharding=sharding)

    return [with_splits(out) for out in outs]
