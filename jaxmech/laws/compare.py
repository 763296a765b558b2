"""`compare_formulations`: every law of motion at one state, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from math import prod
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import call_content, loop_content
from jaxmech.laws.base import AbstractFormulation, Law
from jaxmech.laws.contravariant import Contravariant
from jaxmech.laws.coordinate_partition import CoordinatePartition
from jaxmech.laws.gauss import GaussPrinciple
from jaxmech.laws.lagrange_first_kind import LagrangeFirstKind
from jaxmech.laws.maggi import Maggi
from jaxmech.laws.regular import without_units_of
from jaxmech.laws.udwadia_kalaba import UdwadiaKalaba
from jaxmech.linalg import LDL, QR, SVD
from jaxmech.system import EquationsOfMotion, Params, Subject, System, with_mass_rank, with_params
from jaxmech.utils.checks import require_finite, require_kind
from jaxmech.utils.jax_internals import Jaxpr, JaxprEqn
from jaxmech.utils.jit_cache import jit_of

# Primitives that only move numbers, or make constants.
_FREE = {
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "device_put",
    "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "iota", "pad", "reshape",
    "rev", "scatter", "slice", "split", "squeeze", "stack", "stop_gradient", "transpose",
}  # fmt: skip
_SUMS = "reduce_", "arg", "cum"  # how the names of sums, products, maxima and so on begin


def operations(fn: Callable[..., Any], *args: Any) -> int:
    """The number of scalar sums, products, comparisons and so on in `fn(*args)`.

    Operations are counted as written: nothing is folded, shared or eliminated, a loop counts as
    often as it runs, a `cond` as its longest branch, and moving numbers is free. A library
    factorization of an n by n matrix counts as n^2 operations, which is far too few.

    Args:
        fn: a function of arrays and pytrees of arrays.
        *args: arguments of the function, or their shapes.

    Example:
        >>> import jax.numpy as jnp
        >>> operations(lambda A, x: A @ x + 1.0, jnp.ones((2, 3)), jnp.ones(3))
        14
    """
    return _count(jax.make_jaxpr(fn)(*args).jaxpr)


def _count(jaxpr: Jaxpr) -> int:
    return sum(map(_cost, jaxpr.eqns))


def _cost(eqn: JaxprEqn) -> int:
    name = eqn.primitive.name
    inside = call_content(eqn)
    if inside is not None:
        return _count(inside.jaxpr)
    if name == "scan":
        return eqn.params["length"] * _count(loop_content(eqn)[0].jaxpr)
    if name in _FREE:
        return 0
    if name == "cond":
        return max(_count(branch.jaxpr) for branch in eqn.params["branches"])
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        operand: Any = eqn.invars[0].aval
        terms = prod(operand.shape[axis] for axis in contracted)
        return 2 * terms * _size(eqn.outvars)
    return _size(eqn.invars if name.startswith(_SUMS) else eqn.outvars)


def _size(atoms: Any) -> int:
    return sum(prod(atom.aval.shape) for atom in atoms)


REFERENCE = UdwadiaKalaba(SVD())
FORMULATIONS: tuple[AbstractFormulation, ...] = (
    REFERENCE,
    UdwadiaKalaba(LDL()),
    UdwadiaKalaba(QR()),
    LagrangeFirstKind(),
    GaussPrinciple(),
    Maggi(),
    CoordinatePartition(),
    Contravariant(),
    Contravariant(eliminate=True),
)


@dataclass(frozen=True)
class Row:
    """The result of one law at a state; NaN and 0 where it is not defined.

    Attributes:
        formulation: the law of motion.
        reason: the reason why it is not defined for the system or state; empty where it is.
        qdd: largest difference from the accelerations of the reference, relative to the largest
            acceleration (constrained or free).
        constraint_force: the same for A^T lambda, relative to the larger of Q and A^T lambda.
        multipliers: the same for the minimum-norm lambda, relative to the largest multiplier.
        rank: number of independent constraint equations.
        residual: largest |A qdd - b|.
        condition: condition number of the matrix that the law inverts, except for singular values
            that count as zero; NaN for a law without such a matrix.
        operations: number of scalar operations for M, Q, A, b and the accelerations.
    """

    formulation: AbstractFormulation
    reason: str = ""
    qdd: float = np.nan
    constraint_force: float = np.nan
    multipliers: float = np.nan
    rank: int = 0
    residual: float = np.nan
    condition: float = np.nan
    operations: int = 0


@dataclass(frozen=True)
class Comparison:
    """All laws at one state; prints itself as a table.

    The result of `compare_formulations`.

    Attributes:
        rows: one for each law, the reference first.
    """

    rows: tuple[Row, ...]

    def __repr__(self) -> str:
        head = f"{'law':<31}{'qdd':>9}{'force':>9}{'lambda':>9}{'rank':>6}{'residual':>10}"
        head += f"{'condition':>11}{'operations':>12}"
        return "\n".join([head, *map(_line, self.rows)])


def compare_formulations(
    system: Subject,
    q: Any,
    v: Any,
    t: Any = 0.0,
    params: Params = None,
    *,
    formulations: Sequence[AbstractFormulation] = FORMULATIONS,
) -> Comparison:
    """Compare the laws of motion at one state: their differences, condition numbers and costs.

    Differences are those from `UdwadiaKalaba(SVD())`. A law that is not defined for the system is
    listed with the reason. Non-ideal forces are ignored. Concrete values are required, so it cannot
    run under `jit` or `vmap`.

    Args:
        system: the system, with n coordinates and m constraint equations.
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        t: time [s].
        params: the parameters that the functions of the system expect.
        formulations: the laws to compare; by default all laws of the package.

    Raises:
        ValueError: if an argument or the result of a function of the system has the wrong shape, or
            is not finite.
        TypeError: if `system` is not a `System`, or a formulation is not a law of motion.

    Example:
        >>> from jaxmech import models
        >>> model = models.pendulum()
        >>> q, v = model.initial()
        >>> laws = LagrangeFirstKind(), Maggi()
        >>> table = compare_formulations(model.system, q, v, 0.0, model.params, formulations=laws)
        >>> [row.rank for row in table.rows], max(row.qdd for row in table.rows) < 1e-14
        ([1, 1], True)
    """
    system, params = with_params(system, params)
    for law in formulations:
        require_kind("formulations", law, AbstractFormulation, "Maggi()")
    state = system.arguments(q, v, t, params)
    require_finite(**dict(zip(("q", "v", "t", "params"), state, strict=True)))
    system = with_mass_rank(system, *state)
    reference = _law_solution(REFERENCE, system, *state)
    if not np.isfinite(reference.law.qdd).all():
        raise ValueError("Argument `system` must have finite accelerations, but has not at `q`.")
    return Comparison(tuple(_row(law, reference, system, state) for law in formulations))


class _LawSolution(eqx.Module):
    eom: EquationsOfMotion
    law: Law
    matrix: Array | None


def _row(law: AbstractFormulation, reference: _LawSolution, system: System, state: Any) -> Row:
    try:
        operation_count = operations(partial(_solution, law, system), *state)
        solved = _law_solution(law, system, *state)
    except ValueError as refusal:
        return Row(law, reason=str(refusal))
    if not solved.law.definite:
        return Row(law, reason="more than one acceleration at this state: [M; A] lacks column rank")
    qdd, force, multipliers = _numbers(solved)
    exact_qdd, exact_force, exact_multipliers = _numbers(reference)
    miss = np.abs(np.asarray(solved.eom.A) @ qdd - np.asarray(solved.eom.b))
    return Row(
        formulation=law,
        qdd=_difference(qdd, exact_qdd, reference.law.free),
        constraint_force=_difference(force, exact_force, reference.eom.Q),
        multipliers=_difference(multipliers, exact_multipliers),
        rank=int(solved.law.rank),
        residual=float(miss.max(initial=0.0)),
        condition=_condition(solved.matrix),
        operations=operation_count,
    )


@jit_of("law", "system", is_frame=True, is_brief=True)
def _law_solution(
    law: AbstractFormulation, system: System, q: Array, v: Array, t: Array, params: Params
) -> _LawSolution:
    state = q, v, t, params
    eom = law.equations(system, *state)
    return _LawSolution(eom, law.solve(eom), law.matrix(without_units_of(eom)[0]))


def _solution(law: AbstractFormulation, system: System, *state: Any) -> tuple[Array, Array]:
    solved = law.solve(law.equations(system, *state))
    return solved.qdd, solved.multipliers


def _numbers(solved: _LawSolution) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Accelerations, A^T lambda, and the minimum-norm lambda with the same A^T lambda."""
    A, multipliers = np.asarray(solved.eom.A), np.asarray(solved.law.multipliers)
    force = A.T @ multipliers
    shortest = np.linalg.pinv(A.T, rcond=_negligible(A)) @ force
    return np.asarray(solved.law.qdd), force, shortest


def _negligible(matrix: np.ndarray) -> float:
    return float(np.finfo(matrix.dtype).eps ** (2 / 3))


def _difference(value: Any, exact: Any, *scales: Any) -> float:
    size = max(float(np.max(np.abs(x), initial=0.0)) for x in (exact, *scales))
    largest = float(np.max(np.abs(np.asarray(value) - np.asarray(exact)), initial=0.0))
    return largest / size if size else largest


def _condition(matrix: Array | None) -> float:
    """The condition number, except for singular values below eps^(2/3) of the largest."""
    if matrix is None:
        return np.nan
    values = np.linalg.svd(np.asarray(matrix), compute_uv=False)
    nonzero = values[values > _negligible(values) * values.max(initial=0.0)]
    return float(nonzero.max() / nonzero.min()) if nonzero.size else 1.0


def _line(row: Row) -> str:
    name = _short(row.formulation)
    if row.reason:
        return f"{name:<31}not defined: {row.reason}"
    condition = "-" if np.isnan(row.condition) else f"{row.condition:.1e}"
    differences = f"{row.qdd:>9.0e}{row.constraint_force:>9.0e}{row.multipliers:>9.0e}"
    residual = f"{row.rank:>6}{row.residual:>10.0e}{condition:>11}"
    return f"{name:<31}{differences}{residual}{row.operations:>12}"


def _short(policy: Any) -> str:
    """The repr of a policy without its default values."""
    values = {field.name: (getattr(policy, field.name), field.default) for field in fields(policy)}
    settings = [
        f"{name}={_short(value) if is_dataclass(value) else repr(value)}"
        for name, (value, default) in values.items()
        if value != default
    ]
    return f"{type(policy).__name__}({', '.join(settings)})"
