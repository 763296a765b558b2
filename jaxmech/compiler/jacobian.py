"""`jacobian`: a Jacobian by as few directions as its structural zeros allow."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from jaxmech.compiler.frontend.dependencies import dependencies

WORTHWHILE = 0.7  # of all directions: with more, one for each number is as good


def jacobian(
    fn: Callable[[Array], Array], x: Float[Array, " n"], symmetric: bool = False
) -> Float[Array, " m n"]:
    """`jax.jacfwd(fn)(x)`, for a function whose results depend on few numbers of x each.

    Columns without a common row of nonzero numbers share a direction (Curtis, Powell and Reid
    1974): the mass matrix of a hundred bodies takes as many as that of one.

    Example:
        >>> print(jacobian(lambda x: x[1:] * x[:-1], jnp.array([1.0, 2.0, 3.0])))
        [[2. 1. 0.]
         [0. 3. 2.]]
    """
    flags = dependencies(jax.make_jaxpr(fn)(jax.ShapeDtypeStruct(x.shape, x.dtype)))
    if flags is None or flags.size == 0:
        return jax.jacfwd(fn)(x)
    groups = _groups(flags)
    count = groups.max() + 1
    if count > WORTHWHILE * x.size:
        return jax.jacfwd(fn)(x)
    if count == 0:
        return jnp.zeros(flags.shape, x.dtype)
    seeds = (groups == np.arange(count)[:, None]).astype(x.dtype)
    pushed = jax.vmap(lambda seed: jax.jvp(fn, (x,), (seed,))[1])(jnp.asarray(seeds))
    return jnp.concatenate(list(_columns(pushed, groups, flags))).T


def _groups(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The direction (n,) that each column shares with others; -1 for columns of zeros."""
    groups, occupied = np.full(flags.shape[1], -1), np.zeros((0, flags.shape[0]), bool)
    for j, column in enumerate(flags.T):
        if not column.any():
            continue
        free = np.flatnonzero(~(occupied & column).any(1))
        groups[j] = free[0] if free.size else len(occupied)
        if not free.size:
            occupied = np.concatenate([occupied, np.zeros((1, len(column)), bool)])
        occupied[groups[j]] |= column
    return groups


def _columns(pushed: Array, groups: NDArray[np.int64], flags: NDArray[np.bool_]) -> Iterator[Array]:
    """The columns as rows, in pieces that are slices of the directions."""
    n, start = len(groups), 0
    while start < n:
        first, stop = groups[start], start + 1
        step = 0 if first < 0 else 1
        while stop < n and groups[stop] == first + step * (stop - start):
            stop += 1
        mask = flags.T[start:stop]
        if first < 0:
            yield jnp.zeros(mask.shape, pushed.dtype)
        else:
            piece = pushed[first : first + stop - start]
            yield piece if mask.all() else jnp.where(mask, piece, 0.0)
        start = stop
