"""A function of a single trajectory as one operation of JAX, with rules for each transformation.

Under `jax.vmap` it remembers which arguments have the axis of the batch and stays one operation;
only when a program is compiled does it become lanes, a single trajectory those of a batch of one.
So derivatives are always taken first. Forward and backward derivative are such operations as well,
transposes of each other, and can be differentiated again. What is differentiated by is decided anew
in each differentiation, and is no part of what JAX keeps from one to the next.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir, partial_eval
from jax.sharding import PartitionSpec
from jaxtyping import Array

from jaxmech.compiler.platforms import why_not
from jaxmech.compiler.vectorize import run_alone, run_batched, without_unused
from jaxmech.utils.jit_cache import jit_of

Flags = tuple[bool, ...]


class AbstractRule(abc.ABC):
    """How a function of arrays is differentiated.

    Attributes:
        kept: numbers of the results that the derivatives need beside the arguments.
        smooth: numbers of the results that have a derivative; that of the others is zero.
    """

    kept: tuple[int, ...]
    smooth: tuple[int, ...]

    @abc.abstractmethod
    def pushed(
        self, args: Sequence[Array], kept: Sequence[Array], wanted: Flags, tangents: Sequence[Array]
    ) -> list[Array]:
        """Tangents of the smooth results, from those of the arguments that are wanted."""

    @abc.abstractmethod
    def pulled(
        self,
        args: Sequence[Array],
        kept: Sequence[Array],
        wanted: Flags,
        cotangents: Sequence[Array | None],
    ) -> list[Array]:
        """Cotangents of the arguments that are wanted; None stands for a zero."""


class PlainRule(AbstractRule):
    """The derivatives of the operations that a function consists of."""

    kept = ()

    def __init__(self, call: ClosedJaxpr) -> None:
        self.call = call
        self.smooth = tuple(k for k, x in enumerate(call.out_avals) if _is_smooth(x))

    def pushed(
        self, args: Sequence[Array], kept: Sequence[Array], wanted: Flags, tangents: Sequence[Array]
    ) -> list[Array]:
        """By `jax.jvp`."""
        return jax.jvp(self._smooth(args, wanted), _where(wanted, args), list(tangents))[1]

    def pulled(
        self,
        args: Sequence[Array],
        kept: Sequence[Array],
        wanted: Flags,
        cotangents: Sequence[Array | None],
    ) -> list[Array]:
        """By `jax.vjp`."""
        outs, pull = jax.vjp(self._smooth(args, wanted), *_where(wanted, args))
        given = zip(cotangents, outs, strict=True)
        return list(pull([jnp.zeros_like(x) if ct is None else ct for ct, x in given]))

    def _smooth(self, args: Sequence[Array], wanted: Flags) -> Callable[..., list[Array]]:
        """The smooth results as a function of the arguments that are wanted."""

        def smooth(*some: Array) -> list[Array]:
            outs = jaxpr_as_fun(self.call)(*_filled(wanted, some, args))
            return [outs[k] for k in self.smooth]

        return smooth


@dataclass(frozen=True, eq=False)
class Operation:
    """A function of one trajectory with its derivatives.

    Attributes:
        call: the function, of arrays to arrays.
        rule: how it is differentiated.
        linear: in how many of its last arguments it is linear.
        adjoint: from the results that have a cotangent to the operation that takes the other
            arguments and these cotangents to those of the linear arguments.
    """

    call: ClosedJaxpr
    rule: AbstractRule
    linear: int = 0
    adjoint: Callable[[Flags], "Operation"] | None = None

    def pushed(self, wanted: Flags, given: Flags) -> "Operation":
        """Tangents of the given smooth results, from those of the wanted arguments."""

        def push(*rest: Array) -> list[Array]:
            args, kept, tangents = self._parted(rest)
            return _where(given, self.rule.pushed(args, kept, wanted, tangents))

        return _linear(
            push,
            [*self._residuals(), *_where(wanted, self.call.in_avals)],
            sum(wanted),
            lambda having: self.pulled(wanted, _within(given, having)),
        )

    def pulled(self, wanted: Flags, given: Flags) -> "Operation":
        """Cotangents of the wanted arguments, from those of the given smooth results."""

        def pull(*rest: Array) -> list[Array]:
            args, kept, some = self._parted(rest)
            cotangents = _filled(given, some, [None] * len(given))
            return self.rule.pulled(args, kept, wanted, cotangents)

        smooth = [self.call.out_avals[k] for k in self.rule.smooth]
        return _linear(
            pull,
            [*self._residuals(), *_where(given, smooth)],
            sum(given),
            lambda having: self.pushed(_within(wanted, having), given),
        )

    def _residuals(self) -> list[Any]:
        return [*self.call.in_avals, *(self.call.out_avals[k] for k in self.rule.kept)]

    def _parted(self, rest: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Arguments, results that were kept, and what the operation is linear in."""
        first = len(self.call.in_avals)
        second = first + len(self.rule.kept)
        return rest[:first], rest[first:second], rest[second:]


def _linear(
    fn: Callable[..., list[Array]], avals: Sequence[Any], count: int,
    adjoint: Callable[[Flags], Operation],
) -> Operation:  # fmt: skip
    call, _ = traced(fn, avals)
    return Operation(call, PlainRule(call), count, adjoint)


def operation_of(
    fn: Callable[..., Any], args: Sequence[Any], rule: Callable[[Any], AbstractRule] | None = None
) -> tuple[Operation, Any]:
    """A function of arrays as an operation, and the form of its results.

    Args:
        fn: the function; it must not close over values that are being traced.
        args: arguments for it, of the shapes and types in question.
        rule: from the form of the results to how it is differentiated; by default as its own
            operations are.
    """
    call, outs = traced(fn, args)
    return Operation(call, PlainRule(call) if rule is None else rule(outs)), outs


def traced(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[ClosedJaxpr, Any]:
    """A function of arrays as a jaxpr, without what no result depends on; and the form of these."""
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
    # Whatever JAX is set to: loops stay loops, and rules of differentiation mix types as others do.
    with jax.disable_jit(False), jax.numpy_dtype_promotion("standard"):
        call, outs = jax.make_jaxpr(fn, return_shape=True)(*shapes)
    return without_unused(call), jax.tree.structure(outs)


@dataclass(frozen=True)
class BatchAxis:
    """One axis of a batch.

    Attributes:
        size: number of trajectories.
        has_axis: which of the arguments have it, in front.
        as_lanes: whether it may become lanes.
    """

    size: int
    has_axis: Flags
    as_lanes: bool

    def vectorized(self, fn: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
        """fn over the axis."""
        if self.as_lanes:
            return lambda *args: run_batched(fn, self.has_axis, args)
        return jax.vmap(fn, [0 if has else None for has in self.has_axis], axis_size=self.size)


def bind(op: Operation, levels: tuple[BatchAxis, ...], *args: Array) -> list[Array]:
    """All results of an operation over a batch, the innermost axis first among the levels."""
    axes = frozenset().union(*(_varying(x) for x in args))
    pairs = [(x, tuple(axes - _varying(x))) for x in args]
    alike = [jax.lax.pcast(x, some, to="varying") if some else x for x, some in pairs]
    every = (True,) * len(op.call.out_avals)
    return list(_batched.bind(*alike, call=op.call, op=op, used=every, levels=levels))


def _varying(x: Array) -> frozenset[str]:
    """Along which axes of a mesh a value differs, within `jax.shard_map`."""
    aval = jax.typeof(x)
    return aval.mat.varying if hasattr(aval, "mat") else aval.vma  # the former from jax 0.12 on


_batched = Primitive("batched")
_batched.multiple_results = True


@jit_of("call", "op", "used", "levels")
def _compiled(
    args: Sequence[Array],
    call: ClosedJaxpr,
    op: Operation,
    used: Flags,
    levels: tuple[BatchAxis, ...],
) -> list[Array]:
    return list(_batched.bind(*args, call=call, op=op, used=used, levels=levels))


def _now(*args: Array, **params: Any) -> list[Array]:
    """The results where no program is being compiled: by one of its own."""
    with jax.disable_jit(False):
        return list(_compiled(args, **params))


_batched.def_impl(_now)


def _shapes(
    *avals: Any, call: ClosedJaxpr, op: Operation, used: Flags, levels: tuple[BatchAxis, ...]
) -> tuple[list[ShapedArray], Any]:
    sizes = tuple(level.size for level in reversed(levels))
    outs = [ShapedArray((*sizes, *x.shape), x.dtype) for x in call.out_avals]
    return [_alike(x, *avals[:1]) for x in outs], call.effects


def _alike(aval: ShapedArray, *like: Any) -> ShapedArray:
    """Varying along the same axes of a mesh as the arguments, which all vary along the same."""
    for one in like:
        sharding = one.sharding.update(spec=PartitionSpec(*[None] * aval.ndim))
        return one.update(shape=aval.shape, dtype=aval.dtype, weak_type=False, sharding=sharding)
    return aval


_batched.def_effectful_abstract_eval(_shapes)


def _evaluated(
    *args: Array, call: ClosedJaxpr, op: Operation, used: Flags, levels: tuple[BatchAxis, ...]
) -> list[Array]:
    """The results, in a program that is being compiled."""
    fn = jaxpr_as_fun(call)
    if not levels and args and why_not() is None:
        return run_alone(fn, args)
    for level in levels:
        fn = level.vectorized(fn)
    return fn(*args)


def _lowered(ctx: mlir.LoweringRuleContext, *args: Any, **params: Any) -> Any:
    """What varies along the axes of a mesh does so as a whole; no part of it needs to know."""
    avals: Sequence[Any] = ctx.avals_in
    plain = [ShapedArray(x.shape, x.dtype) for x in avals]
    lower = mlir.lower_fun(_evaluated, multiple_results=True)
    return lower(ctx.replace(avals_in=plain), *args, **params)


mlir.register_lowering(_batched, _lowered)


def _over_batch(
    args: Sequence[Array], axes: Sequence[int | None], **params: Any
) -> tuple[list[Array], list[int]]:
    """One axis more. Lanes take the innermost; those around it make the batch longer."""
    pairs = list(zip(args, axes, strict=True))
    args = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in pairs]
    has_axis = tuple(axis is not None for axis in axes)
    size = next(x.shape[0] for x in _where(has_axis, args))
    levels = params["levels"]
    as_lanes = not levels and why_not() is None
    if as_lanes and not isinstance(size, int):
        raise ValueError(
            f"A batch that runs as lanes must have a size that is known, but has {size}; give "
            "`jax.export` a number, or export within `jaxmech.compiler.off()`."
        )
    level = BatchAxis(size, has_axis, as_lanes)
    outs = _batched.bind(*args, **{**params, "levels": (*levels, level)})
    return outs, [0] * len(outs)


batching.primitive_batchers[_batched] = _over_batch


def _without_unused(used: Sequence[bool], *rest: Any) -> tuple[list[bool], JaxprEqn | None]:
    """The operation for the results that are used; jax 0.12 says which arguments live, too."""
    eqn: JaxprEqn = rest[-1]
    if not any(used) and not eqn.effects:
        return [False] * len(eqn.invars), None
    if all(used):
        return [True] * len(eqn.invars), eqn
    params = {
        **eqn.params,
        "call": without_unused(eqn.params["call"], used),
        "used": _within(eqn.params["used"], used),
    }
    return [True] * len(eqn.invars), eqn.replace(outvars=_where(used, eqn.outvars), params=params)


partial_eval.dce_rules[_batched] = _without_unused


def _jvp(
    primals: Sequence[Array], tangents: Sequence[Any], *, call: ClosedJaxpr, op: Operation,
    used: Flags, levels: tuple[BatchAxis, ...],
) -> tuple[list[Array], list[Any]]:  # fmt: skip
    outs = bind(op, levels, *primals)
    wanted = tuple(not isinstance(x, ad.Zero) for x in tangents)
    push = op.pushed(wanted, (True,) * len(op.rule.smooth))
    kept = [outs[k] for k in op.rule.kept]
    levels = tuple(
        replace(x, has_axis=(*x.has_axis, *[True] * len(kept), *_where(wanted, x.has_axis)))
        for x in levels
    )
    found = iter(bind(push, levels, *primals, *kept, *_where(wanted, tangents)))
    slopes = [
        next(found) if k in op.rule.smooth else ad.Zero(jax.typeof(x).to_tangent_aval())
        for k, x in enumerate(outs)
    ]
    return _where(used, outs), _where(used, slopes)


ad.primitive_jvps[_batched] = _jvp


def _transposed(
    cotangents: Sequence[Any], *args: Any, call: ClosedJaxpr, op: Operation, used: Flags,
    levels: tuple[BatchAxis, ...],
) -> list[Any]:  # fmt: skip
    split = len(args) - op.linear
    zeros = [ad.Zero(x) for x in op.call.out_avals]
    cotangents = _filled(used, cotangents, zeros)
    having = tuple(not isinstance(x, ad.Zero) for x in cotangents)
    if not any(having):
        return [None] * split + [ad.Zero(x.aval) for x in args[split:]]
    assert op.adjoint is not None
    flags = [replace(x, has_axis=(*x.has_axis[:split], *[True] * sum(having))) for x in levels]
    outs = bind(op.adjoint(having), tuple(flags), *args[:split], *_where(having, cotangents))
    return [None] * split + [
        _over_shared(x, k, levels) if ad.is_undefined_primal(args[k]) else None
        for k, x in enumerate(outs, start=split)
    ]


def _over_shared(x: Array, k: int, levels: tuple[BatchAxis, ...]) -> Array:
    """The cotangent of argument k: a sum over each axis that the argument does not have."""
    shared = [j for j, level in enumerate(reversed(levels)) if not level.has_axis[k]]
    return x.sum(shared) if shared else x


ad.primitive_transposes[_batched] = _transposed


def _is_smooth(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def _where(flags: Sequence[bool], xs: Sequence[Any]) -> list[Any]:
    return [x for x, flag in zip(xs, flags, strict=True) if flag]


def _filled(flags: Sequence[bool], some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """`some` in the places of the flags, `others` elsewhere."""
    rest = iter(some)
    return [next(rest) if flag else x for flag, x in zip(flags, others, strict=True)]


def _within(outer: Flags, inner: Sequence[bool]) -> Flags:
    """Flags of all, from those of the ones that the outer flags let through."""
    return tuple(_filled(outer, inner, [False] * len(outer)))
