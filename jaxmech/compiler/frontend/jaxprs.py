"""The jaxprs inside calls and loops, across versions of JAX."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler.ir.loops import NATIVE, UnsupportedError, dtype_of, shape_of
from jaxmech.utils.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    as_closed,
    composite_content,
    jaxpr_as_fun,
    scan_counts,
)

LONGEST_UNROLLED = 8  # iterations
MOST_ROWS = 32  # iterations of a loop within a function compiled as one kernel
LONG_SIDE = 400  # equations of a side of a `cond`, which is computed only where it is needed
LARGEST_SEQUENCES = 4096  # numbers that such a loop scans and saves
LOOPS = ("scan", "while")  # primitives
_SIZES = WeakKeyDictionary[Jaxpr, int | None]()
_LENGTHS = WeakKeyDictionary[Jaxpr, int]()
_JUMPS = WeakKeyDictionary[Jaxpr, bool]()
_STAYS = WeakKeyDictionary[Jaxpr, bool]()
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",  # its name from jax 0.12 on
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
}


def call_content(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The function that an equation calls; None if it is not a call, or a call over a batch."""
    name = eqn.primitive.name
    if (content := composite_content(eqn)) is not None:
        return content
    if eqn.params.get("sizes"):
        return None
    if name == "batched":
        return eqn.params["call"].closed
    return as_closed(eqn.params[_CALLS[name]]) if name in _CALLS else None


def takes_finite(eqn: JaxprEqn) -> bool:
    """Whether an equation calls a derivative that takes its arguments for finite numbers."""
    return eqn.primitive.name == "batched" and eqn.params["op"].takes_finite


def evaluated(eqn: JaxprEqn, *values: Array) -> list[Array]:
    """Evaluate an equation; a call is inlined."""
    if (content := call_content(eqn)) is not None:
        return list(jaxpr_as_fun(content)(*values))
    out = eqn.primitive.bind(*values, **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def equations_as_fun(
    inputs: Sequence[Var], eqns: Sequence[JaxprEqn], outputs: Sequence[Var],
    constants: Mapping[Var, np.ndarray],
) -> Callable[..., list[Array]]:  # fmt: skip
    """A function of the inputs made of some equations of a jaxpr; other variables are constants."""

    def fn(*args: Array) -> list[Array]:
        env: dict[Any, Array] = dict(zip(inputs, args, strict=True))
        env |= {var: jnp.asarray(value) for var, value in constants.items()}
        for eqn in eqns:
            values = [
                jnp.asarray(atom.val, dtype_of(atom)) if isinstance(atom, Literal) else env[atom]
                for atom in eqn.invars
            ]
            env.update(zip(eqn.outvars, evaluated(eqn, *values), strict=True))
        return [env[var] for var in outputs]

    return fn


def loop_content(eqn: JaxprEqn) -> tuple[ClosedJaxpr, int, int]:
    """The body of a loop, and its numbers of constants and of carries.

    The constants of a `while` loop are those of its condition, then those of its body.
    """
    params = eqn.params
    if eqn.primitive.name == "while":
        constants = params["cond_nconsts"] + params["body_nconsts"]
        return as_closed(params["body_jaxpr"]), constants, len(eqn.invars) - constants
    return as_closed(params["jaxpr"]), *scan_counts(eqn)


def loop_condition(eqn: JaxprEqn) -> tuple[ClosedJaxpr, int]:
    """The condition of a `while`, and its number of constants."""
    return as_closed(eqn.params["cond_jaxpr"]), eqn.params["cond_nconsts"]


def _holds(jaxpr: Jaxpr, is_sought: Callable[[JaxprEqn], bool]) -> bool:
    """Whether a jaxpr contains an equation of a kind, at any depth."""
    inner = (content.jaxpr for eqn in jaxpr.eqns for content in _contents(eqn))
    return any(map(is_sought, jaxpr.eqns)) or any(_holds(x, is_sought) for x in inner)


def holds_loop(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr contains a loop, at any depth."""
    return _holds(jaxpr, lambda eqn: eqn.primitive.name in LOOPS)


def runs_once(eqn: JaxprEqn) -> bool:
    """Whether a `while` runs at most once: as long as a flag of its carry holds, then false."""
    condition, constants = loop_condition(eqn)
    (flag,), variables = condition.jaxpr.outvars, condition.jaxpr.invars[constants:]
    if flag not in variables:
        return False
    end = loop_content(eqn)[0].jaxpr.outvars[variables.index(flag)]
    return isinstance(end, Literal) and not end.val


def is_long(side: Jaxpr) -> bool:
    """Whether a side of a `cond` has so many equations that it should rarely be computed."""
    return _length(side) >= LONG_SIDE


def is_apart(branches: Sequence[ClosedJaxpr]) -> bool:
    """Whether the long sides of a `cond` become loops that run at most once.

    A branch in native code has a side that computes nothing, and holds neither branches nor loops.
    """
    sides = [branch.jaxpr for branch in branches]
    long = [side for side in sides if is_long(side)]
    return len(long) == len(sides) or any(map(_holds_jump, long))


def _has_sides(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "cond" and is_apart(
        [as_closed(branch) for branch in eqn.params["branches"]]
    )


def _holds_jump(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr holds a `cond` that always computes much, or a loop of one that may."""
    if jaxpr not in _JUMPS:
        inner = (content.jaxpr for eqn in jaxpr.eqns for content in _contents(eqn))
        _JUMPS[jaxpr] = any(map(_is_jump, jaxpr.eqns)) or any(map(_holds_jump, inner))
    return _JUMPS[jaxpr]


def _is_jump(eqn: JaxprEqn) -> bool:
    sides = [is_long(as_closed(x).jaxpr) for x in eqn.params.get("branches", ())]
    if eqn.primitive.name == "cond":
        # A rare side within a rare side costs little, and more as a loop in a step of all runs.
        return all(sides)
    is_loop = eqn.primitive.name == "scan" and eqn.params["length"] > 1
    return is_loop and _holds(loop_content(eqn)[0].jaxpr, _has_long_side)


def _has_long_side(eqn: JaxprEqn) -> bool:
    return any(is_long(as_closed(x).jaxpr) for x in eqn.params.get("branches", ()))


def stays_loop(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr contains a loop that is not unrolled, at any depth.

    Those in a `cond` that becomes loops do not count, as it is part of the code around it.
    """
    if jaxpr not in _STAYS:
        inner = (x.jaxpr for eqn in jaxpr.eqns if not _has_sides(eqn) for x in _contents(eqn))
        _STAYS[jaxpr] = any(map(_is_kept, jaxpr.eqns)) or any(map(stays_loop, inner))
    return _STAYS[jaxpr]


def size_of(jaxpr: Jaxpr) -> int | None:
    """The number of equations at any depth; None if there is a loop that is not unrolled."""
    if jaxpr not in _SIZES:
        sizes = [size_of(content.jaxpr) for eqn in jaxpr.eqns for content in _contents(eqn)]
        is_flat = None not in sizes and not any(_is_kept(x) or _has_sides(x) for x in jaxpr.eqns)
        _SIZES[jaxpr] = len(jaxpr.eqns) + sum(size or 0 for size in sizes) if is_flat else None
    return _SIZES[jaxpr]


def _contents(eqn: JaxprEqn) -> list[ClosedJaxpr]:
    """The functions that an equation calls, repeats or chooses from."""
    match eqn.primitive.name:
        case "cond":
            return [as_closed(branch) for branch in eqn.params["branches"]]
        case "while":
            return [loop_condition(eqn)[0], loop_content(eqn)[0]]
        case "scan":
            return [loop_content(eqn)[0]]
    return [] if (content := call_content(eqn)) is None else [content]


def equations_of(eqn: JaxprEqn) -> int:
    """The number of equations in an equation at any depth, bodies of loops counted once."""
    return 1 + sum(_length(content.jaxpr) for content in _contents(eqn))


def _length(jaxpr: Jaxpr) -> int:
    if jaxpr not in _LENGTHS:
        _LENGTHS[jaxpr] = sum(map(equations_of, jaxpr.eqns))
    return _LENGTHS[jaxpr]


def is_one_kernel(jaxpr: Jaxpr, batched: Sequence[bool]) -> bool:
    """Whether the loops of a jaxpr can be compiled together with everything around them.

    Loops that depend on no `batched` argument are run once for all trajectories instead.
    """
    depends = dict(zip(jaxpr.invars, batched, strict=True))
    for eqn in jaxpr.eqns:
        flags = [not isinstance(x, Literal) and depends.get(x, False) for x in eqn.invars]
        depends.update(dict.fromkeys(eqn.outvars, any(flags)))
        content = call_content(eqn)
        if eqn.primitive.name in LOOPS:
            if _is_kept(eqn) and not (any(flags) and _is_short(eqn)):
                return False
        elif content is not None and not is_one_kernel(content.jaxpr, flags):
            return False
    return True


def _is_short(eqn: JaxprEqn) -> bool:
    """Whether a loop is short and saves little, as one over the rows of a matrix."""
    # Before a longer loop, values that all trajectories share are computed once and passed as
    # scalars; and XLA is faster with long sequences.
    if eqn.primitive.name == "while" or eqn.params["length"] > MOST_ROWS:
        return False
    body, fixed, carries = loop_content(eqn)
    elements = [*eqn.invars[fixed + carries :], *eqn.outvars[carries:]]
    numbers = sum(math.prod(shape_of(x)) for x in elements)
    return numbers <= LARGEST_SEQUENCES and not stays_loop(body.jaxpr)


def _is_kept(eqn: JaxprEqn) -> bool:
    """Whether an equation is a loop that is not unrolled."""
    if eqn.primitive.name != "scan":
        return eqn.primitive.name == "while"
    length = eqn.params["length"]
    return length > LONGEST_UNROLLED or (length > 1 and holds_loop(loop_content(eqn)[0].jaxpr))


def require_native(atoms: Iterable[Any], description: str) -> None:
    """Raise an `UnsupportedError` unless native code has the types of all variables."""
    for atom in atoms:
        if atom.aval.dtype not in NATIVE and atom.aval.dtype != jax.dtypes.float0:
            raise UnsupportedError(f"{description} of type {atom.aval.dtype}")
