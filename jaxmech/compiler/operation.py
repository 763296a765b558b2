"""A function of a single trajectory as one JAX primitive, with a rule for each transformation.

Under `jax.vmap` the primitive records which arguments are batched, and stays one primitive; it
becomes native code when a program is compiled, a single trajectory as a batch of one. So
derivatives are always taken first. The JVP and the VJP of an operation are operations themselves,
transposes of each other, and can be differentiated again. The differentiated arguments are chosen
anew in each differentiation, and are not part of what JAX caches between calls: JAX would use the
structure cached for another call, which led to wrong gradients under `jax.checkpoint`.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir, partial_eval
from jaxtyping import Array

from jaxmech.compiler.backends.partitioning import resharded, unsharded
from jaxmech.compiler.platforms import NATIVE, is_on, lowered_for
from jaxmech.compiler.vectorize import lowered, run_alone, run_jaxpr, without_unused
from jaxmech.utils.announce import announced
from jaxmech.utils.jit_cache import jit_of

Flags = tuple[bool, ...]
Arrays = Sequence[Array]


class AbstractRule(abc.ABC):
    """The derivatives of a function of arrays.

    Attributes:
        residuals: indices of the results that the derivatives need besides the arguments.
        smooth: indices of the differentiable results; the derivative of the others is zero.
    """

    residuals: tuple[int, ...]
    smooth: tuple[int, ...]

    @abc.abstractmethod
    def jvp(self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays) -> list[Array]:
        """Return the tangents of the smooth results for tangents of the wanted arguments."""

    def smooth_jvp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays
    ) -> list[Array]:
        """Return the same, by operations that JAX can differentiate in both modes."""
        return self.jvp(args, residuals, wanted, tangents)

    @abc.abstractmethod
    def vjp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        """Return cotangents of the wanted arguments; None is a zero cotangent of a result."""


class PlainRule(AbstractRule):
    """The derivatives by JAX of the function, or of one that is equal to it."""

    residuals = ()

    def __init__(self, call: ClosedJaxpr, smooth: Callable[[], ClosedJaxpr] | None = None) -> None:
        self.call, self._differentiable = call, smooth or (lambda: call)
        floating = (jnp.issubdtype(x.dtype, jnp.inexact) for x in call.out_avals)
        self.smooth = tuple(k for k, flag in enumerate(floating) if flag)

    def jvp(self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays) -> list[Array]:
        """Return the tangents by `jax.jvp`."""
        return jax.jvp(self._smooth(args, wanted), _select(wanted, args), list(tangents))[1]

    def vjp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        """Return the cotangents by `jax.vjp`."""
        outs, pullback = jax.vjp(self._smooth(args, wanted), *_select(wanted, args))
        given = zip(cotangents, outs, strict=True)
        return list(pullback([jnp.zeros_like(x) if ct is None else ct for ct, x in given]))

    def _smooth(self, args: Arrays, wanted: Flags) -> Callable[..., list[Array]]:
        """The smooth results as a function of the wanted arguments."""

        def smooth(*some: Array) -> list[Array]:
            outs = jaxpr_as_fun(self._differentiable())(*_merge(wanted, some, args))
            return [outs[k] for k in self.smooth]

        return smooth


@dataclass(frozen=True, eq=False)
class Operation:
    """A function of one trajectory with its derivatives.

    Attributes:
        call: the function, as a jaxpr of arrays.
        rule: derivatives of the function.
        linear: number of its last arguments in which it is linear.
        adjoint: maps flags of the results that have a cotangent to the transposed operation, which
            maps the other arguments and these cotangents to cotangents of the linear arguments.
    """

    call: ClosedJaxpr
    rule: AbstractRule
    linear: int = 0
    adjoint: Callable[[Flags], "Operation"] | None = None

    def jvp(self, wanted: Flags, given: Flags) -> "Operation":
        """The operation from tangents of the wanted arguments to those of the given results."""

        def push(*rest: Array) -> list[Array]:
            args, residuals, tangents = self._split(rest)
            return _select(given, self.rule.jvp(args, residuals, wanted, tangents))

        def smooth(*rest: Array) -> list[Array]:
            args, residuals, tangents = self._split(rest)
            return _select(given, self.rule.smooth_jvp(args, residuals, wanted, tangents))

        avals = [*self._known_avals(), *_select(wanted, self.call.in_avals)]
        is_smooth = type(self.rule).smooth_jvp is AbstractRule.smooth_jvp
        return _linear(
            push, avals, sum(wanted), lambda ct: self.vjp(wanted, _expand(given, ct)),
            None if is_smooth else smooth,
        )  # fmt: skip

    def vjp(self, wanted: Flags, given: Flags) -> "Operation":
        """The operation from cotangents of the given results to those of the wanted arguments."""

        def pull(*rest: Array) -> list[Array]:
            args, residuals, some = self._split(rest)
            cotangents = _merge(given, some, [None] * len(given))
            return self.rule.vjp(args, residuals, wanted, cotangents)

        smooth = [self.call.out_avals[k] for k in self.rule.smooth]
        avals = [*self._known_avals(), *_select(given, smooth)]
        return _linear(pull, avals, sum(given), lambda ct: self.jvp(_expand(wanted, ct), given))

    def _known_avals(self) -> list[Any]:
        return [*self.call.in_avals, *(self.call.out_avals[k] for k in self.rule.residuals)]

    def _split(self, rest: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Split into arguments, residuals, and the arguments in which a derivative is linear."""
        first = len(self.call.in_avals)
        second = first + len(self.rule.residuals)
        return rest[:first], rest[first:second], rest[second:]


def _linear(
    fn: Callable[..., list[Array]], avals: Sequence[Any], count: int,
    adjoint: Callable[[Flags], Operation], smooth: Callable[..., list[Array]] | None = None,
) -> Operation:  # fmt: skip
    """An operation whose derivatives are those of the smooth function, if there is one."""
    call, _ = traced(fn, avals)
    rule = PlainRule(call, None if smooth is None else partial(_program_of, smooth, avals))
    return Operation(call, rule, count, adjoint)


def _program_of(fn: Callable[..., list[Array]], avals: Sequence[Any]) -> ClosedJaxpr:
    return traced(fn, avals)[0]


def operation_of(
    fn: Callable[..., Any], args: Sequence[Any], rule: Callable[[Any], AbstractRule] | None = None
) -> tuple[Operation, Any]:
    """A function of arrays as an operation, and the tree structure of its results.

    Args:
        fn: the function, which must not close over traced values.
        args: arguments of the shapes and types in question.
        rule: maps the tree structure of the results to the derivatives; by default those of JAX.
    """
    call, outs = traced(fn, args)
    return Operation(call, PlainRule(call) if rule is None else rule(outs)), outs


def traced(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[ClosedJaxpr, Any]:
    """A function as a jaxpr without unused operations, and the tree structure of its results."""
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
    # Independent of the settings of JAX: loops are not unrolled, and derivatives may mix types.
    with jax.disable_jit(False), jax.numpy_dtype_promotion("standard"):
        call, outs = jax.make_jaxpr(fn, return_shape=True)(*shapes)
    return without_unused(lowered(call)), jax.tree.structure(outs)


@dataclass(frozen=True)
class BatchAxis:
    """One axis of a batch.

    Attributes:
        size: number of trajectories.
        has_axis: flags of the arguments that have the axis, as their first.
        as_lanes: whether it may run as native code, if the platform supports it.
    """

    size: int
    has_axis: Flags
    as_lanes: bool

    def as_native(self, call: ClosedJaxpr) -> Callable[..., list[Array]]:
        """Map a function over the axis, as native code."""
        if not isinstance(self.size, int):
            raise ValueError(
                "A batch that is compiled to native code must have a known size, but has "
                f"{self.size}; give `jax.export` a number, or export within "
                "`jaxmech.compiler.off()`."
            )
        return lambda *args: run_jaxpr(call, self.has_axis, args)

    def mapped(self, fn: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
        """Map a function over the axis by `jax.vmap`."""
        return jax.vmap(fn, [0 if has else None for has in self.has_axis], axis_size=self.size)


def bind(op: Operation, levels: tuple[BatchAxis, ...], *args: Array) -> list[Array]:
    """Apply an operation over a batch; the innermost axis is the first of the levels."""
    # Within `jax.shard_map`, all arguments have to vary along the same axes of the mesh.
    axes = frozenset().union(*(_varying(x) for x in args))
    pairs = [(x, tuple(axes - _varying(x))) for x in args]
    alike = [jax.lax.pcast(x, some, to="varying") if some else x for x, some in pairs]
    alike = alike if levels else [unsharded(x) for x in alike]
    every = (True,) * len(op.call.out_avals)
    return list(_batched.bind(*alike, call=op.call, op=op, used=every, levels=levels))


def _varying(x: Array) -> frozenset[str]:
    """The axes of a mesh along which a value varies within `jax.shard_map`."""
    aval = jax.typeof(x)
    return aval.mat.varying if hasattr(aval, "mat") else aval.vma  # `mat` from jax 0.12 on


_batched = Primitive("batched")
_batched.multiple_results = True


@jit_of("call", "op", "used", "levels")
def _compiled(
    args: Arrays, call: ClosedJaxpr, op: Operation, used: Flags, levels: tuple[BatchAxis, ...]
) -> list[Array]:
    return list(_batched.bind(*args, call=call, op=op, used=used, levels=levels))


def _run(*args: Array, **params: Any) -> list[Array]:
    """Compile and run the operation alone, outside of `jax.jit`."""
    with jax.disable_jit(False):
        return list(_compiled(args, **params))


_batched.def_impl(_run)


def _shapes(
    *avals: Any, call: ClosedJaxpr, op: Operation, used: Flags, levels: tuple[BatchAxis, ...]
) -> tuple[list[ShapedArray], Any]:
    sizes = tuple(level.size for level in reversed(levels))
    outs = [ShapedArray((*sizes, *x.shape), x.dtype) for x in call.out_avals]
    outer = levels[::-1]
    axes = [
        tuple(axis for axis, level in enumerate(outer) if level.has_axis[k])
        for k in range(len(avals))
    ]
    return resharded(outs, avals, axes), call.effects


_batched.def_effectful_abstract_eval(_shapes)


def _evaluated(
    *args: Array, call: ClosedJaxpr, op: Operation, used: Flags, levels: tuple[BatchAxis, ...],
    native: bool,
) -> list[Array]:  # fmt: skip
    """Compute the results while a program is lowered."""
    if not levels and args and native and is_on():
        return run_alone(call, args)
    fn = jaxpr_as_fun(call)
    if levels and native and levels[0].as_lanes:
        fn, levels = levels[0].as_native(call), levels[1:]
    for level in levels:
        fn = level.mapped(fn)
    return fn(*args)


def _lowered(
    ctx: mlir.LoweringRuleContext, *args: Any, platform: str | None = None, **params: Any
) -> Any:
    """Lower without the axes of a mesh, along which all arguments vary alike."""
    avals: Sequence[Any] = ctx.avals_in
    plain = [ShapedArray(x.shape, x.dtype) for x in avals]
    native = platform in NATIVE
    lower = mlir.lower_fun(partial(_evaluated, native=native), multiple_results=True)
    with lowered_for(platform), announced():
        return lower(ctx.replace(avals_in=plain), *args, **params)


mlir.register_lowering(_batched, _lowered)
for _platform in NATIVE:
    mlir.register_lowering(_batched, partial(_lowered, platform=_platform), platform=_platform)


def _over_batch(
    args: Arrays, axes: Sequence[int | None], **params: Any
) -> tuple[list[Array], list[int]]:
    """Add an axis. The innermost is compiled to native code; outer ones lengthen its batch."""
    pairs = list(zip(args, axes, strict=True))
    args = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in pairs]
    has_axis = tuple(axis is not None for axis in axes)
    size = next(x.shape[0] for x in _select(has_axis, args))
    levels = params["levels"]
    level = BatchAxis(size, has_axis, as_lanes=not levels and is_on())
    outs = _batched.bind(*args, **{**params, "levels": (*levels, level)})
    return outs, [0] * len(outs)


batching.primitive_batchers[_batched] = _over_batch


def _without_unused(used: Sequence[bool], *rest: Any) -> tuple[list[bool], JaxprEqn | None]:
    """Eliminate unused results; jax 0.12 passes the live arguments too."""
    eqn: JaxprEqn = rest[-1]
    if not any(used) and not eqn.effects:
        return [False] * len(eqn.invars), None
    if all(used):
        return [True] * len(eqn.invars), eqn
    params = {
        **eqn.params,
        "call": without_unused(eqn.params["call"], used),
        "used": _expand(eqn.params["used"], used),
    }
    return [True] * len(eqn.invars), eqn.replace(outvars=_select(used, eqn.outvars), params=params)


partial_eval.dce_rules[_batched] = _without_unused


def _jvp(
    primals: Sequence[Array], tangents: Sequence[Any], *, call: ClosedJaxpr, op: Operation,
    used: Flags, levels: tuple[BatchAxis, ...],
) -> tuple[list[Array], list[Any]]:  # fmt: skip
    outs = bind(op, levels, *primals)
    wanted = tuple(not isinstance(x, ad.Zero) for x in tangents)
    push = op.jvp(wanted, (True,) * len(op.rule.smooth))
    residuals = [outs[k] for k in op.rule.residuals]
    levels = tuple(
        replace(x, has_axis=(*x.has_axis, *[True] * len(residuals), *_select(wanted, x.has_axis)))
        for x in levels
    )
    found = iter(bind(push, levels, *primals, *residuals, *_select(wanted, tangents)))
    slopes = [
        next(found) if k in op.rule.smooth else ad.Zero(jax.typeof(x).to_tangent_aval())
        for k, x in enumerate(outs)
    ]
    return _select(used, outs), _select(used, slopes)


ad.primitive_jvps[_batched] = _jvp


def _transposed(
    cotangents: Sequence[Any], *args: Any, call: ClosedJaxpr, op: Operation, used: Flags,
    levels: tuple[BatchAxis, ...],
) -> list[Any]:  # fmt: skip
    split = len(args) - op.linear
    zeros = [ad.Zero(x) for x in op.call.out_avals]
    cotangents = _merge(used, cotangents, zeros)
    having = tuple(not isinstance(x, ad.Zero) for x in cotangents)
    if not any(having):
        return [None] * split + [ad.Zero(x.aval) for x in args[split:]]
    assert op.adjoint is not None
    flags = [replace(x, has_axis=(*x.has_axis[:split], *[True] * sum(having))) for x in levels]
    outs = bind(op.adjoint(having), tuple(flags), *args[:split], *_select(having, cotangents))
    return [None] * split + [
        _over_shared(x, k, levels) if ad.is_undefined_primal(args[k]) else None
        for k, x in enumerate(outs, start=split)
    ]


def _over_shared(x: Array, k: int, levels: tuple[BatchAxis, ...]) -> Array:
    """Sum the cotangent of argument k over each axis that the argument does not have."""
    shared = [j for j, level in enumerate(reversed(levels)) if not level.has_axis[k]]
    return x.sum(shared) if shared else x


ad.primitive_transposes[_batched] = _transposed


def _select(flags: Sequence[bool], xs: Sequence[Any]) -> list[Any]:
    return [x for x, flag in zip(xs, flags, strict=True) if flag]


def _merge(flags: Sequence[bool], some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """`some` where the flags are set, `others` elsewhere."""
    rest = iter(some)
    return [next(rest) if flag else x for flag, x in zip(flags, others, strict=True)]


def _expand(outer: Flags, inner: Sequence[bool]) -> Flags:
    """Flags of all, from flags of those where the outer flags are set."""
    return tuple(_merge(outer, inner, [False] * len(outer)))
