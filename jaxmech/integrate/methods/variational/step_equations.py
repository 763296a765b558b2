"""The equations of one step of RATTLE.

A discrete Lagrangian Ld(q0, q1) is a quadrature of the Lagrangian over a step. With momenta
p = dL/dv, the mean velocity u of the step and A = dphi/dq, its stationary action gives

    p(q0, v0) + A(q0)^T l0 = -dLd/dq0,   phi(q0 + h u) = 0    for u and multipliers l0,
    p(q1, v1) = dLd/dq1 + A(q1)^T l1,    A(q1) v1 + dphi/dt = 0    for v1 and l1

(Marsden and West 2001, Discrete mechanics and variational integrators, 1.5 and 3.5; Leyendecker,
Marsden and Ortiz 2008). The map from (q0, v0) to (q1, v1) is symplectic, symmetric and of second
order, and keeps the momentum of every symmetry of Ld and phi.

With the trapezoidal rule and a separable Lagrangian this is RATTLE (Andersen 1983; Hairer, Lubich
and Wanner, Geometric Numerical Integration, VII.1.4), in which only the multipliers are implicit.
"""

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from jaxmech.linalg import matvec
from jaxmech.system import Params, System


class StepStart(eqx.Module):
    """The state at which a step starts, and its length."""

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    t: Float[Array, ""]  # [s]
    h: Float[Array, ""]  # [s]
    params: Params


class Momenta(NamedTuple):
    """Momenta of a step, without constraint forces."""

    start: Array  # required at the start of the step minus p(q0, v0), (n,)
    end: Array  # at its end, except for the part of p(q1, v1) without v1, (n,)


def momenta(system: System, start: StepStart, u: Array) -> Momenta:
    """The momenta for Ld = h (L(q0, u, t) + L(q1, u, t + h)) / 2, for separable Lagrangians."""
    params, half = start.params, start.h / 2
    first = system.equations(start.q, start.v, start.t, params)
    last = system.equations(start.q + start.h * u, u, start.t + start.h, params)
    # M is constant, so p(q0, v0) is M v0 and the sum needs no momentum of its own.
    balance = matvec(first.M, u - start.v) - half * first.Q
    return Momenta(balance, matvec(first.M, u) + half * last.Q)
