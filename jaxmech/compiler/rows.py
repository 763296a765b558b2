"""Rows that a loop writes, each trajectory at its own index: `empty_rows` and `with_row`.

A trajectory that decides for itself when it saves a row cannot stack the rows by iterations.
In native code the rows are a result in memory; elsewhere they are an array that is updated.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.utils.jax_internals import Primitive, ShapedArray, Zero, lower_fun, set_rules


def empty_rows(count: int, row: Array, *, sparse: bool = False) -> Array:
    """`count` uninitialized rows with the shape and type of `row`, for `with_row` alone.

    Of `sparse` rows usually few are written, so that most of their memory is never touched.
    """
    shape = (count, *row.shape)
    rows: Array = _empty.bind(shape=shape, dtype=jnp.dtype(row.dtype), sparse=sparse)
    return rows


def with_row(rows: Array, position: Array, row: Array, condition: Array) -> Array:
    """The rows with one of them replaced, if its index is in range and where `condition` holds.

    The rows must not be used afterwards, and in a loop they must be a part of its carry.
    """
    position, condition = jnp.asarray(position, jnp.int32), jnp.asarray(condition, bool)
    written: Array = _write.bind(rows, position, row, condition)
    return written


_empty, _write = Primitive("empty_rows"), Primitive("write_row")


def _zeros(*, shape: tuple[int, ...], dtype: Any, sparse: bool) -> Array:
    return jnp.zeros(shape, dtype)


def _updated(rows: Array, position: Array, row: Array, condition: Array) -> Array:
    inside = condition & (position >= 0)
    return rows.at[jnp.where(inside, position, len(rows))].set(row, mode="drop")


def _tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
    rows, position, row, condition = primals
    d_rows, _, d_row, _ = (
        jnp.zeros_like(x) if isinstance(d, Zero) and jnp.issubdtype(x.dtype, jnp.floating) else d
        for x, d in zip(primals, tangents, strict=True)
    )
    if isinstance(tangents[0], Zero):
        d_rows = _empty.bind(shape=rows.shape, dtype=rows.dtype, sparse=False)
    return _write.bind(rows, position, row, condition), _write.bind(
        d_rows, position, d_row, condition
    )


_empty.def_impl(_zeros)
_empty.def_abstract_eval(lambda *, shape, dtype, sparse: ShapedArray(shape, dtype))
_write.def_impl(jax.jit(_updated))
_write.def_abstract_eval(lambda rows, position, row, condition: ShapedArray(rows.shape, rows.dtype))
set_rules(_empty, lower=lower_fun(_zeros, multiple_results=False))
set_rules(
    _write,
    lower=lower_fun(_updated, multiple_results=False),
    batch=lambda args, axes: (jax.vmap(_updated, axes)(*args), 0),
    jvp=_tangent,
)
