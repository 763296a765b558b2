"""Digests of texts, source files and jaxprs, equal in all processes."""

import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.utils.jax_internals import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jaxmech.utils.traces import DelayedJaxpr


def is_key(value: Any) -> bool:
    """Whether a value is an array of typed random keys."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def bits_of(keys: Any) -> np.ndarray:
    """The bits of keys whose values are known, also while something else is being traced."""
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.random.key_data(keys))


_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_PLAIN = {str, bytes, bool, int, float, type(None)}
_IDLE = {  # parameters of an operation that are names or derivatives, which are traced themselves
    "name",
    "debug_info",
    "jvp_jaxpr_fun",
    "jvp_jaxpr_thunk",
    "fwd_jaxpr_thunk",
    "bwd",
    "rule",
    "op",
}


def sha256(*parts: str | bytes) -> str:
    """The SHA-256 digest of texts, 64 hexadecimal digits."""
    code = hashlib.sha256()
    for part in parts:
        code.update(part.encode() if isinstance(part, str) else part)
        code.update(b"\n")
    return code.hexdigest()


def arrays_digest(*arrays: Any) -> str:
    """The digest of the types, shapes and numbers of arrays."""
    code = hashlib.sha256()
    for values in arrays:
        code.update(f"{values.dtype} {values.shape}".encode())
        code.update(np.ascontiguousarray(values).tobytes())
    return code.hexdigest()


def sources_digest(folder: Path) -> str:
    """The digest of all files with code in a folder: Python, and LLVM's assembly language."""
    code = hashlib.sha256()
    for file in sorted([*folder.glob("**/*.py"), *folder.glob("**/*.ll")]):
        code.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return code.hexdigest()


def jaxpr_digest(*jaxprs: ClosedJaxpr) -> str:
    """The digest of the operations and constants of jaxprs.

    Names of functions and comments are ignored. A function that runs as Python at every call
    (`jax.pure_callback`) counts with the text of its file.
    """
    return sha256(*map(_closed_digest, jaxprs))


def traced_digest(fn: Callable[..., Any], *args: Any) -> str:
    """The digest of the operations and constants to which JAX traces a function.

    Names of functions, comments and paths of files do not count. Different versions of JAX yield
    different digests, since they trace to different operations.
    """
    arrays = jax.tree.map(jnp.asarray, args)
    return sha256(str(jax.tree.structure(arrays)), jaxpr_digest(jax.make_jaxpr(fn)(*arrays)))


def file_digest(fn: Any) -> str:
    """The digest of the file of a function that cannot be traced, or of its code alone."""
    try:
        return sha256(Path(inspect.getfile(fn)).read_bytes())
    except (TypeError, OSError):
        code = getattr(fn, "__code__", None)
        return sha256(
            _ADDRESS.sub("", repr(code and (code.co_code, code.co_consts, code.co_names)))
        )


def function_digest(jaxpr: Jaxpr) -> str:
    """The digest of the operations of a jaxpr, as `jaxpr_digest` without the constants."""
    if jaxpr not in _DIGESTS:
        inputs = [*jaxpr.constvars, *jaxpr.invars]
        _DIGESTS[jaxpr] = sha256(*_lines(inputs, jaxpr.eqns, jaxpr.outvars))
    return _DIGESTS[jaxpr]


def equations_digest(
    inputs: Sequence[Var], eqns: Sequence[JaxprEqn], outputs: Sequence[Var],
    constants: Mapping[Var, np.ndarray],
) -> str:  # fmt: skip
    """The digest of equations of a jaxpr, as a function of the inputs and of constants."""
    lines = _lines([*constants, *inputs], eqns, outputs)
    return sha256(*map(_text, constants.values()), *lines)


# By identity; kept, since programs of a system have functions in common.
_DIGESTS = WeakKeyDictionary[Jaxpr, str]()


def _closed_digest(jaxpr: ClosedJaxpr | DelayedJaxpr) -> str:
    closed = jaxpr.closed if isinstance(jaxpr, DelayedJaxpr) else jaxpr
    return sha256(*map(_text, closed.consts), function_digest(closed.jaxpr))


def _lines(
    inputs: Sequence[Var], eqns: Sequence[JaxprEqn], outputs: Sequence[Any]
) -> Iterator[str]:
    """Yield a line for each operation, with numbers in place of names."""
    labels: dict[Var, str] = {}

    def variable_name(atom: Any) -> str:
        if isinstance(atom, Literal):
            return f"{_text(np.asarray(atom.val))} {_aval(atom.aval)}"
        if atom not in labels:
            labels[atom] = f"{len(labels)}:{_aval(atom.aval)}"
        return labels[atom]

    yield " ".join(map(variable_name, inputs))
    for eqn in eqns:
        params = sorted(eqn.params.items())
        settings = [f"{k}={_text(x)}" for k, x in params if k not in _IDLE]
        ins = " ".join(map(variable_name, eqn.invars))
        outs = " ".join(map(variable_name, eqn.outvars))
        yield f"{outs} = {eqn.primitive.name}[{' '.join(settings)}] {ins}"
    yield " ".join(map(variable_name, outputs))


def _text(value: Any) -> str:
    """A parameter of an operation, or a constant, without addresses and names."""
    if type(value) in _PLAIN:  # first, since most parameters are
        return repr(value)
    match value:
        case ClosedJaxpr() | DelayedJaxpr():
            return "{" + _closed_digest(value) + "}"
        case Jaxpr():
            return "{" + function_digest(value) + "}"
        case tuple() | list():
            return f"({','.join(map(_text, value))})"
        case dict():
            return _text(sorted((str(key), _text(x)) for key, x in value.items()))
        case set() | frozenset():
            return _text(sorted(map(_text, value)))
        case Enum() | np.dtype() | str() | bytes() | bool() | int() | float():
            return repr(value)
        case _ if is_key(value):
            return f"{value.dtype}{_text(bits_of(value))}"
        case np.ndarray() | np.generic() | jax.Array():
            array = np.asarray(value)
            return f"{array.dtype}{array.shape}{sha256(array.tobytes())}"
    # A function by its file, a dataclass by its fields, anything else by its text.
    if inspect.isfunction(value):
        return file_digest(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _text([getattr(value, f.name) for f in fields(value) if f.compare])
    if inspect.isfunction(inner := getattr(value, "callback_func", None)):  # `pure_callback`
        return file_digest(inner)
    return _ADDRESS.sub("", repr(value))


@lru_cache(maxsize=4096)
def _aval(aval: Any) -> str:
    # Cached, since JAX is slow to write it.
    return str(aval)
