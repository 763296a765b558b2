"""Gathers, scatters and dynamic slices, at indices that are constant or computed.

At constant indices they only move numbers, so they are applied to the node numbers. A computed
index takes few values in a small array: the result for each of them is read, and selects choose
one. Both follow JAX outside the array: slices are clamped, the rest as `mode` says.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import JaxprEqn
from jax.lax import GatherScatterMode

from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.ir.loops import Ids, UnsupportedError, dtype_of, shape_of
from jaxmech.compiler.optimize.fold import folded

MOST_SELECTS = 4096  # of one operation; beyond, a table is looked up faster by XLA

Span = tuple[int, int]  # the least and the largest value of an index that differ in effect


def dynamic_slice(g: Graph, eqn: JaxprEqn, x: Ids, *starts: Ids) -> Iterable[Ids]:
    """A part of an array."""
    size = eqn.params["slice_sizes"]

    def taken(place: Sequence[int]) -> Ids:
        return x[tuple(slice(k, k + part) for k, part in zip(place, size, strict=True))]

    spans = [(0, whole - part) for whole, part in zip(x.shape, size, strict=True)]
    yield _chosen(g, [int(one) for one in starts], spans, _index_dtype(eqn), taken)


def dynamic_update_slice(
    g: Graph, eqn: JaxprEqn, x: Ids, new: Ids, *starts: Ids
) -> Iterable[Ids]:  # fmt: skip
    """An array of which a part is replaced."""

    def updated(place: Sequence[int]) -> Ids:
        out = np.array(x)
        out[tuple(slice(k, k + part) for k, part in zip(place, new.shape, strict=True))] = new
        return out

    spans = [(0, whole - part) for whole, part in zip(x.shape, new.shape, strict=True)]
    yield _chosen(g, [int(one) for one in starts], spans, _index_dtype(eqn, 2), updated)


def gather(g: Graph, eqn: JaxprEqn, x: Ids, indices: Ids) -> Iterable[Ids]:
    """Numbers or slices at index vectors, which are the last axis of the indices."""
    numbers, dtype = eqn.params["dimension_numbers"], dtype_of(eqn.invars[1])
    params = {**eqn.params, "fill_value": -1}  # no node number, so that it is recognized
    filling = _filling(g, eqn) if eqn.params["mode"] == GatherScatterMode.FILL_OR_DROP else -1

    def gathered(at: np.ndarray) -> Ids:
        with jax.ensure_compile_time_eval():
            out = eqn.primitive.bind(x.astype(np.int32), at.astype(dtype), **params)
        ids = np.asarray(out, np.int64)
        return np.where(ids < 0, filling, ids)

    fixed = _constants(g, indices)
    if fixed is not None:
        yield gathered(fixed)
        return
    # Each index vector chooses for the elements of the result that are its own.
    vectors = indices.reshape(-1, indices.shape[-1])
    which = np.arange(len(vectors)).reshape(indices.shape[:-1])
    shape = shape_of(eqn.outvars[0])
    own = np.expand_dims(which, numbers.offset_dims) * np.ones(shape, int)
    spans = _spans(x, eqn.params["slice_sizes"], numbers.start_index_map)
    out = np.zeros(shape, np.int64)
    for k, vector in enumerate(vectors):
        here = np.flatnonzero(own == k)

        def part(place: Sequence[int], here: np.ndarray = here) -> Ids:
            return gathered(np.broadcast_to(place, indices.shape)).ravel()[here]

        out.ravel()[here] = _chosen(g, vector, spans, dtype, part)
    yield out


def scatter(add: bool) -> Callable[..., Iterable[Ids]]:
    """Replace numbers, or add to them, one update after the other."""

    def scattered(g: Graph, eqn: JaxprEqn, x: Ids, places: Ids, updates: Ids) -> Iterable[Ids]:
        numbers, dtype = eqn.params["dimension_numbers"], dtype_of(eqn.invars[1])
        spans = _spans(x, _update_sizes(x, updates, numbers), numbers.scatter_dims_to_operand_dims)
        vectors = places.reshape(-1, places.shape[-1])
        which = np.arange(len(vectors)).reshape(places.shape[:-1])
        own = np.expand_dims(which, numbers.update_window_dims) * np.ones(updates.shape, int)

        def after(out: Ids, k: int, number: int, place: Sequence[int]) -> Ids:
            """The numbers after an update: JAX shows with a one where it lands, or nowhere."""
            one = (np.arange(updates.size) == k).astype(np.float32).reshape(updates.shape)
            at = np.broadcast_to(place, places.shape).astype(dtype)
            with jax.ensure_compile_time_eval():
                zeros = np.zeros(x.shape, np.float32)
                landed = jax.lax.scatter_add(zeros, at, one, numbers, mode=eqn.params["mode"])
            new = out.copy()
            for target in np.flatnonzero(np.asarray(landed)):
                new[target] = folded(g, "add", int(out[target]), number) if add else number
            return new

        out = x.ravel()
        for k, number in enumerate(updates.ravel().tolist()):
            out = _chosen(g, vectors[own.flat[k]], spans, dtype, partial(after, out, k, number))
        yield out.reshape(x.shape)

    return scattered


def _chosen(
    g: Graph, index: Sequence[int] | Ids, spans: Sequence[Span], dtype: Any,
    result: Callable[[Sequence[int]], Ids],
) -> Ids:  # fmt: skip
    """The result at an index vector, whose values beyond the spans act as the nearest in them."""
    computed = [k for k, one in enumerate(index) if g.values[int(one)] is None]
    choices = np.prod([spans[k][1] - spans[k][0] for k in computed]) if computed else 0

    def at(place: list[int]) -> Ids:
        k = len(place)
        if k == len(index):
            return result(place)
        (low, high), one = spans[k], int(index[k])
        if k not in computed:
            return at([*place, min(max(int(g.values[one]), low), high)])
        out = at([*place, low])
        if choices * out.size > MOST_SELECTS:
            raise UnsupportedError("an index that is computed, into a large array")
        for value in range(low + 1, high + 1):
            reached = folded(g, "ge", one, g.const(value, dtype))
            out = _where(g, reached, at([*place, value]), out)
        return out

    return at([])


def _where(g: Graph, condition: int, yes: Ids, no: Ids) -> Ids:
    pairs = zip(yes.ravel().tolist(), no.ravel().tolist(), strict=True)
    ids = [a if a == b else folded(g, "select_n", condition, b, a) for a, b in pairs]
    return np.array(ids, np.int64).reshape(yes.shape)


def _constants(g: Graph, ids: Ids) -> np.ndarray | None:
    values = [g.values[int(i)] for i in ids.ravel()]
    return None if any(value is None for value in values) else np.reshape(values, ids.shape)


def _spans(x: Ids, sizes: Sequence[int], dimensions: Sequence[int]) -> list[Span]:
    """One step beyond the places inside, because JAX may fill or drop there."""
    return [(-1, x.shape[d] - sizes[d] + 1) for d in dimensions]


def _update_sizes(x: Ids, updates: Ids, numbers: Any) -> list[int]:
    """The size of an update along each dimension of the operand."""
    alone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = iter(updates.shape[d] for d in numbers.update_window_dims)
    return [1 if d in alone else next(window) for d in range(x.ndim)]


def _filling(g: Graph, eqn: JaxprEqn) -> int:
    """The constant that JAX puts where an index is out of bounds."""
    dtype, given = dtype_of(eqn.invars[0]), eqn.params["fill_value"]
    if given is None:
        if np.issubdtype(dtype, np.inexact):
            given = np.nan
        elif np.issubdtype(dtype, np.signedinteger):
            given = np.iinfo(dtype).min
        else:
            given = True if dtype.kind == "b" else np.iinfo(dtype).max
    return int(g.const(np.asarray(given, dtype)[()], dtype))


def _index_dtype(eqn: JaxprEqn, place: int = 1) -> Any:
    return dtype_of(eqn.invars[place]) if len(eqn.invars) > place else np.dtype(np.int32)
