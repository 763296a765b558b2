"""Running a program over a batch, equation by equation: loops as native code, the rest by vmap.

Equations that only a loop depends on are compiled with it, such as a check of the initial state
before the steps. So equations wait until the equations that depend on them are known. Equations
that need the final carry of a loop, but none of its sequences, are compiled with it, too.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler.backends.primitive import over_batch
from jaxmech.compiler.explain import Explanation, reason_of
from jaxmech.compiler.frontend.build import loop_kernel
from jaxmech.compiler.frontend.jaxprs import (
    LOOPS,
    call_content,
    equations_of,
    evaluated,
    loop_content,
    stays_loop,
    takes_finite,
)
from jaxmech.compiler.ir.loops import LARGEST_SPLIT, NATIVE, UnsupportedError, dtype_of, shape_of
from jaxmech.compiler.platforms import finite_arguments
from jaxmech.utils.jax_internals import ClosedJaxpr, JaxprEqn, Literal, Tracer

LARGEST_IN_PROLOGUE = 65_536  # size of an array
MOST_PASSED = 1024  # numbers into or out of a prologue; XLA is faster with sequences
LARGEST_KNOWN = 256  # size of an array that native code may contain as a constant

Batch = tuple[Array, bool]  # a value, and whether it has the batch axis


def run_partitioned(
    closed: ClosedJaxpr, args: Sequence[Array], flags: Sequence[bool], size: int,
    explanation: Explanation, constants: Sequence[np.ndarray | None] = (),
) -> list[Batch]:  # fmt: skip
    """Run a program over a batch; flagged arguments have its axis first.

    A part is added to `explanation` for every loop. `constants` are the values of arguments that
    are the same in all calls, or None.
    """
    run = _Partition(closed, args, flags, size, explanation, constants)
    for position, eqn in enumerate(closed.jaxpr.eqns):
        if position not in run.done:
            run.add(position, eqn)
    run.compute(closed.jaxpr.outvars)
    return [run.value(atom) for atom in closed.jaxpr.outvars]


class _Partition:
    def __init__(
        self, closed: ClosedJaxpr, args: Sequence[Array], flags: Sequence[bool], size: int,
        explanation: Explanation, constants: Sequence[np.ndarray | None],
    ) -> None:  # fmt: skip
        self.jaxpr, self.size, self.found = closed.jaxpr, size, explanation
        consts = [(jnp.asarray(c), False) for c in closed.consts]
        pairs = zip(self.jaxpr.invars, constants, strict=bool(constants))
        self.constants = {var: value for var, value in pairs if value is not None}
        self.constants.update(
            (var, np.asarray(value))
            for var, value in zip(self.jaxpr.constvars, closed.consts, strict=True)
            if _is_constant(value)
        )
        self.values: dict[Any, Batch] = dict(zip(self.jaxpr.constvars, consts, strict=True))
        self.values.update(zip(self.jaxpr.invars, zip(args, flags, strict=True), strict=True))
        self.batched = {atom for atom, (_, has) in self.values.items() if has}
        self.waiting: list[JaxprEqn] = []  # equations that are not computed yet, in order
        self.known = set(self.constants)  # with the results of equations that need nothing else
        self.done: set[int] = (
            set()
        )  # positions of equations that were compiled with an earlier loop

    def add(self, position: int, eqn: JaxprEqn) -> None:
        """Process the next equation, with its index in the program."""
        content = call_content(eqn)
        has_axis = any(self._has_axis(atom) for atom in eqn.invars)
        contains_loop = has_axis and content is not None and stays_loop(content.jaxpr)
        may_wait = not eqn.effects and (has_axis or self._is_known(eqn))
        if has_axis and eqn.primitive.name in LOOPS:
            self._finish(eqn, self._loop(position, eqn))
        elif may_wait and not contains_loop:
            self.waiting.append(eqn)
            (self.batched if has_axis else self.known).update(eqn.outvars)
        else:
            self.compute(eqn.invars)
            self._finish(eqn, self._outs(eqn))

    def value(self, atom: Any) -> Batch:
        """The value of a literal, or of a variable that has been computed."""
        if isinstance(atom, Literal):
            return jnp.asarray(atom.val, dtype_of(atom)), False
        return self.values[atom]

    def compute(self, atoms: Iterable[Any]) -> None:
        """Compute the waiting equations that the given variables depend on."""
        for eqn in self._prologue(atoms):
            self.waiting.remove(eqn)
            self._finish(eqn, self._outs(eqn))

    def _has_axis(self, atom: Any) -> bool:
        return not isinstance(atom, Literal) and atom in self.batched

    def _is_known(self, eqn: JaxprEqn) -> bool:
        return all(isinstance(atom, Literal) or atom in self.known for atom in eqn.invars)

    def _finish(self, eqn: JaxprEqn, outs: Sequence[Batch | None]) -> None:
        for var, out in zip(eqn.outvars, outs, strict=True):
            if out is None:  # not used
                continue
            self.values[var] = out
            has_axis = out[1]
            (self.batched.add if has_axis else self.batched.discard)(var)

    def _prologue(self, atoms: Iterable[Any]) -> list[JaxprEqn]:
        """The waiting equations that the given variables depend on, in order."""
        variables = _variables(atoms)
        prologue = []
        for eqn in reversed(self.waiting):
            if not variables.isdisjoint(eqn.outvars):
                prologue.append(eqn)
                variables |= _variables(eqn.invars)
        return prologue[::-1]

    def _outs(self, eqn: JaxprEqn) -> list[Batch]:
        """The results of an equation whose arguments have been computed."""
        content = call_content(eqn)
        pairs = [self.value(atom) for atom in eqn.invars]
        values, flags = [x for x, _ in pairs], [has for _, has in pairs]
        if not any(flags):
            self.found.left_to_xla.append(equations_of(eqn))
            return [(x, False) for x in evaluated(eqn, *values)]
        if content is not None:
            constants = [self._constant(atom) for atom in eqn.invars]
            with finite_arguments(takes_finite(eqn)):
                return run_partitioned(content, values, flags, self.size, self.found, constants)
        self.found.left_to_xla.append(equations_of(eqn))
        axes = [0 if has else None for has in flags]
        outs = jax.vmap(lambda *xs: evaluated(eqn, *xs), axes, axis_size=self.size)(*values)
        return [(x, True) for x in outs]

    def _constant(self, atom: Any) -> np.ndarray | None:
        """The value of a literal, or of a constant."""
        if isinstance(atom, Literal):
            return np.asarray(atom.val, dtype_of(atom))
        return self.constants.get(atom)

    def _loop(self, position: int, eqn: JaxprEqn) -> Sequence[Batch | None]:
        """The results of a loop: compiled with equations around it, or alone, or by `jax.vmap`."""
        length = eqn.params.get("length")
        description = "while loop" if length is None else f"loop of {length} iterations"
        _, fixed, carries = loop_content(eqn)
        first = fixed + carries
        self.compute(eqn.invars[first:])
        prologue = self._prologue(eqn.invars[:first])
        written = [equation for equation in prologue if _is_empty_rows(equation)]
        prologue = prologue if all(map(_is_small, prologue)) else written
        epilogue = self._epilogue(position, eqn.outvars[:carries], prologue)
        # Rows that a loop has written cannot be read by its code.
        empty = _variables(x for equation in written for x in equation.outvars)
        pairs = zip(eqn.invars[fixed:first], eqn.outvars[:carries], strict=True)
        rows = {var for atom, var in pairs if not isinstance(atom, Literal) and atom in empty}
        if any(not rows.isdisjoint(_variables(equation.invars)) for equation in epilogue.values()):
            epilogue = {}
        attempts: list[tuple[list[JaxprEqn], dict[int, JaxprEqn]]] = [(written, {})]
        attempts += [(prologue, {})] if len(prologue) > len(written) else []
        attempts += [(prologue, epilogue)] if epilogue else []
        reason, fault = "", ""
        for start, end in reversed(attempts):
            if start is written:
                self.compute(_variables(eqn.invars) - empty)
            try:
                outs = self._compiled(eqn, description, start, end)
            except Exception as error:  # noqa: BLE001 any error of the compiler
                reason = reason_of(error)
                fault = fault if isinstance(error, UnsupportedError) else reason
                continue
            if fault:
                self.found.add_plain("loop's beginning or end", fault)
            return outs
        self.found.add_plain(description, reason)
        self.compute(eqn.invars)
        return self._outs(eqn)

    def _epilogue(
        self, position: int, ends: Sequence[Any], prologue: list[JaxprEqn]
    ) -> dict[int, JaxprEqn]:
        """The equations, by index, that need the final carry of a loop and nothing unknown."""
        inside = {var for equation in prologue for var in equation.outvars}
        available, dependent = inside | set(ends), set(ends)
        epilogue = {}
        for index, equation in enumerate(self.jaxpr.eqns[position + 1 :], position + 1):
            atoms, content = _variables(equation.invars), call_content(equation)
            holds = equation.primitive.name in LOOPS or (content and stays_loop(content.jaxpr))
            is_given = all(atom in available or atom in self.values for atom in atoms)
            if is_given and not (holds or equation.effects) and _is_small(equation):
                epilogue[index] = equation
                available.update(equation.outvars)
                if not dependent.isdisjoint(atoms):
                    dependent.update(equation.outvars)
        variables = set(dependent)
        for index, equation in reversed(list(epilogue.items())):
            if variables.isdisjoint(equation.outvars):
                del epilogue[index]
            else:
                variables |= _variables(equation.invars)
        return epilogue

    def _compiled(
        self,
        eqn: JaxprEqn,
        description: str,
        prologue: list[JaxprEqn],
        epilogue: dict[int, JaxprEqn],
    ) -> list[Batch | None]:
        """The results of a loop, by native code that also computes the equations around it."""
        around = [*prologue, *epilogue.values()]
        outside = [
            equation
            for equation in self.jaxpr.eqns
            if equation is not eqn and equation not in around
        ]
        read_outside = _variables(self.jaxpr.outvars).union(
            *(_variables(equation.invars) for equation in outside)
        )
        extra = [var for equation in around for var in equation.outvars if var in read_outside]
        kernel, args = loop_kernel(eqn, prologue, list(epilogue.values()), extra, self.constants)
        # JAX keeps all results of a `while`, though unused rows may be large.
        is_used = [var in read_outside for var in eqn.outvars]
        kernel = kernel.with_results([*is_used, *[True] * len(extra)])
        # Large arguments count only if they are split: rows of the others are read where they are.
        split = [var for var in args if _size(var) <= LARGEST_SPLIT]
        passed = [var for var in (*split, *extra) if self._has_axis(var)]
        is_alone = all(map(_is_empty_rows, around))
        if not is_alone and (sum(map(_size, passed)) > MOST_PASSED or kernel.splits_large):
            raise UnsupportedError("sequences")
        sequences = eqn.invars[len(eqn.invars) - len(kernel.sequences) :]
        values, flags = zip(*(self.value(atom) for atom in (*args, *sequences)), strict=True)
        computed = iter(over_batch(kernel, flags, self.size, values))
        outs = [(next(computed), True) if flag else None for flag in is_used]
        self.found.add(description, kernel)
        results = {var: (x, True) for var, x in zip(extra, computed, strict=True)}
        self.values.update(results)
        self.batched.update(results)
        self.waiting = [equation for equation in self.waiting if equation not in prologue]
        self.done.update(epilogue)
        return outs


def _is_constant(value: Any) -> bool:
    """Whether a value may be a constant of native code: a small array that is not traced."""
    if isinstance(value, Tracer):
        return False
    return math.prod(np.shape(value)) <= LARGEST_KNOWN and jnp.result_type(value) in NATIVE


def _variables(atoms: Iterable[Any]) -> set[Any]:
    return {atom for atom in atoms if not isinstance(atom, Literal)}


def _is_empty_rows(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "empty_rows"


def _is_small(eqn: JaxprEqn) -> bool:
    if _is_empty_rows(eqn):  # a result, which is not passed
        return True
    atoms = _variables((*eqn.invars, *eqn.outvars))
    return all(_size(atom) <= LARGEST_IN_PROLOGUE for atom in atoms)


def _size(var: Any) -> int:
    return math.prod(shape_of(var))
