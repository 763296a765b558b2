"""JAX's insides: what is used here beyond JAX's documented API, and where its releases differ.

A new release of JAX is work on this file, and on the tables of primitives in `compiler/frontend/`
(`jaxprs`, `primitives`), which know them by name. No other file imports `jax.core`, `jax.extend`,
`jax.interpreters` or `jax._src`; `tests/test_house.py` checks it. Written for jax 0.9.2 to 0.12.

What each name is for:

- `Tracer`: to see that a value is being traced, and therefore unknown.
- `eval_context`: to compute known values at once, although a program is being traced.
- `ClosedJaxpr`, `Jaxpr`, `JaxprEqn`, `Literal`, `Var`: the program that the compiler reads.
- `jaxpr_as_fun`: to run such a program, under plain `vmap` or to differentiate it.
- `Primitive`, `ShapedArray`: to define operations, and the shapes and types of their results.
- `Zero`, `is_undefined_primal`: tangents and cotangents that vanish, and the arguments in which an
  operation is transposed.
- `LoweringRuleContext`, `lower_fun`: to choose the form of an operation when a program is lowered.
- `set_rules`: to register the rules of an operation.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
from jax.core import ShapedArray as ShapedArray
from jax.core import Tracer as Tracer
from jax.core import eval_context as eval_context
from jax.extend.core import ClosedJaxpr as ClosedJaxpr
from jax.extend.core import Jaxpr as Jaxpr
from jax.extend.core import JaxprEqn as JaxprEqn
from jax.extend.core import Literal as Literal
from jax.extend.core import Primitive as Primitive
from jax.extend.core import Var as Var
from jax.extend.core import jaxpr_as_fun as jaxpr_as_fun
from jax.interpreters import ad, batching, mlir, partial_eval
from jax.interpreters.ad import Zero as Zero
from jax.interpreters.ad import is_undefined_primal as is_undefined_primal
from jax.interpreters.mlir import LoweringRuleContext as LoweringRuleContext
from jax.interpreters.mlir import lower_fun as lower_fun
from jaxtyping import Array

# The older emitters of XLA's CPU backend, which compile faster; later releases have no others.
HAS_OLDER_EMITTERS = jax.__version__.startswith("0.9.")

# Maps the parameters of an equation and flags of its used results to those of the equation that
# computes no others; None if it must compute all.
Narrow = Callable[[Mapping[str, Any], Sequence[bool]], Mapping[str, Any] | None]


def set_rules(
    primitive: Primitive,
    *,
    lower: Callable[..., Any],
    batch: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    transpose: Callable[..., Any] | None = None,
    narrow: Narrow | None = None,
    lower_by_platform: Mapping[str, Callable[..., Any]] | None = None,
) -> None:
    """Register the rules of a primitive.

    Args:
        primitive: the primitive.
        lower: its lowering, of a context and the arguments.
        batch: its rule under `jax.vmap`.
        jvp: its tangents.
        transpose: the cotangents of the arguments in which it is linear.
        narrow: the parameters without unused results.
        lower_by_platform: lowerings for some platforms.
    """
    mlir.register_lowering(primitive, lower)
    for platform, rule in (lower_by_platform or {}).items():
        mlir.register_lowering(primitive, rule, platform=platform)
    if batch is not None:
        batching.primitive_batchers[primitive] = batch
    if jvp is not None:
        ad.primitive_jvps[primitive] = jvp
    if transpose is not None:
        ad.primitive_transposes[primitive] = transpose
    if narrow is not None:
        partial_eval.dce_rules[primitive] = _dead_code_rule(narrow)


def _dead_code_rule(narrow: Narrow) -> Callable[..., tuple[list[bool], JaxprEqn | None]]:
    def rule(used_outs: Sequence[bool], *operands: Any) -> tuple[list[bool], JaxprEqn | None]:
        eqn: JaxprEqn = operands[-1]  # jax 0.12 passes the live arguments before it
        if not any(used_outs) and not eqn.effects:
            return [False] * len(eqn.invars), None
        params = None if all(used_outs) else narrow(eqn.params, used_outs)
        if params is not None:
            outvars = [x for x, is_used in zip(eqn.outvars, used_outs, strict=True) if is_used]
            eqn = eqn.replace(outvars=outvars, params=dict(params))
        return [True] * len(eqn.invars), eqn

    return rule


def without_unused(closed: ClosedJaxpr, used_outs: Sequence[bool] | None = None) -> ClosedJaxpr:
    """Eliminate all equations on which no used result depends, inside loops too."""
    used_outs = [True] * len(closed.jaxpr.outvars) if used_outs is None else list(used_outs)
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, used_outs, instantiate=True)
    return ClosedJaxpr(jaxpr, closed.consts)


def used_arguments(jaxpr: Jaxpr) -> list[bool]:
    """Flags of the arguments on which the results depend."""
    _, is_used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return list(is_used)


def lowered(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr whose primitives may stand in any operation.

    In jax 0.12 that of `jnp.searchsorted`, which is also in `jnp.interp`, may not.
    """
    if not getattr(closed, "is_high", False):
        return closed
    low: ClosedJaxpr = partial_eval.lower_jaxpr2(closed)
    return low


def as_closed(jaxpr: ClosedJaxpr | Jaxpr) -> ClosedJaxpr:
    """The jaxpr of a call or loop, which some releases store without its constants."""
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def composite_content(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The jaxpr of a composite primitive, such as a search in a table from jax 0.12 on."""
    if eqn.primitive.name != "call_hi_primitive":
        return None
    primitive = eqn.params["_prim"]
    return _expanded(primitive, tuple(primitive.in_avals_flat))


@lru_cache(maxsize=64)
def _expanded(primitive: Any, avals: tuple[Any, ...]) -> ClosedJaxpr:
    # The equality of composite primitives ignores the shapes of their arguments.
    args = jax.tree.unflatten(primitive.in_tree, avals)
    return as_closed(jax.make_jaxpr(primitive.expand)(*args))


def scan_counts(eqn: JaxprEqn) -> tuple[int, int]:
    """The numbers of constants and of carries of a `scan`."""
    params = eqn.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # jax 0.12 stores a grouping of the arguments in place of the counts.
    consts, carry, _ = params["ft_in"].update(list(eqn.invars)).unpack()
    return len(list(consts)), len(list(carry))


def varying_axes(x: Array) -> frozenset[str]:
    """The axes of a mesh along which a value varies within `jax.shard_map`."""
    aval = jax.typeof(x)
    return aval.mat.varying if hasattr(aval, "mat") else aval.vma  # `mat` from jax 0.12 on


def unsharded(x: Array) -> Array:
    """Undo the splits of x along explicit axes of a mesh."""
    sharding = jax.typeof(x).sharding
    if all(axis is None for axis in sharding.spec):
        return x
    unsplit = jax.sharding.PartitionSpec(*[None] * x.ndim)
    return jax.sharding.reshard(x, sharding.update(spec=unsplit))


def without_mesh() -> AbstractContextManager[None]:
    """A context in which programs are traced for one device, whatever `jax.set_mesh` says."""
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))


def program_devices(ctx: LoweringRuleContext) -> tuple[Any, ...]:
    """The devices that a program is lowered for; none where XLA does not partition it."""
    context: Any = ctx.module_context
    count = getattr(context.axis_context, "num_devices", 0)  # within `jax.shard_map` it has none
    backend = context.get_backend(optional=True)
    if backend is None or not getattr(jax.config, "jax_use_shardy_partitioner", True):
        return ()
    devices = tuple(backend.devices()[:count])
    return devices if len(devices) == count else ()


def with_devices(ctx: LoweringRuleContext, devices: tuple[Any, ...]) -> LoweringRuleContext:
    """The context of a program that may ask for its devices.

    JAX passes them only to the primitives on a list of its own. Their number and order matter, and
    nothing else.
    """
    context: Any = ctx.module_context.axis_context
    context = replace(context, device_assignment=devices)
    return ctx.replace(module_context=ctx.module_context.replace(axis_context=context))
