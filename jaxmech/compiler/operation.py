"""A function of a single trajectory as one JAX primitive, with a rule for each transformation.

Under `jax.vmap` the primitive records which arguments are batched, and stays one primitive; it
becomes native code when a program is compiled, a single trajectory as a batch of one. So
derivatives are always taken first. The JVP and the VJP of an operation are operations themselves,
transposes of each other, and can be differentiated again. The differentiated arguments are chosen
anew in each differentiation, and are not part of what JAX caches between calls: JAX would use the
structure cached for another call, which led to wrong gradients under `jax.checkpoint`.

`batched` makes a function such an operation. All its inputs must be arguments: `hoisted` makes
arguments of closed-over values.
"""

import abc
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler.backends.primitive import Content, batch_primitive, mapped
from jaxmech.compiler.backends.sharding import Axes
from jaxmech.compiler.platforms import NATIVE, finite_arguments, is_on, lowered_for
from jaxmech.compiler.vectorize import run_alone, run_jaxpr
from jaxmech.utils.jax_internals import (
    ClosedJaxpr,
    LoweringRuleContext,
    ShapedArray,
    Tracer,
    Zero,
    is_undefined_primal,
    jaxpr_as_fun,
    lower_fun,
    lowered,
    unsharded,
    varying_axes,
    without_mesh,
    without_unused,
)
from jaxmech.utils.jit_cache import jit_of, uncollected
from jaxmech.utils.traces import DelayedJaxpr

Flags = tuple[bool, ...]
Arrays = Sequence[Array]


class AbstractRule(abc.ABC):
    """The derivatives of a function of arrays.

    Attributes:
        residuals: indices of the results that the derivatives need besides the arguments.
        smooth: indices of the differentiable results; the derivative of the others is zero.
        takes_finite: whether the derivatives take their arguments for finite numbers, because they
            are NaN anyway where the function has reported that its results are not.
    """

    residuals: tuple[int, ...]
    smooth: tuple[int, ...]
    takes_finite = False

    @abc.abstractmethod
    def jvp(self, args: Arrays, residuals: Arrays, nonzero: Flags, tangents: Arrays) -> list[Array]:
        """Return the tangents of the smooth results.

        `nonzero` flags the arguments that have a tangent, and `tangents` are these alone.
        """

    def smooth_jvp(
        self, args: Arrays, residuals: Arrays, nonzero: Flags, tangents: Arrays
    ) -> list[Array]:
        """Return the same, by operations that JAX can differentiate in both modes."""
        return self.jvp(args, residuals, nonzero, tangents)

    @abc.abstractmethod
    def vjp(
        self, args: Arrays, residuals: Arrays, linear: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        """Return cotangents of the arguments that `linear` flags.

        None is a zero cotangent of a result.
        """


class PlainRule(AbstractRule):
    """The derivatives by JAX of the function, or of one that is equal to it."""

    residuals = ()

    def __init__(
        self, call: DelayedJaxpr, smooth: Callable[[], ClosedJaxpr] | None = None
    ) -> None:  # fmt: skip
        self._differentiable = smooth or (lambda: call.closed)
        floating = (jnp.issubdtype(x.dtype, jnp.inexact) for x in call.out_avals)
        self.smooth = tuple(k for k, flag in enumerate(floating) if flag)

    def jvp(self, args: Arrays, residuals: Arrays, nonzero: Flags, tangents: Arrays) -> list[Array]:
        return jax.jvp(self._smooth(args, nonzero), _select(nonzero, args), list(tangents))[1]

    def vjp(
        self, args: Arrays, residuals: Arrays, linear: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        outs, pullback = jax.vjp(self._smooth(args, linear), *_select(linear, args))
        pairs = zip(cotangents, outs, strict=True)
        return list(pullback([jnp.zeros_like(x) if ct is None else ct for ct, x in pairs]))

    def _smooth(self, args: Arrays, flags: Flags) -> Callable[..., list[Array]]:
        """The smooth results as a function of the flagged arguments."""

        def smooth(*active: Array) -> list[Array]:
            outs = jaxpr_as_fun(self._differentiable())(*_merge(flags, active, args))
            return [outs[k] for k in self.smooth]

        return smooth


@dataclass(frozen=True, eq=False)
class Operation:
    """A function of one trajectory with its derivatives.

    Attributes:
        call: the function, as a jaxpr of arrays; of a derivative it is traced when it is compiled.
        rule: derivatives of the function.
        linear: number of its last arguments in which it is linear.
        adjoint: maps flags of the results that have a cotangent to the transposed operation, which
            maps the other arguments and these cotangents to cotangents of the linear arguments.
        takes_finite: whether it is a derivative that takes its arguments for finite numbers.
        differ: for each of its first arguments, those of the differentiated function, whether it
            differs within most batches: a single trajectory runs as such a batch. The others are
            results of it, tangents and cotangents, which all differ, unless in reverse mode over
            another derivative, which takes minutes to compile as native code.
    """

    call: DelayedJaxpr
    rule: AbstractRule
    differ: Flags
    linear: int = 0
    adjoint: Callable[[Flags], "Operation"] | None = None
    takes_finite: bool = False

    def jvp(self, nonzero: Flags, results: Flags) -> "Operation":
        """The operation from tangents of the nonzero arguments to those of the flagged results."""

        def push(*operands: Array) -> list[Array]:
            args, residuals, tangents = self._split(operands)
            return _select(results, self.rule.jvp(args, residuals, nonzero, tangents))

        def smooth(*operands: Array) -> list[Array]:
            args, residuals, tangents = self._split(operands)
            return _select(results, self.rule.smooth_jvp(args, residuals, nonzero, tangents))

        avals = [*self._known_avals(), *_select(nonzero, self.call.in_avals)]
        outs = [self.call.out_avals[k] for k in _select(results, self.rule.smooth)]
        is_smooth = type(self.rule).smooth_jvp is AbstractRule.smooth_jvp
        return _linear(
            self._delayed(push, avals, outs), self.differ, sum(nonzero),
            lambda ct: self.vjp(nonzero, _expand(results, ct)), self._takes_finite,
            None if is_smooth else partial(_program_of, smooth, avals),
        )  # fmt: skip

    def vjp(self, linear: Flags, nonzero: Flags) -> "Operation":
        """The operation from cotangents of the nonzero results to those of the linear arguments."""

        def pull(*operands: Array) -> list[Array]:
            args, residuals, dense = self._split(operands)
            cotangents = _merge(nonzero, dense, [None] * len(nonzero))
            return self.rule.vjp(args, residuals, linear, cotangents)

        smooth = [self.call.out_avals[k] for k in self.rule.smooth]
        avals = [*self._known_avals(), *_select(nonzero, smooth)]
        call = self._delayed(pull, avals, _select(linear, self.call.in_avals))
        differ = (*self.differ, *(False,) * (len(avals) - len(self.differ)))
        return _linear(
            call, differ if self.linear else self.differ, sum(nonzero),
            lambda ct: self.jvp(_expand(linear, ct), nonzero), self._takes_finite,
        )  # fmt: skip

    @property
    def _takes_finite(self) -> bool:
        return self.takes_finite or self.rule.takes_finite

    def _delayed(
        self, fn: Callable[..., list[Array]], avals: Sequence[Any], outs: Sequence[Any]
    ) -> DelayedJaxpr:
        return DelayedJaxpr(avals, outs, self.call.effects, partial(_program_of, fn, avals))

    def _known_avals(self) -> list[Any]:
        return [*self.call.in_avals, *(self.call.out_avals[k] for k in self.rule.residuals)]

    def _split(self, operands: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Split into arguments, residuals, and the arguments in which a derivative is linear."""
        first = len(self.call.in_avals)
        second = first + len(self.rule.residuals)
        return operands[:first], operands[first:second], operands[second:]


def _linear(
    call: DelayedJaxpr, differ: Flags, count: int, adjoint: Callable[[Flags], Operation],
    takes_finite: bool, smooth: Callable[[], ClosedJaxpr] | None = None,
) -> Operation:  # fmt: skip
    """An operation whose derivatives are those of the smooth function, if there is one."""
    return Operation(call, PlainRule(call, smooth), differ, count, adjoint, takes_finite)


def _program_of(fn: Callable[..., list[Array]], avals: Sequence[Any]) -> ClosedJaxpr:
    return traced(fn, avals)[0]


def operation_of(
    fn: Callable[..., Any], args: Sequence[Any], rule: Callable[[Any], AbstractRule] | None = None,
    differ: Flags | None = None,
) -> tuple[Operation, Any]:  # fmt: skip
    """A function of arrays as an operation, and the tree structure of its results.

    Args:
        fn: the function, which must not close over traced values.
        args: arguments of the shapes and types in question.
        rule: maps the tree structure of the results to the derivatives; by default those of JAX.
        differ: which arguments differ within most batches; by default all.
    """
    closed, outs = traced(fn, args)
    call = DelayedJaxpr.of(closed)
    differ = (True,) * len(args) if differ is None else differ
    return Operation(call, PlainRule(call) if rule is None else rule(outs), differ), outs


@uncollected
def traced(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[ClosedJaxpr, Any]:
    """A function as a jaxpr without unused operations, and the tree structure of its results."""
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
    # Independent of the settings of JAX: loops are not unrolled, and derivatives may mix types.
    with jax.disable_jit(False), jax.numpy_dtype_promotion("standard"), without_mesh():
        call, outs = jax.make_jaxpr(fn, return_shape=True)(*shapes)
    # XLA cannot eliminate what is unused, because it cannot see into native code.
    return without_unused(lowered(call)), jax.tree.structure(outs)


def bind(op: Operation, *args: Array) -> list[Array]:
    """Apply an operation to one trajectory."""
    return _over_axes(op, args, ((),) * len(args), (), False)


def _over_axes(
    op: Operation, args: Arrays, axes: Axes, sizes: tuple[int, ...], as_lanes: bool
) -> list[Array]:
    # Within `jax.shard_map`, all arguments have to vary along the same axes of the mesh.
    mesh_axes = frozenset().union(*map(varying_axes, args))
    missing = [(x, tuple(mesh_axes - varying_axes(x))) for x in args]
    args = [jax.lax.pcast(x, names, to="varying") if names else x for x, names in missing]
    args = args if sizes else [unsharded(x) for x in args]
    used_outs = (True,) * len(op.call.out_avals)
    params = {"call": op.call, "op": op, "used_outs": used_outs, "as_lanes": as_lanes}
    return list(_batched.bind(*args, axes=axes, sizes=sizes, **params))


def _bind_under_axis(
    *args: Array, axes: Axes, sizes: tuple[int, ...], as_lanes: bool, **content: Any
) -> list[Array]:
    """Bind under one more axis: the innermost becomes lanes, outer ones lengthen the batch."""
    as_lanes = is_on() if len(sizes) == 1 else as_lanes
    return list(_batched.bind(*args, axes=axes, sizes=sizes, as_lanes=as_lanes, **content))


def _without_results(params: Content, used_outs: Sequence[bool]) -> Content:
    call = params["call"].narrowed(used_outs)
    return {**params, "call": call, "used_outs": _expand(params["used_outs"], used_outs)}


def _evaluated(
    *args: Array, call: DelayedJaxpr, op: Operation, used_outs: Flags, as_lanes: bool, axes: Axes,
    sizes: tuple[int, ...], native: bool,
) -> list[Array]:  # fmt: skip
    """Compute the results while a program is lowered; `native` says whether its platform can."""
    if not sizes:
        alone = args and native and is_on()
        if alone:
            others = (True,) * (len(args) - len(op.differ))
            return run_alone(call.closed, (*op.differ, *others), args)
        return list(jaxpr_as_fun(call.closed)(*args))
    if not (native and as_lanes):
        return mapped(jaxpr_as_fun(call.closed), axes, sizes)(*args)
    *outer, innermost = sizes
    if not isinstance(innermost, int):
        raise ValueError(
            "A batch that is compiled to native code must have a known size, but has "
            f"{innermost}; give `jax.export` a number, or export within "
            "`jaxmech.compiler.off()`."
        )
    flags = [len(outer) in has for has in axes]
    return mapped(lambda *args: run_jaxpr(call.closed, flags, args), axes, outer)(*args)


@uncollected
def _lower(ctx: LoweringRuleContext, *args: Any, platform: str | None = None, **params: Any) -> Any:
    """Lower without the axes of a mesh, along which all arguments vary alike."""
    avals: Sequence[Any] = ctx.avals_in
    plain = [ShapedArray(x.shape, x.dtype) for x in avals]
    native = platform in NATIVE
    lower = lower_fun(partial(_evaluated, native=native), multiple_results=True)
    finite = finite_arguments(params["op"].takes_finite)
    with lowered_for(platform), finite, without_mesh():
        return lower(ctx.replace(avals_in=plain), *args, **params)


def _jvp(
    primals: Sequence[Array], tangents: Sequence[Any], *, call: DelayedJaxpr, op: Operation,
    used_outs: Flags, as_lanes: bool, axes: Axes, sizes: tuple[int, ...],
) -> tuple[list[Array], list[Any]]:  # fmt: skip
    outs = _over_axes(op, primals, axes, sizes, as_lanes)
    nonzero = tuple(not isinstance(x, Zero) for x in tangents)
    push = op.jvp(nonzero, (True,) * len(op.rule.smooth))
    residuals = [outs[k] for k in op.rule.residuals]
    batch_axes = tuple(range(len(sizes)))
    push_axes = (*axes, *[batch_axes] * len(residuals), *_select(nonzero, axes))
    push_args = [*primals, *residuals, *_select(nonzero, tangents)]
    out_tangents = iter(_over_axes(push, push_args, push_axes, sizes, as_lanes))
    slopes = [
        next(out_tangents) if k in op.rule.smooth else Zero(jax.typeof(x).to_tangent_aval())
        for k, x in enumerate(outs)
    ]
    return _select(used_outs, outs), _select(used_outs, slopes)


def _transposed(
    cotangents: Sequence[Any], *args: Any, call: DelayedJaxpr, op: Operation, used_outs: Flags,
    as_lanes: bool, axes: Axes, sizes: tuple[int, ...],
) -> list[Any]:  # fmt: skip
    split = len(args) - op.linear
    zeros = [Zero(x) for x in op.call.out_avals]
    cotangents = _merge(used_outs, cotangents, zeros)
    nonzero = tuple(not isinstance(x, Zero) for x in cotangents)
    if not any(nonzero):
        return [None] * split + [Zero(x.aval) for x in args[split:]]
    assert op.adjoint is not None
    batch_axes = tuple(range(len(sizes)))
    pull_axes = (*axes[:split], *[batch_axes] * sum(nonzero))
    pull_args = [*args[:split], *_select(nonzero, cotangents)]
    outs = _over_axes(op.adjoint(nonzero), pull_args, pull_axes, sizes, as_lanes)
    all_cotangents: list[Any] = [None] * split
    for k, x in enumerate(outs, start=split):
        # Summed over each axis of the batch that the argument does not have.
        shared = [axis for axis in range(len(sizes)) if axis not in axes[k]]
        total = x.sum(shared) if shared else x
        all_cotangents.append(total if is_undefined_primal(args[k]) else None)
    return all_cotangents


_batched = batch_primitive(
    "batched",
    results=lambda content: (content["call"].out_avals, content["call"].effects),
    bind=_bind_under_axis,
    narrow=_without_results,
    jvp=_jvp,
    transpose=_transposed,
    lower=_lower,
    lower_by_platform={platform: partial(_lower, platform=platform) for platform in NATIVE},
)


def _select(flags: Sequence[bool], xs: Sequence[Any]) -> list[Any]:
    return [x for x, flag in zip(xs, flags, strict=True) if flag]


def _merge(flags: Sequence[bool], selected: Sequence[Any], default: Sequence[Any]) -> list[Any]:
    """The next of `selected` where a flag is set, and the number of `default` elsewhere."""
    remaining = iter(selected)
    return [next(remaining) if flag else x for flag, x in zip(flags, default, strict=True)]


def _expand(outer: Flags, inner: Sequence[bool]) -> Flags:
    """Scatter `inner` into the True positions of `outer`."""
    return tuple(_merge(outer, inner, [False] * len(outer)))


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
