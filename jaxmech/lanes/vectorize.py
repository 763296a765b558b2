"""`vectorize`: what `jax.vmap` does, with loops and small functions as lanes where possible."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array

from jaxmech.lanes.batch import over_batch
from jaxmech.lanes.kernel import Kernel, function_kernel, loop_kernel
from jaxmech.lanes.loops import Loop, UnsupportedError, dtype_of
from jaxmech.lanes.needs import Needs
from jaxmech.lanes.reading import call_content, stays_loop


@dataclass(frozen=True)
class Part:
    """A loop or a function that was tried as lanes.

    Attributes:
        what: "function", or "loop of n iterations".
        requested: operations on scalars that it asks for.
        kept: operations that are left after folding, sharing and dropping; 0 where it fell back.
        reason: why it runs under plain `vmap`; empty where it runs as lanes.
    """

    what: str
    requested: int
    kept: int
    reason: str


@dataclass(frozen=True)
class Explanation:
    """How a function runs over a batch; prints itself.

    Attributes:
        parts: every loop and function that was tried.
    """

    parts: list[Part] = field(default_factory=list)

    def __repr__(self) -> str:
        return "\n".join(_line(part) for part in self.parts) or "nothing runs over the batch"


def vectorize(fn: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """`jax.vmap(fn, in_axes)`, with loops and small functions as lanes.

    Not differentiable: differentiate `fn` first, then vectorize the result.

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
        return run(fn, flags, args, Explanation())

    return vectorized


def explain(fn: Callable[..., Any], *args: Any, in_axes: Any = 0) -> Explanation:
    """What `vectorize(fn, in_axes)(*args)` takes apart into scalars, and what not and why.

    Args:
        fn: a function of arrays and pytrees of arrays.
        *args: a batch of arguments, or their shapes.
        in_axes: as for `vectorize`.

    Example:
        >>> import jax.numpy as jnp
        >>> explain(lambda x: x @ x + 0.0, jnp.ones((8, 3)))
        function: 5 of 6 operations on scalars, as lanes
    """
    found = Explanation()
    jax.eval_shape(lambda *args: run(fn, _flags(in_axes, args), args, found), *args)
    return found


def run(fn: Callable[..., Any], batched: Any, args: Any, found: Explanation) -> Any:
    """The function over a batch; `batched` tells for each leaf of args whether it has the axis."""
    leaves, structure = jax.tree.flatten(args)
    flags = jax.tree.leaves(batched)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    size = next(x.shape[0] for x, is_batched in zip(leaves, flags, strict=True) if is_batched)
    one = [
        jax.ShapeDtypeStruct(x.shape[1:] if is_batched else x.shape, x.dtype)
        for x, is_batched in zip(leaves, flags, strict=True)
    ]
    closed, shape = jax.make_jaxpr(
        lambda *leaves: fn(*jax.tree.unflatten(structure, leaves)), return_shape=True
    )(*one)
    closed = _without_unused(closed)
    try:
        if stays_loop(closed.jaxpr):
            raise UnsupportedError("a loop that is no lanes")
        kernel = function_kernel(closed)
        outs = over_batch(kernel, flags, size, leaves)
        found.parts.append(_part("function", kernel))
    except UnsupportedError as error:
        pairs = _interpreted(closed, leaves, flags, size, found)
        if not found.parts:
            found.parts.append(Part("function", 0, 0, str(error)))
        outs = [x if has else jnp.broadcast_to(x, (size, *x.shape)) for x, has in pairs]
    return jax.tree.unflatten(jax.tree.structure(shape), outs)


def _without_unused(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Without what no result depends on, within loops too: XLA cannot see into native code."""
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return ClosedJaxpr(jaxpr, closed.consts)


Batch = tuple[Array, bool]


def _interpreted(
    closed: ClosedJaxpr, args: Sequence[Array], flags: Sequence[bool], size: int, found: Explanation
) -> list[Batch]:
    """Equation by equation: loops as lanes, what calls contain likewise, the rest by `vmap`."""
    jaxpr = closed.jaxpr
    env: dict[Any, Batch] = {
        var: (jnp.asarray(c), False) for var, c in zip(jaxpr.constvars, closed.consts, strict=True)
    }
    env.update(zip(jaxpr.invars, zip(args, flags, strict=True), strict=True))

    def value(atom: Any) -> Batch:
        if isinstance(atom, Literal):
            return jnp.asarray(atom.val, dtype_of(atom)), False
        return env[atom]

    for eqn in jaxpr.eqns:
        outs = _equation(eqn, [value(atom) for atom in eqn.invars], size, found)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _equation(eqn: JaxprEqn, inputs: list[Batch], size: int, found: Explanation) -> list[Batch]:
    values, flags = [x for x, _ in inputs], [has for _, has in inputs]
    content = call_content(eqn)
    if content is not None and any(flags):
        return _interpreted(content, values, flags, size, found)
    if content is not None:
        return [(x, False) for x in jaxpr_as_fun(content)(*values)]
    if eqn.primitive.name == "scan" and any(flags):
        what = f"loop of {eqn.params['length']} iterations"
        try:
            kernel = loop_kernel(eqn)
            outs = over_batch(kernel, flags, size, values)
        except UnsupportedError as error:
            found.parts.append(Part(what, 0, 0, str(error)))
        else:
            found.parts.append(_part(what, kernel))
            return [(x, True) for x in outs]
    return _mapped(eqn, values, flags, size)


def _mapped(eqn: JaxprEqn, values: list[Array], flags: list[bool], size: int) -> list[Batch]:
    def bound(*values: Array) -> list[Array]:
        out = eqn.primitive.bind(*values, **eqn.params)
        return list(out) if eqn.primitive.multiple_results else [out]

    if not any(flags):
        return [(x, False) for x in bound(*values)]
    outs = jax.vmap(bound, [0 if has else None for has in flags], axis_size=size)(*values)
    return [(x, True) for x in outs]


def _flags(in_axes: Any, args: tuple[Any, ...]) -> Any:
    axes = (in_axes,) * len(args) if in_axes is None or isinstance(in_axes, int) else in_axes

    def spread(axis: Any, part: Any) -> Any:
        if axis not in (0, None):
            raise ValueError(f"Argument `in_axes` must hold 0 and None, but holds {axis!r}.")
        return jax.tree.map(lambda _: axis == 0, part)

    return jax.tree.map(spread, tuple(axes), args, is_leaf=lambda x: x is None)


def _part(what: str, kernel: Kernel) -> Part:
    reader = kernel.reader
    requested = reader.graph.requested + _requested(reader.loops)
    kept = _kept(reader.graph.nodes, reader.loops, kernel.needs)
    return Part(what, requested, kept, "")


def _requested(loops: list[Loop]) -> int:
    return sum(loop.body.requested + _requested(loop.inner) for loop in loops)


_LEAVES = {"const", "input", "carry", "element", "capture", "result"}


def _kept(nodes: list[Any], loops: list[Loop], needs: Needs) -> int:
    own = sum(nodes[i].op not in _LEAVES for i in needs.nodes)
    inner = [(loops[k], part.body) for k, part in needs.loops.items() if part.body is not None]
    return own + sum(_kept(loop.body.nodes, loop.inner, body) for loop, body in inner)


def _line(part: Part) -> str:
    if part.reason:
        return f"{part.what}: plain vmap, because of {part.reason}"
    return f"{part.what}: {part.kept} of {part.requested} operations on scalars, as lanes"
