"""The rules that all primitives over a batch share: shapes, `jax.vmap`, dead code, evaluation.

Such a primitive has the parameters `axes` (for each argument, the axes of the batch that it has,
which come first) and `sizes` (of all axes of the batch, the outermost first), and those of its
content: a function of one trajectory. There are two: an operation (`operation.py`), which is
differentiated and decides its form when it is lowered, and the call of native code
(`backends/primitive.py`) that it becomes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler.backends.partitioning import Axes, resharded
from jaxmech.utils.jax_internals import Narrow, Primitive, ShapedArray, set_rules
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
        args: Sequence[Any], places: Sequence[int | None], *, axes: Axes, sizes: tuple[int, ...],
        **content: Any,
    ) -> tuple[list[Array], list[int]]:  # fmt: skip
        pairs = list(zip(args, places, strict=True))
        size = next(x.shape[place] for x, place in pairs if place is not None)
        moved = [x if place is None else jnp.moveaxis(x, place, 0) for x, place in pairs]
        inner = [tuple(axis + 1 for axis in has) for has in axes]
        new_axes = tuple(
            has if place is None else (0, *has) for has, place in zip(inner, places, strict=True)
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
