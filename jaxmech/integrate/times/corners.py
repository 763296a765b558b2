"""Corners and jumps of functions of time, found in their operations.

`maximum(0, t - 1)`, `where(t < p["end"], ...)` and `interp(t, ...)` have a corner or a jump where a
number that depends on time and parameters alone passes through zero. That number is read from the
jaxpr of the function. If it is affine in time, its zero follows from its value and slope; otherwise
its zeros are searched. The numbers of time and parameters alone with which a function continues are
its signals, in which short pulses are searched.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.compiler.frontend.jaxprs import call_content
from jaxmech.constraints import Holonomic, Nonholonomic
from jaxmech.system import System
from jaxmech.utils.checks import is_known, naming_missing
from jaxmech.utils.jax_internals import ClosedJaxpr, JaxprEqn, Literal
from jaxmech.utils.probing import cached_by_shapes

_LINEAR = {  # in all operands together
    "add", "add_any", "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p",
    "neg", "pad", "reduce_sum", "reshape", "rev", "slice", "squeeze", "sub", "transpose",
}  # fmt: skip
_DIFFERENCES = {"max", "min", "lt", "le", "gt", "ge"}
_LOOPS = {"scan", "while"}
_SHARP = {"exp", "exp2", "tanh", "logistic", "cosh", "erf", "erfc", "pow"}
_FORCES = ("`force`", "`nonideal`", "`rates`")
_MOST_CHOICES = 8
_CORNERS = {*_DIFFERENCES, "abs", "sign", "clamp", "floor", "ceil", "round", "rem"}


class ClosesOverTracersError(Exception):
    """A function closes over values that are being traced, which must not be kept."""


class Corner:
    """The numbers whose zeros are corners of one function, at some time."""

    def __init__(self, value: Array, is_affine: bool) -> None:
        self.value, self.is_affine = jnp.ravel(value), is_affine


class TimedNumbers(NamedTuple):
    """Numbers of a function that depend on time and parameters alone."""

    affine: Float[Array, " A"]  # with a corner where they are zero, affine in time
    others: Float[Array, " G"]  # with a corner where they are zero, not affine in time
    signals: Float[Array, " S"]  # combined with the state, or returned


@dataclass(frozen=True, eq=False)
class Corners:
    """The corners of a function of a system.

    Attributes:
        what: the function, as in messages.
        fn: from time and parameters to its numbers.
        affine: A.
        others: G.
        signals: S.
        is_force: whether it is a force, in which the rates of its numbers do not count.
        is_hidden: whether a loop may have more of them.
        is_sharp: whether it has functions of time that may be a short pulse.
    """

    what: str
    fn: Callable[[Array, Any], TimedNumbers]
    affine: int
    others: int
    signals: int
    is_force: bool
    is_hidden: bool
    is_sharp: bool

    @property
    def has_some(self) -> bool:
        """Whether there are corners, or may be some."""
        return bool(self.affine or self.others or self.is_hidden)


def corners_at(system: System, q: Any, v: Any, ts: Any, params: Any) -> list[Corners]:
    """The corners of all functions of a system, for arguments of these shapes."""
    t: Any = np.zeros((), ts.dtype)  # of which only the type counts
    try:
        found: list[Corners] = _kept(system, q, v, t, params)
    except ClosesOverTracersError:
        found = corners_of(system, q, v, t, params, may_close_over=True)
    return found


@cached_by_shapes
def _kept(system: System, q: Any, v: Any, t: Any, params: Any) -> list[Corners]:
    return corners_of(system, q, v, t, params)


def corners_of(
    system: System, q: Any, v: Any, t: Any, params: Any, may_close_over: bool = False
) -> list[Corners]:
    """The corners of all functions of a system, for arguments of these shapes.

    Raises:
        ClosesOverTracersError: a function closes over values that are being traced, unless it may.
    """
    found = (
        _corners(what, fn, state, t, params, may_close_over)
        for what, fn, state in _functions(system, q, v, t, params)
    )
    return [one for one in found if one is not None]


def _functions(
    system: System, q: Any, v: Any, t: Any, params: Any
) -> list[tuple[str, Callable[..., Any], Sequence[Any]]]:
    """The functions of a system by name, with their arguments before the time."""
    functions: list[tuple[str, Callable[..., Any], Sequence[Any]]] = [
        ("`lagrangian`", system.lagrangian, (q, v))
    ]
    if system.mass_and_force is not None:
        functions.append(("`mass_and_force`", system.mass_and_force, (q, v)))
    if system.force is not None:
        functions.append(("`force`", system.force, (q, v)))
    if system.nonideal is not None:
        multipliers = jnp.zeros(sum(system.sizes(q, v, t, params)), q.dtype)
        functions.append(("`nonideal`", system.nonideal, (q, v, multipliers)))
    if system.rates is not None:
        functions.append(("`rates`", system.rates, (q, v)))
    constraints = system.constraints
    return functions + [
        (f"constraint {c.name!r}", c.value, _state_of(c, q, v)) for c in constraints
    ]


def _state_of(constraint: Any, q: Any, v: Any) -> Sequence[Any]:
    """The arguments of a constraint before the time."""
    if isinstance(constraint, Holonomic):
        return (q,)
    return (q, v) if isinstance(constraint, Nonholonomic) else (q, v, v)


def _corners(
    what: str, fn: Callable[..., Any], state: Sequence[Any], t: Any, params: Any,
    may_close_over: bool,
) -> Corners | None:  # fmt: skip
    with naming_missing(what, params):
        closed = jax.make_jaxpr(fn)(*state, t, params)
    if not (may_close_over or is_known(closed.consts)):
        raise ClosesOverTracersError

    def read(t: Array, params: Any) -> _TimeReading:
        reading = _TimeReading()
        given = [Term(None, False, False)] * len(state) + [Term(t, True, True)]
        given += [Term(x, False, True) for x in jax.tree.leaves(params)]
        reading.signals += _signals(reading.run(closed, given))
        return reading

    def values(t: Array, params: Any) -> TimedNumbers:
        found = read(t, params)

        def joined(numbers: Iterable[Array]) -> Array:
            rows = [jnp.ravel(x).astype(t.dtype) for x in numbers]
            return jnp.concatenate([jnp.zeros(0, t.dtype), *rows])

        return TimedNumbers(
            joined(c.value for c in found.corners if c.is_affine),
            joined(c.value for c in found.corners if not c.is_affine),
            joined(found.signals),
        )

    is_hidden = is_sharp = False

    def shapes(t: Array, params: Any) -> TimedNumbers:
        nonlocal is_hidden, is_sharp
        found = read(t, params)
        is_hidden, is_sharp = found.is_hidden, found.is_sharp
        return values(t, params)

    affine, others, signals = (x.size for x in jax.eval_shape(shapes, t, params))
    if not (affine or others or signals or is_hidden):
        return None
    is_force = what in _FORCES
    return Corners(what, values, affine, others, signals, is_force, is_hidden, is_sharp)


@dataclass(frozen=True)
class Term:
    """A value of a function: None if it depends on the state."""

    value: Any
    is_timed: bool  # whether it depends on time
    is_affine: bool  # whether it is affine in time
    # functions affine in time, one of which it is at any time; none where it is no such choice
    choices: tuple[Any, ...] = ()

    @property
    def pieces(self) -> tuple[Any, ...]:
        """Affine functions of which it is one at any time, itself if it is affine."""
        return (self.value,) if self.is_affine else self.choices


class _TimeReading:
    """One evaluation of the parts of a jaxpr that do not depend on the state."""

    def __init__(self) -> None:
        self.corners: list[Corner] = []
        self.signals: list[Array] = []
        self.is_hidden = False
        self.is_sharp = False

    def run(self, closed: ClosedJaxpr, given: Sequence[Term]) -> list[Term]:
        """The results of a jaxpr."""
        jaxpr = closed.jaxpr
        constants = zip(jaxpr.constvars, closed.consts, strict=True)
        known = {var: Term(x, False, True) for var, x in constants}
        known |= dict(zip(jaxpr.invars, given, strict=True))

        def read(atom: Any) -> Term:
            return Term(atom.val, False, True) if isinstance(atom, Literal) else known[atom]

        for eqn in jaxpr.eqns:
            outs = self.evaluated(eqn, [read(atom) for atom in eqn.invars])
            known |= dict(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def evaluated(self, eqn: JaxprEqn, given: list[Term]) -> list[Term]:
        """The results of an operation."""
        is_timed = any(term.is_timed for term in given)
        content = call_content(eqn)
        called = eqn.params.get("name") if content is not None else None
        if called in ("_interp", "searchsorted") and self._table(called, given):
            return self._opaque(eqn, given)
        if content is not None:
            return self.run(content, given)
        if any(term.value is None for term in given):
            self.signals += _signals(given)
            return [Term(None, is_timed, False)] * len(eqn.outvars)
        name = eqn.primitive.name
        self.is_sharp |= is_timed and name in _SHARP
        if is_timed and _may_turn(eqn, given):
            self._corner(name, given)
        if is_timed and name in _LOOPS:
            self.is_hidden |= any(word in _CORNERS for word in _primitives(eqn))
        return self._opaque(eqn, given)

    def _table(self, name: str, given: list[Term]) -> bool:
        """Take the knots of a table as corners, if its argument alone depends on time."""
        x, knots = (given[0], given[1]) if name == "_interp" else (given[1], given[0])
        others = [term for term in given if term is not x]
        if not x.is_timed or x.value is None or knots.value is None or knots.is_timed:
            return False
        if any(term.is_timed for term in others) or jnp.ndim(knots.value) != 1:
            return False
        apart = jnp.ravel(x.value)[:, None] - jnp.asarray(knots.value)[None]
        self.corners.append(Corner(apart, x.is_affine))
        return True

    def _corner(self, name: str, given: list[Term]) -> None:
        x, *more = (term.value for term in given)
        is_affine = all(term.pieces for term in given)
        if name in _DIFFERENCES or name in ("abs", "sign", "clamp"):
            numbers = [_difference(name, *values) for values in _alternatives(given)]
        else:
            # The numbers at which these operations jump are zeros of a wave.
            is_affine = False
            phase = x / more[0] if name == "rem" else x
            numbers = [jnp.cos(math.pi * phase) if name == "round" else jnp.sin(math.pi * phase)]
        self.corners += [Corner(number, is_affine) for number in numbers]

    def _opaque(self, eqn: JaxprEqn, given: list[Term]) -> list[Term]:
        if any(term.value is None for term in given):
            return [Term(None, any(term.is_timed for term in given), False)] * len(eqn.outvars)
        out = eqn.primitive.bind(*(term.value for term in given), **eqn.params)
        outs = list(out) if eqn.primitive.multiple_results else [out]
        is_timed = any(term.is_timed for term in given)
        is_affine = not is_timed or _is_affine(eqn.primitive.name, given)
        if is_affine or len(outs) > 1:
            return [Term(value, is_timed, is_affine) for value in outs]
        return [Term(outs[0], is_timed, False, _choices(eqn, given))]


def _signals(terms: list[Term]) -> list[Array]:
    """The numbers that depend on time, but not on the state, and are not piecewise affine."""
    known = [x.value for x in terms if x.is_timed and x.value is not None and not x.pieces]
    return [x for x in known if jnp.issubdtype(jnp.result_type(x), jnp.floating)]


def _may_turn(eqn: JaxprEqn, given: list[Term]) -> bool:
    """Whether an operation has a corner or a jump."""
    if not jnp.issubdtype(jnp.result_type(given[0].value), jnp.floating):
        return False
    if eqn.primitive.name == "convert_element_type":
        return bool(jnp.issubdtype(eqn.params["new_dtype"], jnp.integer))
    return eqn.primitive.name in _CORNERS


def _alternatives(given: list[Term]) -> list[tuple[Any, ...]]:
    """The operands, for all choices of their pieces if all have some."""
    if not all(term.pieces for term in given):
        return [tuple(term.value for term in given)]
    return list(product(*(term.pieces for term in given)))


def _difference(name: str, *values: Any) -> Array:
    """The numbers whose zeros are the corners of an operation."""
    if name == "clamp":
        low, x, high = values
        return jnp.concatenate([jnp.ravel(x - low), jnp.ravel(x - high)])
    return values[0] - values[1] if name in _DIFFERENCES else values[0]


def _choices(eqn: JaxprEqn, given: list[Term]) -> tuple[Any, ...]:
    """Functions affine in time, one of which the result of an operation is; none if not known."""
    name = eqn.primitive.name
    every = _alternatives(given)
    if not all(term.pieces for term in given) or len(every) > _MOST_CHOICES:
        return ()
    if name in ("max", "min"):
        chosen = [x for values in every for x in values]
    elif name == "abs":
        chosen = [way * x for (x,) in every for way in (1, -1)]
    elif name == "clamp":
        chosen = [x for values in every for x in values]
    elif _is_affine(name, [replace(term, is_affine=True) for term in given]):
        chosen = [eqn.primitive.bind(*values, **eqn.params) for values in every]
    else:
        return ()
    if len(chosen) > _MOST_CHOICES:
        return ()
    out: Any = eqn.outvars[0].aval
    return tuple(jnp.broadcast_to(x, out.shape) for x in chosen)


def _is_affine(name: str, given: list[Term]) -> bool:
    if not all(term.is_affine for term in given):
        return False
    if name in ("mul", "dot_general"):
        return sum(term.is_timed for term in given) == 1
    if name in ("div", "dynamic_slice", "gather"):  # of a table by an index, and the like
        return not any(term.is_timed for term in given[1:])
    return name in _LINEAR


def _primitives(eqn: JaxprEqn) -> set[str]:
    """The names of the operations inside an equation."""
    names: set[str] = set()
    for value in eqn.params.values():
        for inner in jax.tree.leaves(value, is_leaf=lambda x: hasattr(x, "eqns")):
            for one in getattr(inner, "eqns", ()):
                names |= {one.primitive.name} | _primitives(one)
    return names
