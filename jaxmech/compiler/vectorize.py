"""`vectorize`: `jax.vmap` with loops and small functions as native code where possible."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler.backends.primitive import over_batch
from jaxmech.compiler.explain import Explanation, reason_of, warn_of_long, warn_of_plain
from jaxmech.compiler.frontend.build import function_kernel
from jaxmech.compiler.frontend.jaxprs import is_one_kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.compiler.partition import run_partitioned
from jaxmech.compiler.platforms import is_on, why_not
from jaxmech.utils.jax_internals import ClosedJaxpr, without_mesh, without_unused


def vectorize(fn: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """`jax.vmap(fn, in_axes)`, with loops and small functions as native code.

    This holds on CPUs and NVIDIA GPUs; on other platforms it is plain `jax.vmap`.
    The result is not differentiable: differentiate `fn` first, then vectorize its derivative.

    Args:
        fn: a function of arrays and pytrees of arrays.
        in_axes: 0 or None for each argument, or one for all; a prefix as in `jax.vmap`.

    Example:
        >>> import jax.numpy as jnp
        >>> print(vectorize(lambda x: x @ x)(jnp.array([[1.0, 2.0], [3.0, 4.0]])))
        [ 5. 25.]
    """

    def vectorized(*args: Any) -> Any:
        flags = _flags(in_axes, args)
        if not is_on():
            return jax.vmap(fn, in_axes)(*args)
        return run_batched(fn, flags, args)

    return vectorized


def explain(fn: Callable[..., Any], *args: Any, in_axes: Any = 0) -> Explanation:
    """Report which parts of a batch of `fn` run as native code, and why the rest does not.

    Native code is lanes on a CPU, and a kernel with a thread for each trajectory on an NVIDIA GPU.
    None is used on other devices and within `compiler.off()`. The device is the default one.

    Args:
        fn: a function of arrays and pytrees of arrays.
        *args: a batch of arguments, or their shapes.
        in_axes: as for `vectorize`.

    Example:
        >>> import jax.numpy as jnp
        >>> explain(lambda x: x @ x + 0.0, jnp.ones((8, 3)))
        function: 5 of 6 operations on scalars, as lanes
    """
    explanation = Explanation()
    if (reason := why_not()) is not None:
        explanation.add_plain("function", reason)
        return explanation
    jax.eval_shape(lambda *args: run_batched(fn, _flags(in_axes, args), args, explanation), *args)
    return explanation


def run_batched(
    fn: Callable[..., Any], batched: Any, args: Any, explanation: Explanation | None = None
) -> Any:
    """Run the function over a batch; `batched` flags the leaves of args that have the axis."""
    leaves, structure = jax.tree.flatten(args)
    flags = jax.tree.leaves(batched)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    first = [
        jax.ShapeDtypeStruct(x.shape[1:] if is_batched else x.shape, x.dtype)
        for x, is_batched in zip(leaves, flags, strict=True)
    ]
    with without_mesh():
        closed, shape = jax.make_jaxpr(
            lambda *leaves: fn(*jax.tree.unflatten(structure, leaves)), return_shape=True
        )(*first)
    outs = run_jaxpr(without_unused(closed), flags, leaves, explanation)
    return jax.tree.unflatten(jax.tree.structure(shape), outs)


def run_jaxpr(
    closed: ClosedJaxpr, flags: Sequence[bool], args: Sequence[Array],
    explanation: Explanation | None = None,
) -> list[Array]:  # fmt: skip
    """Run a function without unused operations over a batch; flagged arguments have its axis.

    Warns of what runs as plain `vmap`, unless an explanation of all parts is asked for.
    """
    if explanation is not None:
        return _run_explained(closed, flags, args, explanation)
    parts = Explanation(counts=False)
    outs = _run_explained(closed, flags, args, parts)
    warn_of_plain(parts.parts)
    warn_of_long(parts)
    return outs


def _run_explained(
    closed: ClosedJaxpr, flags: Sequence[bool], args: Sequence[Array], explanation: Explanation
) -> list[Array]:
    size = next(x.shape[0] for x, is_batched in zip(args, flags, strict=True) if is_batched)
    reason, is_fault, is_quiet = _SHARED_LOOP, False, not explanation.counts
    if is_one_kernel(closed.jaxpr, flags):
        try:
            kernel = function_kernel(closed)
            outs = over_batch(kernel, flags, size, args)
            explanation.add("function", kernel)
            return outs
        except Exception as error:  # noqa: BLE001 any error of the compiler
            reason = reason_of(error)
            is_fault = not isinstance(error, UnsupportedError)
            # One trajectory gains nothing from lanes, unless it has a loop.
            is_quiet = is_quiet and size == 1 and type(error) is UnsupportedError
    pairs = run_partitioned(closed, args, flags, size, explanation)
    if is_fault or not (explanation.parts or is_quiet):
        explanation.add_plain("function", reason)
    return [x if has else jnp.broadcast_to(x, (size, *x.shape)) for x, has in pairs]


def run_alone(closed: ClosedJaxpr, flags: Sequence[bool], args: Sequence[Array]) -> list[Array]:
    """Run one trajectory with the code of a batch of one, whose flagged arguments have its axis.

    The bits are those of any batch with the same flags.
    """
    # XLA would take two to three times as long to compile it.
    batch = [x[None] if has else x for x, has in zip(args, flags, strict=True)]
    return [x[0] for x in run_jaxpr(closed, flags, batch)]


_SHARED_LOOP = "a loop that is the same for all trajectories"


def _flags(in_axes: Any, args: tuple[Any, ...]) -> Any:
    axes = (in_axes,) * len(args) if in_axes is None or isinstance(in_axes, int) else in_axes

    def spread(axis: Any, arg: Any) -> Any:
        if axis not in (0, None):
            raise ValueError(f"Argument `in_axes` must hold 0 and None, but holds {axis!r}.")
        return jax.tree.map(lambda _: axis == 0, arg)

    return jax.tree.map(spread, tuple(axes), args, is_leaf=lambda x: x is None)
