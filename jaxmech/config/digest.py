"""Digests of what is computed: the traced operations of functions, the same in every process.

Two functions have the same digest if JAX traces them, and their first two derivatives, to the same
operations on the same constants. Names of functions, comments and the place of a file play no part.
A function that runs as Python at every call (`jax.pure_callback`) counts with the text of its file.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from jaxmech.system import Params, System, as_dtype

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_IDLE = {  # of the parameters of an operation: names, and derivatives, which are traced themselves
    "name",
    "debug_info",
    "jvp_jaxpr_fun",
    "jvp_jaxpr_thunk",
    "fwd_jaxpr_thunk",
    "bwd",
    "rule",
}
_NO_DERIVATIVE = (TypeError, ValueError, NotImplementedError)  # as JAX says it


def digest(fn: Callable[..., Any], *args: Any) -> str:
    """The digest of a function of arrays, with its derivatives, at arguments of these shapes.

    Args:
        fn: the function, traceable by JAX.
        args: arrays, numbers or pytrees of them; only shapes and types matter.

    Returns:
        64 hexadecimal digits. They differ between versions of JAX, whose operations differ.

    Example:
        >>> digest(lambda x: x + x, 1.0) == digest(lambda y: y + y, 2.0)
        True
        >>> digest(lambda x: x + x, 1.0) == digest(lambda x: 2 * x, 1.0)
        False
    """
    leaves, structure = jax.tree.flatten(jax.tree.map(jnp.asarray, args))
    moving = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]

    def of(numbers: list[Any], others: list[Any]) -> Any:
        numbers, others = list(numbers), list(others)
        mixed = [numbers.pop(0) if moves else others.pop(0) for moves in moving]
        return fn(*jax.tree.unflatten(structure, mixed))

    numbers = [x for x, moves in zip(leaves, moving, strict=True) if moves]
    others = [x for x, moves in zip(leaves, moving, strict=True) if not moves]
    jaxprs = [jax.make_jaxpr(of)(numbers, others), *_derivatives(of, numbers, others)]
    return _sha256(str(structure), *(part for one in jaxprs for part in _closed(one)))


def system_digests(system: System, params: Params, dtype: Any = float) -> dict[str, str]:
    """The digest of each function of a system, by what it is for.

    Args:
        system: the system.
        params: its parameters; only their shapes and types matter.
        dtype: floating-point type of the computation.

    Returns:
        Digests by "coordinates", "lagrangian", "force", "nonideal" and "constraint <name>".

    Example:
        >>> free = System(lambda q, v, t, p: p["m"] * v @ v, coordinates=("x",))
        >>> list(system_digests(free, {"m": 1.0}))
        ['coordinates', 'lagrangian']
    """
    dtype = jnp.result_type(dtype)
    q, t = jnp.zeros(system.n, dtype), jnp.zeros((), dtype)
    params = as_dtype(params, dtype)
    state = (q, q, t, params)
    found = {
        "coordinates": _sha256(repr(tuple(system.coordinates))),
        "lagrangian": digest(system.lagrangian, *state),
    }
    if system.force is not None:
        found["force"] = digest(system.force, *state)
    if system.nonideal is not None:
        forces = jnp.zeros(sum(system.sizes(*state)), dtype)
        found["nonideal"] = digest(system.nonideal, q, q, forces, t, params)
    for constraint in system.constraints:
        code = digest(constraint.residual, q, q, q, t, params)
        found[f"constraint {constraint.name}"] = _sha256(type(constraint).__name__, code)
    return found


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names whose digests differ, or that only one of the two has, in their order.

    Example:
        >>> changed({"lagrangian": "1", "force": "2"}, {"lagrangian": "1", "constraint rod": "3"})
        ['constraint rod', 'force']
    """
    return [name for name in {**now, **then} if then.get(name) != now.get(name)]


def _derivatives(of: Callable[..., Any], numbers: list[Any], others: list[Any]) -> list[Any]:
    """The second derivative along any direction, or what reverse mode can do; none without one."""

    def first(x: list[Any], along: list[Any], others: list[Any]) -> Any:
        return jax.jvp(lambda x: of(x, others), (x,), (along,))

    def second(x: list[Any], along: list[Any], others: list[Any]) -> Any:
        return jax.jvp(lambda x, along: first(x, along, others), (x, along), (along, along))

    def reverse(x: list[Any], others: list[Any]) -> Any:
        value, back = jax.vjp(lambda x: of(x, others), x)
        return back(jax.tree.map(jnp.ones_like, value))

    for way, given in ((second, (numbers, numbers, others)), (reverse, (numbers, others))):
        try:
            return [jax.make_jaxpr(way)(*given)]
        except _NO_DERIVATIVE:
            continue
    return []


def _closed(jaxpr: ClosedJaxpr) -> Iterator[str]:
    yield from (_text(const) for const in jaxpr.consts)
    yield from _lines(jaxpr.jaxpr)


def _lines(jaxpr: Jaxpr) -> Iterator[str]:
    """One line for each operation, with numbers in the place of names."""
    numbers: dict[Var, int] = {}

    def named(atom: Any) -> str:
        if isinstance(atom, Literal):
            return f"{_text(np.asarray(atom.val))} {atom.aval}"
        return f"{numbers.setdefault(atom, len(numbers))}:{atom.aval}"

    yield " ".join(map(named, [*jaxpr.constvars, *jaxpr.invars]))
    for eqn in jaxpr.eqns:
        given = (f"{k}={_text(x)}" for k, x in sorted(eqn.params.items()) if k not in _IDLE)
        ins, outs = " ".join(map(named, eqn.invars)), " ".join(map(named, eqn.outvars))
        yield f"{outs} = {eqn.primitive.name}[{' '.join(given)}] {ins}"
    yield " ".join(map(named, jaxpr.outvars))


def _text(value: Any) -> str:
    """A parameter of an operation, or a constant, without addresses and names."""
    match value:
        case ClosedJaxpr():
            return "{" + "\n".join(_closed(value)) + "}"
        case Jaxpr():
            return "{" + "\n".join(_lines(value)) + "}"
        case tuple() | list():
            return f"({','.join(map(_text, value))})"
        case dict():
            return _text(sorted((str(key), _text(x)) for key, x in value.items()))
        case set() | frozenset():
            return _text(sorted(map(_text, value)))
        case Enum() | np.dtype() | str() | bytes() | bool() | int() | float() | None:
            return repr(value)
        case np.ndarray() | np.generic() | jax.Array():
            array = np.asarray(value)
            return f"{array.dtype}{array.shape}{_sha256(array.tobytes())}"
    return _object(value)


def _object(value: Any) -> str:
    """A function by its file, a dataclass by its fields, anything else by its text."""
    if inspect.isfunction(value):
        return _file(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _text([getattr(value, f.name) for f in fields(value) if f.compare])
    if inspect.isfunction(inner := getattr(value, "callback_func", None)):  # of `pure_callback`
        return _file(inner)
    return _ADDRESS.sub("", repr(value))


def _file(fn: Callable[..., Any]) -> str:
    """The text of the file that defines a function, or its name where there is none."""
    path = Path(inspect.getfile(fn))
    return _sha256(path.read_bytes()) if path.is_file() else fn.__qualname__


def _sha256(*parts: str | bytes) -> str:
    code = hashlib.sha256()
    for part in parts:
        code.update(part.encode() if isinstance(part, str) else part)
        code.update(b"\n")
    return code.hexdigest()
