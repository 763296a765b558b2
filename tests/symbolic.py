"""Equations of motion by symbolic differentiation, the reference for the automatic ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp

Numeric = Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]


def symbolic_equations(
    L: sp.Expr,
    phi: Sequence[sp.Expr],
    psi: Sequence[sp.Expr],
    q: Sequence[sp.Symbol],
    v: Sequence[sp.Symbol],
    t: sp.Symbol,
    params: Mapping[str, Any],
    force: Sequence[sp.Expr] | None = None,
) -> Numeric:
    """A function (q, v, t, values) -> (M, Q, A, b) of numpy arrays.

    Args:
        L: the Lagrangian.
        phi: holonomic constraints, expressions in q and t; their rows come first.
        psi: nonholonomic constraints, expressions in q, v and t.
        q: the symbols of the coordinates.
        v: the symbols of the velocities.
        t: the symbol of time.
        params: a symbol or a sequence of symbols by name; `values` has numbers in place of these.
        force: non-conservative generalized force, one expression per coordinate.
    """
    speed = sp.Matrix(v)
    momentum = [sp.diff(L, x) for x in v]
    Q = _jacobian([L], q).T - _rate(momentum, q, speed, t) + sp.Matrix(force or [0] * len(q))
    A = _jacobian(phi, q).col_join(_jacobian(psi, v))
    b = -_rate(_rate(phi, q, speed, t), q, speed, t).col_join(_rate(psi, q, speed, t))
    flat = [symbol for name in params for symbol in _listed(params[name])]
    compiled = sp.lambdify(
        [list(q), list(v), t, flat], [_jacobian(momentum, v), Q, A, b], "numpy", cse=True
    )
    n, m = len(q), len(b)

    def numeric(q: Any, v: Any, t: float, values: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
        numbers = [number for name in params for number in np.ravel(values[name])]
        blocks = compiled(np.asarray(q), np.asarray(v), t, numbers)
        return tuple(
            np.reshape(np.asarray(block, float), shape)
            for block, shape in zip(blocks, [(n, n), (n,), (m, n), (m,)], strict=True)
        )

    return numeric


def symbols_like(params: Mapping[str, Any]) -> dict[str, Any]:
    """A symbol for every number, a list of symbols for every array."""
    return {
        name: sp.Symbol(name)
        if np.ndim(value) == 0
        else [sp.Symbol(f"{name}_{k}") for k in range(len(value))]
        for name, value in params.items()
    }


def _listed(symbols: Any) -> list[sp.Symbol]:
    return [symbols] if isinstance(symbols, sp.Symbol) else list(symbols)


def _jacobian(F: Sequence[sp.Expr], x: Sequence[sp.Symbol]) -> sp.Matrix:
    F = list(F)
    return sp.Matrix(len(F), len(x), lambda i, j: sp.diff(F[i], x[j]))


def _rate(F: Sequence[sp.Expr], q: Sequence[sp.Symbol], v: sp.Matrix, t: sp.Symbol) -> sp.Matrix:
    """The time derivative of F(q, t) along the motion, with velocities inside F held fixed."""
    F = list(F)
    return _jacobian(F, q) * v + sp.Matrix(len(F), 1, [sp.diff(f, t) for f in F])
