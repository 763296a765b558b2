"""The jaxprs inside calls and loops, across versions of JAX."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jaxtyping import Array

from jaxmech.compiler.ir.loops import dtype_of

LONGEST_UNROLLED = 8  # iterations
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
    "batched": "call",
}


def call_content(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The function that an equation calls; None if it is no call, or a call over a batch."""
    name = eqn.primitive.name
    if name not in _CALLS or eqn.params.get("levels"):
        return None
    content = eqn.params[_CALLS[name]]
    return content if isinstance(content, ClosedJaxpr) else ClosedJaxpr(content, ())


def evaluated(eqn: JaxprEqn, *values: Array) -> list[Array]:
    """The results of an equation; a call is inlined."""
    if (content := call_content(eqn)) is not None:
        return list(jaxpr_as_fun(content)(*values))
    out = eqn.primitive.bind(*values, **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def equations_as_fun(
    inputs: Sequence[Var], eqns: Sequence[JaxprEqn], outputs: Sequence[Var]
) -> Callable[..., list[Array]]:
    """Some equations of a jaxpr as a function of the inputs."""

    def fn(*args: Array) -> list[Array]:
        env: dict[Any, Array] = dict(zip(inputs, args, strict=True))
        for eqn in eqns:
            values = [
                jnp.asarray(atom.val, dtype_of(atom)) if isinstance(atom, Literal) else env[atom]
                for atom in eqn.invars
            ]
            env.update(zip(eqn.outvars, evaluated(eqn, *values), strict=True))
        return [env[var] for var in outputs]

    return fn


def loop_content(eqn: JaxprEqn) -> tuple[ClosedJaxpr, int, int]:
    """The body of a `scan`, and its numbers of constants and of carries."""
    p = eqn.params
    body = p["jaxpr"] if isinstance(p["jaxpr"], ClosedJaxpr) else ClosedJaxpr(p["jaxpr"], ())
    if "num_consts" in p:
        return body, p["num_consts"], p["num_carry"]
    # jax 0.12 keeps a grouping of the arguments in place of the counts.
    consts, carry, _ = p["ft_in"].update(list(eqn.invars)).unpack()
    return body, len(list(consts)), len(list(carry))


def holds_loop(jaxpr: Jaxpr) -> bool:
    """Whether it contains a `scan`, at any depth."""
    return any(True for _ in _loops(jaxpr))


def stays_loop(jaxpr: Jaxpr) -> bool:
    """Whether it contains a `scan` that is not unrolled, at any depth."""
    return any(_is_kept(eqn) for eqn in _loops(jaxpr))


def _is_kept(eqn: JaxprEqn) -> bool:
    length = eqn.params["length"]
    return length > LONGEST_UNROLLED or (length > 1 and holds_loop(loop_content(eqn)[0].jaxpr))


def _loops(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    for eqn in jaxpr.eqns:
        content = call_content(eqn)
        if eqn.primitive.name == "scan":
            yield eqn
            content = loop_content(eqn)[0]
        if content is not None:
            yield from _loops(content.jaxpr)
