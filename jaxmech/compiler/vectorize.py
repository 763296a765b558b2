"""`vectorize`: `jax.vmap` with loops and small functions as native code where possible.

A small function is compiled whole. Of another one, each loop is compiled and the rest is left to
`vmap`, equation by equation. Equations that only a loop depends on are compiled with it, such as a
check of the initial state before the steps. So equations wait until the equations that depend on
them are known. Equations that need the final carry of a loop, but none of its sequences, are
compiled with it, too.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler.backends.primitive import over_batch
from jaxmech.compiler.explain import Explanation, reason_of, warn_of_long, warn_of_plain
from jaxmech.compiler.frontend.build import function_kernel, loop_kernel
from jaxmech.compiler.frontend.jaxprs import (
    LOOPS,
    call_content,
    equations_of,
    evaluated,
    is_one_kernel,
    loop_content,
    stays_loop,
    takes_finite,
)
from jaxmech.compiler.ir.loops import LARGEST_SPLIT, NATIVE, UnsupportedError, dtype_of, shape_of
from jaxmech.compiler.platforms import finite_arguments, is_on, why_not
from jaxmech.utils.jax_internals import (
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Tracer,
    without_mesh,
    without_unused,
)

LARGEST_IN_PROLOGUE = 65_536  # size of an array
MOST_PASSED = 1024  # numbers into or out of a prologue; XLA is faster with sequences
LARGEST_KNOWN = 256  # size of an array that native code may contain as a constant

Batch = tuple[Array, bool]  # a value, and whether it has the batch axis
_SHARED_LOOP = "a loop that is the same for all trajectories"


def vectorize(fn: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """`jax.vmap(fn, in_axes)`, with loops and small functions as native code.

    This holds on CPUs and NVIDIA GPUs; on other platforms it is plain `jax.vmap`.
    The result is not differentiable: differentiate `fn` first, then vectorize its derivative.

    Args:
        fn: a function of arrays and pytrees of arrays.
        in_axes: 0 or None for each argument, or one for all; a prefix as in `jax.vmap`.

    Example:
        >>> import jax.numpy as jnp
        >>> print(vectorize(lambda x: x @ x)(jnp.array([[1.0, 2.0], [3.0, 4.0]])))
        [ 5. 25.]
    """

    def vectorized(*args: Any) -> Any:
        flags = _flags(in_axes, args)
        if not is_on():
            return jax.vmap(fn, in_axes)(*args)
        return run_batched(fn, flags, args)

    return vectorized


def explain(fn: Callable[..., Any], *args: Any, in_axes: Any = 0) -> Explanation:
    """Report which parts of a batch of `fn` run as native code, and why the rest does not.

    Native code is lanes on a CPU, and a kernel with a thread for each trajectory on an NVIDIA GPU.
    None is used on other devices and within `compiler.off()`. The device is the default one.

    Args:
        fn: a function of arrays and pytrees of arrays.
        *args: a batch of arguments, or their shapes.
        in_axes: as for `vectorize`.

    Example:
        >>> import jax.numpy as jnp
        >>> explain(lambda x: x @ x + 0.0, jnp.ones((8, 3)))
        function: 5 of 6 operations on scalars, as lanes
    """
    explanation = Explanation()
    if (reason := why_not()) is not None:
        explanation.add_plain("function", reason)
        return explanation
    jax.eval_shape(lambda *args: run_batched(fn, _flags(in_axes, args), args, explanation), *args)
    return explanation


def run_batched(
    fn: Callable[..., Any], batched: Any, args: Any, explanation: Explanation | None = None
) -> Any:
    """Run the function over a batch; `batched` flags the leaves of args that have the axis."""
    leaves, structure = jax.tree.flatten(args)
    flags = jax.tree.leaves(batched)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    first = [
        jax.ShapeDtypeStruct(x.shape[1:] if is_batched else x.shape, x.dtype)
        for x, is_batched in zip(leaves, flags, strict=True)
    ]
    with without_mesh():
        closed, shape = jax.make_jaxpr(
            lambda *leaves: fn(*jax.tree.unflatten(structure, leaves)), return_shape=True
        )(*first)
    outs = run_jaxpr(without_unused(closed), flags, leaves, explanation)
    return jax.tree.unflatten(jax.tree.structure(shape), outs)


def run_jaxpr(
    closed: ClosedJaxpr, flags: Sequence[bool], args: Sequence[Array],
    explanation: Explanation | None = None,
) -> list[Array]:  # fmt: skip
    """Run a function without unused operations over a batch; flagged arguments have its axis.

    Warns of what runs as plain `vmap`, unless an explanation of all parts is asked for.
    """
    if explanation is not None:
        return _run_explained(closed, flags, args, explanation)
    parts = Explanation(counts=False)
    outs = _run_explained(closed, flags, args, parts)
    warn_of_plain(parts.parts)
    warn_of_long(parts)
    return outs


def _run_explained(
    closed: ClosedJaxpr, flags: Sequence[bool], args: Sequence[Array], explanation: Explanation
) -> list[Array]:
    size = next(x.shape[0] for x, is_batched in zip(args, flags, strict=True) if is_batched)
    reason, is_fault, is_quiet = _SHARED_LOOP, False, not explanation.counts
    if is_one_kernel(closed.jaxpr, flags):
        try:
            kernel = function_kernel(closed)
            outs = over_batch(kernel, flags, size, args)
            explanation.add("function", kernel)
            return outs
        except Exception as error:  # noqa: BLE001 any error of the compiler
            reason = reason_of(error)
            is_fault = not isinstance(error, UnsupportedError)
            # One trajectory gains nothing from lanes, unless it has a loop.
            is_quiet = is_quiet and size == 1 and type(error) is UnsupportedError
    pairs = _run_partitioned(closed, args, flags, size, explanation)
    if is_fault or not (explanation.parts or is_quiet):
        explanation.add_plain("function", reason)
    return [x if has else jnp.broadcast_to(x, (size, *x.shape)) for x, has in pairs]


def run_alone(closed: ClosedJaxpr, flags: Sequence[bool], args: Sequence[Array]) -> list[Array]:
    """Run one trajectory with the code of a batch of one, whose flagged arguments have its axis.

    The bits are those of any batch with the same flags.
    """
    # XLA would take two to three times as long to compile it.
    batch = [x[None] if has else x for x, has in zip(args, flags, strict=True)]
    return [x[0] for x in run_jaxpr(closed, flags, batch)]


def _flags(in_axes: Any, args: tuple[Any, ...]) -> Any:
    axes = (in_axes,) * len(args) if in_axes is None or isinstance(in_axes, int) else in_axes

    def spread(axis: Any, arg: Any) -> Any:
        if axis not in (0, None):
            raise ValueError(f"Argument `in_axes` must hold 0 and None, but holds {axis!r}.")
        return jax.tree.map(lambda _: axis == 0, arg)

    return jax.tree.map(spread, tuple(axes), args, is_leaf=lambda x: x is None)


def _run_partitioned(
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
        self.jaxpr, self.size, self.explanation = closed.jaxpr, size, explanation
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
        self.done = set[int]()  # positions of equations that were compiled with an earlier loop

    def add(self, position: int, eqn: JaxprEqn) -> None:
        """Process the next equation, with its index in the program."""
        content = call_content(eqn)
        has_axis = any(self._has_axis(atom) for atom in eqn.invars)
        contains_loop = has_axis and content is not None and stays_loop(content.jaxpr)
        is_known = all(isinstance(atom, Literal) or atom in self.known for atom in eqn.invars)
        may_wait = not eqn.effects and (has_axis or is_known)
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
            self.explanation.left_to_xla.append(equations_of(eqn))
            return [(x, False) for x in evaluated(eqn, *values)]
        if content is not None:
            constants = [self._constant(atom) for atom in eqn.invars]
            with finite_arguments(takes_finite(eqn)):
                return _run_partitioned(
                    content, values, flags, self.size, self.explanation, constants
                )
        self.explanation.left_to_xla.append(equations_of(eqn))
        axes = [0 if has else None for has in flags]
        outs = jax.vmap(lambda *xs: evaluated(eqn, *xs), axes, axis_size=self.size)(*values)
        return [(x, True) for x in outs]

    def _constant(self, atom: Any) -> np.ndarray | None:
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
                self.explanation.add_plain("loop's beginning or end", fault)
            return outs
        self.explanation.add_plain(description, reason)
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
        self, eqn: JaxprEqn, description: str, prologue: list[JaxprEqn],
        epilogue: dict[int, JaxprEqn],
    ) -> list[Batch | None]:  # fmt: skip
        """The results of a loop, by native code that also computes the equations around it."""
        around = [*prologue, *epilogue.values()]
        outside = [x for x in self.jaxpr.eqns if x is not eqn and x not in around]
        read_outside = _variables([*self.jaxpr.outvars, *(i for x in outside for i in x.invars)])
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
        self.explanation.add(description, kernel)
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
