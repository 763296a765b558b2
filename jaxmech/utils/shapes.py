"""Arrays of the shapes that arguments and the values of functions must have, and their indices."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.utils.jax_internals import ClosedJaxpr, Jaxpr, Literal

# The operations between a constant index and the slice that it makes.
_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "lt": np.less,
    "select_n": lambda which, *cases: cases[int(which)],
    "convert_element_type": np.asarray,
}


def stacked(values: list[Array], dtype: Any) -> Array:
    """Join vectors, of which there may be none."""
    return jnp.concatenate([jnp.zeros((0,), dtype), *values])


VMAP = "; for a batch use `jax.vmap`"


def with_shape(
    what: str, value: Any, shape: tuple[int, ...], if_larger: str = "",
    need: str = "one number per coordinate",
) -> Array:  # fmt: skip
    """Convert the value of an argument or a function to an array of the shape that it must have.

    `need` says what its numbers are, `if_larger` what to do about further dimensions.
    """
    if value is None:
        raise ValueError(f"{what} must have shape {shape}, but is None; add a `return`.")
    if isinstance(value, list | tuple):
        value = jnp.asarray(value)
    if np.shape(value) != shape:
        need = need if shape else "a scalar"
        raise ValueError(
            f"{what} must have shape {shape} ({need}), but has shape {np.shape(value)}"
            f"{if_larger if np.ndim(value) > len(shape) else ''}."
        )
    return jnp.asarray(value)


def require_in_range(source: str, fn: Callable[..., Any], *args: Any) -> None:
    """Raise an IndexError if a function takes an entry that an array does not have.

    Only indices that are constants are known, and lists of indices are not examined. What the
    function itself raises is left to its next call.
    """
    outside: list[tuple[int, int]] = []
    with suppress(Exception):
        closed = jax.make_jaxpr(fn)(*args)
        outside += _reads(closed.jaxpr, closed.consts, ())
    if outside:
        start, size = outside[0]
        entry = start if start >= 0 else start - size
        raise IndexError(
            f"{source} must read entries that exist, but reads index {entry} of an axis of {size}; "
            "correct the index, for which JAX would silently read the nearest entry."
        )


def _reads(jaxpr: Jaxpr, consts: Sequence[Any], known: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """The first entry and the size of the axis of each slice that is out of range."""
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= {v: x for v, x in zip(jaxpr.invars, known, strict=False) if x is not None}
    for eqn in jaxpr.eqns:
        inputs = [x.val if isinstance(x, Literal) else values.get(x) for x in eqn.invars]
        name = eqn.primitive.name
        if name == "dynamic_slice":
            operand: Any = eqn.invars[0]
            sizes = eqn.params["slice_sizes"]
            for axis, size, start in zip(operand.aval.shape, sizes, inputs[1:], strict=True):
                if start is not None and not 0 <= int(start) <= axis - size:
                    yield int(start), axis
        elif name in _FOLDED and all(x is not None and np.ndim(x) == 0 for x in inputs):
            values[eqn.outvars[0]] = _FOLDED[name](*inputs)
        elif isinstance(inner := eqn.params.get("jaxpr"), ClosedJaxpr):
            same = len(inner.jaxpr.invars) == len(inputs) and name == "jit"
            yield from _reads(inner.jaxpr, inner.consts, inputs if same else ())
