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
_TABLES = {"_interp", "searchsorted", "jumping_signal", "smooth_signal"}  # names of calls
_CONSTRAINT = "constraint"  # begins its label
_FORCES = ("`force`", "`nonideal`", "`rates`")
_MOST_CHOICES = 8
_CORNERS = {*_DIFFERENCES, "abs", "sign", "clamp", "floor", "ceil", "round", "rem"}


class ClosesOverTracersError(Exception):
    """A function closes over values that are being traced, which must not be kept."""


class Corner:
    """The numbers whose zeros are corners of one function, at some time."""

    def __init__(self, value: Array, is_affine: bool) -> None:
        self.value, self.is_affine = jnp.ravel(value), is_affine


class KnotTable:
    """A table that is read at a number affine in time: a corner where the number is at a knot."""

    def __init__(self, value: Array, knots: Array) -> None:
        self.value, self.knots = value, knots


class TimedNumbers(NamedTuple):
    """Numbers of a function that depend on time and parameters alone."""

    affine: Float[Array, " A"]  # with a corner where they are zero, affine in time
    others: Float[Array, " G"]  # with a corner where they are zero, not affine in time
    signals: Float[Array, " S"]  # combined with the state, or returned
    places: Float[Array, " J"]  # at which tables are read, affine in time
    knots: tuple[Array, ...]  # of each of these tables


@dataclass(frozen=True, eq=False)
class Corners:
    """The corners of a function of a system.

    Attributes:
        label: the function, as in messages.
        fn: from time and parameters to its numbers.
        affine: A.
        others: G.
        signals: S.
        knots: number of the knots of all tables.
        is_force: whether it is a force, in which the rates of its numbers do not count.
        is_hidden: whether a loop may have more of them.
        is_sharp: whether it has functions of time that may be a short pulse.
    """

    label: str
    fn: Callable[[Array, Any], TimedNumbers]
    affine: int
    others: int
    signals: int
    knots: int
    is_force: bool
    is_hidden: bool
    is_sharp: bool

    @property
    def has_some(self) -> bool:
        """Whether there are corners, or may be some."""
        return bool(self.affine or self.others or self.knots or self.is_hidden)


def corners_at(system: System, q: Any, v: Any, ts: Any, params: Any) -> list[Corners]:
    """The corners of all functions of a system, for arguments of these shapes."""
    t: Any = np.zeros((), ts.dtype)  # of which only the type counts
    try:
        corners: list[Corners] = _kept(system, q, v, t, params)
    except ClosesOverTracersError:
        corners = corners_of(system, q, v, t, params, may_close_over=True)
    return corners


def constraints_have_corners(system: System, q: Any, v: Any, ts: Any, params: Any) -> bool:
    """Whether a constraint has corners in time, or may have some."""
    found = corners_at(system, q, v, ts, params)
    return any(corners.has_some and corners.label.startswith(_CONSTRAINT) for corners in found)


@cached_by_shapes
def _kept(system: System, q: Any, v: Any, t: Any, params: Any) -> list[Corners]:
    return corners_of(system, q, v, t, params)


def corners_of(
    system: System, q: Any, v: Any, t: Any, params: Any, may_close_over: bool = False
) -> list[Corners]:
    """The corners of all functions of a system, for arguments of these shapes.

    Raises:
        ClosesOverTracersError: if a function closes over traced values and is not allowed to.
    """
    candidates = (
        _corners(role, fn, state, t, params, may_close_over)
        for role, fn, state in _functions(system, q, v, t, params)
    )
    return [corners for corners in candidates if corners is not None]


def _functions(
    system: System, q: Any, v: Any, t: Any, params: Any
) -> list[tuple[str, Callable[..., Any], Sequence[Any]]]:
    functions: list[tuple[str, Callable[..., Any], Sequence[Any]]] = [
        ("`lagrangian`", system.lagrangian, (q, v))
    ]
    if system.kinematics is not None:
        functions.append(("`kinematics`", system.kinematics, (q,)))
        if (fn := system.quasi_mass_and_force) is not None:
            functions.append(("`quasi_mass_and_force`", fn, (q, v[: system.n_velocities])))
        system = system.plain
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
        (f"{_CONSTRAINT} {c.name!r}", c.value, _state_of(c, q, v)) for c in constraints
    ]


def _state_of(constraint: Any, q: Any, v: Any) -> Sequence[Any]:
    if isinstance(constraint, Holonomic):
        return (q,)
    return (q, v) if isinstance(constraint, Nonholonomic) else (q, v, v)


def _corners(
    role: str, fn: Callable[..., Any], state: Sequence[Any], t: Any, params: Any,
    may_close_over: bool,
) -> Corners | None:  # fmt: skip
    with naming_missing(role, params):
        closed = jax.make_jaxpr(fn)(*state, t, params)
    if not (may_close_over or is_known(closed.consts)):
        raise ClosesOverTracersError

    def read(t: Array, params: Any) -> _TimeReading:
        reading = _TimeReading()
        terms = [Term(None, False, False)] * len(state) + [Term(t, True, True)]
        terms += [Term(x, False, True) for x in jax.tree.leaves(params)]
        reading.signals += _signals(reading.run(closed, terms))
        return reading

    def values(t: Array, params: Any) -> TimedNumbers:
        reading = read(t, params)

        def joined(numbers: Iterable[Array]) -> Array:
            rows = [jnp.ravel(x).astype(t.dtype) for x in numbers]
            return jnp.concatenate([jnp.zeros(0, t.dtype), *rows])

        return TimedNumbers(
            joined(c.value for c in reading.corners if c.is_affine),
            joined(c.value for c in reading.corners if not c.is_affine),
            joined(reading.signals),
            joined(table.value for table in reading.tables),
            tuple(jnp.asarray(table.knots, t.dtype) for table in reading.tables),
        )

    is_hidden = is_sharp = False

    def shapes(t: Array, params: Any) -> TimedNumbers:
        nonlocal is_hidden, is_sharp
        reading = read(t, params)
        is_hidden, is_sharp = reading.is_hidden, reading.is_sharp
        return values(t, params)

    numbers = jax.eval_shape(shapes, t, params)
    affine, curved, signals = (x.size for x in numbers[:3])
    knots = sum(x.size for x in numbers.knots)
    if not (affine or curved or signals or knots or is_hidden):
        return None
    is_force = role in _FORCES
    return Corners(role, values, affine, curved, signals, knots, is_force, is_hidden, is_sharp)


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
        self.tables: list[KnotTable] = []
        self.signals: list[Array] = []
        self.is_hidden = False
        self.is_sharp = False

    def run(self, closed: ClosedJaxpr, terms: Sequence[Term]) -> list[Term]:
        """The results of a jaxpr."""
        jaxpr = closed.jaxpr
        constants = zip(jaxpr.constvars, closed.consts, strict=True)
        environment = {var: Term(x, False, True) for var, x in constants}
        environment |= dict(zip(jaxpr.invars, terms, strict=True))

        def read(atom: Any) -> Term:
            return Term(atom.val, False, True) if isinstance(atom, Literal) else environment[atom]

        for eqn in jaxpr.eqns:
            outs = self.evaluated(eqn, [read(atom) for atom in eqn.invars])
            environment |= dict(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def evaluated(self, eqn: JaxprEqn, terms: list[Term]) -> list[Term]:
        """The results of an operation."""
        is_timed = any(term.is_timed for term in terms)
        content = call_content(eqn)
        callee = eqn.params.get("name") if content is not None else None
        if callee in _TABLES and self._table(callee, terms):
            return self._opaque(eqn, terms)
        if content is not None:
            return self.run(content, terms)
        if any(term.value is None for term in terms):
            self.signals += _signals(terms)
            return [Term(None, is_timed, False)] * len(eqn.outvars)
        name = eqn.primitive.name
        self.is_sharp |= is_timed and name in _SHARP
        if is_timed and _may_turn(eqn, terms):
            self._corner(name, terms)
        if is_timed and name in _LOOPS:
            self.is_hidden |= any(word in _CORNERS for word in _primitives(eqn))
        return self._opaque(eqn, terms)

    def _table(self, name: str, terms: list[Term]) -> bool:
        x, *constants = terms if name != "searchsorted" else (terms[1], terms[0], *terms[2:])
        if not x.is_timed or any(term.value is None or term.is_timed for term in (*constants,)):
            return False
        if x.value is None:
            return False
        knots = _knots(name, [term.value for term in constants])
        if knots is None:
            return True
        if jnp.ndim(knots) != 1:
            return False
        if x.is_affine:
            self.tables += [KnotTable(place, knots) for place in jnp.ravel(x.value)]
        else:
            self.corners.append(Corner(jnp.ravel(x.value)[:, None] - knots[None], False))
        return True

    def _corner(self, name: str, terms: list[Term]) -> None:
        x, *operands = (term.value for term in terms)
        is_affine = all(term.pieces for term in terms)
        if name in _DIFFERENCES or name in ("abs", "sign", "clamp"):
            numbers = [_difference(name, *values) for values in _alternatives(terms)]
        else:
            # The numbers at which these operations jump are zeros of a wave.
            is_affine = False
            phase = x / operands[0] if name == "rem" else x
            numbers = [jnp.cos(math.pi * phase) if name == "round" else jnp.sin(math.pi * phase)]
        self.corners += [Corner(number, is_affine) for number in numbers]

    def _opaque(self, eqn: JaxprEqn, terms: list[Term]) -> list[Term]:
        if any(term.value is None for term in terms):
            return [Term(None, any(term.is_timed for term in terms), False)] * len(eqn.outvars)
        out = eqn.primitive.bind(*(term.value for term in terms), **eqn.params)
        outs = list(out) if eqn.primitive.multiple_results else [out]
        is_timed = any(term.is_timed for term in terms)
        is_affine = not is_timed or _is_affine(eqn.primitive.name, terms)
        if is_affine or len(outs) > 1:
            return [Term(value, is_timed, is_affine) for value in outs]
        return [Term(outs[0], is_timed, False, _choices(eqn, terms))]


def _signals(terms: list[Term]) -> list[Array]:
    # The numbers that depend on time, but not on the state, and are not piecewise affine.
    values = [x.value for x in terms if x.is_timed and x.value is not None and not x.pieces]
    return [x for x in values if jnp.issubdtype(jnp.result_type(x), jnp.floating)]


def _knots(name: str, constants: list[Any]) -> Any:
    """The knots of a table with these constants; None if it is smooth."""
    if name == "smooth_signal":
        return None
    if name == "jumping_signal" and len(constants) in (3, 5):  # evenly spaced samples
        start, spacing, samples = constants[:3]
        count = len(constants[3] if len(constants) == 5 else samples)
        return start + spacing * jnp.arange(count, dtype=spacing.dtype)
    if name == "jumping_signal" and len(constants) == 4:  # others in a row of several
        times, _, numbers, first = constants
        return jax.lax.dynamic_slice_in_dim(times, first, len(numbers))
    return jnp.asarray(constants[0])


def _may_turn(eqn: JaxprEqn, terms: list[Term]) -> bool:
    if not jnp.issubdtype(jnp.result_type(terms[0].value), jnp.floating):
        return False
    if eqn.primitive.name == "convert_element_type":
        return bool(jnp.issubdtype(eqn.params["new_dtype"], jnp.integer))
    return eqn.primitive.name in _CORNERS


def _alternatives(terms: list[Term]) -> list[tuple[Any, ...]]:
    """The operands, for all choices of their pieces if all have some."""
    if not all(term.pieces for term in terms):
        return [tuple(term.value for term in terms)]
    return list(product(*(term.pieces for term in terms)))


def _difference(name: str, *values: Any) -> Array:
    if name == "clamp":
        low, x, high = values
        return jnp.concatenate([jnp.ravel(x - low), jnp.ravel(x - high)])
    return values[0] - values[1] if name in _DIFFERENCES else values[0]


def _choices(eqn: JaxprEqn, terms: list[Term]) -> tuple[Any, ...]:
    """Functions affine in time, one of which the result of an operation is; none if not known."""
    name = eqn.primitive.name
    alternatives = _alternatives(terms)
    if not all(term.pieces for term in terms) or len(alternatives) > _MOST_CHOICES:
        return ()
    if name in ("max", "min"):
        chosen = [x for values in alternatives for x in values]
    elif name == "abs":
        chosen = [sign * x for (x,) in alternatives for sign in (1, -1)]
    elif name == "clamp":
        chosen = [x for values in alternatives for x in values]
    elif _is_affine(name, [replace(term, is_affine=True) for term in terms]):
        chosen = [eqn.primitive.bind(*values, **eqn.params) for values in alternatives]
    else:
        return ()
    if len(chosen) > _MOST_CHOICES:
        return ()
    out: Any = eqn.outvars[0].aval
    return tuple(jnp.broadcast_to(x, out.shape) for x in chosen)


def _is_affine(name: str, terms: list[Term]) -> bool:
    if not all(term.is_affine for term in terms):
        return False
    if name in ("mul", "dot_general"):
        return sum(term.is_timed for term in terms) == 1
    if name in ("div", "dynamic_slice", "gather"):  # of a table by an index, and the like
        return not any(term.is_timed for term in terms[1:])
    return name in _LINEAR


def _primitives(eqn: JaxprEqn) -> set[str]:
    names: set[str] = set()
    for value in eqn.params.values():
        for inner in jax.tree.leaves(value, is_leaf=lambda x: hasattr(x, "eqns")):
            for inner_eqn in getattr(inner, "eqns", ()):
                names |= {inner_eqn.primitive.name} | _primitives(inner_eqn)
    return names
