"""`batched`: a decorator for functions of a single trajectory, native code under `jax.vmap`.

All inputs must be arguments: `hoisted` makes arguments of closed-over values.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler.operation import bind, operation_of
from jaxmech.utils.jax_internals import Tracer, without_mesh
from jaxmech.utils.jit_cache import jit_of


def batched(fn: Callable[..., Any], *, differ: Sequence[bool] | None = None) -> Callable[..., Any]:
    """Make a function of arrays and pytrees of arrays run as native code under `jax.vmap`.

    On a CPU the batch runs as lanes (`vectorize`), elsewhere through `jax.vmap`. The results agree
    to round-off. It can be differentiated in both modes, any number of times; derivatives are taken
    first, and run over the batch in the same way.

    Args:
        fn: the function.
        differ: for each argument whether it differs within most batches; by default all do. A
            single call runs as a batch of one of this kind, to the same bits.

    Example:
        >>> import jax.numpy as jnp
        >>> print(jax.vmap(batched(lambda x, y: x * y), (0, None))(jnp.arange(3.0), 2.0))
        [0. 2. 4.]
    """

    def wrapped(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        leaves = [jnp.asarray(leaf) for leaf in leaves]
        flags = [True] * len(args) if differ is None else differ
        pairs = zip(args, flags, strict=True)
        operation, outs = operation_of(
            lambda *leaves: fn(*jax.tree.unflatten(structure, leaves)), leaves,
            differ=tuple(flag for arg, flag in pairs for _ in jax.tree.leaves(arg)),
        )  # fmt: skip
        return jax.tree.unflatten(outs, bind(operation, *leaves))

    return wrapped


def batched_closure(
    fn: Callable[..., Any], *inputs: Any, differ: Sequence[bool] | None = None
) -> Callable[..., Any]:
    """`batched` for a function that may close over traced values.

    Args:
        fn: the function.
        *inputs: arguments for it, of the shapes and types in question.
        differ: as for `batched`; what the function closes over does not.
    """
    with_traced, traced = hoisted(fn, *inputs)
    differ = (True,) * len(inputs) if differ is None else differ
    return partial(batched(with_traced, differ=(False, *differ)), traced)


def native_call(fn: Callable[..., Any], *inputs: Any, differ: Sequence[bool] | None = None) -> Any:
    """The value of a function for a single set of arguments, by the code of a batch of one.

    Args:
        fn: the function, which may close over traced values.
        *inputs: its arguments.
        differ: as for `batched`.
    """
    return batched_closure(fn, *inputs, differ=differ)(*inputs)


def native_program(
    *static: str, differ: Sequence[bool] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`native_call` of a function as a frame of `jit_of`, for a single set of known arguments.

    They are finite as a rule. The static ones, by their names, come first.

    Args:
        *static: names of the static arguments.
        differ: as for `batched`, of the others.
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        names = [name for name in inspect.signature(fn).parameters if name not in static]

        @wraps(fn)
        def program(**arguments: Any) -> Any:
            of_values = partial(fn, *(arguments[name] for name in static))
            return native_call(of_values, *(arguments[name] for name in names), differ=differ)

        return jit_of(*static, is_frame=True, is_finite=True)(program)

    return decorate


def hoisted(fn: Callable[..., Any], *inputs: Any) -> tuple[Callable[..., Any], list[Array]]:
    """Return fn as fn(traced, *inputs), and the traced values that it closes over.

    The inputs are arguments of the shapes and types in question.
    """
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), inputs)
    with without_mesh():
        closure = eqx.filter_closure_convert(fn, *shapes)
    leaves, structure = jax.tree.flatten(closure)
    positions = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]

    def with_traced(traced: list[Array], *inputs: Any) -> Any:
        all_leaves = list(leaves)
        for k, x in zip(positions, traced, strict=True):
            all_leaves[k] = x
        return jax.tree.unflatten(structure, all_leaves)(*inputs)

    return with_traced, [leaves[k] for k in positions]
