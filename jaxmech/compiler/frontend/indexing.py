"""Gathers, scatters and dynamic slices, at indices that are constant or computed.

With constant indices they only move numbers, so they are applied to the node numbers. With a
computed index the result for each value is read; selects choose one, or the code looks it up if all
are constants. Both follow JAX outside the array: slices are clamped, the rest depends on `mode`.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from jaxmech.compiler.frontend.scalar_function import FunctionGraph
from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.loops import (
    LARGEST_ARRAY,
    Ids,
    Rows,
    UnsupportedError,
    dtype_of,
    native_dtype,
    shape_of,
)
from jaxmech.compiler.optimize.fold import folded
from jaxmech.utils.jax_internals import JaxprEqn

MOST_SELECTS = 1024  # of one operation; a rollout with more is as fast by XLA
LONGEST_CHAIN = 4  # of selects between constants; more are looked up

Span = tuple[int, int]  # the least and the largest value of an index that differ in effect


def dynamic_slice(g: Graph, eqn: JaxprEqn, x: Ids, *starts: Ids) -> Iterable[Ids]:
    """Read a slice at a computed position."""
    sizes = eqn.params["slice_sizes"]

    def sliced(slots: np.ndarray) -> Ids:
        return np.stack([x[_window(position, sizes)] for position in slots])

    first = _argument(g, x.ravel()) if reads_row(eqn) and len(x) > LONGEST_CHAIN else None
    if first is not None and g.values[int(starts[0])] is None:
        yield row_read(g, eqn, first, int(starts[0]))
        return
    spans = [(0, length - part) for length, part in zip(x.shape, sizes, strict=True)]
    size = math.prod(sizes)
    yield _chosen(g, [int(start) for start in starts], spans, _index_dtype(eqn), sliced, size)


def reads_row(eqn: JaxprEqn) -> bool:
    """Whether an equation reads one row of an array, at a position along its first axis."""
    if eqn.primitive.name not in ("slice", "dynamic_slice"):
        return False
    (_, *tail), out = shape_of(eqn.invars[0]), shape_of(eqn.outvars[0])
    return out == (1, *tail)


def row_read(g: Graph, eqn: JaxprEqn, first: int, start: int) -> Ids:
    """Read a row of an argument from memory; `first` is the number of its first scalar."""
    (count, *shape), dtype = shape_of(eqn.invars[0]), _index_dtype(eqn)
    width, kind = math.prod(shape), dtype_of(eqn.invars[0])
    position = _within(g, start, (0, count - 1), dtype)
    offset = folded(g, "mul", position, g.const(width, g.nodes[position].dtype))
    params = [(first + k, count * width) for k in range(width)]
    return np.array([g.add("read", (offset,), p, kind) for p in params], int).reshape(1, *shape)


def dynamic_update_slice(
    g: Graph, eqn: JaxprEqn, x: Ids, new: Ids, *starts: Ids
) -> Iterable[Ids]:  # fmt: skip
    """Replace a slice at a computed position."""

    def updated(slots: np.ndarray) -> Ids:
        out = np.stack([x] * len(slots))
        for copy, position in zip(out, slots, strict=True):
            copy[_window(position, new.shape)] = new
        return out

    spans = [(0, length - part) for length, part in zip(x.shape, new.shape, strict=True)]
    yield _chosen(g, [int(start) for start in starts], spans, _index_dtype(eqn, 2), updated, x.size)


def gather(g: Graph, eqn: JaxprEqn, x: Ids, indices: Ids) -> Iterable[Ids]:
    """Gather numbers or slices at index vectors, which are the last axis of the indices."""
    numbers, dtype = eqn.params["dimension_numbers"], dtype_of(eqn.invars[1])
    wide = dtype if dtype.itemsize >= 4 else np.dtype(np.int32)  # JAX may count in this type
    params = {**eqn.params, "fill_value": -1}  # not a node number, so that it is recognized
    filling = _filling(g, eqn) if eqn.params["mode"] == GatherScatterMode.FILL_OR_DROP else -1

    def gathered(index: np.ndarray) -> Ids:
        """Gather at several arrays of indices, stacked along the first axis."""
        bind = partial(eqn.primitive.bind, x.astype(np.int32), **params)
        with jax.ensure_compile_time_eval():
            ids = np.asarray(jax.vmap(bind)(index.astype(wide)), np.int64)
        return np.where(ids < 0, filling, ids)

    fixed = _constants(g, indices)
    if fixed is not None:
        yield np.asarray(gathered(fixed[None])[0])
        return
    # Each index vector selects the elements of the result that belong to it.
    vectors = _vectors(indices)
    vector_of = np.arange(len(vectors)).reshape(indices.shape[:-1])
    shape = shape_of(eqn.outvars[0])
    vector_of_result = np.expand_dims(vector_of, numbers.offset_dims) * np.ones(shape, int)
    spans = _spans(x, eqn.params["slice_sizes"], numbers.start_index_map)
    out = np.zeros(shape, np.int64)
    for k, vector in enumerate(vectors):
        positions = np.flatnonzero(vector_of_result == k)

        def parts(slots: np.ndarray, positions: np.ndarray = positions) -> Ids:
            spread = slots.reshape(len(slots), *[1] * vector_of.ndim, -1)
            full = np.broadcast_to(spread, (len(slots), *indices.shape))
            return gathered(full).reshape(len(slots), -1)[:, positions]

        out.flat[positions] = _chosen(g, vector, spans, dtype, parts, positions.size)
    yield out


def scatter(add: bool, g: Graph, eqn: JaxprEqn, x: Ids, slots: Ids, updates: Ids) -> Iterable[Ids]:
    """Replace numbers, or add to them, one update after the other."""
    numbers, dtype = eqn.params["dimension_numbers"], dtype_of(eqn.invars[1])
    wide = dtype if dtype.itemsize >= 4 else np.dtype(np.int32)

    def combined(old: int, number: int) -> int:
        return folded(g, "add", old, number) if add else number

    out = x.ravel().copy()
    if (fixed := _constants(g, slots)) is not None:
        mode = eqn.params["mode"]
        targets = _targets(x.shape, fixed.astype(wide), updates.shape, numbers, mode)
        for target, number in zip(targets.ravel(), updates.ravel().tolist(), strict=True):
            if target >= 0:
                out[target] = combined(int(out[target]), number)
        yield out.reshape(x.shape)
        return

    def landed(update: np.ndarray, position: np.ndarray) -> jax.Array:
        index, zeros = jnp.broadcast_to(position, slots.shape), jnp.zeros(x.shape, np.float32)
        return jax.lax.scatter_add(zeros, index, update, numbers, mode=eqn.params["mode"])

    def updated_at(out: Ids, k: int, number: int, positions: np.ndarray) -> Ids:
        """The numbers after an update, whose target JAX marks with a one if it is in range."""
        update = (np.arange(updates.size) == k).astype(np.float32).reshape(updates.shape)
        with jax.ensure_compile_time_eval():
            masks = np.asarray(jax.vmap(landed, (None, 0))(update, positions.astype(wide)))
        new = np.stack([out] * len(positions))
        for case, target in np.argwhere(masks.reshape(new.shape)):
            new[case, target] = combined(int(out[target]), number)
        return new

    vectors = _vectors(slots)
    vector_of = np.arange(len(vectors)).reshape(slots.shape[:-1])
    windows = np.expand_dims(vector_of, numbers.update_window_dims)
    vector_of_update = windows * np.ones(updates.shape, int)
    spans = _spans(x, _update_sizes(x, updates, numbers), numbers.scatter_dims_to_operand_dims)
    for k, number in enumerate(updates.ravel().tolist()):
        updated = partial(updated_at, out, k, number)
        out = _chosen(g, vectors[vector_of_update.flat[k]], spans, dtype, updated, out.size)
    yield out.reshape(x.shape)


def _targets(
    shape: tuple[int, ...], slots: np.ndarray, updates: tuple[int, ...], numbers: Any, mode: Any
) -> np.ndarray:
    """The position in the flat array where each update of a scatter lands; -1 if it is dropped."""

    def scattered(update: jax.Array) -> jax.Array:
        zeros = jnp.zeros(shape, np.float32)
        return jax.lax.scatter_add(zeros, slots, update, numbers, mode=mode)

    # The transpose gives each update the number of its position, which is exact.
    numbered = np.arange(1.0, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    with jax.ensure_compile_time_eval():
        (targets,) = jax.vjp(scattered, jnp.zeros(updates, np.float32))[1](jnp.asarray(numbered))
        return np.asarray(targets).astype(np.int64) - 1


def _chosen(
    g: Graph, index: Sequence[int] | Ids, spans: Sequence[Span], dtype: np.dtype,
    results: Callable[[np.ndarray], Ids], size: int,
) -> Ids:  # fmt: skip
    """The result at an index vector; values beyond the spans act as the nearest in them.

    `results` returns the results of `size` numbers at several index vectors (count, k), along the
    first axis.
    """
    spans = [_in_type(span, dtype) for span in spans]
    constants = [g.values[int(i)] for i in index]
    ranges = [
        range(low, high + 1) if value is None else [min(max(int(value), low), high)]
        for value, (low, high) in zip(constants, spans, strict=True)
    ]
    choices = math.prod(map(len, ranges))
    if choices > 1 and (isinstance(g, FunctionGraph) or choices * size > LARGEST_ARRAY):
        raise UnsupportedError("a computed index into a large array")
    slots = np.array([*itertools.product(*ranges)], int).reshape(choices, len(ranges))
    out = results(slots)
    shape = out.shape[1:]
    out = out.reshape(*map(len, ranges), -1)
    for number, (low, _), values in reversed([*zip(index, spans, ranges, strict=True)]):
        # One index after the other: comparisons add up over the ranges, instead of multiplying.
        columns = np.moveaxis(out, -2, -1)  # the values of this index last
        picked = _picked(g, int(number), low, dtype, columns.reshape(-1, len(values)))
        out = np.reshape(picked, columns.shape[:-1])
    return out.reshape(shape)


def _picked(g: Graph, number: int, low: int, dtype: Any, columns: Ids) -> Ids:
    """Select from each row of nodes, in which the first belongs to the value `low` of an index."""
    # Equal neighbours need no select: an update at one position leaves most of an array as it is.
    changes = (columns[:, 1:] != columns[:, :-1]).sum(axis=1)
    constant = [all(g.values[i] is not None for i in column) for column in columns.tolist()]
    looked_up = (changes > 0) & constant & (columns.shape[1] > LONGEST_CHAIN)
    if changes[~looked_up].sum() > MOST_SELECTS:
        raise UnsupportedError("a computed index into a large array")
    picked = columns[:, 0].copy()
    for k, column in enumerate(columns.tolist()):
        if looked_up[k]:
            kind = g.nodes[column[0]].dtype
            table = np.array([g.values[i] for i in column], kind)
            picked[k] = _looked_up(g, number, low, dtype, table)
            continue
        for value, (lower, upper) in enumerate(pairwise(column), start=low + 1):
            if upper != lower:
                # By `>=` in ascending order, so that beyond either end the nearest is selected.
                reached = folded(g, "ge", number, g.const(value, dtype))
                picked[k] = folded(g, "select_n", reached, int(picked[k]), upper)
    return picked


def _looked_up(g: Graph, number: int, low: int, dtype: Any, table: np.ndarray) -> int:
    """Look up a constant in a table, in which the first belongs to the value `low` of an index."""
    position = _within(g, number, (low, low + len(table) - 1), dtype)
    position = folded(g, "sub", position, g.const(low, g.nodes[position].dtype))
    return g.add("lookup", (position,), table.tobytes(), table.dtype)


def _within(g: Graph, number: int, span: Span, dtype: np.dtype) -> int:
    """Clamp an index to a span; the result can hold the length of the span."""
    low, high = _in_type(span, dtype)
    position = folded(g, "max", number, g.const(low, dtype))
    position = folded(g, "min", position, g.const(high, dtype))
    if dtype.itemsize < 4:
        position = folded(g, "convert_element_type", position, params="int32")
    return position


def _in_type(span: Span, dtype: np.dtype) -> Span:
    """The part of a span that an index of this type can reach."""
    limits = np.iinfo(dtype)
    return max(span[0], int(limits.min)), min(span[1], int(limits.max))


def _vectors(indices: Ids) -> Ids:
    """The index vectors one after the other; they may have no index at all."""
    *outer, length = indices.shape
    return indices.reshape(math.prod(outer), length)


def _argument(g: Graph, ids: Ids) -> int | None:
    """The index of the first of consecutive inputs of the kernel; None for other nodes."""
    first = _input(g, int(ids[0]))
    inputs = range(first or 0, (first or 0) + len(ids))
    is_one = first is not None and [_input(g, int(i)) for i in ids] == list(inputs)
    return first if is_one else None


def _input(g: Graph, number: int) -> int | None:
    node: Any = g.nodes[number]
    # Within a loop an argument is captured through the graphs around it.
    while node.op == "capture" and g.outer is not None:
        g = g.outer
        node = g.nodes[node.params]
    return int(node.params) if node.op == "input" else None


def _window(position: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(k, k + part) for k, part in zip(position, size, strict=True))


def _constants(g: Graph, ids: Ids) -> np.ndarray | None:
    values = [g.values[int(i)] for i in ids.ravel()]
    return None if any(value is None for value in values) else np.reshape(values, ids.shape)


def _spans(x: Ids, sizes: Sequence[int], dimensions: Sequence[int]) -> list[Span]:
    """The valid range, one step larger on both sides, because JAX may fill or drop there."""
    return [(-1, x.shape[d] - sizes[d] + 1) for d in dimensions]


def _update_sizes(x: Ids, updates: Ids, numbers: Any) -> list[int]:
    """The size of an update along each dimension of the operand."""
    alone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = iter(updates.shape[d] for d in numbers.update_window_dims)
    return [1 if d in alone else next(window) for d in range(x.ndim)]


def _filling(g: Graph, eqn: JaxprEqn) -> int:
    """The constant that JAX returns where an index is out of bounds."""
    dtype, fill_value = dtype_of(eqn.invars[0]), eqn.params["fill_value"]
    if fill_value is None:
        if np.issubdtype(dtype, np.inexact):
            fill_value = np.nan
        elif np.issubdtype(dtype, np.signedinteger):
            fill_value = np.iinfo(dtype).min
        else:
            fill_value = True if dtype.kind == "b" else np.iinfo(dtype).max
    return int(g.const(np.asarray(fill_value, dtype)[()], dtype))


def _index_dtype(eqn: JaxprEqn, position: int = 1) -> np.dtype:
    return dtype_of(eqn.invars[position]) if len(eqn.invars) > position else np.dtype(np.int32)


def empty_rows(eqn: JaxprEqn) -> Rows:
    """The rows of an array that a loop writes."""
    count, *shape = eqn.params["shape"]
    return Rows(count, tuple(shape), native_dtype(eqn.params["dtype"]), eqn.params["sparse"])
